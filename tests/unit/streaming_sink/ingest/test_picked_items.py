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
from timeline.table import AlreadyCommitted, Table
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
