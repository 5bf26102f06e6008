"""The index of a zone's plans: it answers as the plans do, with few requests, and is rebuilt from them."""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from zlib import crc32

import numpy as np
import pytest

from planners.ingestion.buffering import BufferedFile, FileKey, PlanningRules
from planners.ingestion.plan_runs import PlanRun
from streaming_sink import ingest
from streaming_sink.tasks.errors import UnusableRunError
from streaming_sink.zones import records
from streaming_sink.zones.definition import Definition
from streaming_sink.zones.landed import Landed, write_landed
from streaming_sink.zones.ledger import Ledger
from streaming_sink.zones.planning import flux as flux_module
from streaming_sink.zones.planning import index_run
from streaming_sink.zones.planning.digests import FileDigests, PlannedFiles, path_word
from streaming_sink.zones.planning.flux import Flux
from streaming_sink.zones.planning.index_run import OpenRun, decode_run
from streaming_sink.zones.planning.plan_index import PlanIndex
from streaming_sink.zones.status import status
from timeline.clock import SYSTEM
from timeline.errors import CorruptTableError, StoreUnavailableError
from timeline.slots.numbered import NumberedLog
from timeline.stores import MemoryStore
from timeline.versions.work_items import NumberSet


class Zone(ingest.BufferZone):
    """A zone in memory, whose requests are counted. Zones on one store are one zone."""

    def __init__(self, store: MemoryStore) -> None:
        self.requests: Counter[str] = Counter()
        self.store = MemoryStore(store.location.removeprefix("memory://"), before=self._count)
        self.environment = SYSTEM
        self.storage_options = self._in_catalog = None
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
        f"{first:012}-{last:012}.run" for first, last in [(1, 64), (65, 72), (73, 73), (74, 74), (75, 75)]
    ]


def test_a_look_up_reads_the_footers_a_range_and_one_plan() -> None:
    zone = Zone(filled(75))
    [entry] = Ledger(zone).find("/drop/000017.parquet")
    assert (entry.item, entry.state) == (8, "planned")
    # Five footers, and a block of each of the three runs whose words reach to that of the path; the newest
    # plan in the index, one that is not there, and the file's own.
    assert (zone.requests["open run"], zone.requests["read avro"]) == (8, 3)
    assert sum(zone.requests.values()) <= 20


def test_a_planner_starts_from_the_index_and_reads_the_plans_after_it() -> None:
    store = filled(75)
    for path in runs_of(store)[-2:]:
        store.delete([path])
    zone = Zone(store)
    flux = Flux(zone)
    # The newest plan in the index, the two after it, and one that is not there.
    assert (zone.requests["read run"], zone.requests["read avro"]) == (3, 4)
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
    assert not zone.requests["create run"]


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
    assert {path: store.read(path).data for path in runs_of(store)} == sound


def test_a_change_of_any_byte_of_a_run_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """By whom reads it whole; a look-up of a path reads the footer and one block."""
    monkeypatch.setattr(index_run, "_BLOCK_ENTRIES", 7)
    store = filled(8)
    place, data = PlanRun(1, 8, 0), store.read(runs_of(store)[0]).data
    wanted = {path_word(file(number).path): {number // 2 + 1} for number in range(16)}
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(UnusableRunError):
            decode_run(damaged, place, "one")
        refused = 0
        for word, plans in wanted.items():
            try:
                assert OpenRun(partial(io.BytesIO, damaged), place, "one").plans_of(word) == plans
            except UnusableRunError:
                refused += 1
        assert refused in ((0,) if at < 8 else (7, 2) if at < 8 + 16 * 32 else (16,))


def test_versions_of_a_path_in_several_blocks_are_all_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_run, "_BLOCK_ENTRIES", 3)
    store = filled(1)
    for number in range(7):
        assert lands_again(store, 0, f"w{number}")
    assert found(store, 0) == [(0, "v1"), *((number + 1, f"w{number}") for number in range(7))]
    assert [path.rpartition("/")[2] for path in runs_of(store)] == ["000000000001-000000000008.run"]


def test_a_run_of_another_zone_or_of_other_plans_is_refused() -> None:
    store = filled(8)
    data = store.read(runs_of(store)[0]).data
    assert decode_run(data, PlanRun(1, 8, 0), "one").facts.next_item == 8
    for place, zone_id in ((PlanRun(1, 8, 0), "two"), (PlanRun(8, 8, 0), "one"), (PlanRun(1, 1, 0), "one")):
        for read in (decode_run, lambda data, *of: OpenRun(partial(io.BytesIO, data), *of)):
            with pytest.raises(UnusableRunError, match="a run of the zone one, of its plans 1 to 8"):
                read(data, place, zone_id)


def test_a_merged_run_states_the_furthest_position_of_its_plans() -> None:
    """A plan of a planner that has read less may come after."""
    store = filled(2)
    runs = [index_run.run_of_plan("one", number, Zone(store).existing_plan(number)) for number in (1, 2)]
    moved = replace(runs[0], facts=replace(runs[0].facts, position=9))
    assert index_run.merge_plan_runs([moved, runs[1]]).facts == replace(
        runs[1].facts, first=1, first_items=(0, 1), position=9
    )


def test_runs_of_the_format_before_are_not_used_and_a_planner_deletes_them() -> None:
    store = filled(9)
    sound = {path: store.read(path).data for path in runs_of(store)}
    old = [f"{path.removesuffix('.run')}.parquet" for path in sound]
    store.delete(sound)
    for path in old:
        store.create(path, b"PAR1")
    assert found(store, 3) == [(1, "v1")]
    Flux(Zone(store), plans=False)
    assert runs_of(store) == sorted(old)
    Flux(Zone(store))
    assert {path: store.read(path).data for path in runs_of(store)} == sound


def test_a_disk_that_fails_while_a_run_is_looked_up_costs_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if not reads:
                raise OSError(5, "Input/output error")
            reads.pop()
            return super().read(size)

    store = filled(8)
    for left in range(2):  # the footer, or a block, is not read
        zone, reads = Zone(store), [None] * left
        zone.store.open_input = lambda path: Broken(store.read(path).data)  # type: ignore[method-assign]
        assert [entry.item for entry in Ledger(zone).find(file(9).path)] == [4]
        assert caplog.text.count("Input/output error") == left + 1


@pytest.mark.parametrize("answered", [0, 1])
def test_a_store_that_does_not_answer_while_a_run_is_looked_up_is_told(answered: int) -> None:
    """The footer, or a block, is not read: no plan is read in its place."""
    zone = Zone(filled(8))
    opened: list[str] = []

    def fail(verb: str, path: str) -> None:
        if verb == "open":
            opened.append(path)
            if len(opened) > answered:
                raise ConnectionError("no answer")

    zone.store.before = fail
    with pytest.raises(StoreUnavailableError):
        Ledger(zone).find(file(9).path)


def test_the_format_of_a_run_stays_as_it_is() -> None:
    facts = index_run.RunFacts("z", 9, 10, "mark", 7, (3, 5), 6)
    words = [np.array(column, np.uint64) for column in ((1, 2), (3, 4), (5, 2**64 - 1))]
    run = index_run.WholeRun(facts, index_run.PlanRows(FileDigests(*words), np.array([9, 10])))
    footer = (
        b'{"zone_id":"z","first":9,"last":10,"mark":"mark","position":7,"first_items":[3,5],"next_item":6,'
        b'"blocks":[[2,1,2,CRC]]}'
    )
    entries = np.array([1, 2, 3, 4, 5, 2**64 - 1, 9, 10], "<u8").tobytes()
    footer = footer.replace(b"CRC", str(crc32(entries)).encode())
    ended = len(footer).to_bytes(8, "little") + bytes([2, 0, 0, 0])
    trailer = ended + crc32(footer + ended).to_bytes(4, "little") + b"SSPLNRUN"
    assert index_run.encode_run(run) == b"SSPLNRUN" + entries + footer + trailer


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


def test_a_run_that_is_merged_while_it_is_read_is_looked_for_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
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
    assert caplog.text == ""


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
    write_landed(store, Landed(5, published_before=False, version=7, snapshot_id=77))
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
