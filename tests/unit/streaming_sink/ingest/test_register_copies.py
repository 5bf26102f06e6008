"""Files that the store copies when they are registered: the requests, and what is done where it does not."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

from planners.ingestion.buffering import BufferedFile
from streaming_sink.tasks.ingest.profile_task import SourceRejected
from streaming_sink.tasks.ingest.register_task import RegisterTask, SourceToRegister, register
from streaming_sink.tasks.ingest.sources import Sources, replayed_identity
from tests.unit.streaming_sink.ingest.test_register_task import job, made, rows
from tests.unit.timeline.stores.buckets import Buckets, Spoiled, buckets
from timeline.stores import _object_copies, open_store

TABLE, DROP = "s3://lake/table", "s3://lake/drop"


def parquet(x: float) -> bytes:
    """A file of three rows."""
    out = io.BytesIO()
    pq.write_table(rows(x=[x, x, None]), out)
    return out.getvalue()


DATA = parquet(0.5)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Buckets]:
    monkeypatch.setattr(_object_copies, "LEAST_BYTES", 1)
    with buckets() as cloud:
        for place in ("lake/drop", "other/drop"):
            cloud.put(f"{place}/a.parquet", DATA)
        cloud.second += 60
        yield cloud


def registered(
    cloud: Buckets, folder: Path, drop: str = DROP, options: dict[str, object] | None = None, attempt: int = 0
) -> Sequence[object]:
    """What becomes of the file of a folder; `cloud.requests` are those of the task."""
    sources = Sources((drop,), cloud.options if options is None else options)
    (file,), _ = sources.find([f"{drop}/a.parquet"], 0)
    cloud.requests.clear()
    cloud.received.clear()
    wanted = replace(job(folder), store=open_store(TABLE, cloud.options))
    return register(wanted, sources, [SourceToRegister(0, file, (), 3)], attempt)


def data_files(cloud: Buckets) -> dict[str, bytes]:
    return {f"s3://{name}": it.data for name, it in cloud.objects.items() if name.startswith("lake/table/")}


def test_a_file_of_the_tables_bucket_is_read_once_and_none_of_its_bytes_is_sent(
    cloud: Buckets, tmp_path: Path
) -> None:
    file = made(registered(cloud, tmp_path))
    assert data_files(cloud) == {file.path: DATA}
    assert (file.rows, file.bytes, file.nan_counts, file.null_counts[4]) == (3, len(DATA), {4: 0}, 1)
    assert [request for request in cloud.requests if request.startswith("GET")] == ["GET lake/drop/a.parquet"]
    assert not [body for body in cloud.received if DATA in body]


@pytest.mark.parametrize("drop", ["s3://other/drop", DROP])
def test_a_file_of_another_bucket_or_with_other_credentials_is_sent(
    cloud: Buckets, tmp_path: Path, drop: str
) -> None:
    options = {**cloud.options, **({"region": "eu-west-1"} if drop == DROP else {})}
    file = made(registered(cloud, tmp_path, drop, options))
    assert data_files(cloud) == {file.path: DATA}
    assert [body for body in cloud.received if DATA in body]
    assert not [request for request in cloud.requests if "?upload" in request]


@pytest.mark.parametrize("how", [*Spoiled])
@pytest.mark.parametrize("step", ["?uploads", "?uploadId"])
def test_a_copy_that_is_refused_or_not_answered_is_not_named_and_the_bytes_are_sent(
    cloud: Buckets, tmp_path: Path, how: Spoiled, step: str
) -> None:
    """Under another name: what was not answered may be carried out when the source has other bytes."""
    cloud.spoiled = lambda _, request: how if request.endswith(step) and "POST" in request else None
    file = made(registered(cloud, tmp_path))
    asked = next(request for request in cloud.requests if request.startswith("POST"))
    cloud.put("lake/drop/a.parquet", parquet(0.25))
    cloud.arrive()
    assert data_files(cloud)[file.path] == DATA
    sent = [body for body in cloud.received if DATA in body]
    named = asked == f"POST {file.path.removeprefix('s3://')}?uploads"
    assert (len(sent), named) == ((0, True) if how is Spoiled.TWICE else (1, False))


def test_each_attempt_of_a_task_has_a_name_of_its_own(cloud: Buckets, tmp_path: Path) -> None:
    files = [made(registered(cloud, tmp_path, attempt=attempt)).path for attempt in (0, 0, 1)]
    assert len(set(files)) == 3
    assert data_files(cloud) == dict.fromkeys(files, DATA)


@pytest.mark.parametrize("before", ["HEAD lake/drop", "PUT", "POST", "HEAD lake/table"])
@pytest.mark.parametrize("then", [None, parquet(0.25)])
def test_a_file_that_is_replaced_or_deleted_while_the_store_copies_it_is_rejected_and_leaves_nothing(
    cloud: Buckets, tmp_path: Path, before: str, then: bytes | None
) -> None:
    def spoil(request: str) -> None:
        if cloud.requests[0].startswith("GET") and request.startswith(before):
            cloud.objects.pop("lake/drop/a.parquet", None)
            if then is not None:
                cloud.put("lake/drop/a.parquet", then)

    cloud.spoiled = lambda _, request: spoil(request)
    (found,) = (each for each in registered(cloud, tmp_path) if isinstance(each, SourceRejected))
    assert found.reason == (
        "it was deleted after it was announced"
        if then is None
        else "it was replaced by other bytes after it was announced; announce it again"
    )
    assert data_files(cloud) == {}


def test_a_file_that_is_announced_once_more_is_known_by_its_bytes(cloud: Buckets, tmp_path: Path) -> None:
    sources = Sources((DROP,), cloud.options)
    (file,), _ = sources.find([f"{DROP}/a.parquet"], 0)
    again: BufferedFile = replace(file, identity=replayed_identity(file.identity, 7))
    wanted = replace(job(tmp_path), store=open_store(TABLE, cloud.options))
    cloud.received.clear()
    made(register(wanted, sources, [SourceToRegister(0, again, (), 3)], 0))
    assert not [body for body in cloud.received if DATA in body]


def test_a_file_that_is_read_piece_by_piece_is_copied_too(
    cloud: Buckets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming_sink.tasks.ingest.reading.WHOLE_BYTES", 0)
    file = made(registered(cloud, tmp_path))
    assert data_files(cloud) == {file.path: DATA}
    assert not [body for body in cloud.received if DATA in body]


@pytest.mark.parametrize("asked", [False, True])
def test_a_task_that_has_come_to_a_worker_knows_that_both_are_reached_alike(
    cloud: Buckets, tmp_path: Path, asked: bool
) -> None:
    """Also where the options are a function that is no module's own, which is pickled by its code."""
    given = cloud.options
    options = (lambda: given) if asked else given
    sources = Sources((DROP,), options)
    (file,), _ = sources.find([f"{DROP}/a.parquet"], 0)
    wanted = replace(job(tmp_path), store=open_store(TABLE, options))
    sent = cloudpickle.dumps(RegisterTask(wanted, sources, [SourceToRegister(0, file, (), 3)]))
    task = cloudpickle.loads(sent)
    cloud.received.clear()
    made(register(task._job, task._sources, task._files, 0))
    assert not [body for body in cloud.received if DATA in body]
