"""Source files that grow, are replaced or vanish at each step of a work item: none lands but as announced."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planners.ingestion.buffering import BufferedFile
from streaming_sink.tasks.errors import SourceFailedError
from streaming_sink.tasks.ingest import parquet, reading
from streaming_sink.tasks.ingest.consolidation_task import Share, consolidate
from streaming_sink.tasks.ingest.profile_task import (
    ProfileJob,
    SourceProfile,
    SourceRejected,
    profile,
)
from streaming_sink.tasks.ingest.read_task import ReadJob, read_share
from streaming_sink.tasks.ingest.register_task import SourceToRegister, register
from streaming_sink.tasks.ingest.sources import Sources
from streaming_sink.tasks.results import WrittenFile
from tests.unit.streaming_sink.ingest.test_tasks import field, job
from timeline.stores import open_store

SOURCES = Sources(("/",))
SCHEMA = pa.schema([field("id", pa.int64(), 1)])
Change = Callable[[str], None]


def write(path: str, rows: int) -> None:
    pq.write_table(pa.table({"id": range(rows)}), path)


def grow(path: str) -> None:
    with open(path, "ab") as file:
        file.write(b"more")


def replace(path: str) -> None:
    write(f"{path}.new", 7)
    os.replace(f"{path}.new", path)


def rewrite(path: str) -> None:
    """As long as before, in the same inode: only its time tells."""
    data = Path(path).read_bytes()
    Path(path).write_bytes(bytes(reversed(data)))


CHANGES = pytest.mark.parametrize(
    ("change", "told"),
    [
        (grow, "it was replaced by other bytes"),
        (replace, "it was replaced by other bytes"),
        (rewrite, "it was replaced by other bytes"),
        (os.unlink, "it was deleted after it was announced"),
    ],
)


@pytest.fixture
def files(tmp_path: Path) -> list[BufferedFile]:
    """Two files, as they were announced."""
    paths = [str(tmp_path / f"{number}.parquet") for number in range(2)]
    for path in paths:
        write(path, 3)
    return SOURCES.find(paths, 0)[0]


@pytest.fixture(params=["at once", "piece by piece"])
def whole(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small files are read with one request, large ones are not."""
    if request.param != "at once":
        monkeypatch.setattr(reading, "WHOLE_BYTES", 0)
    return str(request.param)


def told_of(results: object) -> list[tuple[int, str]]:
    assert isinstance(results, list)
    return [(each.number, each.reason) for each in results if isinstance(each, SourceRejected)]


@CHANGES
def test_before_it_is_profiled(files: list[BufferedFile], whole: str, change: Change, told: str) -> None:
    change(files[1].path)
    found = profile(ProfileJob(SOURCES, tuple(enumerate(files)), SCHEMA, ()))
    ((number, reason),) = told_of(found)
    assert (number, told in reason) == (1, True)
    assert [each.number for each in found if isinstance(each, SourceProfile)] == [0]


@CHANGES
def test_between_its_profile_and_the_reading_of_its_rows(
    tmp_path: Path, files: list[BufferedFile], whole: str, change: Change, told: str
) -> None:
    change(files[1].path)
    share = Share(SOURCES, tuple(enumerate(files)), rows={0: 3, 1: 3})
    ((number, reason),) = told_of(consolidate(job(tmp_path, SCHEMA), share, 0))
    assert (number, told in reason) == (1, True)
    assert not list((tmp_path / "table").rglob("*.parquet"))


@CHANGES
def test_between_its_profile_and_the_reading_of_its_changes(
    files: list[BufferedFile], whole: str, change: Change, told: str
) -> None:
    change(files[1].path)
    shares = tuple((number, file, 3) for number, file in enumerate(files))
    with pytest.raises(SourceFailedError, match=f"1: {told}"):
        list(read_share(ReadJob(SOURCES, (shares,), SCHEMA, SCHEMA), 0))


@CHANGES
@pytest.mark.parametrize("stays", [False, True])
def test_between_its_profile_and_its_registration(
    tmp_path: Path, files: list[BufferedFile], whole: str, change: Change, told: str, stays: bool
) -> None:
    change(files[1].path)
    wanted = [SourceToRegister(number, file, (), 3, stays) for number, file in enumerate(files)]
    results: list[object] = [*register(job(tmp_path, SCHEMA), SOURCES, wanted, 0)]
    ((number, reason),) = told_of(results)
    assert (number, told in reason) == (1, True)
    assert len([each for each in results if isinstance(each, WrittenFile)]) == 1


@CHANGES
@pytest.mark.parametrize("stays", [False, True])
def test_while_its_rows_are_checked_for_registration(
    tmp_path: Path,
    files: list[BufferedFile],
    whole: str,
    change: Change,
    told: str,
    stays: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from streaming_sink.tasks.ingest import register_task

    plain = register_task.open_parquet

    def changed(data: pa.NativeFile) -> pq.ParquetFile:
        opened = plain(data)
        change(files[1].path)
        return opened

    monkeypatch.setattr(register_task, "open_parquet", changed)
    wanted = [SourceToRegister(1, files[1], (), 3, stays)]
    ((number, _),) = told_of([*register(job(tmp_path, SCHEMA), SOURCES, wanted, 0)])
    assert number == 1
    assert not list((tmp_path / "table").rglob("*.parquet"))


def test_while_a_large_file_is_read_it_is_told(
    tmp_path: Path, files: list[BufferedFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its footer and its pages were read one after another."""
    monkeypatch.setattr(reading, "WHOLE_BYTES", 0)
    plain = parquet.open_footer

    def changed(data: pa.NativeFile) -> pq.ParquetFile:
        opened = plain(data)
        os.utime(files[0].path, ns=(1, 1))
        return opened

    monkeypatch.setattr(parquet, "open_footer", changed)
    share = Share(SOURCES, ((0, files[0]),), rows={0: 3})
    ((number, reason),) = told_of(consolidate(job(tmp_path, SCHEMA), share, 0))
    assert (number, "it was replaced by other bytes" in reason) == (0, True)
    assert open_store(str(tmp_path)).read("0.parquet").data


def test_before_it_is_announced_it_is_missing(tmp_path: Path) -> None:
    assert SOURCES.find([str(tmp_path / "gone.parquet")], 0) == ([], [str(tmp_path / "gone.parquet")])
