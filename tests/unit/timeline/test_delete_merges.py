"""Merges of delete files: the same deleted rows in fewer files, and when they no longer fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Operation

from tests.unit.timeline.test_conflict_table import Case
from tests.unit.timeline.test_row_deltas import committed, delete_files, summary
from tests.unit.timeline.world import Audit, Lake
from timeline.changes.changes import Append, Change, RaiseFence, Replace, SetProperties
from timeline.changes.delete_merges import MergeDeletes
from timeline.changes.intent import Intent
from timeline.changes.row_deltas import RowDelta
from timeline.commit.attempts import Attempts
from timeline.commit.log import Standing
from timeline.commit.standing import judge_standing
from timeline.errors import CommitConflictError
from timeline.manifests.entries import DeleteFile
from timeline.table import Committed


def merged(lake: Lake, file: DataFile, *deletes: DeleteFile) -> MergeDeletes:
    positions = sorted(frozenset().union(*(lake.positions[each.file_path] for each in deletes)))
    return MergeDeletes(frozenset(each.file_path for each in deletes), (lake.deletes(file, *positions),))


class Merging(Case):
    """A case in which two row deltas have deleted a row each of file a, which mine is to merge."""

    deleted: list[DeleteFile]

    @classmethod
    def begin(cls) -> Merging:
        case = super().begin()
        assert isinstance(case, Merging)
        case.deleted = []
        for position in (1, 4):
            case.delete(position)
        case.mine.refresh()
        return case

    def delete(self, position: int) -> None:
        new = self.lake.deletes(self.files["a"], position)
        known = frozenset(each.file_path for each in self.deleted)
        self.lake.open().commit([RowDelta((), (new,), known)])
        self.deleted.append(new)

    def merge(self) -> MergeDeletes:
        return merged(self.lake, self.files["a"], *self.deleted[:2])

    def fold(self) -> Replace:
        return self.lake.folded(self.files["a"], *self.deleted)


THEIRS: dict[str, tuple[Callable[[Merging], object], str]] = {
    "append": (lambda case: case.lake.open().commit([Append((case.lake.file(p=0),))]), ""),
    "properties": (lambda case: case.lake.open().commit([SetProperties({"a": "b"})]), ""),
    "a row delta on my file": (lambda case: case.delete(7), ""),
    "shared deletes": (lambda case: case.lake.add_delete_file(0), ""),
    "cluster other files": (lambda case: case.lake.open().commit([case.replace("c", "d")]), ""),
    "fold my file": (
        lambda case: case.lake.open().commit([case.fold()]),
        "another commit has replaced the data file: ",
    ),
    "the same merge": (
        lambda case: case.lake.open().commit([case.merge()]),
        "another commit has replaced a delete file: ",
    ),
}


def test_a_merge_is_a_replace_of_delete_files_alone() -> None:
    case = Merging.begin()
    rows, files = case.lake.live_rows(), case.lake.live()
    merge = case.merge()
    committed(case.mine, Append((case.lake.file(0, p=3),)))
    committed(case.mine, merge)
    assert (case.lake.live_rows(), delete_files(case.lake)) == (rows, {merge.added[0].file_path})
    assert files <= case.lake.live()
    told = summary(case.lake)
    assert told["operation"] == Operation.REPLACE.value
    assert {
        key: told[key] for key in ("added-delete-files", "removed-delete-files", "total-delete-files")
    } == {
        "added-delete-files": "1",
        "removed-delete-files": "2",
        "total-delete-files": "1",
    }
    assert "added-data-files" not in told
    assert told["total-position-deletes"] == "2"
    Audit(case.lake.store).check()


@pytest.mark.parametrize("theirs", THEIRS)
def test_a_merge_rebases_unless_its_data_file_or_a_delete_file_has_left(theirs: str) -> None:
    case = Merging.begin()
    mine = case.merge()
    act, reason = THEIRS[theirs]
    act(case)
    before, new = case.lake.live_rows(), case.lake.file(p=9)
    done = case.mine.commit([Append((new,)), mine])
    assert isinstance(done, Committed)
    assert [each.reason.startswith(reason) for each in done.dropped] == ([True] if reason else [])
    assert case.lake.live_rows() == before + case.lake.rows_of(new)
    assert (mine.added[0].file_path in delete_files(case.lake)) is not bool(reason)
    Audit(case.lake.store).check()


def test_a_row_delta_over_a_merge_finds_its_rows_again() -> None:
    """The new delete file may hold other positions than those that its writer knew: none can tell."""
    case = Merging.begin()
    known = frozenset(each.file_path for each in case.deleted)
    delta = RowDelta((), (case.lake.deletes(case.files["a"], 7),), known)
    case.lake.open().commit([case.merge()])
    with pytest.raises(CommitConflictError) as refused:
        case.mine.commit([delta])
    assert refused.value.files == (case.files["a"].file_path,)


def test_a_fold_over_a_merge_is_dropped() -> None:
    case = Merging.begin()
    fold = case.fold()
    case.lake.open().commit([case.merge()])
    with pytest.raises(CommitConflictError, match="deletes that the replace has not applied"):
        case.mine.commit([fold])


@pytest.mark.parametrize("merge_first", [True, False])
def test_of_a_fold_and_a_merge_of_one_commit_the_first_stays(merge_first: bool) -> None:
    case = Merging.begin()
    changes: list[Change] = [case.merge(), case.fold()]
    if not merge_first:
        changes.reverse()
    before = case.lake.live_rows()
    done = case.mine.commit(changes)
    assert isinstance(done, Committed)
    assert [each.change for each in done.dropped] == changes[1:]
    assert case.lake.live_rows() == before
    Audit(case.lake.store).check()


def test_a_row_delta_and_a_merge_of_one_file_go_into_one_version() -> None:
    case = Merging.begin()
    known = frozenset(each.file_path for each in case.deleted)
    delta = RowDelta((), (case.lake.deletes(case.files["a"], 7),), known)
    merge = case.merge()
    committed(case.mine, delta, merge)
    assert delete_files(case.lake) == {delta.deletes[0].file_path, merge.added[0].file_path}
    assert case.lake.live_rows().total() == 40 - 3
    Audit(case.lake.store).check()


@pytest.mark.parametrize("positions", [(1,), (1, 4, 5)])
def test_a_merge_keeps_its_rows(positions: tuple[int, ...]) -> None:
    case = Merging.begin()
    case.delete(5)
    case.mine.refresh()
    first, second, _ = case.deleted
    mine = MergeDeletes(
        frozenset({first.file_path, second.file_path}), (case.lake.deletes(case.files["a"], *positions),)
    )
    if len(positions) == 1:
        committed(case.mine, mine)  # two files of another engine may delete the same row
    else:
        with pytest.raises(ValueError, match="must keep their rows: it has 3 in the place of 1 to 2"):
            case.mine.commit([mine])


def test_a_merge_of_none_or_of_another_partition_is_refused() -> None:
    case = Merging.begin()
    with pytest.raises(ValueError, match="merges none"):
        case.mine.commit([MergeDeletes(frozenset(), case.merge().added)])
    elsewhere = case.merge()
    elsewhere.added[0].partition[0] = 9
    with pytest.raises(ValueError, match="must be of the partition of its data file"):
        case.mine.commit([elsewhere])


def test_a_merged_file_below_the_fence_is_refused() -> None:
    case = Merging.begin()
    mine = case.merge()
    case.lake.open().commit([RaiseFence(mine.added[0].file_path.rpartition("/")[2][:26] + "Z")])
    with pytest.raises(CommitConflictError, match="garbage cutoff"):
        case.mine.commit([mine])


def test_an_old_merge_that_landed_is_not_taken_for_lost_while_the_replace_beside_it_was_dropped() -> None:
    """Its snapshot has expired, and the inputs of the replace are live: the merged file may be, too."""
    case = Merging.begin()
    other, mine = case.replace("c", "d"), case.merge()
    intent = Intent((mine, other), 0, str(case.mine.head.metadata.table_uuid))
    attempts = Attempts(intent, case.mine.log.manifest_files, case.lake.clock.environment(99))
    attempts.prepare(case.mine.head)
    candidate = attempts.build(case.mine.head, None)
    assert candidate is not None
    assert judge_standing(intent, case.mine.head, candidate) is Standing.UNKNOWN
