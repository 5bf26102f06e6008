"""The tags of work items that are staged: removed, an item is written again, and lands once (R27)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType

from tests.unit.timeline.logs.kinds import CatalogKind, Kind, VersionFilesKind
from tests.unit.timeline.world import Lake
from timeline import staging
from timeline.changes.changes import Append
from timeline.changes.ref_changes import RemoveRef
from timeline.errors import CommitConflictError
from timeline.refs import remove_ref
from timeline.table import Committed, Table
from timeline.versions.past import SOURCE_SNAPSHOT_ID
from timeline.versions.staged import find_staged, staged_files
from timeline.versions.work_items import WorkItem, published_items, settled_items

TAG = SnapshotRefType.TAG
ITEM = WorkItem("a-zone", 7)


@pytest.fixture(params=["version files", "catalog"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    made = VersionFilesKind(tmp_path) if request.param == "version files" else CatalogKind(tmp_path)
    yield made
    if isinstance(made, CatalogKind):
        made.close()


def refs(kind: Kind) -> dict[str, int]:
    """The refs beside main, as pyiceberg reads them."""
    return {name: ref.snapshot_id for name, ref in kind.read().metadata.refs.items() if name != "main"}


def stage(kind: Kind) -> Table:
    table = kind.create()
    table.commit([Append((kind.file([1]),))])
    staging.stage_item(table, ITEM, [kind.file([2, 3])])
    return table


def test_a_work_item_whose_tag_is_removed_is_written_again_and_lands_once(kind: Kind) -> None:
    table = stage(kind)
    staged = find_staged(table.head, ITEM)
    assert staged is not None
    worker = kind.open()
    assert remove_ref(table, ITEM.tag, TAG) == staged.snapshot_id
    assert refs(kind) == {}
    with pytest.raises(CommitConflictError, match="is not staged in snapshot"):
        staging.publish_item(worker, ITEM, snapshot_id=staged.snapshot_id)
    assert 7 not in settled_items(kind.open().head.properties, "a-zone")
    staging.stage_item(worker, ITEM, [kind.file([2, 3])])
    staging.publish_item(worker, ITEM)
    assert kind.rows() == [1, 2, 3]


def test_a_worker_that_has_looked_before_publishes_nothing_of_it(kind: Kind) -> None:
    table = stage(kind)
    kind.answers.append(lambda: remove_ref(kind.open(), ITEM.tag, TAG))
    with pytest.raises(CommitConflictError, match="no longer staged"):
        staging.publish_item(table, ITEM)
    assert kind.rows() == [1]


def test_an_item_that_lands_meanwhile_has_landed(kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    table = stage(kind)
    kind.answers.append(lambda: staging.publish_item(kind.open(), ITEM))
    remove_ref(table, ITEM.tag, TAG)
    assert refs(kind) == {}
    assert "was published or discarded before that, and is not written again" in caplog.text
    assert "writes it again" not in caplog.text
    assert kind.rows() == [1, 2, 3]
    assert published_items(kind.open().head.properties, "a-zone").to_text() == "7"


def test_no_other_commit_takes_the_tag_of_an_item_that_is_staged(kind: Kind) -> None:
    table = stage(kind)
    held = refs(kind)[ITEM.tag]
    with pytest.raises(CommitConflictError, match="work item 7 of 'a-zone'; nothing was changed"):
        table.commit([RemoveRef(ITEM.tag, held, TAG)])
    assert refs(kind) == {ITEM.tag: held}


def test_an_item_that_another_engine_has_brought_to_main_is_recorded_as_published(tmp_path: Path) -> None:
    """Without its tag nothing might show that, and it would land twice."""
    kind = CatalogKind(tmp_path)
    table = stage(kind)
    staged = find_staged(table.head, ITEM)
    assert staged is not None
    picked = {SOURCE_SNAPSHOT_ID: str(staged.snapshot_id)}
    kind.open().commit([Append(staged_files(table.head, staged))], summary=picked)
    remove_ref(table, ITEM.tag, TAG)
    assert refs(kind) == {}
    assert 7 in published_items(kind.open().head.properties, "a-zone")
    assert kind.rows() == [1, 2, 3]
    kind.close()


@pytest.mark.parametrize("name", ["wap-a-zone-7", "wap-a-zone-x", "wap-7", "wap-a-zone-07", "wap-"])
def test_a_tag_that_holds_no_item_is_a_tag_as_any_other(name: str) -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    current = lake.table.head.metadata.current_snapshot_id
    tag = SnapshotRef.model_validate({"snapshot-id": current, "type": "tag"})
    lake.change_metadata(lambda metadata: {"refs": {**metadata.refs, name: tag}})
    lake.open().commit([RemoveRef(name, tag.snapshot_id, TAG)])
    lake.change_metadata(lambda metadata: {"refs": {**metadata.refs, name: tag}})
    remove_ref(lake.open(), name, TAG)
    head = lake.open().head
    assert name not in head.metadata.refs
    assert not [key for key in head.properties if "items" in key], "no item was settled"


def test_what_another_engine_has_staged_under_such_a_name_is_no_item() -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    staging.stage_item(lake.table, ITEM, [lake.file()])
    theirs = lake.table.head.metadata.snapshots[-1]
    assert theirs.summary is not None
    bare = theirs.model_copy(update={"summary": type(theirs.summary)("append", **{"wap.id": ITEM.wap_id})})
    lake.change_metadata(lambda metadata: {"snapshots": [*metadata.snapshots[:-1], bare]})
    table = lake.open()
    table.commit([RemoveRef(ITEM.tag, theirs.snapshot_id, TAG)])
    assert ITEM.tag not in lake.open().head.metadata.refs


def test_the_tag_of_an_item_that_is_settled_is_a_tag_as_any_other() -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    staging.stage_item(lake.table, ITEM, [lake.file()])
    ref = lake.table.head.metadata.refs[ITEM.tag]
    staging.publish_item(lake.table, ITEM)
    lake.change_metadata(lambda metadata: {"refs": {**metadata.refs, ITEM.tag: ref}})
    rows = lake.live_rows()
    remove_ref(lake.open(), ITEM.tag, TAG)
    assert ITEM.tag not in lake.open().head.metadata.refs
    assert lake.live_rows() == rows


def test_a_second_tag_of_what_is_staged_is_not_the_items() -> None:
    lake = Lake()
    staging.stage_item(lake.table, ITEM, [lake.file()])
    ref = lake.table.head.metadata.refs[ITEM.tag]
    lake.change_metadata(lambda metadata: {"refs": {**metadata.refs, "wap-a-zone-07": ref}})
    remove_ref(lake.open(), "wap-a-zone-07", TAG)
    assert lake.open().head.metadata.refs == {ITEM.tag: ref}
    assert isinstance(staging.publish_item(lake.open(), ITEM), Committed)
