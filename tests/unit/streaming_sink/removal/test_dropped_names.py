"""`drop_tag` and `drop_branch`: what a name kept leaves, by a purge too, and readers read on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

import streaming_sink
from streaming_sink import PathTable, check_gone
from streaming_sink.removal import until
from streaming_sink.removal.leftovers import LeftoverKind
from streaming_sink.removal.report import StillThere
from tests.readers.judges import assert_reader_agrees
from tests.unit.streaming_sink.removal.people import ALICE, People
from tests.unit.streaming_sink.removal.test_purge import GONE, PLAIN, start, ticking
from tests.unit.streaming_sink.removal.test_purge_in_catalogs import DISTANCE, Lake, lake
from tests.unit.timeline.logs.kinds import Answers
from tests.unit.timeline.world import BY_P, DAY_MS, SCHEMA
from timeline import properties, staging
from timeline.catalogs.opening import create_in_catalog
from timeline.changes.follow_changes import HoldFollowed, NameSecondTable
from timeline.changes.purge_changes import AppendNothing
from timeline.retention import grace, policy
from timeline.stores import LocalStore
from timeline.table import Table
from timeline.versions.outbox import catalog_address
from timeline.versions.work_items import WorkItem

__all__ = ["lake"]
DROPS = {"tag": streaming_sink.drop_tag, "branch": streaming_sink.drop_branch}
each_kind = pytest.mark.parametrize("kind", DROPS)


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[People]:
    """A table of other people on a disk, whose time is that of its tests for whoever opens it."""
    for module in (policy, grace, until):
        monkeypatch.setattr(module, "SAFE_DISTANCE", DISTANCE)
    made = People(tmp_path / "people", **{**PLAIN, properties.DELETION_GRACE_MS: "60000"})
    made.append(1, 2, 3)
    environment = ticking(made)
    with mock.patch.object(PathTable, "open", lambda self: Table.open(self.store(), environment)):
        yield made


def purge_for_hours(people: People) -> list[StillThere]:
    """Purge a table, and return what is left in the end, but for hashes."""
    job = start(people)
    job.run()
    job.wait(6 * 3600.0)
    return [each for each in job.report().tables[0].left if each.kind is not LeftoverKind.TOMBSTONE]


@each_kind
def test_a_purge_that_a_name_has_stopped_goes_to_its_end_once_it_is_dropped(
    people: People, kind: str
) -> None:
    path = people.append(ALICE, 4)
    people.tag("release-7", kind)
    snapshot_id = people.table.head.metadata.current_snapshot_id
    people.append(5)
    with pytest.raises(
        ValueError, match=rf"kept by {kind} 'release-7'.*`streaming-sink drop-tag`, `drop-branch`"
    ):
        start(people).run()
    (tagged,) = (it for it in check_gone(people.location, GONE).findings if it.kind == "gone-row-tagged")
    assert "`streaming-sink drop-tag` or `drop-branch`" in tagged.repair
    assert DROPS[kind](people.location, "release-7") == snapshot_id
    assert people.holds(path), "nothing leaves at once"
    assert purge_for_hours(people) == []
    assert not people.holds(path)
    assert check_gone(people.location, GONE).healthy
    rows = {"user_id": [1, 2, 3, 4, 5], "at": [0, 1, 2, 1, 0]}
    rows |= {"name": [f"name of {it}" for it in rows["user_id"]], "_rescued": [None] * 5}  # type: ignore[dict-item]
    for reader in ("pyiceberg", "duckdb", "polars"):
        assert_reader_agrees(reader, people.location, pa.table(rows))


@each_kind
def test_a_name_that_the_table_does_not_have_is_refused(people: People, kind: str) -> None:
    people.tag("release-7")
    with pytest.raises(ValueError, match=f"no {kind} 'release', but tag 'release-7'"):
        DROPS[kind](people.location, "release")
    with pytest.raises(ValueError, match="main is the table, and is never removed"):
        DROPS[kind](people.location, "main")
    people.tag("wap", "branch")
    with pytest.raises(ValueError, match="no tag 'wap', but tag 'release-7', branch 'wap'"):
        streaming_sink.drop_tag(people.location, "wap")


def test_a_work_item_of_a_zone_that_is_gone_leaves_with_its_tag(
    people: People, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can publish or discard it any more, and it would keep the rows for ever."""
    item = WorkItem("zone", 7)
    (file,) = people.write(ALICE)
    with mock.patch("timeline.commit.conflicts.check_keys_of_new_rows_are_known"):
        staging.stage_item(people.table, item, [file])
    people.append(6)
    with pytest.raises(
        ValueError, match=r"staged snapshot 'zone-7'.*or drop its tag, wap-…, if there is no zone"
    ):
        start(people).run()
    with caplog.at_level(logging.WARNING):
        streaming_sink.drop_tag(people.location, "wap-zone-7")
    assert "work item 7 of 'zone' is not staged any more" in caplog.text
    assert people.holds(file.file_path)
    (left,) = purge_for_hours(people)
    assert left.kind is LeftoverKind.ORPHAN, "what a staged snapshot alone had is the orphan cleaner's"
    people.clock.now_ms += 2 * DAY_MS
    people.table.refresh()
    people.pass_versions(1)
    assert purge_for_hours(people) == []
    assert not people.holds(file.file_path)
    assert people.rows() == [1, 2, 3, 6]


# in a catalog -------------------------------------------------------------------------------------


@each_kind
def test_a_name_that_pyiceberg_has_set_in_a_catalog_is_dropped(lake: Lake, kind: str) -> None:
    lake.ours(1, ALICE)
    lake.theirs(2)
    tagged = lake.snapshots()[-1]
    edit = lake.kind.read().manage_snapshots()
    (edit.create_tag if kind == "tag" else edit.create_branch)(tagged, "release-7").commit()
    lake.theirs(3)
    with pytest.raises(ValueError, match=f"kept by {kind} 'release-7'"):
        lake.purge().run()
    assert DROPS[kind](lake.place, "release-7") == tagged
    assert lake.kind.read().metadata.refs.keys() == {"main"}
    assert tagged in lake.snapshots()
    job = lake.purge()
    job.run()
    job.wait(150.0)
    assert lake.kind.rows() == [1, 2, 3]
    assert tagged not in lake.snapshots()
    metadata = lake.kind.read().metadata_location.removeprefix("file://")
    for reader in ("pyiceberg", "duckdb"):
        assert_reader_agrees(reader, metadata, pa.table({"id": [1, 2, 3], "p": [0, 0, 0]}))


def test_what_another_engine_has_committed_to_a_branch_alone_is_left_to_it(lake: Lake) -> None:
    lake.ours(1)
    edit = lake.kind.read().manage_snapshots()
    edit.create_branch(lake.snapshots()[-1], "theirs").commit()
    rows = pa.table({"id": pa.array([2]), "p": pa.array([0], pa.int32())})
    lake.kind.read().append(rows, branch="theirs")
    newest = lake.kind.read().metadata.refs["theirs"].snapshot_id
    assert streaming_sink.drop_branch(lake.place, "theirs") == newest
    assert newest in lake.snapshots()
    assert lake.kind.rows() == [1]
    streaming_sink.expire_snapshots(lake.place, max_snapshot_age="1 second", min_snapshots_to_keep=1)
    assert newest in lake.snapshots(), "R32"


def test_the_tag_of_a_change_log_is_dropped_once_the_log_is_gone(lake: Lake) -> None:
    lake.ours(1)
    catalog = lake.kind._catalog(Answers())
    log = create_in_catalog(catalog, ("lake", "changes"), LocalStore, SCHEMA, BY_P, {})
    uuid = str(log.head.metadata.table_uuid)
    lake.table.commit([NameSecondTable(catalog_address(("lake", "changes")), uuid)])
    lake.table.commit([AppendNothing(), HoldFollowed(uuid)])
    with pytest.raises(ValueError, match=r"what a change log has followed.*catalog:lake\.changes"):
        streaming_sink.drop_tag(lake.place, f"followed-{uuid}")
    catalog.rename_table(("lake", "changes"), ("lake", "moved"))
    with pytest.raises(ValueError, match="what a change log has followed"):
        streaming_sink.drop_tag(lake.place, f"followed-{uuid}")
    assert f"followed-{uuid}" in lake.kind.read().metadata.refs
    catalog.drop_table(("lake", "moved"))
    streaming_sink.drop_tag(lake.place, f"followed-{uuid}")
    assert f"followed-{uuid}" not in lake.kind.read().metadata.refs
