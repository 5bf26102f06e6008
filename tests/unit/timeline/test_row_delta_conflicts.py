"""The conflict table's row of row deltas, and replaces over deletes that they have applied."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.timeline.test_conflict_table import SMALL, THEIRS, UNFIT, Case
from tests.unit.timeline.world import Audit
from timeline.changes.changes import Append, RaiseFence, Replace
from timeline.changes.intent import Intent
from timeline.changes.row_deltas import RowDelta
from timeline.commit.attempts import Attempts
from timeline.commit.log import Standing
from timeline.commit.standing import judge_standing
from timeline.errors import CommitConflictError, SchemaMismatchError
from timeline.manifests.entries import DeleteFile
from timeline.table import Committed

MOVES_A = {"fill my input", "cluster my input"}
DELETES_OF_A = {"deletes on my input", "a row delta on my input"}


def mine_on(case: Case, *names: str) -> RowDelta:
    """New rows, and one row deleted of each of these files."""
    return RowDelta((case.lake.file(p=1),), tuple(case.lake.deletes(case.files[name], 3) for name in names))


@pytest.mark.parametrize("theirs", THEIRS)
def test_a_row_delta_rebases_unless_its_rows_moved_or_others_deleted_there(theirs: str) -> None:
    case = Case.begin()
    mine = mine_on(case, "a")
    THEIRS[theirs](case)
    before = case.lake.live_rows()
    if theirs in UNFIT:
        with pytest.raises(SchemaMismatchError):
            case.mine.commit([mine], open_below_bytes=SMALL)
    elif theirs in MOVES_A | DELETES_OF_A:
        problem = "its rows have moved" if theirs in MOVES_A else "has deleted from a file"
        with pytest.raises(CommitConflictError, match=problem) as refused:
            case.mine.commit([mine], open_below_bytes=SMALL)
        assert refused.value.files == (case.files["a"].file_path,)
    else:
        assert isinstance(case.mine.commit([mine], open_below_bytes=SMALL), Committed)
        deleted = case.lake.rows[case.files["a"].file_path][3]
        assert case.lake.live_rows() == before + case.lake.rows_of(*mine.added) - Counter([deleted])
        before = case.lake.live_rows()
    assert case.lake.live_rows() == before
    Audit(case.lake.store).check()


@pytest.mark.parametrize("theirs", sorted(MOVES_A | DELETES_OF_A))
def test_the_whole_commit_of_a_refused_row_delta_is_refused(theirs: str) -> None:
    """Its new rows without its deletes would double what they replace."""
    case = Case.begin()
    mine, other, group = mine_on(case, "a"), case.lake.file(), case.replace("c")
    THEIRS[theirs](case)
    before, version = case.lake.live(), case.lake.open().head.number
    with pytest.raises(CommitConflictError):
        case.mine.commit([Append((other,)), mine, group])
    assert case.lake.live() == before
    assert case.lake.open().head.number == version


def test_a_conflict_names_every_file_whose_rows_must_be_found_again() -> None:
    case = Case.begin()
    mine = mine_on(case, "a", "b", "c", "d")
    THEIRS["cluster my input"](case)
    with pytest.raises(CommitConflictError) as refused:
        case.mine.commit([mine])
    assert refused.value.files == tuple(sorted(case.files[name].file_path for name in ("a", "b")))


def test_their_deletes_that_mine_is_shown_to_be_apart_from_are_no_conflict() -> None:
    """The caller reads their delete file, finds other positions in it, and says that it knows them."""
    case = Case.begin()
    theirs, mine = case.lake.deletes(case.files["a"], 0), mine_on(case, "a")
    case.lake.open().commit([RowDelta((), (theirs,))])
    with pytest.raises(CommitConflictError, match="maybe the same rows"):
        case.mine.commit([mine])
    case.mine.refresh()
    again = RowDelta(mine.added, mine.deletes, frozenset({theirs.file_path}))
    assert isinstance(case.mine.commit([again]), Committed)
    assert case.lake.live_rows().total() == 40 - 2 + 10


def test_deletes_that_mine_knew_and_that_are_undone_are_a_conflict() -> None:
    """A row that mine took for deleted is live again; what mine adds in its place would double it."""
    case = Case.begin()
    never = case.lake.deletes(case.files["a"], 0)
    mine = RowDelta((), (case.lake.deletes(case.files["a"], 1),), frozenset({never.file_path}))
    with pytest.raises(CommitConflictError, match="are live again") as refused:
        case.mine.commit([mine])
    assert refused.value.files == (case.files["a"].file_path,)


def _fold(case: Case, *deletes: DeleteFile) -> Replace:
    return case.lake.folded(case.files["a"], *deletes)


def test_a_replace_that_has_applied_all_deletes_of_its_input_lands() -> None:
    case = Case.begin()
    first = case.lake.deletes(case.files["a"], 0)
    case.lake.open().commit([RowDelta((), (first,))])
    before = case.lake.live_rows()
    case.mine.refresh()
    committed = case.mine.commit([_fold(case, first)])
    assert isinstance(committed, Committed)
    assert case.lake.live_rows() == before
    Audit(case.lake.store).check()


def test_a_replace_that_has_applied_some_deletes_of_its_input_is_dropped() -> None:
    """Rows that the second delta deleted would come back."""
    case = Case.begin()
    first, second = (case.lake.deletes(case.files["a"], position) for position in (0, 1))
    case.lake.open().commit([RowDelta((), (first,))])
    fold = _fold(case, first)
    case.lake.open().commit([RowDelta((), (second,), frozenset({first.file_path}))])
    before = case.lake.live_rows()
    committed = case.mine.commit([Append((case.lake.file(p=9),)), fold])
    assert isinstance(committed, Committed)
    assert [each.change for each in committed.dropped] == [fold]
    assert case.lake.live_rows().total() == before.total() + 10


def test_a_delete_file_below_the_fence_is_refused() -> None:
    case = Case.begin()
    mine = RowDelta((), (case.lake.deletes(case.files["a"], 0),))
    case.lake.open().commit([RaiseFence(mine.deletes[0].file_path.rpartition("/")[2][:26] + "Z")])
    with pytest.raises(CommitConflictError, match="garbage cutoff"):
        case.mine.commit([mine])


def test_an_old_commit_of_deletes_alone_is_not_taken_for_lost_while_its_fold_was_dropped() -> None:
    """Its snapshot has expired, and the inputs of its replace are live: the deletes may be in the table."""
    case = Case.begin()
    other, mine = case.replace("c", "d"), mine_on(case, "a").deletes
    intent = Intent((RowDelta((), mine), other), 0, str(case.mine.head.metadata.table_uuid))
    attempts = Attempts(intent, case.mine.log.manifest_files, case.lake.clock.environment(9))
    attempts.prepare(case.mine.head)
    candidate = attempts.build(case.mine.head, None)
    assert candidate is not None
    assert judge_standing(intent, case.mine.head, candidate) is Standing.UNKNOWN
