"""Which servers copy an object by themselves, and what becomes of a copy whose answer is lost."""

from __future__ import annotations

import pytest

from tests.servers.launch import Server
from tests.servers.proxy import Fault, Proxy
from timeline.stores import Listed
from timeline.stores.object import ObjectStore

pytestmark = pytest.mark.servers

DATA = bytes(range(256)) * 4096 * 9
PATH = "data/p=1/x.parquet"


def source_and_target(server: Server, folder: str) -> tuple[ObjectStore, Listed, ObjectStore]:
    source = server.store(f"{folder} drop")
    source.overwrite("day=mon/a b.parquet", DATA)
    return source, source.look("day=mon/a b.parquet"), server.store(folder)


def test_those_of_s3_do(server: Server, folder: str) -> None:
    """Azure is not asked. The gateway before fake-gcs-server takes the request for a PUT of no bytes: that is
    not believed.
    """
    source, seen, target = source_and_target(server, folder)
    assert target.copy_from(source, seen, PATH) == (server.scheme == "s3")
    assert [each.size for each in target.list_below("")] == [len(DATA)] * (server.scheme == "s3")
    if server.scheme == "s3":
        assert target.read(PATH).data == DATA


def test_a_copy_takes_three_requests_and_three_looks(s3: Server, proxy: Proxy, folder: str) -> None:
    source, seen, target = source_and_target(s3.at(proxy.endpoint), folder)
    proxy.count()
    assert target.copy_from(source, seen, PATH)
    assert proxy.count() == {"HEAD": 3, "POST": 2, "PUT": 1}


def test_a_copy_carries_nothing_along_but_the_bytes(s3: Server, folder: str) -> None:
    """As of what is written by this package: a rule of the bucket may expire what has a tag."""
    import obstore

    source, _, target = source_and_target(s3, folder)
    put = {"attributes": {"Content-Encoding": "x", "owner": "y"}, "tags": {"expire": "soon"}}
    obstore.put(source._client("other"), "tagged", DATA, **put, use_multipart=False)
    assert target.copy_from(source, source.look("tagged"), PATH)
    attributes = obstore.get(target._client("other"), PATH, options={"head": True}).attributes
    assert not {"Content-Encoding", "owner"} & set(attributes)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("step", ["uploads", "partNumber", "uploadId"])
def test_a_copy_that_was_spoiled_at_a_request_is_not_taken_for_made(
    s3: Server, proxy: Proxy, folder: str, fault: Fault, step: str
) -> None:
    source, seen, target = source_and_target(s3.at(proxy.endpoint, timeout="500ms"), folder)
    method = "PUT" if step == "partNumber" else "POST"
    proxy.fault = lambda request: fault if request.method == method and step in request.query else None
    assert not target.copy_from(source, seen, PATH)
