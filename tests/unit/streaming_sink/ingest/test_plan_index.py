"""The index of a zone's plans: it answers as the plans do, with few requests, and is rebuilt from them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from planners.ingestion.buffering import BufferedFile, FileKey, PlanningRules
from streaming_sink import ingest
from streaming_sink.zones import records
from streaming_sink.zones.definition import Definition
from streaming_sink.zones.landed import Landed, write_note
from streaming_sink.zones.ledger import Ledger
from streaming_sink.zones.planning import flux as flux_module
from streaming_sink.zones.planning.digests import FileDigests, PlannedFiles
from streaming_sink.zones.planning.flux import Flux
from streaming_sink.zones.planning.plan_index import PlanIndex
from streaming_sink.zones.status import status
from timeline.clock import SYSTEM
from timeline.errors import CorruptTableError
from timeline.slots.numbered import NumberedLog
from timeline.stores import MemoryStore
from timeline.versions.work_items import NumberSet


class Zone(ingest.BufferZone):
    """A zone in memory, whose requests are counted. Zones on one store are one zone."""

    def __init__(self, store: MemoryStore) -> None:
        self.requests: Counter[str] = Counter()
        self.store = MemoryStore(store.location.removeprefix("memory://"), before=self._count)
        self.environment = SYSTEM
        self.storage_options = None
        self._known = Definition("one", "/no/table", {}, {}, {})
        self._log = NumberedLog(self.store, "log", "avro")
        self.plans = NumberedLog(self.store, "plans", "avro")

    rules = PlanningRules(max_files=1)  # type: ignore[assignment]

    def _count(self, verb: str, path: str) -> None:
        self.requests[f"{verb} {path.rpartition('.')[2]}" if "." in path else verb] += 1

    def watched(self) -> list[tuple[str, str]]:
        return []


def file(number: int, identity: str = "v1") -> BufferedFile:
    return BufferedFile(f"/drop/{number:06}.parquet", identity, 10, 1000)


def filled(plans: int) -> MemoryStore:
    """Return the store of a zone with so many plans of two files each."""
    store = MemoryStore()
    zone = Zone(store)
    flux = Flux(zone)
    for number in range(plans):
        zone.announce([file(2 * number), file(2 * number + 1)])
        assert flux.plan() is not None
    return store


def runs_of(store: MemoryStore) -> list[str]:
    return sorted(each.path for each in store.list_folder("plans/index"))


def found(store: MemoryStore, number: int) -> list[tuple[int, str]]:
    ledger = Ledger(Zone(store))
    return [(entry.item, entry.identity) for entry in ledger.find(f"/drop/{number:06}.parquet")]


def lands_again(store: MemoryStore, number: int, identity: str = "v1") -> bool:
    """Return whether a planner that starts now plans a file that is announced once more."""
    zone = Zone(store)
    zone.announce([file(number, identity)])
    return Flux(zone).plan(flush=True) is not None


# --------------------------------------------------------------------------------------- requests


def test_many_plans_have_few_runs() -> None:
    names = [path.rpartition("/")[2] for path in runs_of(filled(75))]
    assert names == [
        f"{first:012}-{last:012}.parquet" for first, last in [(1, 64), (65, 72), (73, 73), (74, 74), (75, 75)]
    ]


def test_a_look_up_reads_the_footers_a_range_and_one_plan() -> None:
    zone = Zone(filled(75))
    [entry] = Ledger(zone).find("/drop/000017.parquet")
    assert (entry.item, entry.state) == (8, "planned")
    # Five footers, five ranges; the newest plan in the index, one that is not there, and the file's own.
    assert (zone.requests["open parquet"], zone.requests["read avro"]) == (10, 3)
    assert sum(zone.requests.values()) <= 20


def test_a_planner_starts_from_the_index_and_reads_the_plans_after_it() -> None:
    store = filled(75)
    for path in runs_of(store)[-2:]:
        store.delete([path])
    zone = Zone(store)
    flux = Flux(zone)
    # The newest plan in the index, the two after it, and one that is not there.
    assert (zone.requests["read parquet"], zone.requests["read avro"]) == (3, 4)
    assert flux.known([file(number).key for number in range(151)]) == {file(at).key for at in range(150)}
    assert len(runs_of(store)) == 5


def test_the_state_of_a_zone_reads_the_plans_of_open_items_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    zone = Zone(filled(75))
    monkeypatch.setattr(Ledger, "published", NumberSet(((0, 9), (11, 73))))
    monkeypatch.delattr(records, "BufferedFile")  # nor does it build a file of them
    assert [item.number for item in status(zone).open_items] == [10, 74]
    # Planner and ledger: the newest plan in the index, and none after it, which the planner asks twice; no
    # announcement after its position; and the two plans.
    assert zone.requests["read avro"] == 8
    assert not zone.requests["create parquet"]


# -------------------------------------------------------------------------------- the plans decide


def lose(store: MemoryStore, path: str) -> None:
    store.delete([path])


def cut(store: MemoryStore, path: str) -> None:
    store.overwrite(path, store.read(path).data[:-100])


def flip(at: float, store: MemoryStore, path: str) -> None:
    data = bytearray(store.read(path).data)
    data[int(at * len(data))] ^= 4
    store.overwrite(path, bytes(data))


def swap(store: MemoryStore, path: str) -> None:
    other = next(each for each in runs_of(store) if each != path)
    store.overwrite(path, store.read(other).data)


@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize(
    "harm",
    [lose, cut, swap, *(partial(flip, at / 16) for at in range(16))],
    ids=["lost", "cut", "of other plans", *(f"bit {at} of 16" for at in range(16))],
)
def test_a_run_that_is_lost_or_damaged_costs_no_answer(
    harm: Callable[[MemoryStore, str], None], which: int
) -> None:
    store = filled(17)
    sound = {path: store.read(path).data for path in runs_of(store)}
    harm(store, runs_of(store)[which])
    assert [found(store, number) for number in (0, 1, 20, 32, 33)] == [
        [(0, "v1")],
        [(0, "v1")],
        [(10, "v1")],
        [(16, "v1")],
        [(16, "v1")],
    ]
    assert not any(lands_again(store, number) for number in (0, 16, 33))
    if not isinstance(harm, partial):  # a bit may be one that means nothing
        assert {path: store.read(path).data for path in runs_of(store)} == sound


def test_the_index_is_built_anew_where_there_is_none() -> None:
    store = filled(20)
    sound = {path: store.read(path).data for path in runs_of(store)}
    store.delete(runs_of(store))
    Flux(Zone(store))
    assert {path: store.read(path).data for path in runs_of(store)} == sound


def test_an_index_of_other_plans_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    """As after a restore of the zone from a copy."""
    store, other = filled(9), filled(8)
    Zone(other).announce([file(99)])
    Flux(Zone(other)).plan()
    for path in runs_of(other):
        other.delete([path])
    for path in runs_of(store):
        other.create(path, store.read(path).data)
    assert found(other, 99) == [(8, "v1")]
    assert found(other, 16) == []
    assert lands_again(other, 16)
    assert not lands_again(other, 99)
    assert "the plan index is of other plans" in caplog.text


@pytest.mark.parametrize("restored", [1, 10, 16])
@pytest.mark.parametrize("left", ["all", 0, 1, 5])
def test_a_zone_that_was_restored_to_older_plans_uses_no_run_of_those_that_came_after(
    restored: int, left: str | int, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where a planner died while it deleted them, so that one is left."""
    store = filled(20)
    store.delete(f"plans/{number:012}.avro" for number in range(restored + 1, 21))
    runs = runs_of(store)
    if left != "all":
        store.delete(path for at, path in enumerate(runs) if at != left)
    assert found(store, 2 * restored) == []
    zone = Zone(store)
    flux = Flux(zone)
    for number in range(restored, 24):  # other files in each plan than before
        zone.announce([file(2 * number), file(100 + number)])
        assert flux.plan() is not None
    planned = [(entry.path, (entry.item, entry.identity)) for entry in Ledger(Zone(store)).entries()]
    assert len(planned) == len(dict(planned)) == 2 * 20 + 24 - restored + 4
    for number in (*range(0, 48, 4), *range(100 + restored, 124, 3)):
        assert found(store, number) == [place for path, place in planned if path == file(number).path]
    if left == "all":
        assert "the plan index is of other plans" in caplog.text


def test_a_plan_that_is_missing_is_told() -> None:
    store = filled(3)
    store.delete(["plans/000000000002.avro", runs_of(store)[1]])
    with pytest.raises(CorruptTableError, match="an entry of the buffer zone is missing"):
        Flux(Zone(store))


def test_planners_that_write_at_once_leave_one_index() -> None:
    store = MemoryStore()
    zone = Zone(store)
    planners = [Flux(zone), Flux(Zone(store))]
    for number in range(70):
        zone.announce([file(number)])
        planners[number % 5 > 1].plan()
    for planner in planners:
        planner.catch_up()
    Flux(Zone(store))
    assert len(runs_of(store)) == 1 + 6
    assert [found(store, number) for number in (0, 64, 69)] == [[(0, "v1")], [(64, "v1")], [(69, "v1")]]


def test_a_store_that_fails_while_the_index_is_written_costs_no_plan(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    zone = Zone(store)
    flux = Flux(zone)

    def fail(verb: str, path: str) -> None:
        if "index" in path:
            raise ConnectionError("no answer")

    zone.store.before = fail
    with caplog.at_level(logging.WARNING):
        for number in range(9):
            zone.announce([file(number)])
            assert flux.plan() is not None
    assert "the index of plan 8 is not written" in caplog.text
    assert not lands_again(store, 3)


def test_a_run_that_is_merged_while_it_is_read_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(7)
    late = Zone(store)
    listing, before = PlanIndex._list, PlanIndex(late)._list()
    stale = [before]
    monkeypatch.setattr(PlanIndex, "_list", lambda self: stale.pop() if stale else listing(self))
    zone = Zone(store)
    zone.announce([file(99)])
    stale.append([])
    Flux(zone).plan()
    stale[:] = [before]
    assert [entry.item for entry in Ledger(late).find("/drop/000003.parquet")] == [1]


# ------------------------------------------------------------------------------------- the answers


def test_versions_of_a_file_are_told_apart() -> None:
    store = filled(10)
    assert not lands_again(store, 4)
    assert lands_again(store, 4, "v2")
    assert not lands_again(store, 4, "v2")
    assert found(store, 4) == [(2, "v1"), (10, "v2")]


def test_planned_files_are_found_in_parts_of_any_size() -> None:
    planned = PlannedFiles()
    keys = [FileKey(f"/{number % 700}", f"v{number // 700}") for number in range(2100)]
    for start in range(0, 2000, 37):
        planned.add(FileDigests.of(keys[start : min(start + 37, 2000)]).sorted())
    assert len(planned) == 2000
    assert len(planned._parts) < 10
    assert planned.known(keys) == (set(keys[:2000]), {key.path for key in keys})
    assert planned.known([]) == (set(), set())
    assert planned.known([FileKey("/none", "v0")]) == (set(), set())


def test_the_files_of_a_snapshot_that_has_expired_are_found() -> None:
    store = filled(20)
    zone = Zone(store)
    write_note(store, Landed(5, published_before=False, version=7, snapshot_id=77))
    ledger = Ledger(zone)
    assert ledger.files_of(78) == []
    zone.requests.clear()
    assert ledger.files_of(77) == []  # the table does not have the item
    assert [entry.path for entry in ledger.files_of_item(5)] == [file(10).path, file(11).path]
    assert ledger.files_of_item(20) == []


def test_a_backlog_becomes_plans_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flux_module, "_FILES_A_PLAN", 25)
    store = MemoryStore()
    zone = Zone(store)
    zone.announce([file(number) for number in range(100)])
    flux, plans = Flux(zone), []
    while (plan := flux.plan(flush=True)) is not None:
        plans.append([len(item.files) for item in plan.items])
    assert plans == [[10, 10, 10]] * 3 + [[10]]
    assert not lands_again(store, 50)
