"""Work items whose rows are checked one by one: what is left by a worker that dies, and what is discarded.
Without Spark.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_sink.ingest import running
from streaming_sink.ingest.publishing import NotWantedError
from streaming_sink.table.data_files import data_file
from streaming_sink.writing.writer import WriteResult
from streaming_sink.zones.landed import read_landed
from streaming_sink.zones.records import KIND
from tests.unit.streaming_sink.ingest.test_audit_steps import World
from tests.unit.timeline.world import SCHEMA
from timeline.changes.outbox_changes import PutOutbox
from timeline.outbox import register_main
from timeline.plans.claims import all_instants
from timeline.staging import discard_item
from timeline.stores import LocalStore
from timeline.table import Table, open_table
from timeline.versions.outbox import Delivery
from timeline.versions.work_items import WorkItem


def test_rows_that_a_dead_worker_left_for_the_quarantine_are_delivered_though_no_item_comes(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    app_id, main = world.zone.app_id, world.table
    second = Table.create(LocalStore(str(tmp_path / "second")), SCHEMA, store_is_checked=True)
    register_main(second, main)
    file = data_file(world.write("second").new[0], second.head.spec)
    metadata = second.head.metadata
    delivery = Delivery(metadata.location, str(metadata.table_uuid), metadata.current_schema_id, (file,))
    main.commit([PutOutbox(app_id, (delivery,))], transaction=WorkItem(app_id, 0))
    for _ in range(2):
        running.work(None, world.zone, until_idle=True)  # type: ignore[arg-type]
        assert sum(each.rows for each in second.refresh().live_files()) == 3


def test_rows_that_cannot_be_delivered_do_not_end_a_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    file = data_file(world.write("gone").new[0], world.table.head.spec)
    left = Delivery(str(tmp_path / "gone"), "00000000-0000-0000-0000-000000000000", 0, (file,))
    world.table.commit([PutOutbox(world.zone.app_id, (left,))], transaction=WorkItem(world.zone.app_id, 0))
    running.work(None, world.zone, until_idle=True)  # type: ignore[arg-type]
    assert "rows for the quarantine are delivered later" in caplog.text


def test_an_item_that_is_discarded_while_its_rows_are_written_is_not_noted_as_landed(tmp_path: Path) -> None:
    world = World(tmp_path)
    write, other = world.write, open_table(world.table.store.location)

    def discarded_before() -> WriteResult:
        discard_item(other, WorkItem(world.zone.app_id, 0))
        return write()

    world.write = discarded_before  # type: ignore[assignment, method-assign]
    with pytest.raises(NotWantedError, match="work item 0 was discarded"):
        world.worker(None).land_next(None)  # type: ignore[arg-type]
    assert read_landed(world.zone.store, 0) is None


def test_the_claim_of_an_item_that_is_discarded_meanwhile_is_given_back(tmp_path: Path) -> None:
    """No note will ever be missing of it."""
    world = World(tmp_path)
    write, other = world.write, open_table(world.table.store.location)

    def discarded_before() -> WriteResult:
        discard_item(other, WorkItem(world.zone.app_id, 0))
        return write()

    world.write = discarded_before  # type: ignore[assignment, method-assign]
    with pytest.raises(NotWantedError):
        world.worker(None).land_next(None)  # type: ignore[arg-type]
    assert all_instants(world.zone.store, KIND) == {}
