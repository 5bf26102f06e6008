"""Back-pressure: producers wait while more than a bound is not in the table."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.types as it
import pytest
from pyiceberg.schema import Schema

from streaming_sink import ingest
from streaming_sink.ingest import running
from streaming_sink.ingest.running import plan_waiting
from streaming_sink.zones import backlog
from streaming_sink.zones.backlog import Backlog
from streaming_sink.zones.errors import BufferZoneFullError
from streaming_sink.zones.planning.flux import Flux
from streaming_sink.zones.planning.watching import FolderWatch
from timeline.stores import LocalStore
from timeline.table import Table
from timeline.versions.work_items import WorkItem


def zone_at(folder: Path, most: int | str) -> ingest.BufferZone:
    (folder / "drop").mkdir()
    for name in ("a", "b"):
        pq.write_table(pa.table({"id": [1]}), folder / "drop" / f"{name}.parquet")
    return ingest.BufferZone(
        str(folder / "zone"), table=str(folder / "table"), rules=ingest.Rules(max_waiting=most)
    )


def land(folder: Path, zone: ingest.BufferZone, number: int) -> None:
    """Let the table hold a work item, as a worker does."""
    schema = Schema(it.NestedField(1, "id", it.LongType()))
    table = Table.create(LocalStore(str(folder / "table")), schema, store_is_checked=True)
    table.commit([], transaction=WorkItem(zone.app_id, number))


def test_files_that_are_not_in_the_table_hold_back_a_push(tmp_path: Path) -> None:
    zone = zone_at(tmp_path, 100)
    first, second = (str(tmp_path / "drop" / f"{name}.parquet") for name in ("a", "b"))
    zone.push(first)
    with pytest.raises(BufferZoneFullError, match=r"B wait in the zone.*max_waiting is 100 B; nothing was"):
        zone.push(second)
    Flux(zone).plan(flush=True)
    with pytest.raises(BufferZoneFullError):
        zone.push(second)
    land(tmp_path, zone, 0)
    assert zone.push(second).files == 1
    assert [number for number, _ in zone.announced_after(0)] == [1, 2]


def test_a_stream_waits_until_workers_have_landed_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = zone_at(tmp_path, "100B")
    zone.push(str(tmp_path / "drop" / "a.parquet"))
    Flux(zone).plan(flush=True)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            land(tmp_path, zone, 0)

    # The module's name alone: other tests have left threads, which would spin on the clock of all.
    monkeypatch.setattr(backlog, "time", SimpleNamespace(sleep=sleep))
    Backlog(zone).wait()
    assert len(slept) == 3


def test_watched_folders_wait_as_well(tmp_path: Path) -> None:
    zone = zone_at(tmp_path, 100)
    flux = Flux(zone)
    zone.watch(str(tmp_path / "drop"), "b.*")
    watch, full = FolderWatch(zone, flux.known), Backlog(zone, flux)
    assert not full.is_full()
    zone.push(str(tmp_path / "drop" / "a.parquet"))
    assert full.is_full()
    flux.plan(flush=True)
    assert full.is_full()
    land(tmp_path, zone, 0)
    assert not full.is_full()
    assert [watch.look(), watch.look()] == [0, 1]


def test_a_single_look_leaves_folders_alone_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SETTLE_SECONDS", 0)
    zone = zone_at(tmp_path, 100)
    zone.watch(str(tmp_path / "drop"), "b.*")
    zone.push(str(tmp_path / "drop" / "a.parquet"))
    assert plan_waiting(zone, flush=True) == 1
    assert plan_waiting(zone, flush=True) == 0  # the first item is not in the table
    land(tmp_path, zone, 0)
    assert plan_waiting(zone, flush=True) == 1


def test_a_zone_without_a_bound_asks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zone = zone_at(tmp_path, 100)
    zone.definition  # noqa: B018 - stores the bound
    free = ingest.BufferZone(str(tmp_path / "free"), table=str(tmp_path / "table"))
    monkeypatch.setattr(Backlog, "bytes", lambda _: pytest.fail("it was asked"))
    Backlog(free).check()
    assert not Backlog(free).is_full()
    assert ingest.BufferZone(zone.store.location).definition.rules_of.max_waiting == 100
