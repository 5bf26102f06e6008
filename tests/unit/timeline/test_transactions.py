"""Exactly once (R16): what a batch meets in the table, branch by branch, and what its user reads."""

from __future__ import annotations

import json
import pickle

import pytest

from tests.unit.timeline.world import Audit, Lake
from timeline import properties
from timeline.changes.changes import Append, SetProperties
from timeline.errors import CheckpointRegressionError, FencedError, TimelineError
from timeline.names import HINT_PATH
from timeline.stores import MemoryStore
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.transactions import Transaction, TransactionState, check_transaction


def txn(
    batch: int,
    *,
    query: str = "query-1",
    run: str = "run-1",
    epoch: int | None = None,
    app: str = "app",
    takeover: str | None = None,
) -> Transaction:
    return Transaction(app, query, run, batch, epoch, takeover)


def commit(lake: Lake, table: Table, transaction: Transaction) -> Committed | AlreadyCommitted:
    return table.commit([Append((lake.file(),))], transaction=transaction)


def landed(lake: Lake, table: Table, transaction: Transaction) -> Committed:
    outcome = commit(lake, table, transaction)
    assert isinstance(outcome, Committed)
    return outcome


def test_the_first_commit_of_a_run_gets_an_epoch_and_is_remembered_in_the_head() -> None:
    lake = Lake()
    assert landed(lake, lake.table, txn(0)).epoch == 1
    head = lake.open().head
    assert head.transaction("app") == TransactionState("query-1", "run-1", 1, 0, head.version.commit_id)
    stored = json.loads(head.properties["streaming-sink.txn.app"])
    assert set(stored) == {"query_id", "run_id", "epoch", "batch", "commit"}


def test_a_replay_is_skipped_and_writes_nothing() -> None:
    lake = Lake()
    landed(lake, lake.table, txn(0))
    before = lake.live_rows()
    restarted = lake.open(lake.store)
    lake.store.count()
    assert commit(lake, restarted, txn(0, run="run-2")) == AlreadyCommitted(2)
    assert lake.store.count()["PUT"] == 0
    assert lake.live_rows() == before


def test_a_run_whose_answer_was_lost_learns_its_epoch_and_is_fenced_by_a_newer_one() -> None:
    """Else it would pass for a new run with its next batch, and supersede the newer one."""
    lake = Lake()
    landed(lake, lake.open(), txn(0, run="run-1"))  # and run-1 was not told
    skipped = commit(lake, lake.table, txn(0, run="run-1"))
    assert skipped == AlreadyCommitted(2, epoch=1)
    landed(lake, lake.open(), txn(1, run="run-2"))
    with pytest.raises(FencedError):
        commit(lake, lake.table, txn(2, run="run-1", epoch=skipped.epoch))


def test_a_replay_that_only_the_real_head_knows_is_skipped_too() -> None:
    """The check runs again after a lost race, against the head that won."""
    lake = Lake()
    stale = lake.open()
    landed(lake, lake.table, txn(0))
    before = lake.live_rows()
    assert isinstance(commit(lake, stale, txn(0, run="run-2")), AlreadyCommitted)
    assert lake.live_rows() == before


def test_a_replay_claims_nothing() -> None:
    """Whoever only skips must not fence the run that committed."""
    lake = Lake()
    landed(lake, lake.table, txn(0))
    commit(lake, lake.open(), txn(0, run="run-2"))
    assert landed(lake, lake.open(), txn(1, epoch=1)).epoch == 1


def test_tidying_after_a_replay_completes_the_hint_that_a_crash_cut_off() -> None:
    lake = Lake()
    landed(lake, lake.table, txn(0))
    store = MemoryStore(lake.name)
    store.overwrite(HINT_PATH, b"1")
    restarted = lake.open()
    commit(lake, restarted, txn(0))
    restarted.tidy()
    assert store.read(HINT_PATH).data == b"2"


def test_a_restart_goes_on_and_does_not_fence_itself() -> None:
    lake = Lake()
    epoch = landed(lake, lake.table, txn(0)).epoch
    assert landed(lake, lake.table, txn(1, epoch=epoch)).epoch == 1
    restarted = lake.open()
    assert isinstance(commit(lake, restarted, txn(1, run="run-2")), AlreadyCommitted)
    epoch = landed(lake, restarted, txn(2, run="run-2")).epoch
    assert epoch == 2
    assert landed(lake, restarted, txn(3, run="run-2", epoch=epoch)).epoch == 2


@pytest.mark.parametrize("batch", [0, 5, 6, 7, 100])
def test_a_fresh_checkpoint_under_a_used_name_is_refused_whatever_its_number(batch: int) -> None:
    lake = Lake()
    landed(lake, lake.table, txn(6))
    before = lake.live_rows()
    with pytest.raises(CheckpointRegressionError) as caught:
        commit(lake, lake.open(), txn(batch, query="query-2", run="run-2"))
    message = str(caught.value)
    assert (
        "application 'app' has committed to this table as query query-1, and this is query query-2" in message
    )
    assert "Restart on the old checkpoint" in message
    assert "another app_id" in message
    assert "takeover_from='query-1'" in message
    assert lake.live_rows() == before


@pytest.mark.parametrize("batch", [0, 5, 6, 7, 100])
def test_takeover_from_lets_a_fresh_checkpoint_go_on_whatever_its_number(batch: int) -> None:
    lake = Lake()
    landed(lake, lake.table, txn(6))
    taken = lake.open()
    outcome = landed(lake, taken, txn(batch, query="query-2", run="run-2", takeover="query-1"))
    assert outcome.epoch == 2
    state = taken.head.transaction("app")
    assert state is not None
    assert (state.query_id, state.batch) == ("query-2", batch)


def test_takeover_from_another_query_than_the_tables_is_refused() -> None:
    lake = Lake()
    landed(lake, lake.table, txn(6))
    with pytest.raises(CheckpointRegressionError, match="takeover_from='query-1'"):
        commit(lake, lake.open(), txn(7, query="query-2", takeover="query-0"))


def test_takeover_from_stays_harmless_at_the_next_restart() -> None:
    lake = Lake()
    landed(lake, lake.table, txn(6))
    landed(lake, lake.open(), txn(0, query="query-2", run="run-2", takeover="query-1"))
    again = txn(0, query="query-2", run="run-3", takeover="query-1")
    assert isinstance(commit(lake, lake.open(), again), AlreadyCommitted)
    landed(lake, lake.open(), txn(1, query="query-2", run="run-3", takeover="query-1"))


def test_the_query_that_was_taken_over_is_stopped() -> None:
    lake = Lake()
    epoch = landed(lake, lake.table, txn(6)).epoch
    landed(lake, lake.open(), txn(0, query="query-2", run="run-2", takeover="query-1"))
    with pytest.raises(FencedError, match="run run-2 has epoch 2, this run run-1 had epoch 1"):
        commit(lake, lake.table, txn(7, epoch=epoch))


def test_a_lower_batch_of_the_same_query_is_refused() -> None:
    lake = Lake()
    landed(lake, lake.table, txn(6))
    with pytest.raises(CheckpointRegressionError) as caught:
        commit(lake, lake.open(), txn(5, run="run-2"))
    assert "has committed batch 6, and this is batch 5: the checkpoint is older than the table" in str(
        caught.value
    )
    assert "Restart on the checkpoint that wrote batch 6" in str(caught.value)


def test_a_newer_run_fences_the_older_one() -> None:
    lake = Lake()
    old = landed(lake, lake.table, txn(0)).epoch
    new = landed(lake, lake.open(), txn(1, run="run-2")).epoch
    assert (old, new) == (1, 2)
    before = lake.live_rows()
    with pytest.raises(FencedError) as caught:
        commit(lake, lake.table, txn(2, epoch=old))
    message = str(caught.value)
    assert "a newer run of application 'app' has taken over this table" in message
    assert "run run-2 has epoch 2, this run run-1 had epoch 1" in message
    assert "This run must stop" in message
    assert "distinct app_ids" in message
    assert lake.live_rows() == before


def test_a_zombie_of_equal_epoch_and_another_run_is_fenced() -> None:
    lake = Lake()
    landed(lake, lake.table, txn(0))
    with pytest.raises(FencedError):
        commit(lake, lake.open(), txn(1, run="run-9", epoch=1))


def test_fencing_is_checked_again_after_a_lost_race() -> None:
    lake = Lake()
    epoch = landed(lake, lake.table, txn(0)).epoch
    other = lake.open()
    lake.store.creates.append(lambda: landed(lake, other, txn(1, run="run-2")))
    with pytest.raises(FencedError):
        commit(lake, lake.table, txn(2, epoch=epoch))


UNKNOWN = TransactionState.from_property(
    '{"query_id":null,"run_id":"run-1","epoch":1,"batch":3,"commit":"01J"}'
)
"""What an earlier release wrote on Spark Connect, which did not tell it the query."""


@pytest.mark.parametrize("takeover", [None, "query-1"])
def test_an_equal_number_is_no_replay_where_the_table_does_not_know_which_query_committed(
    takeover: str | None,
) -> None:
    """A fresh checkpoint's rows were skipped in silence."""
    with pytest.raises(CheckpointRegressionError) as caught:
        check_transaction(UNKNOWN, txn(3, query="query-2", run="run-2", takeover=takeover))
    message = str(caught.value)
    assert "has committed batch 3 to this table as a query that is not known" in message
    assert "this is batch 3 of query query-2" in message
    assert "takeover_from='query-2', its own id" in message
    assert "another app_id" in message


def test_who_says_that_the_unknown_query_was_this_one_has_its_replay_skipped() -> None:
    assert check_transaction(UNKNOWN, txn(3, query="query-2", run="run-2", takeover="query-2")) is None


def test_a_checkpoint_that_is_ahead_of_an_unknown_querys_goes_on_and_one_behind_is_refused() -> None:
    assert check_transaction(UNKNOWN, txn(4, query="query-2", run="run-2")) == 2
    with pytest.raises(CheckpointRegressionError, match="older than the table"):
        check_transaction(UNKNOWN, txn(2, query="query-2", run="run-2", takeover="query-2"))


def test_two_applications_side_by_side_do_not_see_each_other() -> None:
    lake = Lake()
    a, b = lake.open(), lake.open()
    for batch in range(4):
        landed(lake, a, txn(batch, app="a", epoch=None if batch == 0 else 1))
        landed(lake, b, txn(batch, app="b", query="query-b", run="run-b", epoch=None if batch == 0 else 1))
    assert isinstance(commit(lake, a, txn(3, app="a")), AlreadyCommitted)
    assert len(lake.live()) == 8
    Audit(lake.store).check()


def test_the_state_survives_the_expiry_of_every_snapshot_that_made_it() -> None:
    lake = Lake(
        table_properties={properties.MAX_SNAPSHOTS: "1", properties.MIN_SNAPSHOTS_TO_KEEP: "1"},
    )
    epoch = landed(lake, lake.table, txn(0)).epoch
    for _ in range(120):
        lake.table.commit([Append((lake.file(),))])
    versions = [
        s.summary.additional_properties[properties.VERSION]
        for s in lake.table.head.metadata.snapshots
        if s.summary
    ]
    assert "2" not in versions
    assert isinstance(commit(lake, lake.open(), txn(0, run="run-2")), AlreadyCommitted)
    assert landed(lake, lake.table, txn(1, epoch=epoch)).epoch == 1


def test_properties_that_users_set_leave_the_state_alone() -> None:
    lake = Lake()
    landed(lake, lake.table, txn(0))
    lake.open().commit([SetProperties({"owner": "me"})])
    assert isinstance(commit(lake, lake.open(), txn(0)), AlreadyCommitted)
    with pytest.raises(ValueError, match="belongs to the commit protocol"):
        lake.table.commit([SetProperties(removals=frozenset({"streaming-sink.txn.app"}))])


def test_errors_and_values_pickle() -> None:
    for error in TimelineError.__subclasses__():
        assert str(pickle.loads(pickle.dumps(error("why")))) == "why"
    assert pickle.loads(pickle.dumps(txn(3))) == txn(3)


def test_a_state_reads_back_as_it_was_written() -> None:
    state = TransactionState(None, "run é", 3, 2**40, "01J")
    assert TransactionState.from_property(state.to_property()) == state


def test_a_run_that_lost_its_epoch_to_its_own_replay_may_ask_again() -> None:
    """A run whose commit was found by its number was told no epoch; its next commit claims one anew."""
    lake = Lake()
    landed(lake, lake.table, txn(0))
    assert isinstance(commit(lake, lake.table, txn(0)), AlreadyCommitted)
    assert landed(lake, lake.table, txn(1)).epoch == 2


def test_the_order_of_the_checks_is_query_then_number_then_run() -> None:
    state = TransactionState("query-1", "run-1", 4, 9, "c")
    with pytest.raises(CheckpointRegressionError, match="as query query-1"):
        check_transaction(state, txn(9, query="query-2"))
    assert check_transaction(state, txn(9, run="run-2", epoch=3)) is None
    with pytest.raises(CheckpointRegressionError, match="has committed batch 9"):
        check_transaction(state, txn(8, run="run-2", epoch=3))
    with pytest.raises(FencedError):
        check_transaction(state, txn(10, run="run-2", epoch=3))
    assert check_transaction(state, txn(10, run="run-2")) == 5
    assert check_transaction(state, txn(10, run="run-1", epoch=4)) == 4
    assert check_transaction(None, txn(0)) == 1
