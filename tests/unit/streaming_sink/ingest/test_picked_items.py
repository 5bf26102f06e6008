"""Work items that another engine has brought to main while a zone still holds them as staged (R27)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streaming_sink.zones import deciding
from streaming_sink.zones.write_audit_publish import settle, unstage_old
from tests.unit.timeline.logs.kinds import CatalogKind
from timeline import staging
from timeline.changes.changes import Append
from timeline.errors import CommitConflictError
from timeline.stores import local_path
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.past import SOURCE_SNAPSHOT_ID
from timeline.versions.staged import find_staged, staged_files, staged_items
from timeline.versions.work_items import WorkItem, discarded_items, published_items

PICKED, WAITING = WorkItem("zone", 0), WorkItem("zone", 1)


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[CatalogKind]:
    made = CatalogKind(tmp_path)
    yield made
    made.close()


@pytest.fixture
def table(kind: CatalogKind) -> Table:
    """A table with two staged items, of which another engine has picked the first."""
    table = kind.create()
    staging.stage_item(table, PICKED, [kind.file([1, 2])])
    staging.stage_item(table, WAITING, [kind.file([3])])
    staged = find_staged(table.refresh(), PICKED)
    assert staged is not None
    summary = {SOURCE_SNAPSHOT_ID: str(staged.snapshot_id)}
    kind.open().commit([Append(staged_files(table.head, staged))], summary=summary)
    return table


def passes(*_: object) -> None:
    """Finds nothing wrong with an item."""


def test_an_item_that_was_picked_is_recorded_once_its_time_is_over(kind: CatalogKind, table: Table) -> None:
    """Without its tag its snapshot would expire, and the item would be written, and land, once more."""
    assert unstage_old(table, "zone", -1) == [WAITING.number]
    assert not staged_items(table.refresh().metadata, "zone")
    assert published_items(table.head.properties, "zone").to_text() == "0"
    assert isinstance(settle(kind.open(), PICKED, passes, 0), AlreadyCommitted)
    assert settle(kind.open(), WAITING, passes, 0) is None
    assert kind.rows() == [1, 2]


@pytest.mark.usefixtures("table")
def test_an_item_that_was_picked_is_not_called_discarded(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deciding, "_find", lambda *_: (None, None, kind.open()))
    monkeypatch.setattr(deciding, "_forget_claims", passes)
    zone: Any = SimpleNamespace(app_id="zone", work_item=lambda number: WorkItem("zone", number))
    for _ in range(2):
        with pytest.raises(ValueError, match="work item 0 has landed already"):
            deciding.discard(zone, PICKED.number)
    deciding.discard(zone, WAITING.number)
    stated = kind.open().head.properties
    assert published_items(stated, "zone").to_text() == "0"
    assert discarded_items(stated, "zone").to_text() == "1"
    assert kind.rows() == [1, 2]


def test_an_item_whose_pick_is_rolled_back_while_it_is_recorded_is_published(
    kind: CatalogKind, table: Table
) -> None:
    picked = kind.read().metadata.current_snapshot()
    assert picked is not None
    before = picked.parent_snapshot_id
    assert before is not None

    def roll_back() -> None:
        with kind.read().manage_snapshots() as manage:
            manage.set_current_snapshot(before)

    ours = kind.create()
    kind.answers.append(roll_back)
    with pytest.raises(CommitConflictError, match="is not in main any more"):
        settle(ours, PICKED, passes, 0)
    assert kind.rows() == []
    assert isinstance(settle(kind.open(), PICKED, passes, 0), Committed)
    assert kind.rows() == [1, 2]


@pytest.mark.parametrize("missing", [False, True], ids=["damaged", "missing"])
def test_an_item_whose_staged_manifest_cannot_be_read_is_written_again_or_discarded(
    kind: CatalogKind, table: Table, missing: bool
) -> None:
    """It is neither published nor written again while it is staged, so nothing else leads out."""
    staged = find_staged(table.refresh(), WAITING)
    assert staged is not None
    listed = table.head.manifest_files.read_list(staged.manifest_list)
    own = next(each for each in listed if each.added_snapshot_id == staged.snapshot_id)
    file = Path(local_path(own.manifest_path))
    file.unlink() if missing else file.write_bytes(b"damaged")
    with pytest.raises(CommitConflictError, match="it is written again"):
        settle(kind.open(), WAITING, passes, 0)
    assert settle(kind.open(), WAITING, passes, 0) is None
    assert isinstance(staging.discard_item(kind.open(), WAITING), Committed)
    assert kind.rows() == [1, 2]
