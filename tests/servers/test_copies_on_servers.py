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
_COPIES = {"ministack": True, "azurite": False, "fake-gcs": False}
"""Azure is not asked. The gateway before fake-gcs-server takes a copy for a PUT of no bytes: it is not
believed. Of the others nothing is said.
"""


def source_and_target(server: Server, folder: str) -> tuple[ObjectStore, Listed, ObjectStore]:
    source = server.store(f"{folder} drop")
    source.overwrite("day=mon/a b.parquet", DATA)
    return source, source.look("day=mon/a b.parquet"), server.store(folder)


def test_what_a_server_says_that_it_has_copied_is_there_and_nothing_else_is(
    server: Server, folder: str
) -> None:
    source, seen, target = source_and_target(server, folder)
    made = target.copy_from(source, seen, PATH)
    assert made == _COPIES.get(server.name, made)
    assert [each.path for each in target.list_below("")] == [PATH] * made
    if made:
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
