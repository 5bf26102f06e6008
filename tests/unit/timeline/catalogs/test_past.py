"""A table whose files were all written again, and whose snapshots have expired, by its metadata files."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.update import RemoveSnapshotRefUpdate

from tests.unit.timeline.logs.kinds import ARROW, CatalogKind
from timeline.catalogs.memory import Descent, check_memory
from timeline.changes.changes import Append
from timeline.errors import TableReplacedError
from timeline.table import Table


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[CatalogKind]:
    made = CatalogKind(tmp_path)
    yield made
    made.close()


@pytest.fixture
def table(kind: CatalogKind) -> Table:
    """A table with one commit of this protocol."""
    table = kind.create()
    table.commit([Append((kind.file([1]),))])
    return table


def test_a_table_that_was_written_again_in_whole_and_expired_is_told_from_a_replaced_one(
    kind: CatalogKind, table: Table
) -> None:
    rows = pa.table({"id": [1], "p": [0]}, schema=ARROW)
    kind.read().overwrite(rows)
    kind.read().overwrite(rows)
    _expire_all_but_main(kind.read())
    table.refresh()
    assert check_memory(table.head) is Descent.EXPIRED
    table.commit([Append((kind.file([2]),))])
    assert kind.rows() == [1, 2]


def test_a_table_that_was_replaced_is_found_by_the_change_that_began_main_anew(
    kind: CatalogKind, table: Table
) -> None:
    loaded = kind.read()
    loaded.catalog.commit_table(loaded, (), (RemoveSnapshotRefUpdate(ref_name="main"),))
    kind.read().append(pa.table({"id": [9], "p": [0]}, schema=ARROW))
    _expire_all_but_main(kind.read())
    table.refresh()
    with pytest.raises(TableReplacedError, match="was replaced since"):
        table.commit([Append((kind.file([2]),))])
    assert kind.rows() == [9]


@pytest.mark.parametrize(
    "damage",
    [b"damaged", gzip.compress(b"{}" * 99, mtime=0)[:-12], b"\x1f\x8b\x08"],
    ids=["text", "cut off", "header alone"],
)
def test_without_its_metadata_files_it_cannot_be_decided(
    kind: CatalogKind, table: Table, damage: bytes
) -> None:
    rows = pa.table({"id": [1], "p": [0]}, schema=ARROW)
    kind.read().overwrite(rows)
    _expire_all_but_main(kind.read())
    table.refresh()
    log = table.head.metadata.metadata_log
    Path(log[-1].metadata_file.removeprefix("file://")).write_bytes(damage)
    with pytest.raises(TableReplacedError, match="cannot be decided"):
        check_memory(table.head)


def _expire_all_but_main(table: Any) -> None:
    gone = [it.snapshot_id for it in table.snapshots() if it != table.current_snapshot()]
    table.maintenance.expire_snapshots().by_ids(gone).commit()
