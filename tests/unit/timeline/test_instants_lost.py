"""Losing, spoiling or cleaning up the files of plans, of each kind, costs work, never rows."""

from __future__ import annotations

import itertools
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.manifest import DataFile

from tests.unit.timeline.cleaning import Shore
from tests.unit.timeline.completing import complete_plan
from tests.unit.timeline.plans import damage, plan_of, replace, reserved, two_files
from tests.unit.timeline.world import BY_P, DAY_MS, SCHEMA, Audit, FaultyStore, Lake, data_file
from timeline import names
from timeline.changes.changes import Append, ExpireSnapshots, Replace, SetProperties
from timeline.errors import CommitConflictError, TimelineError
from timeline.maintenance.expiry import expire_snapshots
from timeline.maintenance.orphans import remove_orphan_files
from timeline.plans import instants
from timeline.plans.claims import PATIENCE_SECONDS, Watch
from timeline.plans.instants import State
from timeline.plans.kinds import PlanKind
from timeline.plans.reservations import Reservations
from timeline.stores import CreateOutcome, LocalStore, MemoryStore, Unknown
from timeline.table import Table
from timeline.versions.pending import pending_plans

# ------------------------------------------------------------------------------------- losing the timeline


class _Damaging(FaultyStore):
    """Somebody damages what is saved in one folder at once, and the answer to its create is lost."""

    folder = ""

    def create(self, path: str, data: bytes) -> CreateOutcome:
        if not self.folder or not path.startswith(self.folder):
            return super().create(path, data)
        super().create(path, b"damage")
        return Unknown("the answer was lost")


def test_a_plan_that_is_damaged_while_it_is_saved_is_to_be_made_again(kind: PlanKind) -> None:
    lake = Lake()
    files = two_files(lake)
    store = _Damaging(lake.name)
    table = lake.open(store)
    store.folder = kind.folder
    with pytest.raises(CommitConflictError, match="plan again"):
        instants.schedule_plan(table, plan_of(kind, files), kind)
    assert pending_plans(lake.open().head.properties) == ()


def test_a_note_of_expiry_that_is_damaged_while_it_is_saved_costs_nothing_but_time() -> None:
    shore = Shore()
    for _ in range(4):
        shore.append()
    shore.pass_versions(102)
    before = shore.table.head.metadata.snapshots
    store = _Damaging(shore.name)
    table = shore.open(store)
    store.folder = names.EXPIRED_FOLDER
    assert table.commit([ExpireSnapshots()])
    assert shore.open().head.metadata.snapshots == before


@pytest.mark.parametrize("data", [None, b"", b"\xff garbage"])
def test_a_lost_plan_is_told_frees_its_files_and_is_cancelled(
    kind: PlanKind, data: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    lake = Lake()
    files = two_files(lake)
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, files), kind)
    damage(lake.store, data)
    reservations = Reservations(lake.store)
    with caplog.at_level(logging.WARNING):
        assert reservations.files(lake.table.head) == {}
        assert reservations.files(lake.table.head) == {}
    assert caplog.text.count(f"{kind.name} plan {plan_id} is lost, and no row with it") == 1
    assert instants.claim_plan(lake.open(), plan_id) is None
    assert pending_plans(lake.open().head.properties) == ()
    assert set(reserved_after_planning_again(lake, files, kind).values()) != {plan_id}


def reserved_after_planning_again(lake: Lake, files: tuple[DataFile, ...], kind: PlanKind) -> dict[str, str]:
    instants.schedule_plan(lake.open(), plan_of(kind, files), kind)
    return reserved(lake)


def test_a_store_that_refuses_the_timeline_stops_no_fill(
    kind: PlanKind, caplog: pytest.LogCaptureFixture
) -> None:
    lake = Lake()
    instants.schedule_plan(lake.table, plan_of(kind, two_files(lake)), kind)
    failing = [True]

    def before(verb: str, path: str) -> None:
        if failing and path.startswith("_timeline"):
            raise ConnectionError

    reservations = Reservations(MemoryStore(lake.name, before=before))
    assert reservations.files(lake.table.head) == {}
    assert "count as free until it can be read" in caplog.text
    failing.clear()
    assert len(reservations.files(lake.table.head)) == 2


def a_whole_life(table: Table, lake: Lake, files: tuple[DataFile, ...], kind: PlanKind) -> None:
    """Schedule, claim, beat, ingest beside it, complete."""
    plan_id = instants.schedule_plan(table, plan_of(kind, files), kind)
    claimed = instants.claim_plan(table, plan_id)
    Reservations(table.store).files(table.head)
    if claimed is not None:
        claimed.beat()
        claimed.beat()
        lake.table.commit([Append((lake.file(),))])
        complete_plan(table, plan_id, [replace(lake, *files)])
    instants.show_plan(table, kind)


def is_step(verb: str, path: str) -> bool:
    """Whether the request touches the timeline or creates a version: between others nothing differs."""
    return path.startswith("_timeline") or (verb == "create" and names.version_number(path) is not None)


def lives(interfere: Callable[[Lake, int], None]) -> Iterator[tuple[Lake, tuple[DataFile, ...], MemoryStore]]:
    """Yield the same table again and again; at its n-th step the n-th life is interfered with."""
    for hit in itertools.count():
        lake, reached = Lake(), [0]

        def before(verb: str, path: str, lake: Lake = lake, at: list[int] = reached, hit: int = hit) -> None:
            if is_step(verb, path):
                at[0] += 1
                interfere(lake, at[0] - 1 - hit)

        files = two_files(lake)
        yield lake, files, MemoryStore(lake.name, before=before)
        Audit(lake.store).check()
        rows = lake.live_rows()
        assert rows >= lake.rows_of(*files)
        assert max(rows.values()) == 1
        if reached[0] <= hit:
            assert hit > 12
            return


@pytest.mark.parametrize("data", [None, b"", b"[1]", b'{"executor": 1}'])
def test_deleting_or_spoiling_the_timeline_at_any_step_leaves_a_correct_table(
    kind: PlanKind, data: bytes | None
) -> None:
    def interfere(lake: Lake, steps: int) -> None:
        if steps == 0:
            damage(lake.store, data)

    for lake, files, store in lives(interfere):
        a_whole_life(lake.open(store), lake, files, kind)
        assert pending_plans(lake.open().head.properties) == ()


def test_deleting_the_folder_of_a_running_plan_on_local_disk_stops_nobody(
    kind: PlanKind, tmp_path: Path
) -> None:
    lake = Lake()
    table = Table.create(LocalStore(str(tmp_path)), SCHEMA, BY_P, environment=lake.clock.environment())
    files = tuple(on_disk(lake.file(), table) for _ in range(2))
    table.commit([Append(files)])
    plan_id = instants.schedule_plan(table, plan_of(kind, files), kind)
    claimed = instants.claim_plan(table, plan_id)
    shutil.rmtree(tmp_path / "_timeline")
    assert claimed is not None
    assert claimed.beat()
    shutil.rmtree(tmp_path / "_timeline")
    merged = on_disk(lake.file(20), table)
    complete_plan(table, plan_id, [Replace(frozenset(f.file_path for f in files), (merged,))])
    shutil.rmtree(tmp_path / "_timeline")
    assert instants.show_plan(table, kind) == ()
    assert [file.location for file in table.refresh().live_files()] == [merged.file_path]


def on_disk(file: DataFile, table: Table) -> DataFile:
    """The file as a manifest of another table spells it."""
    location = table.store.uri("data/" + file.file_path.partition("/data/")[2])
    return data_file(location, file.record_count, partition=file.partition)


def test_a_process_that_dies_at_any_step_leaves_a_plan_that_another_one_ends(kind: PlanKind) -> None:
    def interfere(lake: Lake, steps: int) -> None:
        if steps >= 0:
            raise ConnectionError("dead")

    for lake, files, store in lives(interfere):
        with suppress(TimelineError):
            a_whole_life(lake.open(store), lake, files, kind)
        table = lake.open()
        watch = Watch(table.log.environment)
        for _ in range(2):
            for plan in pending_plans(table.refresh().properties):
                if instants.claim_plan(table, plan.plan_id, watch) is not None:
                    complete_plan(table, plan.plan_id, [replace(lake, *files)])
            lake.clock.seconds += PATIENCE_SECONDS
        assert pending_plans(table.refresh().properties) == ()


# ----------------------------------------------------------------------------------------------- cleaners


def test_names_of_instants_are_read_back_and_are_no_files_of_the_table(kind: PlanKind) -> None:
    plan_id = names.plan_id(kind.name, names.ulid(5, 7))
    paths = {
        names.requested_path(plan_id): (plan_id, "requested", 0),
        names.inflight_path(plan_id, 12): (plan_id, "inflight", 12),
        names.completed_path(plan_id): (plan_id, "completed", 0),
        names.cancelled_path(plan_id): (plan_id, "cancelled", 0),
    }
    for path, said in paths.items():
        assert names.instant_of(path) == said
        assert names.written_id(path) is None
        assert names.expired_version(path) is None
        assert names.instant_of(path + "x") is None
        assert names.instant_of("data/" + path) is None


def test_the_cleaners_leave_plans_alone_and_plans_do_not_stop_the_cleaners(kind: PlanKind) -> None:
    lake = Lake()
    files = two_files(lake)
    plan_id = instants.schedule_plan(lake.table, plan_of(kind, files), kind)
    assert instants.claim_plan(lake.table, plan_id) is not None
    lake.clock.now_ms += 30 * DAY_MS
    orphan = f"data/p=0/{names.ulid(1, 1)}-app-1-0-0.parquet"
    lake.store.overwrite(orphan, b"x")
    for _ in range(3):
        lake.table.commit([Append((lake.file(),))])
    removed = remove_orphan_files(lake.table, older_than=timedelta(days=1))
    expire_snapshots(lake.table)
    assert [deletion.path for deletion in removed.files] == [orphan]
    left = {listed.path for listed in lake.store.list_below("_timeline")}
    assert {names.requested_path(plan_id), names.inflight_path(plan_id, 1)} <= left


def test_files_of_plans_that_ended_a_week_ago_go_and_pending_ones_stay(kind: PlanKind) -> None:
    lake = Lake()
    a, b, c = lake.file(), lake.file(), lake.file()
    lake.table.commit([Append((a, b, c))])
    ended = instants.schedule_plan(lake.table, plan_of(kind, (a,)), kind)
    complete_plan(lake.table, ended, [replace(lake, a)])
    waiting = instants.schedule_plan(lake.table, plan_of(kind, (b,)), kind)
    states = {instant.plan_id: instant.state for instant in instants.show_plan(lake.table, kind)}
    assert states == {ended: State.COMPLETED, waiting: State.REQUESTED}
    lake.clock.now_ms += 8 * DAY_MS
    lake.table.commit([SetProperties({"a": "b"})])
    new = instants.schedule_plan(lake.table, plan_of(kind, (c,)), kind)
    states = {instant.plan_id: instant.state for instant in instants.show_plan(lake.table, kind)}
    assert states == {waiting: State.REQUESTED, new: State.REQUESTED}
