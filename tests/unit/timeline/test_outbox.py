"""The outbox: what a commit leaves to deliver arrives in the second table exactly once (R24)."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.timeline.outboxes import APP, Pair
from tests.unit.timeline.world import Audit
from timeline.changes.outbox_changes import PutOutbox
from timeline.errors import CommitConflictError, TableNotFoundError
from timeline.outbox import Outcome, deliver, deliver_all, delivery_app, find_delivered, register_main
from timeline.table import AlreadyCommitted, Committed


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_what_a_commit_leaves_is_delivered_and_a_second_delivery_does_nothing(pair: Pair) -> None:
    writer, bad = pair.writer(), pair.bad_file()
    writer.commit(0, bad)
    assert not pair.second_rows()
    assert [each.outcome for each in writer.deliver()] == [Outcome.DELIVERED]
    assert pair.second_rows() == pair.second.rows_of(bad)
    versions = pair.second.open().head.number
    assert [each.outcome for each in writer.deliver()] == [Outcome.DELIVERED_BEFORE]
    assert pair.second.open().head.number == versions
    Audit(pair.main.store).check()
    Audit(pair.second.store).check()


def test_the_entry_at_the_head_names_the_files_as_they_were_given(pair: Pair) -> None:
    writer, bad = pair.writer(), pair.bad_file()
    writer.commit(0, bad)
    entry = pair.main.open().head.outbox(APP)
    assert entry is not None
    assert entry.deliveries == (pair.delivery(bad),)
    assert entry.sequence == pair.main.open().head.metadata.last_updated_ms


def test_a_batch_without_bad_rows_leaves_no_entry(pair: Pair) -> None:
    writer = pair.writer()
    writer.commit(0, pair.bad_file())
    writer.deliver()
    writer.commit(1)
    assert pair.main.open().head.outbox(APP) is None
    assert deliver(writer.table, APP, pair.open_table) == ()


def test_sequences_rise_though_an_entry_was_removed_in_between(pair: Pair) -> None:
    """Were they counted in the entry alone, the third batch's rows would pass for delivered."""
    writer, bad = pair.writer(), [pair.bad_file(), pair.bad_file()]
    writer.commit(0, bad[0])
    writer.deliver()
    writer.commit(1)
    writer.deliver()
    writer.commit(2, bad[1])
    assert [each.outcome for each in writer.deliver()] == [Outcome.DELIVERED]
    assert pair.second_rows() == pair.second.rows_of(*bad)


def test_a_commit_over_an_undelivered_entry_is_refused_and_nothing_of_it_is_live(pair: Pair) -> None:
    writer, bad = pair.writer(), pair.bad_file()
    writer.commit(0, bad)
    before = pair.main.live_rows()
    for more in ((pair.bad_file(),), ()):
        with pytest.raises(CommitConflictError, match="would forget them"):
            writer.commit(1, *more)
    assert pair.main.live_rows() == before
    writer.deliver()
    assert isinstance(writer.commit(1, pair.bad_file()), Committed)
    writer.deliver()
    assert pair.second_rows().keys() > set(pair.second.rows[bad.file_path])


def test_a_replay_that_is_skipped_delivers_what_a_crash_cut_off(pair: Pair) -> None:
    bad = pair.bad_file()
    pair.writer().commit(0, bad)
    restarted = pair.writer(run="run-2")
    assert isinstance(restarted.commit(0, pair.bad_file()), AlreadyCommitted)
    assert [each.outcome for each in restarted.deliver()] == [Outcome.DELIVERED]
    assert pair.second_rows() == pair.second.rows_of(bad)


def test_applications_have_entries_of_their_own_and_all_are_delivered_by_one_call(pair: Pair) -> None:
    bad = {app: pair.bad_file() for app in ("a", "b", "c.d")}
    for app, file in reversed(bad.items()):  # so that the first to be delivered has the highest number
        pair.writer(app).commit(0, file)
    done = deliver_all(pair.main.open(), pair.open_table)
    assert {each.app_id: each.outcome for each in done} == dict.fromkeys(bad, Outcome.DELIVERED)
    assert pair.second_rows() == pair.second.rows_of(*bad.values())


def test_a_second_table_that_is_missing_is_an_error_and_the_others_are_delivered(pair: Pair) -> None:
    gone, there = pair.writer("a"), pair.writer("b")
    gone.table.commit([PutOutbox("a", (replace(pair.delivery(), location="memory://nowhere"),))])
    there.commit(0, pair.bad_file())
    with pytest.raises(TableNotFoundError, match=r"3 rows of application 'a' wait.*give these rows up"):
        deliver_all(pair.main.open(), pair.open_table)
    assert pair.second_rows()


def test_a_batch_with_bad_rows_costs_one_commit_to_each_table_and_one_without_costs_nothing(
    pair: Pair,
) -> None:
    """A process that keeps both tables open, as a sink does."""
    writer, main, second = pair.writer(), pair.main.store, pair.second.store
    writer.table = pair.main.open(main)
    requests = []
    for batch, bad in enumerate([(), (pair.bad_file(),), (), (pair.bad_file(),)]):
        main.count()
        second.count()
        writer.commit(batch, *bad)
        done = deliver(writer.table, APP, lambda location: pair.second.table)
        writer.delivered = done[0].sequence if done else None
        requests.append((main.count(), second.count()))
    (plain, nothing), (with_entry, delivery), (cleared, still_nothing), (again, delivered_again) = requests
    assert plain == with_entry == cleared == again == {"PUT": 4, "LIST": 1, "GET": 1}
    assert delivery == delivered_again == plain
    assert nothing == still_nothing == {}


@given(st.uuids(), st.text(), st.lists(st.uuids(), max_size=3))
def test_the_name_of_a_delivery_is_read_back(main: UUID, app_id: str, others: list[UUID]) -> None:
    mains = [str(each) for each in (*others, main)]
    assert find_delivered(delivery_app(str(main), app_id), mains) == (str(main), app_id)
    assert find_delivered(delivery_app(str(main), app_id), mains[:-1]) is None or main in others
    assert find_delivered(app_id, mains) is None or app_id.startswith("outbox.")


def test_registering_again_sends_no_request(pair: Pair) -> None:
    pair.second.store.count()
    register_main(pair.second.table, pair.main.table)
    assert not pair.second.store.count()


def test_two_deliveries_to_one_table_are_refused(pair: Pair) -> None:
    """Both would be one batch of the second table's transaction, and the other's rows pass for delivered."""
    table = pair.main.open()
    with pytest.raises(ValueError, match="two deliveries to one table"):
        table.commit([PutOutbox(APP, (pair.delivery(), pair.delivery()))])
    assert pair.main.open().head.outbox(APP) is None
