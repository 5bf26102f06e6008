"""The tags by which a main table in a catalog holds what its change logs have followed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.timeline.logs.kinds import CatalogKind, VersionFilesKind
from timeline import properties
from timeline.catalogs import catalog_version
from timeline.changes.changes import Append, Change, Replace
from timeline.changes.follow_changes import HoldFollowed, NameSecondTable
from timeline.diagnosis import doctor_in_catalog
from timeline.errors import CommitConflictError
from timeline.retention import grace, policy
from timeline.table import Table
from timeline.versions.outbox import catalog_address

DISTANCE, EVERY = 6, 4
"""Of commits, in the place of 100 and 20."""
DAY_MS = 24 * 3_600_000
BRIEF = {
    properties.MAX_SNAPSHOT_AGE_MS: "1000",
    properties.MIN_SNAPSHOTS_TO_KEEP: "1",
    properties.MAX_SNAPSHOTS: "5000",
}


@pytest.fixture
def kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CatalogKind]:
    for module in (policy, grace):
        monkeypatch.setattr(module, "SAFE_DISTANCE", DISTANCE)
    monkeypatch.setattr(catalog_version, "MAINTAIN_EVERY", EVERY)
    made = CatalogKind(tmp_path)
    made.clock.now_ms = int(time.time() * 1000)  # pyiceberg's own commits have this machine's time
    yield made
    made.close()


def land(table: Table, kind: Any, row: int, log: str = "log") -> int:
    """Land a batch of a sink with a change log, and return the snapshot that it makes."""
    kind.clock.now_ms += 10_000
    changes: list[Change] = [Append((kind.file([row]),)), HoldFollowed(log)]
    table.commit(changes)
    assert table.head.snapshot is not None
    return table.head.snapshot.snapshot_id


def held(kind: CatalogKind) -> dict[str, int]:
    refs = kind.read().metadata.refs
    return {name: ref.snapshot_id for name, ref in refs.items() if name != "main"}


def remove_tags(kind: CatalogKind) -> None:
    """Do as another engine does."""
    for name in held(kind):
        kind.read().manage_snapshots().remove_tag(name).commit()


def test_the_tag_of_a_log_goes_with_each_batch_and_costs_no_commit(kind: CatalogKind) -> None:
    table = kind.create()
    assert held(kind) == {}
    for row in range(3):
        assert {"followed-log": land(table, kind, row)} == held(kind)
    assert len(kind.read().metadata.snapshots) == 3
    assert kind.rows() == [0, 1, 2]


def test_each_log_has_a_tag(kind: CatalogKind) -> None:
    table = kind.create()
    first, second = land(table, kind, 1, "a"), land(table, kind, 2, "b")
    assert held(kind) == {"followed-a": first, "followed-b": second}


def test_another_engines_expiry_leaves_what_a_log_has_followed(kind: CatalogKind) -> None:
    table = kind.create()
    land(table, kind, 1)
    followed = land(table, kind, 2)
    kind.read().delete("id == 1")
    later = datetime.now() + timedelta(days=1)  # noqa: DTZ005 - as pyiceberg takes it
    kind.read().maintenance.expire_snapshots().older_than(later).commit()
    left = [it.snapshot_id for it in kind.read().metadata.snapshots]
    assert left == [followed, kind.read().metadata.current_snapshot_id]
    assert kind.rows(followed) == [1, 2]


def test_a_tag_that_another_engine_has_removed_is_set_anew(kind: CatalogKind) -> None:
    table = kind.create()
    land(table, kind, 1)
    remove_tags(kind)
    assert held(kind) == {}
    assert {"followed-log": land(table, kind, 2)} == held(kind)
    kind.answers.append(lambda: remove_tags(kind))
    assert {"followed-log": land(table, kind, 3)} == held(kind)
    assert kind.rows() == [1, 2, 3]


def test_no_commit_is_made_for_the_tag_alone(kind: CatalogKind) -> None:
    table = kind.create()
    land(table, kind, 1)
    late = Replace(frozenset({"another has replaced it"}), (kind.file([1]),))
    with pytest.raises(CommitConflictError, match="plan it again"):
        table.commit([late, HoldFollowed("log")])


def test_the_expiry_of_a_table_leaves_what_is_held_until_it_is_30_days_old(kind: CatalogKind) -> None:
    table = kind.create(table_properties=BRIEF)
    followed = land(table, kind, 0)
    land(table, kind, 1, "another")

    def others_commit() -> set[int]:
        for row in range(4 * DISTANCE):
            kind.clock.now_ms += 10_000
            table.commit([Append((kind.file([row]),))])
        return {it.snapshot_id for it in kind.read().metadata.snapshots}

    left = others_commit()
    assert len(left) < 4 * DISTANCE
    assert left >= set(held(kind).values())
    assert "followed-log" in held(kind)
    kind.clock.now_ms += 30 * DAY_MS
    assert followed not in others_commit()
    assert held(kind) == {}


def test_a_table_of_version_files_has_none(tmp_path: Path) -> None:
    """Nobody else expires there, and what this sink expires lies a hundred versions back."""
    kind = VersionFilesKind(tmp_path)
    land(kind.create(), kind, 1)
    assert set(kind.read().metadata.refs) == {"main"}


def test_the_doctor_names_them_and_says_which_log_is_not_known(kind: CatalogKind) -> None:
    table = kind.create()
    land(table, kind, 1, "known")
    land(table, kind, 2, "gone")
    table.commit([NameSecondTable(catalog_address(("lake", "changes")), "known")])
    diagnosis = doctor_in_catalog(kind.open(), "lake:db.events", lambda _: table)
    assert [value for name, value in diagnosis.facts if name == "followed"] == [
        "followed-gone, of a log that the table does not name",
        "followed-known",
    ]
