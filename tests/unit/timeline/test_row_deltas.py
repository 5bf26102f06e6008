"""Row deltas: new rows and position deletes in one snapshot, and the replaces that fold deletes away."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntryStatus
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record

from tests.unit.timeline.cleaning import BRIEF, MINUTE_MS, Shore
from tests.unit.timeline.world import DAY_MS, Audit, Lake, data_file, raw_entries
from timeline.changes.changes import Append, Change, Replace
from timeline.changes.row_deltas import RowDelta
from timeline.maintenance.orphans import remove_orphan_files
from timeline.manifests.contents import is_data
from timeline.manifests.entries import position_deletes
from timeline.manifests.manifest_policy import OPEN_ENTRIES
from timeline.table import Committed, Table


@pytest.fixture
def lake() -> Lake:
    return Lake()


def committed(table: Table, *changes: Change) -> Committed:
    done = table.commit(changes)
    assert isinstance(done, Committed)
    assert done.dropped == ()
    return done


def appended(lake: Lake, count: int = 1) -> list[DataFile]:
    files = [lake.file(p=0) for _ in range(count)]
    committed(lake.table, Append(tuple(files)))
    return files


def summary(lake: Lake) -> dict[str, str]:
    snapshot = lake.open().head.snapshot
    assert snapshot is not None
    assert snapshot.summary is not None
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}


def operations(lake: Lake) -> list[Operation]:
    return [s.summary.operation for s in lake.open().head.metadata.snapshots if s.summary]


def rows_at(lake: Lake, file: DataFile, *positions: int) -> Counter[int]:
    return Counter(lake.rows[file.file_path][position] for position in positions)


def delete_files(lake: Lake) -> set[str]:
    return {file.location for file in lake.open().head.delete_files()}


def test_new_rows_and_deletes_are_one_overwrite_with_icebergs_counts(lake: Lake) -> None:
    (old,) = appended(lake)
    new, deletes = lake.file(3), lake.deletes(old, 2, 5)
    done = committed(lake.table, RowDelta((new,), (deletes,)))
    assert operations(lake) == [Operation.APPEND, Operation.OVERWRITE]
    assert done.appended_snapshot_id == lake.open().head.metadata.current_snapshot_id
    counted = {key: value for key, value in summary(lake).items() if not key.startswith("streaming-sink.")}
    assert counted == {
        "operation": "overwrite",
        "added-data-files": "1",
        "added-records": "3",
        "added-files-size": "1500",
        "added-delete-files": "1",
        "added-position-delete-files": "1",
        "added-position-deletes": "2",
        "changed-partition-count": "1",
        "total-data-files": "2",
        "total-delete-files": "1",
        "total-records": "13",
        "total-files-size": "2500",
        "total-position-deletes": "2",
        "total-equality-deletes": "0",
    }
    assert lake.live_rows() == lake.rows_of(old, new) - rows_at(lake, old, 2, 5)
    Audit(lake.store).check()


def test_deletes_alone_are_a_delete_as_icebergs_own_row_delta_has_it(lake: Lake) -> None:
    (old,) = appended(lake)
    done = committed(lake.table, RowDelta((), (lake.deletes(old, 0),)))
    assert operations(lake) == [Operation.APPEND, Operation.DELETE]
    assert done.appended_snapshot_id == lake.open().head.metadata.current_snapshot_id
    Audit(lake.store).check()


def test_an_append_beside_a_row_delta_is_part_of_its_snapshot(lake: Lake) -> None:
    (old,) = appended(lake)
    new, more = lake.file(), lake.file(p=4)
    committed(lake.table, RowDelta((new,), (lake.deletes(old, 0),)), Append((more,)))
    assert operations(lake) == [Operation.APPEND, Operation.OVERWRITE]
    assert {new.file_path, more.file_path} <= lake.live()
    Audit(lake.store).check()


def test_a_second_row_delta_on_a_file_whose_deletes_its_writer_knew_adds_to_the_first(lake: Lake) -> None:
    (old,) = appended(lake)
    first, second = lake.deletes(old, 1, 2), lake.deletes(old, 7)
    committed(lake.table, RowDelta((), (first,)))
    committed(lake.table, RowDelta((), (second,), frozenset({first.file_path})))
    head = lake.open().head
    live = head.find_live(old.file_path)
    assert live is not None
    assert {each.location for each in head.deletes_of(live)} == {first.file_path, second.file_path}
    assert lake.live_rows().total() == 7


def test_a_fold_takes_the_deletes_of_its_file_away_and_leaves_those_of_others(lake: Lake) -> None:
    files = appended(lake, 3)
    deletes = [lake.deletes(file, 0, 9) for file in files]
    committed(lake.table, RowDelta((), tuple(deletes)))
    before = lake.live_rows()
    committed(lake.table, lake.folded(files[0], deletes[0]))
    assert delete_files(lake) == {each.file_path for each in deletes[1:]}
    assert lake.live_rows() == before
    told = summary(lake)
    removed = ("deleted-data-files", "deleted-records", "removed-delete-files", "removed-position-deletes")
    assert [told[key] for key in removed] == ["1", "10", "1", "2"]
    assert (told["added-records"], told["total-records"], told["total-position-deletes"]) == ("8", "28", "4")
    left = next(iter(lake.open().head.delete_files()))
    assert left.refers_to in {file.file_path for file in files[1:]}
    Audit(lake.store).check()


def test_the_last_fold_leaves_no_delete_manifest_to_the_next_snapshot(lake: Lake) -> None:
    (old,) = appended(lake)
    deletes = lake.deletes(old, 3)
    committed(lake.table, RowDelta((), (deletes,)))
    committed(lake.table, lake.folded(old, deletes))
    (only,) = [manifest for manifest in lake.open().head.manifests if not is_data(manifest)]
    (entry,) = raw_entries(lake.store, only)
    assert (entry.status, entry.data_file.file_path) == (ManifestEntryStatus.DELETED, deletes.file_path)
    appended(lake)
    assert [manifest for manifest in lake.open().head.manifests if not is_data(manifest)] == []
    assert summary(lake)["total-delete-files"] == "0"
    Audit(lake.store).check()


def test_a_fold_in_the_version_of_the_deletes_that_it_applies(lake: Lake) -> None:
    (old,) = appended(lake)
    first = lake.deletes(old, 1)
    committed(lake.table, RowDelta((), (first,)))
    new, second = lake.file(p=0), lake.deletes(old, 4, 5)
    expected = lake.live_rows() + lake.rows_of(new) - rows_at(lake, old, 4, 5)
    delta = RowDelta((new,), (second,), frozenset({first.file_path}))
    done = committed(lake.table, delta, lake.folded(old, first, second))
    assert operations(lake)[-2:] == [Operation.OVERWRITE, Operation.REPLACE]
    assert done.replaced_snapshot_id == lake.open().head.metadata.current_snapshot_id
    assert delete_files(lake) == set()
    assert lake.live_rows() == expected
    Audit(lake.store).check()


def test_a_fold_that_does_not_apply_the_deletes_of_its_own_version_is_dropped(lake: Lake) -> None:
    (old,) = appended(lake)
    deletes = lake.deletes(old, 1)
    whole = Replace(frozenset({old.file_path}), (lake.merged(old),))
    done = lake.table.commit([RowDelta((), (deletes,)), whole])
    assert isinstance(done, Committed)
    assert "has not applied" in done.dropped[0].reason
    assert lake.live_rows().total() == 9


@pytest.mark.parametrize(
    ("kept", "deleted_rows"),
    [((0, 1, 2, 3, 4, 5, 6, 7, 8, 9), 0), ((0, 1, 2), 2), ((0, 1, 2, 3, 4, 5, 6), 3)],
    ids=["rows that were deleted come back", "live rows are lost", "more is left out than was deleted"],
)
def test_a_fold_keeps_its_live_rows(lake: Lake, kept: tuple[int, ...], deleted_rows: int) -> None:
    (old,) = appended(lake)
    deletes = lake.deletes(old, 8, 9)
    committed(lake.table, RowDelta((), (deletes,)))
    rows = [lake.rows[old.file_path][position] for position in kept]
    applied = frozenset({deletes.file_path})
    fold = Replace(frozenset({old.file_path}), (lake.file(rows),), applied, deleted_rows)
    with pytest.raises(ValueError, match="a replace must keep its live rows"):
        lake.table.commit([fold])


def test_a_position_that_two_delete_files_name_is_left_out_once(lake: Lake) -> None:
    """Two writers of another engine may delete one row; each of their files is valid."""
    (old,) = appended(lake)
    first, second = lake.deletes(old, 1, 2), lake.deletes(old, 2, 3)
    committed(lake.table, RowDelta((), (first,)))
    committed(lake.table, RowDelta((), (second,), frozenset({first.file_path})))
    committed(lake.table, lake.folded(old, first, second))
    assert lake.live_rows().total() == 7


def test_deletes_by_value_are_not_folded(lake: Lake) -> None:
    (old,) = appended(lake)
    by_value = lake.add_delete_file(0, content=DataFileContent.EQUALITY_DELETES)
    fold = Replace(frozenset({old.file_path}), (lake.merged(old),), frozenset({by_value}))
    done = lake.open().commit([Append((lake.file(),)), fold])
    assert isinstance(done, Committed)
    assert "an input has deletes by value" in done.dropped[0].reason


def test_rows_that_a_fold_left_out_and_that_are_live_again_drop_it(lake: Lake) -> None:
    (old,) = appended(lake)
    deletes = lake.deletes(old, 8)  # never committed: as if its snapshot had been rolled back
    done = lake.table.commit([Append((lake.file(),)), lake.folded(old, deletes)])
    assert isinstance(done, Committed)
    assert "are live again" in done.dropped[0].reason


def test_bad_row_deltas_are_refused_before_any_request(lake: Lake) -> None:
    (old,) = appended(lake)
    new, deletes = lake.file(), lake.deletes(old, 1)
    plain = data_file("d", 1, partition=Record(0), content=DataFileContent.POSITION_DELETES)
    none = position_deletes("d", old.file_path, rows=0, size=1, spec_id=0, partition=Record(0))
    lake.store.count()
    for problem, changes in {
        "use Append": [RowDelta((new,), ())],
        "without rows": [RowDelta((new,), (none,))],
        "added twice": [RowDelta((), (deletes, deletes))],
        "two changes of one commit": [RowDelta((), (deletes,)), RowDelta((), (lake.deletes(old, 2),))],
    }.items():
        with pytest.raises(ValueError, match=problem):
            lake.table.commit(changes)
    with pytest.raises(TypeError, match="not a delete file"):
        lake.table.commit([RowDelta((), (plain,))])  # type: ignore[arg-type]
    assert not lake.store.count()


def test_deletes_that_no_reader_could_apply_are_refused(lake: Lake) -> None:
    (old,) = appended(lake)
    many = lake.deletes(old, *range(11))
    with pytest.raises(ValueError, match="11 rows are deleted of a file of 10"):
        lake.table.commit([RowDelta((), (many,))])
    elsewhere = position_deletes("d", old.file_path, rows=1, size=1, spec_id=0, partition=Record(3))
    with pytest.raises(ValueError, match="must be of the partition of its data file"):
        lake.table.commit([RowDelta((), (elsewhere,))])


def test_a_rebase_over_a_row_delta_needs_no_list(lake: Lake) -> None:
    """A version whose snapshot only adds manifests describes them, of whichever kind they are."""
    (old,) = appended(lake)
    other = lake.open(lake.store)
    committed(lake.table, RowDelta((lake.file(),), (lake.deletes(old, 1, 2, 3, 4),)))
    lake.store.count()
    assert [file.rows for file in other.refresh().delete_files()] == [4]
    assert lake.store.count() == {"LIST": 1, "GET": 2}


def test_a_row_delta_that_lost_a_race_applies_by_the_number_of_the_attempt_that_won(lake: Lake) -> None:
    (old,) = appended(lake)
    mine = lake.open(lake.store)
    appended(lake, 2)
    deletes = lake.deletes(old, 6)
    done = committed(mine, RowDelta((lake.file(),), (deletes,)))
    assert done.attempts == 2
    for head in (mine.head, lake.open().head):
        (live,) = head.delete_files()
        assert live.sequence_number == head.metadata.last_sequence_number
    assert lake.live_rows().total() == 39
    Audit(lake.store).check()


@pytest.mark.parametrize("adds_rows", [True, False], ids=["with new rows", "deletes alone"])
def test_many_row_deltas_keep_few_delete_manifests(adds_rows: bool) -> None:
    lake = Lake(table_properties={"commit.manifest.min-count-to-merge": "4"})
    old = lake.file(40, p=0)
    committed(lake.table, Append((old,)))
    known, added = list[str](), [old]
    for position in range(40):
        deletes, new = lake.deletes(old, position), [lake.file()] if adds_rows else []
        committed(lake.table, RowDelta(tuple(new), (deletes,), frozenset(known)))
        known.append(deletes.file_path)
        added += new
        of_deletes = [manifest for manifest in lake.table.head.manifests if not is_data(manifest)]
        assert len(of_deletes) <= 4
    assert delete_files(lake) == set(known)
    assert lake.live_rows() == lake.rows_of(*added[1:])
    Audit(lake.store).check()


def test_a_fold_rewrites_few_of_many_delete_files(lake: Lake) -> None:
    """Those of a partition are in one manifest, of a size that is written in ten milliseconds."""
    files = [lake.file(p=number % 3) for number in range(600)]
    committed(lake.table, Append(tuple(files)))
    deletes = [lake.deletes(file, 0) for file in files]
    committed(lake.table, RowDelta((), tuple(deletes)))
    committed(lake.table, lake.folded(files[0], deletes[0]))
    live = [
        manifest.added_files_count + manifest.existing_files_count
        for manifest in lake.open().head.manifests
        if not is_data(manifest)
    ]
    assert sum(live) == 599
    assert max(live) <= OPEN_ENTRIES
    Audit(lake.store).check()


def test_files_of_folded_deletes_go_with_the_snapshots_that_needed_them() -> None:
    """Only updates for two hundred versions: the history stays bounded, and no delete file is left."""
    shore = Shore({**BRIEF, "streaming-sink.history.max-snapshots": "20"})
    old = shore.file(p=0)
    shore.table.commit([Append((old,))])
    for _ in range(260):
        shore.clock.now_ms += MINUTE_MS
        deletes, new = shore.deletes(old, 0), shore.file(1, p=0)
        shore.objects.overwrite(shore.store.relative(deletes.file_path), b"x" * 10)
        rows = [*shore.rows[old.file_path][1:], *shore.rows[new.file_path]]
        whole = shore.file(rows, p=0)
        removed, applied = frozenset({old.file_path, new.file_path}), frozenset({deletes.file_path})
        committed(shore.table, RowDelta((new,), (deletes,)), Replace(removed, (whole,), applied, 1))
        old = whole
    assert shore.live() == {old.file_path}
    assert len(shore.open().head.metadata.snapshots) < 250
    assert len([path for path in shore.paths() if path.endswith("-deletes.parquet")]) < 250
    assert not shore.leftover()
    shore.check_nothing_is_missing()


def test_the_cleaner_keeps_delete_files_that_a_snapshot_needs_and_removes_others() -> None:
    shore = Shore()
    old = shore.file(p=0)
    shore.table.commit([Append((old,))])
    needed, lost = shore.deletes(old, 0), shore.deletes(old, 1)
    for each in (needed, lost):
        shore.objects.overwrite(shore.store.relative(each.file_path), b"x" * 10)
    shore.table.commit([RowDelta((), (needed,))])
    shore.clock.now_ms += 4 * DAY_MS
    shore.append()
    removed = remove_orphan_files(shore.open(), older_than=timedelta(days=3))
    assert [each.path for each in removed.files] == [shore.store.relative(lost.file_path)]
    shore.check_nothing_is_missing()
