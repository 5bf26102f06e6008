"""Plans on the timeline, of each kind: announced by the head, claimed, completed at most once, and never
needed for a row.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.timeline.completing import complete_plan
from tests.unit.timeline.plans import MERGING, commits, plan_of, replace, reserved, state_of, two_files
from tests.unit.timeline.world import DAY_MS, Lake, versions_of
from timeline import names, properties
from timeline.changes.changes import SetProperties
from timeline.changes.plan_changes import Announce, Withdraw
from timeline.errors import CommitConflictError, StoreUnavailableError
from timeline.plans import instants
from timeline.plans.claims import PATIENCE_SECONDS, Claim, Watch
from timeline.plans.clustering import CLUSTERING
from timeline.plans.instants import State
from timeline.plans.kinds import PlanKind
from timeline.plans.registry import KINDS
from timeline.plans.reservations import Reservations, read_plan
from timeline.stores import MemoryStore
from timeline.versions.pending import pending_plans

# ------------------------------------------------------------------------------------------- reservations


def test_a_scheduled_plan_reserves_its_files_and_is_read_back_whole(kind: PlanKind) -> None:
    lake = Lake()
    a, b = two_files(lake)
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, (a,), (b,)), kind)
    assert reserved(lake) == {a.file_path: plan_id, b.file_path: plan_id}
    assert read_plan(lake.store, plan_id) == plan_of(kind, (a,), (b,))
    assert state_of(lake, plan_id) is State.REQUESTED


def test_the_id_of_a_plan_runs_with_the_tables_time_and_not_with_this_machines(kind: PlanKind) -> None:
    lake = Lake()
    files = two_files(lake)
    lake.clock.now_ms -= DAY_MS
    before = lake.table.head.metadata.last_updated_ms
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, files), kind)
    assert names.ulid_time_ms(names.plan_ulid(plan_id)) == before + 1


def test_a_plan_is_read_once_and_a_head_without_plans_costs_no_request(kind: PlanKind) -> None:
    lake = Lake()
    files = two_files(lake)
    reservations = Reservations(lake.store)
    lake.store.count()
    assert reservations.files(lake.table.head) == {}
    assert not lake.store.count()
    instants.schedule_plan(lake.table, plan_of(kind, files), kind)
    lake.store.count()
    reservations.files(lake.table.head)
    assert lake.store.count() == {"GET": 1}
    commits(lake, 1)
    lake.store.count()
    assert len(reservations.files(lake.table.head)) == 2
    assert not lake.store.count()


def test_two_schedulers_with_stale_heads_do_not_overwrite_each_other() -> None:
    lake = Lake()
    one, other = lake.open(), lake.open()
    first, second, third = (names.ulid(at, at) for at in (1, 2, 3))
    one.commit([Announce(first), Announce(third)])
    other.commit([Announce(second)])
    one.commit([Withdraw(third)])
    plans = pending_plans(lake.open().head.properties)
    assert [(plan.plan_id, plan.version) for plan in plans] == [(first, 2), (second, 3)]
    lake.open().commit([Withdraw(first), Withdraw(second)])
    assert properties.PENDING_PLANS not in lake.open().head.properties


def test_announcing_twice_does_not_make_a_plan_younger() -> None:
    lake = Lake()
    plan_id = names.ulid(1, 1)
    lake.table.commit([Announce(plan_id)])
    before = pending_plans(lake.table.head.properties)
    lake.clock.now_ms += DAY_MS
    lake.table.commit([Announce(plan_id)])
    assert pending_plans(lake.table.head.properties) == before


def test_a_plan_is_there_before_the_version_that_announces_it(kind: PlanKind) -> None:
    lake = Lake()
    files = two_files(lake)
    seen: list[Any] = []

    def created() -> None:
        seen.extend(lake.store.list_folder(kind.folder))

    lake.store.creates.append(created)
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, files), kind)
    assert [listed.path for listed in seen] == [names.requested_path(plan_id)]


def test_a_plan_for_a_reserved_file_is_refused_and_leaves_nothing(kind: PlanKind) -> None:
    lake = Lake()
    a, b = two_files(lake)
    first = instants.schedule_plan(lake.table, plan_of(kind, (a,)), kind)
    with pytest.raises(CommitConflictError, match=f"reserved by plan {first}; plan again without it"):
        instants.schedule_plan(lake.open(), plan_of(kind, (a, b)), kind)
    assert [instant.plan_id for instant in instants.show_plan(lake.table, kind)] == [first]


def test_of_two_plans_for_one_file_at_the_same_time_the_first_announced_stays(kind: PlanKind) -> None:
    lake = Lake()
    a, b = two_files(lake)
    won: list[str] = []
    lake.store.creates.append(
        lambda: won.append(instants.schedule_plan(lake.open(), plan_of(kind, (a,)), kind))
    )
    with pytest.raises(CommitConflictError, match="is reserved by plan"):
        instants.schedule_plan(lake.table, plan_of(kind, (a, b)), kind)
    assert reserved(lake) == {a.file_path: won[0]}
    assert [instant.state for instant in instants.show_plan(lake.table, kind)].count(State.CANCELLED) == 1


def test_a_plan_without_groups_is_refused(kind: PlanKind) -> None:
    lake = Lake()
    with pytest.raises(ValueError, match=f"a plan without {kind.items}"):
        instants.schedule_plan(lake.table, plan_of(kind), kind)


@pytest.mark.parametrize(
    ("later_versions", "later_ms", "timed_out"),
    [(110, 0, False), (50, 300 * DAY_MS, False), (110, 3_700_000, True)],
)
def test_a_reservation_ends_by_the_tables_own_time_and_after_a_hundred_versions(
    kind: PlanKind, later_versions: int, later_ms: int, timed_out: bool
) -> None:
    lake = Lake()
    files = two_files(lake)
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, files), kind)
    lake.clock.now_ms += later_ms
    commits(lake, later_versions)
    lake.clock.now_ms += 1000 * DAY_MS  # whatever this machine's clock says now
    assert (reserved(lake) == {}) is timed_out
    assert (instants.claim_plan(lake.open(), plan_id) is None) is timed_out
    (instant,) = instants.show_plan(lake.table, kind)
    assert instant.timed_out is timed_out


def test_the_next_scheduler_cancels_what_has_timed_out_in_the_version_that_announces_its_plan(
    kind: PlanKind,
) -> None:
    lake = Lake()
    files = two_files(lake)
    old = instants.schedule_plan(lake.table, plan_of(kind, files), kind)
    lake.clock.now_ms += DAY_MS
    commits(lake, 100)
    before = lake.table.head.number
    new = instants.schedule_plan(lake.open(), plan_of(kind, files), kind)
    assert lake.table.refresh().number == before + 1
    assert set(reserved(lake).values()) == {new}
    assert state_of(lake, old) is State.CANCELLED


def test_the_time_out_is_a_property_of_the_table(kind: PlanKind) -> None:
    lake = Lake(table_properties={kind.timeout_property: str(3 * DAY_MS)})
    files = two_files(lake)
    instants.schedule_plan(lake.table, plan_of(kind, files), kind)
    lake.clock.now_ms += 2 * DAY_MS
    commits(lake, 100)
    assert len(reserved(lake)) == 2
    with pytest.raises(ValueError, match="must be a whole number"):
        lake.table.commit([SetProperties({kind.timeout_property: "an hour"})])


def test_nobody_sets_the_announcements_by_hand() -> None:
    lake = Lake()
    with pytest.raises(ValueError, match="belongs to the commit protocol"):
        lake.table.commit([SetProperties({properties.PENDING_PLANS: ""})])


@pytest.mark.parametrize("text", ["", ",,", "x@1@2", "garbage", "../../v1@1@1", "01@a@b", "@@"])
def test_announcements_that_cannot_be_read_are_as_if_they_were_not_there(kind: PlanKind, text: str) -> None:
    lake = Lake()
    a, b = two_files(lake)
    lake.change_metadata(lambda m: {"properties": {**m.properties, properties.PENDING_PLANS: text}})
    assert reserved(lake) == {}
    assert instants.show_plan(lake.table, kind) == ()
    plan_id = instants.schedule_plan(lake.open(), plan_of(kind, (a, b)), kind)
    assert set(reserved(lake).values()) == {plan_id}


# -------------------------------------------------------------------------------------------------- kinds


def test_each_kind_has_a_folder_of_its_own_and_clustering_the_one_it_always_had(kind: PlanKind) -> None:
    lake = Lake()
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, two_files(lake)), kind)
    (path,) = [listed.path for listed in lake.store.list_below("_timeline") if "probe" not in listed.path]
    assert path == f"_timeline/{kind.name}/{names.plan_ulid(plan_id)}-requested.avro"
    assert plan_id == {"clustering": "", "merging": "merging/"}[kind.name] + names.plan_ulid(plan_id)
    (announced,) = lake.open().head.properties[properties.PENDING_PLANS].split(",")
    assert announced.startswith(f"{plan_id}@")


def test_plans_of_two_kinds_reserve_files_from_each_other_and_are_shown_apart(kind: PlanKind) -> None:
    lake, other = Lake(), MERGING if kind is CLUSTERING else CLUSTERING
    a, b = two_files(lake)
    first = instants.schedule_plan(lake.table, plan_of(kind, (a,)), kind)
    with pytest.raises(CommitConflictError, match=f"reserved by plan {first}") as caught:
        instants.schedule_plan(lake.open(), plan_of(other, (a,), (b,)), other)
    assert (caught.value.location, caught.value.files) == (lake.store.location, (a.file_path,))
    second = instants.schedule_plan(lake.open(), plan_of(other, (b,)), other)
    assert reserved(lake) == {a.file_path: first, b.file_path: second}
    head = lake.open().head
    for each, plan_id in ((kind, first), (other, second)):
        assert [instant.plan_id for instant in instants.show_plan(lake.table, each)] == [plan_id]
        assert [pending.plan_id for pending in instants.pending_of(head, each)] == [plan_id]


def test_what_a_kind_makes_of_a_work_item_completes_its_plan(kind: PlanKind) -> None:
    lake = Lake()
    files = two_files(lake)
    plan, rows = plan_of(kind, files), lake.live_rows()
    plan_id = instants.schedule_plan(lake.table, plan, kind)
    changes = [kind.change(item, [lake.merged(*files)], frozenset(), 0) for item in plan[kind.items]]
    committed = complete_plan(lake.open(), plan_id, changes)
    assert (lake.live_rows(), committed.dropped) == (rows, ())
    note = json.loads(lake.store.read(names.completed_path(plan_id)).data)
    assert note == {"version": committed.version, kind.items: 1, "dropped": 0}


def test_a_kind_that_only_newer_versions_know_is_left_alone_and_can_be_cancelled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake = Lake()
    monkeypatch.setitem(KINDS, MERGING.name, MERGING)
    plan_id = instants.schedule_plan(lake.table, plan_of(MERGING, two_files(lake)), MERGING)
    monkeypatch.delitem(KINDS, MERGING.name)
    assert reserved(lake) == {}
    assert f"plan {plan_id} is of a kind that this version does not know" in caplog.text
    with pytest.raises(ValueError, match="knows no plans of kind 'merging', only of clustering"):
        instants.claim_plan(lake.open(), plan_id)
    assert [pending.plan_id for pending in pending_plans(lake.open().head.properties)] == [plan_id]
    assert instants.cancel_plan(lake.open(), plan_id)
    assert pending_plans(lake.open().head.properties) == ()


@pytest.mark.parametrize("text", ["", "x", f"clustering/{names.ulid(1, 1)}", f"a/b/{names.ulid(1, 1)}"])
def test_a_text_that_is_no_plan_id_names_no_path(text: str) -> None:
    assert not names.is_plan_id(text)
    with pytest.raises(ValueError, match="not the id of a plan"):
        names.requested_path(text)


# ------------------------------------------------------------------------------------------------- claims


def test_one_executor_claims_a_plan_and_the_others_do_not(kind: PlanKind) -> None:
    lake = Lake()
    files = two_files(lake)
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, files), kind)
    claimed = instants.claim_plan(lake.open(), plan_id)
    assert claimed is not None
    assert claimed.plan == plan_of(kind, files)
    assert instants.claim_plan(lake.open(), plan_id) is None
    assert state_of(lake, plan_id) is State.INFLIGHT
    assert claimed.beat()


def test_of_two_executors_that_see_no_claim_one_gets_it(kind: PlanKind) -> None:
    lake = Lake()
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, two_files(lake)), kind)
    won: list[Claim | None] = []

    def before(verb: str, path: str) -> None:
        if (verb, path) == ("create", names.inflight_path(plan_id, 1)) and not won:
            won.append(instants.claim_plan(lake.open(), plan_id))

    assert instants.claim_plan(lake.open(MemoryStore(lake.name, before=before)), plan_id) is None
    assert won[0] is not None
    assert won[0].beat()


def test_who_sleeps_until_a_plan_has_ended_and_its_files_went_has_no_claim_on_it(kind: PlanKind) -> None:
    """Seed 310147: its number was free again, and it would have rewritten the groups for nothing."""
    lake = Lake()
    files = two_files(lake)
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, files), kind)

    def before(verb: str, path: str) -> None:
        if (verb, path) == ("create", names.inflight_path(plan_id, 1)) and reserved(lake):
            other = lake.open()
            assert instants.claim_plan(other, plan_id) is not None
            complete_plan(other, plan_id, [replace(lake, *files)])
            lake.store.delete([each.path for each in lake.store.list_folder(kind.folder)])

    assert instants.claim_plan(lake.open(MemoryStore(lake.name, before=before)), plan_id) is None
    assert lake.store.list_folder(kind.folder) == []


def test_a_claim_of_which_nobody_can_tell_whether_its_plan_has_ended_is_given_back(kind: PlanKind) -> None:
    lake = Lake()
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, two_files(lake)), kind)
    claimed: list[str] = []

    def before(verb: str, path: str) -> None:
        if (verb, path) == ("create", names.inflight_path(plan_id, 1)):
            claimed.append(path)
        if (verb, path) == ("list", names.VERSION_FOLDER) and claimed:
            raise ConnectionError

    with pytest.raises(StoreUnavailableError):
        instants.claim_plan(lake.open(MemoryStore(lake.name, before=before)), plan_id)
    assert instants.claim_plan(lake.open(), plan_id) is not None


def test_a_claim_whose_reply_was_lost_is_known_by_its_content(kind: PlanKind) -> None:
    lake = Lake()
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, two_files(lake)), kind)

    def after(verb: str, path: str) -> None:
        if (verb, path) == ("create", names.inflight_path(plan_id, 1)):
            raise ConnectionError

    claimed = instants.claim_plan(lake.open(MemoryStore(lake.name, after=after)), plan_id)
    assert claimed is not None
    assert claimed.beat()


def test_a_claim_that_stands_still_is_taken_over_and_its_executor_stops(kind: PlanKind) -> None:
    lake = Lake()
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, two_files(lake)), kind)
    dead = instants.claim_plan(lake.open(), plan_id)
    assert dead is not None
    table = lake.open()
    watch = Watch(table.log.environment)
    assert instants.claim_plan(table, plan_id, watch) is None
    lake.clock.seconds += PATIENCE_SECONDS - 1
    assert instants.claim_plan(table, plan_id, watch) is None
    lake.clock.seconds += 1
    heir = instants.claim_plan(table, plan_id, watch)
    assert heir is not None
    assert heir.number == 2
    assert not dead.beat()
    assert heir.beat()


def test_a_claim_that_beats_is_never_taken_over_whatever_the_wall_clocks_say(kind: PlanKind) -> None:
    lake = Lake()
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, two_files(lake)), kind)
    alive = instants.claim_plan(lake.open(), plan_id)
    assert alive is not None
    table = lake.open()
    watch = Watch(table.log.environment)
    for _ in range(10):
        lake.clock.now_ms += 400 * DAY_MS
        lake.clock.seconds += PATIENCE_SECONDS - 1
        assert alive.beat()
        assert instants.claim_plan(table, plan_id, watch) is None


def test_a_fresh_observer_judges_nobody_before_its_own_patience_is_over(kind: PlanKind) -> None:
    lake = Lake()
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, two_files(lake)), kind)
    assert instants.claim_plan(lake.open(), plan_id) is not None
    lake.clock.seconds += 100 * PATIENCE_SECONDS
    table = lake.open()
    assert instants.claim_plan(table, plan_id, Watch(table.log.environment)) is None


def test_of_two_that_take_over_at_once_one_does(kind: PlanKind) -> None:
    lake = Lake()
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, two_files(lake)), kind)
    assert instants.claim_plan(lake.open(), plan_id) is not None
    watchers = [(table, Watch(table.log.environment)) for table in (lake.open(), lake.open())]
    for _ in range(2):
        taken = [instants.claim_plan(table, plan_id, watch) for table, watch in watchers]
        lake.clock.seconds += PATIENCE_SECONDS
    assert [claim is not None for claim in taken] == [True, False]


def test_two_executors_that_claimed_because_the_folder_was_deleted_do_not_overwrite_each_other(
    kind: PlanKind,
) -> None:
    lake = Lake()
    files = two_files(lake)
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, files), kind)
    first = instants.claim_plan(lake.open(), plan_id)
    lake.store.delete([names.inflight_path(plan_id, 1)])
    second = instants.claim_plan(lake.open(), plan_id)
    assert first is not None
    assert second is not None
    assert not first.beat()
    assert second.beat()


def test_an_executor_goes_on_while_the_store_does_not_answer(
    kind: PlanKind, caplog: pytest.LogCaptureFixture
) -> None:
    lake = Lake()
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, two_files(lake)), kind)
    failing: list[bool] = []

    def before(verb: str, path: str) -> None:
        if failing and path.startswith("_timeline"):
            raise ConnectionError

    claimed = instants.claim_plan(lake.open(MemoryStore(lake.name, before=before)), plan_id)
    failing.append(True)
    assert claimed is not None
    assert claimed.beat()
    assert "goes on without a heartbeat" in caplog.text


# ------------------------------------------------------------------------------------ completed, cancelled


def test_a_plan_completes_in_the_version_that_replaces_its_files(kind: PlanKind) -> None:
    lake = Lake()
    files = two_files(lake)
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, files), kind)
    before, rows = lake.table.head.number, lake.live_rows()
    committed = complete_plan(lake.open(), plan_id, [replace(lake, *files)], summary={"plan": plan_id})
    versions = versions_of(lake.store)
    assert committed.version == before + 1 == max(versions)
    assert properties.PENDING_PLANS in versions[before].metadata.properties
    assert properties.PENDING_PLANS not in versions[before + 1].metadata.properties
    assert lake.live_rows() == rows
    assert len(lake.live()) == 1
    assert state_of(lake, plan_id) is State.COMPLETED
    snapshot = lake.open().head.snapshot
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.additional_properties["plan"] == plan_id


def test_a_plan_that_two_executors_carry_out_completes_once(kind: PlanKind) -> None:
    lake = Lake()
    files = two_files(lake)
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, files), kind)
    one, other, rows = lake.open(), lake.open(), lake.live_rows()
    complete_plan(one, plan_id, [replace(lake, *files)])
    number = lake.open().head.number
    with pytest.raises(CommitConflictError, match="nothing of this commit is live; plan it again"):
        complete_plan(other, plan_id, [replace(lake, *files)])
    assert lake.open().head.number == number
    assert lake.live_rows() == rows


def test_a_group_whose_input_is_gone_is_dropped_and_the_others_complete(kind: PlanKind) -> None:
    lake = Lake()
    a, b = two_files(lake)
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, (a,), (b,)), kind)
    lake.open().commit([replace(lake, a)])
    rows = lake.live_rows()
    committed = complete_plan(lake.table, plan_id, [replace(lake, a), replace(lake, b)])
    assert [list(dropped.change.removed) for dropped in committed.dropped] == [[a.file_path]]
    assert lake.live_rows() == rows
    assert reserved(lake) == {}


def test_a_plan_of_which_nothing_is_left_to_do_is_withdrawn(kind: PlanKind) -> None:
    lake = Lake()
    files = two_files(lake)
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, files), kind)
    lake.open().commit([replace(lake, *files)])
    committed = complete_plan(lake.table, plan_id, [replace(lake, *files)])
    assert len(committed.dropped) == 1
    assert pending_plans(lake.open().head.properties) == ()


def test_cancelling_frees_the_files_and_tells_the_executor_to_stop(kind: PlanKind) -> None:
    lake = Lake()
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, two_files(lake)), kind)
    claimed = instants.claim_plan(lake.open(), plan_id)
    assert claimed is not None
    assert instants.cancel_plan(lake.open(), plan_id)
    assert reserved(lake) == {}
    assert not claimed.beat()
    assert state_of(lake, plan_id) is State.CANCELLED
    number = lake.open().head.number
    assert not instants.cancel_plan(lake.open(), plan_id)
    assert instants.claim_plan(lake.open(), plan_id) is None
    assert lake.open().head.number == number


def test_notes_that_the_store_refuses_cost_nothing(kind: PlanKind, caplog: pytest.LogCaptureFixture) -> None:
    lake = Lake()
    files = two_files(lake)
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, files), kind)

    class Refusing(MemoryStore):
        def create(self, path: str, data: bytes) -> Any:
            if path == names.completed_path(plan_id):
                raise StoreUnavailableError("no space")
            return super().create(path, data)

    complete_plan(lake.open(Refusing(lake.name)), plan_id, [replace(lake, *files)])
    assert state_of(lake, plan_id) is State.ENDED
    assert "its note failed, which needs no repair" in caplog.text
