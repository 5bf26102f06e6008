"""Row deltas as readers that we did not write see them: after every kind of commit, and at every snapshot."""

from __future__ import annotations

import itertools
from datetime import timedelta
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from streaming_sink.tasks.files.delete_files import write_position_deletes, write_shared_deletes
from streaming_sink.tasks.job import ParquetSettings
from tests.readers import judges
from tests.unit.timeline import world
from tests.unit.timeline.world import BY_P, SCHEMA, Clock, data_file
from timeline import names
from timeline.changes.changes import Append, Change, ExpireSnapshots, Replace, SetProperties
from timeline.changes.delete_merges import MergeDeletes
from timeline.changes.row_deltas import RowDelta
from timeline.commit.log import Standing
from timeline.commit.publish import publish_version
from timeline.maintenance.orphans import remove_orphan_files
from timeline.manifests.entries import DeleteFile, position_deletes, shared_deletes
from timeline.manifests.manifest_format import DeleteManifestWriter
from timeline.stores import LocalStore
from timeline.table import Committed, Table

READERS = ("pyiceberg", "duckdb", "chdb", "polars")
DAY_MS = 24 * 3600 * 1000
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        pa.field("p", pa.int32(), metadata={"PARQUET:field_id": "2"}),
    ]
)


class Disk:
    """A table of real files on a local disk, and the rows that each of its snapshots should show."""

    def __init__(self, folder: Path) -> None:
        self.store = LocalStore(folder / "table")
        self.clock = Clock()
        self.table = Table.create(self.store, SCHEMA, BY_P, environment=self.clock.environment())
        self.rows: dict[str, list[int]] = {}
        self.positions: dict[str, set[int]] = {}
        self.shared: dict[str, dict[str, list[int]]] = {}
        self.expected: dict[int, list[tuple[int, int]]] = {}
        self._numbers = itertools.count()

    def file(self, rows: list[int], p: int = 0) -> DataFile:
        path = self._path(p, names.data_file_name)
        with self.store.open_output(path) as output:
            table = pa.table({"id": rows, "p": [p] * len(rows)}, schema=ARROW)
            pq.write_table(table, pa.PythonFile(output, mode="w"), row_group_size=100)
        location = self.store.uri(path)
        size = Path(self.store.location, path).stat().st_size
        file = data_file(location, len(rows), partition=Record(p), size=size)
        file._data[10] = file._data[11] = file._data[13] = None  # of other rows; a reader would prune by them
        self.rows[location] = rows
        return file

    def deletes(self, of: DataFile, positions: list[int]) -> DeleteFile:
        path = self._path(of.partition[0], names.delete_file_name)
        rows, size = write_position_deletes(
            self.store, path, of.file_path, pa.array(positions, pa.int64()), ParquetSettings()
        )
        location = self.store.uri(path)
        self.positions[location] = set(positions)
        return position_deletes(
            location, of.file_path, rows=rows, size=size, spec_id=of.spec_id, partition=of.partition
        )

    def share(self, positions: dict[str, list[int]], p: int = 0) -> DeleteFile:
        path = self._path(p, names.delete_file_name)
        arrays = {data_file: pa.array(these, pa.int64()) for data_file, these in positions.items()}
        rows_of, size = write_shared_deletes(self.store, path, arrays, ParquetSettings())
        location = self.store.uri(path)
        self.shared[location] = positions
        return shared_deletes(location, rows_of, size=size, spec_id=0, partition=Record(p))

    def gone(self, file: DataFile, deletes: tuple[DeleteFile, ...]) -> set[int]:
        own = (self.positions.get(each.file_path, ()) for each in deletes)
        shared = (self.shared.get(each.file_path, {}).get(file.file_path, ()) for each in deletes)
        return set[int]().union(*own, *shared)

    def fold(self, file: DataFile, *deletes: DeleteFile) -> Replace:
        gone = self.gone(file, deletes)
        rows = [row for at, row in enumerate(self.rows[file.file_path]) if at not in gone]
        applied = frozenset(each.file_path for each in deletes)
        return Replace(frozenset({file.file_path}), (self.file(rows, file.partition[0]),), applied, len(gone))

    def commit(self, *changes: Change, shows: dict[int, list[int]] | None = None) -> None:
        """Commit, and expect these ids in the partitions from now on; as before where nothing is said."""
        self.clock.now_ms += 60_000
        before = self.table.head.metadata.current_snapshot_id
        committed = self.table.commit(changes)
        assert isinstance(committed, Committed)
        assert committed.dropped == ()
        rows = self.expected.get(before or 0, [])
        if shows is not None:
            rows = [(row, p) for p, ids in shows.items() for row in ids]
        for snapshot_id in (committed.appended_snapshot_id, committed.replaced_snapshot_id):
            if snapshot_id is not None:
                self.expected[snapshot_id] = rows

    def check(self, reader: str, snapshot_id: int | None = None) -> None:
        rows = self.expected[snapshot_id or self.table.head.metadata.current_snapshot_id or 0]
        ids, ps = zip(*rows, strict=True)
        expected = pa.table({"id": ids, "p": ps}, schema=ARROW)
        judges.assert_reader_agrees(reader, self.store.location, expected, snapshot_id=snapshot_id)

    def _path(self, p: int, name: object) -> str:
        number = next(self._numbers)
        assert callable(name)
        return f"data/p={p}/{name(names.ulid(self.clock.now_ms + 1, number), 'app', number, 0, 0)}"


def up_to(*ranges: range, less: set[int] | None = None) -> list[int]:
    return [row for each in ranges for row in each if row not in (less or set())]


@pytest.mark.parametrize("reader", READERS)
def test_readers_agree_after_every_commit_and_at_every_snapshot(tmp_path: Path, reader: str) -> None:
    disk = Disk(tmp_path)
    a, b = disk.file(list(range(1000))), disk.file(list(range(5000, 5500)), p=1)
    disk.commit(Append((a, b)), shows={0: up_to(range(1000)), 1: up_to(range(5000, 5500))})
    disk.check(reader)

    first = disk.deletes(a, [0, 99, 100, 999])
    disk.commit(
        RowDelta((disk.file([1000, 1001]),), (first,)),
        shows={0: up_to(range(1002), less={0, 99, 100, 999}), 1: up_to(range(5000, 5500))},
    )
    disk.check(reader)

    second, other = disk.deletes(a, [500, 501]), disk.deletes(b, list(range(400)))
    left = up_to(range(1002), less={0, 99, 100, 999, 500, 501})
    disk.commit(
        RowDelta((), (second, other), frozenset({first.file_path})),
        shows={0: left, 1: up_to(range(5400, 5500))},
    )
    disk.check(reader)

    merged = disk.deletes(a, [0, 99, 100, 500, 501, 999])
    disk.commit(MergeDeletes(frozenset({first.file_path, second.file_path}), (merged,)))
    disk.check(reader)

    disk.commit(disk.fold(a, merged))  # the deletes of b stay
    disk.check(reader)

    new, third = disk.file([5500], p=1), disk.deletes(b, [400])
    disk.commit(
        RowDelta((new,), (third,), frozenset({other.file_path})),
        disk.fold(b, other, third),
        shows={0: left, 1: up_to(range(5401, 5501))},
    )
    disk.check(reader)
    assert list(disk.table.head.delete_files()) == []

    disk.commit(Append((disk.file([7000], p=2),)), shows={0: left, 1: up_to(range(5401, 5501)), 2: [7000]})
    disk.check(reader)
    for snapshot_id in disk.expected:
        disk.check(reader, snapshot_id)


@pytest.mark.parametrize("reader", READERS)
def test_readers_agree_where_data_files_share_delete_files(tmp_path: Path, reader: str) -> None:
    disk = Disk(tmp_path)
    a, b, c, d = (disk.file(list(range(start, start + 500))) for start in (0, 1000, 2000, 3000))
    elsewhere = disk.file([9000, 9001], p=1)
    every = [range(start, start + 500) for start in (0, 1000, 2000, 3000)]
    disk.commit(Append((a, b, c, d, elsewhere)), shows={0: up_to(*every), 1: [9000, 9001]})
    names_of = [each.file_path for each in (a, b, c, d)]

    first = disk.share(dict(zip(names_of[:3], ([0, 1], [100, 101, 499], [7]), strict=True)))
    less = {0, 1, 1100, 1101, 1499, 2007}
    new = disk.file([5000, 5001])
    disk.commit(
        RowDelta((new,), (first,)), shows={0: [*up_to(*every, less=less), 5000, 5001], 1: [9000, 9001]}
    )
    disk.check(reader)

    second = disk.share({names_of[1]: [102], names_of[3]: [0, 499], new.file_path: [1]})
    own = disk.deletes(c, [300])
    less |= {1102, 3000, 3499, 2300}
    left = [*up_to(*every, less=less), 5000]
    disk.commit(RowDelta((), (second, own), frozenset({first.file_path})), shows={0: left, 1: [9000, 9001]})
    disk.check(reader)

    disk.commit(disk.fold(a, first))  # the others still need it
    disk.check(reader)
    assert len(list(disk.table.head.delete_files())) == 3

    of_b = disk.deletes(b, [100, 101, 102, 499])
    others = disk.share({names_of[2]: [7], names_of[3]: [0, 499], new.file_path: [1]})
    merged = frozenset({first.file_path, second.file_path})
    disk.commit(MergeDeletes(merged, (of_b, others), frozenset({a.file_path}), 2))
    disk.check(reader)

    disk.commit(disk.fold(c, others, own), disk.fold(d, others), disk.fold(b, of_b))
    disk.commit(disk.fold(new, others))
    assert list(disk.table.head.delete_files()) == []
    disk.check(reader)
    for snapshot_id in disk.expected:
        disk.check(reader, snapshot_id)


@pytest.mark.parametrize("reader", READERS)
def test_readers_agree_after_expiry_and_the_removal_of_orphans(tmp_path: Path, reader: str) -> None:
    disk = Disk(tmp_path)
    a = disk.file(list(range(300)))
    disk.commit(Append((a,)), shows={0: up_to(range(300))})
    folded, never = disk.deletes(a, [7]), disk.deletes(a, [8])
    disk.commit(RowDelta((), (folded,)), shows={0: up_to(range(300), less={7})})
    fold = disk.fold(a, folded)
    disk.commit(fold)
    kept = disk.deletes(fold.added[0], [0, 298])
    disk.commit(RowDelta((), (kept,)), shows={0: up_to(range(299), less={7, 0})})
    for _ in range(110):
        disk.commit(SetProperties({"a": "b"}))
    disk.clock.now_ms += 4 * DAY_MS
    policy = {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "1"}
    disk.commit(ExpireSnapshots(policy))
    for _ in range(110):
        disk.commit(SetProperties({"a": "b"}))
    disk.clock.now_ms += 4 * DAY_MS
    disk.commit(SetProperties({"a": "b"}))
    disk.table.delete_expired()
    remove_orphan_files(disk.table, older_than=timedelta(days=3))
    left = {path.name for path in Path(disk.store.location).rglob("*-deletes.parquet")}
    assert left == {Path(kept.file_path).name}
    assert not Path(folded.file_path).exists()
    assert not Path(never.file_path).exists()
    assert len(disk.table.head.metadata.snapshots) == 1
    disk.check(reader)


def test_polars_own_reader_takes_several_delete_files_of_one_data_file(tmp_path: Path) -> None:
    """It refuses others, and then hands the table to pyiceberg, which plans slower."""
    disk = Disk(tmp_path)
    a = disk.file(list(range(300)))
    disk.commit(Append((a,)), shows={0: up_to(range(300))})
    first = disk.deletes(a, [7, 150])
    disk.commit(RowDelta((), (first,)))
    disk.commit(RowDelta((), (disk.deletes(a, [8]),), frozenset({first.file_path})))
    where = str(judges.metadata_file(disk.store.location))
    read = pl.scan_iceberg(where, reader_override="native").collect()
    assert sorted(read["id"].to_list()) == up_to(range(300), less={7, 8, 150})


def test_polars_own_reader_refuses_delete_files_of_several_data_files(tmp_path: Path) -> None:
    """It hands the table to pyiceberg, unless it is told not to."""
    disk = Disk(tmp_path)
    a, b = disk.file(list(range(300))), disk.file(list(range(300, 600)))
    disk.commit(Append((a, b)), shows={0: up_to(range(600))})
    disk.commit(RowDelta((), (disk.share({a.file_path: [7], b.file_path: [8]}),)))
    where = str(judges.metadata_file(disk.store.location))
    with pytest.raises(pl.exceptions.ComputeError, match="not limited to"):
        pl.scan_iceberg(where, reader_override="native").collect()
    read = pl.scan_iceberg(where).collect()
    assert sorted(read["id"].to_list()) == up_to(range(600), less={7, 308})


@pytest.mark.parametrize("reader", ["duckdb", "chdb", pytest.param("spark", marks=[pytest.mark.spark])])
def test_readers_take_deletes_by_value_of_others_from_a_manifest_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    """A commit rewrites manifests of others. pyiceberg and Polars read no deletes by value."""
    disk = Disk(tmp_path)
    file = disk.file(list(range(300)))
    disk.commit(Append((file,)), shows={0: up_to(range(300))})
    path = "data/p=0/by-value.parquet"
    with disk.store.open_output(path) as output:
        pq.write_table(
            pa.table({"id": [7, 8]}, pa.schema([ARROW.field("id")])), pa.PythonFile(output, mode="w")
        )
    stated = DataFile.from_args(
        _table_format_version=2,
        content=DataFileContent.EQUALITY_DELETES,
        file_path=disk.store.uri(path),
        file_format=FileFormat.PARQUET,
        partition=Record(0),
        record_count=2,
        file_size_in_bytes=Path(disk.store.location, path).stat().st_size,
        equality_ids=[1],
    )
    delete = DeleteFile(*stated._data, None)
    delete.spec_id = 0
    monkeypatch.setattr(world, "_DeleteManifestWriter", DeleteManifestWriter)
    deleted = world._with_deletes(disk.table, disk.table.head, delete)
    publish_version(disk.table.log, disk.table.head, lambda _: deleted, lambda *_: Standing.UNKNOWN)
    disk.table.refresh()
    assert "total-equality-deletes" in disk.table.head.snapshot.summary.additional_properties
    left = [(row, 0) for row in up_to(range(300), less={7, 8})]
    disk.expected[disk.table.head.metadata.current_snapshot_id] = left
    disk.check(reader)
