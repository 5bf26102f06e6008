"""Which files a zone takes: one entry however a file is called, none from outside, and none of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink import ingest
from streaming_sink.tasks.ingest.reading import SourceFileError, check_unchanged, open_bytes
from streaming_sink.tasks.ingest.sources import Sources, overlap, spell_path
from streaming_sink.zones.planning.flux import Flux
from tests.sinks import flat_zone
from timeline.stores import Listed, MemoryStore


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "drop" / "a b%.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"id": [1]}), path)
    return path


def zone_at(folder: Path, **given: object) -> ingest.BufferZone:
    return flat_zone(str(folder / "zone"), table=str(folder / "table"), **given)  # type: ignore[arg-type]


def waiting(zone: ingest.BufferZone) -> int:
    flux = Flux(zone)
    flux.catch_up()
    return sum(files for files, _, _ in flux.buffer.waiting.values())


def test_a_file_is_one_entry_however_it_is_called(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = zone_at(tmp_path)
    (tmp_path / "link").symlink_to(file.parent)
    (tmp_path / "other.parquet").symlink_to(file)
    monkeypatch.chdir(tmp_path)
    zone.push(str(file), f"/{file}", file.as_uri(), f"file:{file.parent}/a%20b%25.parquet")
    zone.push(
        "drop/a b%.parquet", "link/a b%.parquet", "other.parquet", f"{tmp_path}/drop/../drop//a b%.parquet"
    )
    zone.push("drop/", f"{tmp_path}/link//", f"file://{tmp_path}/drop/")
    assert waiting(zone) == 1


def test_a_name_in_an_object_store_has_one_spelling() -> None:
    assert spell_path("s3://b//drop///a%20b.parquet") == "s3://b/drop/a%20b.parquet"
    assert spell_path("s3://b/drop//") == "s3://b/drop/"


@pytest.mark.parametrize(
    ("one", "other", "do"),
    [
        ("s3a://lake/table/data", "s3://lake/table", True),
        ("gs://lake", "gcs://lake/table/", True),
        ("abfss://lake@account/table", "abfs://lake@account/table", True),
        ("s3a://lake/table", "s3://lake/tables", False),
        ("s3://lake/table", "gs://lake/table", False),
        ("/lake", "/lake/table", True),
        ("/", "/lake", True),
    ],
)
def test_places_overlap_by_whichever_scheme_each_is_called(one: str, other: str, do: bool) -> None:
    """Else the table's own files would land again, or a cleaner would look at the zone's."""
    assert overlap(one, other) == do
    assert overlap(other, one) == do


def test_a_symbolic_link_leads_to_no_file_outside_of_the_sources(tmp_path: Path, file: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    pq.write_table(pa.table({"id": [7]}), secret / "s.parquet")
    (file.parent / "s.parquet").symlink_to(secret / "s.parquet")
    (file.parent / "folder").symlink_to(secret)
    zone = zone_at(tmp_path, sources=[str(file.parent)])
    for path in (f"{file.parent}/s.parquet", f"{file.parent}/folder/s.parquet", f"{file.parent}/folder/"):
        with pytest.raises(ValueError, match="the buffer zone takes files from"):
            zone.push(path)
    assert zone.push(f"{file.parent}/").files == 1


def test_a_file_that_became_a_link_is_not_read(tmp_path: Path, file: Path) -> None:
    sources = Sources((str(file.parent),))
    (found,), _ = sources.find([str(file)], 0)
    os.rename(file, tmp_path / "away.parquet")
    file.symlink_to(tmp_path / "away.parquet")  # the same inode, size and time
    with pytest.raises(SourceFileError, match="a symbolic link out of the zone's sources"):
        open_bytes(sources, found)


def test_the_files_of_the_table_and_of_the_zone_are_refused(tmp_path: Path) -> None:
    zone = zone_at(tmp_path)
    for folder in (f"{tmp_path}/table/data/", f"{tmp_path}/zone/staged/", f"{tmp_path}/"):
        with pytest.raises(ValueError, match="source files lie outside of the table and the zone"):
            zone.push(folder)
        with pytest.raises(ValueError, match="source files lie outside of the table and the zone"):
            zone.watch(folder)


def test_a_folder_without_files_is_named(tmp_path: Path) -> None:
    assert zone_at(tmp_path).push(f"{tmp_path}/nothing/").missing == (f"{tmp_path}/nothing/",)
    assert zone_at(tmp_path).push(f"{tmp_path}/nothing").missing == (f"{tmp_path}/nothing",)


def test_a_source_is_pushed_however_it_is_spelled(tmp_path: Path, file: Path) -> None:
    """What is beside it is no source, so that it is not looked for there as a file."""
    os.symlink(file.parent, tmp_path / "link")
    for name in (str(file.parent), f"{file.parent}/", file.parent, tmp_path / "link"):
        assert zone_at(tmp_path, sources=[str(file.parent)]).push(name).files == 1
    with pytest.raises(ValueError, match="takes files from"):
        zone_at(tmp_path, sources=[str(file.parent)]).push(tmp_path / "beside")
    assert Sources(("s3://",)).is_folder("s3://bucket")
    assert not Sources(("s3://",)).is_folder("s3://bucket/a")
    assert Sources(("s3://bucket/a",)).is_folder("s3://bucket/a")
    assert not Sources(("s3://bucket/a",)).is_folder("s3://bucket/a.parquet")


def test_what_is_neither_a_file_nor_a_folder_is_missing(tmp_path: Path, file: Path) -> None:
    os.mkfifo(tmp_path / "pipe.parquet")
    for name in (f"{file}/x.parquet", f"{tmp_path}/pipe.parquet"):
        pushed = zone_at(tmp_path).push(str(file), name)
        assert (pushed.files, pushed.missing) == (1, (name,))


def test_an_empty_name_is_not_the_folder_of_the_process(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a shell's variable that is not set: all files below the folder would land."""
    monkeypatch.chdir(file.parent)
    zone = zone_at(tmp_path)
    for use in (zone.push, zone.watch):
        with pytest.raises(ValueError, match="a file or a folder has a name"):
            use("")
    assert zone.log.last() == 0
    assert zone.watched() == []
    assert zone.push(".").files == 1


def test_a_path_is_a_file_or_a_folder_whatever_the_folder_is_called(tmp_path: Path, file: Path) -> None:
    """As Spark names the folders that it writes: part files in a folder "x.parquet"."""
    folder = tmp_path / "out.parquet"
    folder.mkdir()
    for name in ("part-0.parquet", "part-1.parquet", "_SUCCESS"):
        (folder / name).write_bytes(file.read_bytes())
    pushed = zone_at(tmp_path).push(file, folder, tmp_path / "none.parquet")
    assert (pushed.files, pushed.missing) == (3, (f"{tmp_path}/none.parquet",))
    zone = zone_at(tmp_path)
    zone.watch(folder)
    assert zone.watched() == [(str(folder), "*")]


def test_a_file_in_a_folder_that_fills_keeps_its_identity(tmp_path: Path, file: Path) -> None:
    """A listing tells no identity once its folder has changed."""
    pq.write_table(pa.table({"id": [2]}), file.parent / "b.parquet")
    os.utime(file.parent, (1, 1))
    sources = Sources(("/",))
    below = sources.below(str(file.parent), "*", 0)
    found = [next(below)]
    (file.parent / "c.parquet").touch()
    found += below
    assert len(found) == 2
    for each in found:
        assert open_bytes(sources, each)


def test_the_number_of_a_device_is_no_part_of_an_identity(tmp_path: Path, file: Path) -> None:
    (found,), _ = Sources(("/",)).find([str(file)], 0)
    status = file.stat()
    assert found.identity == f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"


class Counting(MemoryStore):
    """Counts the listings of a store in memory, which stands for an object store."""

    listings = 0

    def list_folder(self, folder: str) -> list[Listed]:
        self.listings += 1
        return super().list_folder(folder)


def test_a_few_files_of_a_full_folder_are_looked_up_without_listing_it() -> None:
    store = Counting("few-of-many")
    for number in range(50):
        store.create(f"{number}.parquet", bytes(number))
    sources = Sources((store.location,), _stores={store.location: store})
    paths = [f"{store.location}/{number}.parquet" for number in range(60)]
    few, absent = sources.find([paths[1], paths[55]], 0)
    assert ([each.bytes for each in few], absent, store.listings) == ([1], [paths[55]], 0)
    many, absent = sources.find(paths, 0)
    assert (len(many), len(absent), store.listings) == (50, 10, 1)
    assert few[0] in many
    check_unchanged(sources, few[0])
    store.overwrite("1.parquet", b"other")
    with pytest.raises(SourceFileError, match="replaced by other bytes"):
        check_unchanged(sources, few[0])
    assert store.listings == 1


def test_hidden_files_of_a_folder_are_named_and_columns_in_its_path_are_not_hidden(tmp_path: Path) -> None:
    names = (
        "a.parquet", "_b.parquet", ".c.parquet", "_date=2026-01-01/d.parquet", "_dir/e.parquet",
        ".hid/f.parquet", "sub/_g.parquet", "x.txt", "_SUCCESS", ".a.parquet.crc",
    )  # fmt: skip
    for name in names:
        path = tmp_path / "drop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    (tmp_path / "drop" / "link.parquet").symlink_to(tmp_path / "drop" / "a.parquet")
    zone = zone_at(tmp_path)
    pushed = zone.push(f"{tmp_path}/drop/")
    assert pushed.files == 2
    left_out = {path.removeprefix(f"{tmp_path}/drop/") for path in pushed.left_out}
    assert left_out == {
        "_b.parquet", ".c.parquet", "_dir/e.parquet", ".hid/f.parquet", "sub/_g.parquet", "x.txt",
        "link.parquet",
    }  # fmt: skip
    assert zone.push(f"{tmp_path}/drop/_b.parquet").files == 1
