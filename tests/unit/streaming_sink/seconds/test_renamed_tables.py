"""Second tables of a catalog that were renamed: what waits for one is not given up, wherever it is (R24)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from streaming_sink.options.values.tables import CatalogTable
from streaming_sink.seconds.second_table import open_named, open_or_create
from tests.unit.timeline.world import SCHEMA
from timeline.errors import TableNotFoundError, TableRenamedError
from timeline.versions.head import Head


def takes_any(head: Head) -> None:
    """A check that any table passes."""


@pytest.mark.parametrize("name", ["lake.other", "attic.rejected", "attic.old.rejected"])
def test_a_second_table_that_was_renamed_is_named_and_no_other_is_made(tmp_path: Path, name: str) -> None:
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    table = CatalogTable("lake.rejected", catalog, create_namespace=True)
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
