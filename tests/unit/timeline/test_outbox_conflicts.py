"""The outbox's rows of the conflict table: a commit that leaves files, and their delivery, over what they
commit first.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.timeline.test_conflict_table import THEIRS, UNFIT, Case
from tests.unit.timeline.world import Audit
from timeline.changes.changes import Append, RaiseFence
from timeline.changes.outbox_changes import Deliver, PutOutbox, RegisterMain, RetireMain
from timeline.errors import CommitConflictError, SchemaMismatchError
from timeline.table import Committed
from timeline.versions.outbox import Delivery

MAIN = "00000000-0000-0000-0000-00000000000a"
APP = "flights"


def put(case: Case, app_id: str = APP, delivered: int | None = None) -> PutOutbox:
    """Leave a file for a second table, which no check of this one looks for."""
    to_second = Delivery("memory://second", MAIN, 0, (case.lake.file(p=0),))
    return PutOutbox(app_id, (to_second,), delivered)


@pytest.mark.parametrize("theirs", THEIRS)
def test_an_entry_rebases_over_everything_since_it_is_of_another_table(theirs: str) -> None:
    case = Case.begin()
    mine = put(case)
    THEIRS[theirs](case)
    before = case.lake.live_rows()
    assert isinstance(case.mine.commit([mine]), Committed)
    entry = case.lake.open().head.outbox(APP)
    assert entry is not None
    assert entry.deliveries == mine.deliveries
    assert case.lake.live_rows() == before
    Audit(case.lake.store).check()


@pytest.mark.parametrize("theirs", sorted(UNFIT))
def test_an_entry_whose_append_no_longer_fits_is_not_put(theirs: str) -> None:
    case = Case.begin()
    changes = [Append((case.lake.file(p=0),)), put(case)]
    THEIRS[theirs](case)
    with pytest.raises(SchemaMismatchError):
        case.mine.commit(changes)
    assert case.lake.open().head.outbox(APP) is None


def test_an_entry_over_another_of_its_application_is_refused_and_over_another_s_fits() -> None:
    case = Case.begin()
    case.lake.open().commit([put(case, "other")])
    case.mine.commit([put(case)])
    assert case.lake.open().head.outbox("other") is not None
    late = Case(case.lake, case.lake.open(case.lake.store), case.files)
    known = late.mine.head.outbox(APP)
    assert known is not None
    case.lake.open().commit([put(case, delivered=known.sequence)])  # theirs knows that mine is delivered
    with pytest.raises(CommitConflictError, match="would forget them"):
        late.mine.commit([put(case, delivered=known.sequence)])


def test_an_entry_whose_files_are_behind_a_fence_that_rose_since_is_refused() -> None:
    case = Case.begin()
    mine = put(case)
    case.lake.open().commit([RaiseFence(mine.fenced_files[0].file_path.rpartition("/")[2][:26] + "Z")])
    with pytest.raises(CommitConflictError, match="garbage cutoff"):
        case.mine.commit([mine])


def test_an_entry_is_committed_though_a_replace_beside_it_no_longer_fits() -> None:
    case = Case.begin()
    group = case.replace("a", "b")
    THEIRS["cluster my input"](case)
    with pytest.raises(CommitConflictError, match="nothing of this commit is live"):
        case.mine.commit([group, PutOutbox(APP, ())])
    assert isinstance(case.mine.commit([group, put(case)]), Committed)
    assert case.lake.open().head.outbox(APP) is not None


def registered() -> Case:
    case = Case.begin()
    case.lake.open().commit([RegisterMain(MAIN, "memory://main")])
    return replace(case, mine=case.lake.open(case.lake.store))


@pytest.mark.parametrize("theirs", THEIRS)
def test_a_delivery_rebases_as_an_append_does(theirs: str) -> None:
    case = registered()
    new = case.lake.file(p=0)
    THEIRS[theirs](case)
    before = case.lake.live_rows()
    if theirs in UNFIT:
        with pytest.raises(SchemaMismatchError):
            case.mine.commit([Deliver((new,), MAIN)])
        assert case.lake.live_rows() == before
    else:
        case.mine.commit([Deliver((new,), MAIN)])
        assert case.lake.live_rows() == before + case.lake.rows_of(new)
    Audit(case.lake.store).check()


def test_a_delivery_passes_a_fence_that_rose_since() -> None:
    case = registered()
    new = case.lake.file(p=0)
    case.lake.open().commit([RaiseFence(new.file_path.rpartition("/")[2][:26] + "Z")])
    assert isinstance(case.mine.commit([Deliver((new,), MAIN)]), Committed)


def test_a_delivery_over_the_retirement_of_its_main_table_is_refused() -> None:
    case = registered()
    new = case.lake.file(p=0)
    case.lake.open().commit([RetireMain(MAIN)])
    with pytest.raises(CommitConflictError, match="is not registered"):
        case.mine.commit([Deliver((new,), MAIN)])


def test_two_registrations_at_once_are_both_kept() -> None:
    case = Case.begin()
    case.lake.open().commit([RegisterMain(MAIN, "memory://main")])
    case.mine.commit([RegisterMain("other", "memory://other")])
    case.mine.commit([RegisterMain(MAIN, "memory://moved")])
    stated = case.lake.open().head.properties["streaming-sink.outboxes"]
    assert stated == f'{{"{MAIN}":"memory://moved","other":"memory://other"}}'
