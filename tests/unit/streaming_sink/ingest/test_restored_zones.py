"""A zone that was set back to an older state, or copied: its items have the numbers of others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from streaming_sink import ingest
from streaming_sink.ingest.worker import Worker
from streaming_sink.zones.deciding import discard
from streaming_sink.zones.ledger import Ledger
from streaming_sink.zones.planning.flux import Flux
from streaming_sink.zones.status import status
from tests.unit.streaming_sink.ingest.test_zone import source, zone_at
from tests.unit.timeline.world import SCHEMA
from timeline import staging
from timeline.errors import CorruptTableError
from timeline.stores import open_store
from timeline.table import AlreadyCommitted, Committed, Table, open_table
from timeline.versions.work_items import OpenItem, WorkItem, published_items


def planned(folder: Path, name: str) -> ingest.BufferZone:
    """Push a file, and plan it as an item of its own."""
    zone = zone_at(folder)
    zone.push(source(folder, name))
    assert Flux(zone).plan(flush=True) is not None
    return zone


def table_at(folder: Path) -> Table:
    place = str(folder / "table")
    if not (folder / "table").exists():
        Table.create(open_store(place), SCHEMA)
    return open_table(place)


def land(folder: Path, zone: ingest.BufferZone, number: int) -> Committed | AlreadyCommitted:
    assert number in Worker(zone).open_items()
    list(zone.plans_after(0))
    return table_at(folder).commit([], transaction=zone.work_item(number))


def refuses(zone: ingest.BufferZone, number: int) -> None:
    table = open_table(zone.definition.table)
    before = table.head.number
    for use in (Ledger, status, lambda it: Worker(it).open_items(), lambda it: discard(it, number)):
        with pytest.raises(CorruptTableError, match="set back to an older state, or it is a copy"):
            use(zone)
    list(zone.plans_after(0))
    with pytest.raises(CorruptTableError, match="make a new zone for the same table"):
        table.commit([], transaction=zone.work_item(number))
    assert table.refresh().number == before


def test_a_zone_that_was_set_back_lands_nothing_and_calls_nothing_landed(tmp_path: Path) -> None:
    """The item of c had the number that b's has in the table: c was called landed, and b landed twice."""
    table_at(tmp_path)
    assert isinstance(land(tmp_path, planned(tmp_path, "a"), 0), Committed)
    shutil.copytree(tmp_path / "zone", tmp_path / "backup")
    assert isinstance(land(tmp_path, planned(tmp_path, "b"), 1), Committed)
    shutil.rmtree(tmp_path / "zone")
    shutil.copytree(tmp_path / "backup", tmp_path / "zone")
    with pytest.raises(CorruptTableError, match="set back"):
        Ledger(zone_at(tmp_path))  # before it has planned anything
    zone = zone_at(tmp_path)
    zone.push(source(tmp_path, "c"))
    Flux(zone).plan(flush=True)
    refuses(zone, 1)


def test_of_two_copies_of_a_zone_the_first_that_lands_goes_on(tmp_path: Path) -> None:
    table_at(tmp_path)
    assert isinstance(land(tmp_path, planned(tmp_path, "a"), 0), Committed)
    shutil.copytree(tmp_path / "zone", tmp_path / "copy")
    mine, copy = planned(tmp_path, "b"), ingest.BufferZone(str(tmp_path / "copy"))
    copy.push(source(tmp_path, "c"))
    assert Flux(copy).plan(flush=True) is not None
    list(copy.plans_after(0))
    late = copy.work_item(1)
    assert isinstance(land(tmp_path, mine, 1), Committed)
    with pytest.raises(CorruptTableError, match="it is a copy"):
        table_at(tmp_path).commit([], transaction=late)  # it had looked before the other has landed
    refuses(copy, 1)
    assert isinstance(land(tmp_path, planned(tmp_path, "d"), 2), Committed)


def test_items_of_older_plans_land_after_those_of_newer_ones(tmp_path: Path) -> None:
    table_at(tmp_path)
    for name in ("a", "b", "c"):
        zone = planned(tmp_path, name)
    for number in (2, 0, 1):
        assert isinstance(land(tmp_path, ingest.BufferZone(str(tmp_path / "zone")), number), Committed)
    head = table_at(tmp_path).head
    assert len(published_items(head.properties, zone.app_id)) == 3
    assert [it.state for it in Ledger(zone).entries()] == ["landed"] * 3


def test_a_table_that_names_no_plan_is_as_before(tmp_path: Path) -> None:
    table_at(tmp_path)
    zone = planned(tmp_path, "a")
    table_at(tmp_path).commit([], transaction=WorkItem(zone.app_id, 0))
    assert [it.state for it in Ledger(zone).entries()] == ["landed"]
    assert isinstance(land(tmp_path, planned(tmp_path, "b"), 1), Committed)


def test_what_a_zone_has_staged_is_not_published_by_one_that_was_set_back(tmp_path: Path) -> None:
    """The tag of a staged snapshot has the number alone: the rows of b would have landed as those of c."""
    table = table_at(tmp_path)
    assert isinstance(land(tmp_path, planned(tmp_path, "a"), 0), Committed)
    shutil.copytree(tmp_path / "zone", tmp_path / "copy")
    mine = planned(tmp_path, "b")
    list(mine.plans_after(0))
    item = mine.work_item(1)
    table_at(tmp_path).commit(
        [], transaction=OpenItem(item.app_id, item.number, item.plan)
    )  # as staging does
    copy = ingest.BufferZone(str(tmp_path / "copy"))
    copy.push(source(tmp_path, "c"))
    Flux(copy).plan(flush=True)
    list(copy.plans_after(0))
    with pytest.raises(CorruptTableError, match="it is a copy"):
        staging.publish_item(table_at(tmp_path), copy.work_item(1))
    assert not published_items(table.refresh().properties, mine.app_id).ranges[1:]
    refuses(copy, 1)
