"""Two tables in one folder: a renamed table stays where it was, and a catalog creates another one there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.timeline.catalogs.test_retention import BRIEF, DISTANCE, EVERY, commits
from tests.unit.timeline.logs.kinds import ARROW, Answers, CatalogKind
from tests.unit.timeline.world import BY_P, SCHEMA
from timeline.catalogs import catalog_version
from timeline.catalogs.opening import open_in_catalog
from timeline.changes.changes import Append
from timeline.errors import UnsupportedTableError
from timeline.maintenance.orphans import remove_orphan_files
from timeline.retention import garbage, policy
from timeline.stores import LocalStore
from timeline.table import Table

GIVEN = {"table_properties": dict(BRIEF.table_properties)}


@pytest.fixture
def kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CatalogKind]:
    for module in (policy, garbage):
        monkeypatch.setattr(module, "SAFE_DISTANCE", DISTANCE)
    monkeypatch.setattr(catalog_version, "MAINTAIN_EVERY", EVERY)
    made = CatalogKind(tmp_path)
    made.clock.now_ms = int(time.time() * 1000)
    yield made
    made.close()


def renamed(kind: CatalogKind) -> Table:
    """Rename the table, and return it under its new name."""
    catalog = kind._catalog(Answers())
    catalog.rename_table(("lake", "table"), ("lake", "archive"))
    return open_in_catalog(catalog, ("lake", "archive"), LocalStore, kind._environment())


def test_nothing_is_written_to_an_empty_table_in_the_folder_of_a_renamed_one(kind: CatalogKind) -> None:
    """Nor is it dropped: another process may have opened it."""
    kind.create().commit([Append((kind.file([1]),))])
    archive = renamed(kind)
    for table in (kind.create(), kind.open()):
        with pytest.raises(UnsupportedTableError, match=r"has the folder of lake\.archive"):
            table.ensure_store_is_safe()
        with pytest.raises(UnsupportedTableError, match=r"has the folder of lake\.archive"):
            table.commit([Append((kind.file([2]),))])
    assert kind.rows() == []
    assert [file.rows for file in archive.refresh().live_files()] == [1]


def test_in_the_folder_of_a_dropped_table_another_one_is_created(kind: CatalogKind) -> None:
    kind.create().commit([Append((kind.file([1]),))])
    kind._catalog(Answers()).drop_table(("lake", "table"))
    kind.create().commit([Append((kind.file([2]),))])
    assert kind.rows() == [2]


def test_of_two_tables_in_one_folder_neither_deletes_what_is_live_in_the_other(kind: CatalogKind) -> None:
    old = kind.create(**GIVEN)
    old.commit([Append((kind.file([1, 2, 3]),))])
    commits(kind, old, 14 * EVERY)
    archive = renamed(kind)
    kind._catalog(Answers()).create_table(
        ("lake", "table"), SCHEMA, partition_spec=BY_P, properties={**GIVEN["table_properties"]}
    )  # as another engine does
    kind.read().append(pa.table({"id": [6], "p": [0]}, schema=ARROW))
    new = kind.open()
    assert new.head.metadata.location == archive.head.metadata.location
    new.commit([Append((kind.file([7, 8]),))])
    commits(kind, new, 4 * EVERY)
    for number in range(6 * EVERY):
        commits(kind, archive, 1)
        if number % 6 == 0:
            commits(kind, new, 1)
        assert kind.rows() == [6, 7, 8]
    with pytest.raises(UnsupportedTableError, match=r"lake\.archive has its files in the same folder"):
        remove_orphan_files(new)
