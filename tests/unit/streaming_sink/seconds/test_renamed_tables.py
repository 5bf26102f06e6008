"""Second tables of a catalog that were renamed: what waits for one is not given up, wherever it is (R24)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from streaming_sink.options.values import catalog_tables
from streaming_sink.options.values.tables import CatalogTable
from streaming_sink.seconds.second_table import open_named, open_or_create
from tests.unit.timeline.world import SCHEMA
from timeline.errors import TableNotFoundError, TableRenamedError
from timeline.versions.head import Head


def takes_any(head: Head) -> None:
    """A check that any table passes."""


def catalog_at(folder: Path) -> dict[str, str]:
    where = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    return {"type": "sql", **where}


@pytest.mark.parametrize("name", ["lake.other", "attic.rejected", "attic.old.rejected"])
def test_a_second_table_that_was_renamed_is_named_and_no_other_is_made(tmp_path: Path, name: str) -> None:
    table = CatalogTable("lake.rejected", catalog_at(tmp_path), create_namespace=True)
    uuid = str(table.create(SCHEMA, UNPARTITIONED_PARTITION_SPEC, {}).head.metadata.table_uuid)
    connected, new = table._connect(), table.beside(name)
    connected.create_namespace_if_not_exists(new.table[:-1])
    connected.rename_table(tuple(table.table), tuple(new.table))
    for _ in range(2):
        with pytest.raises(TableRenamedError, match=f"is .*:{name} by now, by its uuid {uuid}"):
            open_or_create(table, uuid, SCHEMA, takes_any)
        with pytest.raises(TableNotFoundError):
            table.open()
    assert str(open_named(new, uuid).head.metadata.table_uuid) == uuid
    connected.drop_table(tuple(new.table))
    made = open_or_create(table, uuid, SCHEMA, takes_any)
    assert str(made.head.metadata.table_uuid) != uuid


def test_a_table_that_was_nowhere_is_not_looked_for_everywhere_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of a zone whose table was dropped asks each time that someone looks at it."""
    searched: list[object] = []
    plain = SqlCatalog.list_namespaces

    def search(catalog: SqlCatalog, *given: str) -> object:
        searched.append(given)
        return plain(catalog, *given)

    monkeypatch.setattr(SqlCatalog, "list_namespaces", search)
    table = CatalogTable("lake.gone", catalog_at(tmp_path), create_namespace=True)
    table.create(SCHEMA, UNPARTITIONED_PARTITION_SPEC, {})
    for _ in range(3):
        assert table.find_renamed("01", recently=True) is None
    first = len(searched)
    assert table.find_renamed("02", recently=True) is None
    assert len(searched) == 2 * first > 0
    monkeypatch.setattr(catalog_tables, "_NOWHERE_UNTIL", {})
    assert table.find_renamed("01", recently=True) is None
    assert len(searched) == 3 * first


def test_what_waits_for_a_table_is_given_up_only_after_a_look_everywhere(tmp_path: Path) -> None:
    """A look of some minutes ago may have come before its namespace could be read."""
    table = CatalogTable("lake.rejected", catalog_at(tmp_path), create_namespace=True)
    uuid = str(table.create(SCHEMA, UNPARTITIONED_PARTITION_SPEC, {}).head.metadata.table_uuid)
    connected = table._connect()
    place = connected.load_table(tuple(table.table)).metadata_location
    connected.drop_table(tuple(table.table))
    with pytest.raises(TableNotFoundError):
        open_named(table, uuid)
    connected.create_namespace("attic")
    connected.register_table(("attic", "rejected"), place)
    with pytest.raises(TableRenamedError, match=r"attic\.rejected"):
        open_named(table, uuid)
