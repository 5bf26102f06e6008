"""Two tables in one folder: a renamed table stays where it was, and a catalog creates another one there."""

from __future__ import annotations

import gzip
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError

from tests.unit.timeline.catalogs.test_retention import BRIEF, DISTANCE, EVERY, commits
from tests.unit.timeline.logs.kinds import ARROW, Answers, CatalogKind
from tests.unit.timeline.world import BY_P, SCHEMA
from timeline.catalogs import catalog_version
from timeline.catalogs.opening import open_in_catalog
from timeline.changes.changes import Append
from timeline.errors import UnsupportedTableError
from timeline.maintenance.orphans import remove_orphan_files
from timeline.retention import grace, policy
from timeline.stores import LocalStore, local_path
from timeline.table import Table

GIVEN = {"table_properties": dict(BRIEF.table_properties)}


@pytest.fixture
def kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CatalogKind]:
    for module in (policy, grace):
        monkeypatch.setattr(module, "SAFE_DISTANCE", DISTANCE)
    monkeypatch.setattr(catalog_version, "MAINTAIN_EVERY", EVERY)
    made = CatalogKind(tmp_path)
    made.clock.now_ms = int(time.time() * 1000)
    yield made
    made.close()


def renamed(kind: CatalogKind, namespace: str = "lake") -> Table:
    """Rename the table, and return it under its new name."""
    catalog, name = kind._catalog(Answers()), (*namespace.split("."), "archive")
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(name[:-1])
    catalog.rename_table(("lake", "table"), name)
    return open_in_catalog(catalog, name, LocalStore, kind._environment())


@pytest.mark.parametrize("namespace", ["lake", "attic", "lake.old"])
def test_nothing_is_written_to_an_empty_table_in_the_folder_of_a_renamed_one(
    kind: CatalogKind, namespace: str
) -> None:
    """Nor is it dropped: another process may have opened it."""
    kind.create().commit([Append((kind.file([1]),))])
    archive, other = renamed(kind, namespace), re.escape(f"has the folder of {namespace}.archive")
    for table in (kind.create(), kind.open()):
        with pytest.raises(UnsupportedTableError, match=other):
            table.ensure_store_is_safe()
        with pytest.raises(UnsupportedTableError, match=other):
            table.commit([Append((kind.file([2]),))])
    assert kind.rows() == []
    assert [file.rows for file in archive.refresh().live_files()] == [1]


def test_metadata_of_the_table_itself_has_no_other_namespace_searched(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as that of an attempt that lost: a catalog may have ten thousand tables."""
    table = kind.create()
    written = Path(local_path(table.head.version.identity))
    written.with_name(f"00001-{written.name}").write_bytes(gzip.compress(written.read_bytes()))

    def search(*_: object) -> list[tuple[str, ...]]:
        raise AssertionError("all namespaces are searched")

    monkeypatch.setattr(SqlCatalog, "list_namespaces", search)
    table.commit([Append((kind.file([1]),))])
    remove_orphan_files(table)
    written.with_name("00002-damaged.metadata.json").write_text("{")
    with pytest.raises(AssertionError, match="all namespaces are searched"):
        remove_orphan_files(table)


def test_in_the_folder_of_a_dropped_table_another_one_is_created(kind: CatalogKind) -> None:
    kind.create().commit([Append((kind.file([1]),))])
    kind._catalog(Answers()).drop_table(("lake", "table"))
    kind.create().commit([Append((kind.file([2]),))])
    assert kind.rows() == [2]


@pytest.mark.parametrize("namespace", ["lake", "attic"])
def test_of_two_tables_in_one_folder_neither_deletes_what_is_live_in_the_other(
    kind: CatalogKind, namespace: str
) -> None:
    old = kind.create(**GIVEN)
    old.commit([Append((kind.file([1, 2, 3]),))])
    commits(kind, old, 14 * EVERY)
    archive = renamed(kind, namespace)
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
    with pytest.raises(UnsupportedTableError, match=f"{namespace}.archive has its files in the same folder"):
        remove_orphan_files(new)
