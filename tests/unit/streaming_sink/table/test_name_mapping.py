"""Whether files without field ids are read by the names of their columns, where other engines rename them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from streaming_sink.table.arrow_types import needs_field_ids
from tests.unit.timeline.logs.kinds import CatalogKind
from tests.unit.timeline.world import Lake
from timeline.properties import NAME_MAPPING


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[CatalogKind]:
    made = CatalogKind(tmp_path)
    yield made
    made.close()


def rename(table: Any) -> None:
    with table.update_schema() as update:
        update.rename_column("id", "number")


def drop_and_add(table: Any) -> None:
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("id")
    with table.refresh().update_schema() as update:
        update.add_column("id", LongType())


def reorder(table: Any) -> None:
    with table.update_schema() as update:
        update.move_first("p")


def forget_names(table: Any) -> None:
    with table.transaction() as transaction:
        transaction.remove_properties(NAME_MAPPING)


@pytest.mark.parametrize(
    ("change", "needed"),
    [(lambda _: None, False), (reorder, False), (rename, True), (drop_and_add, False), (forget_names, True)],
    ids=["as it was", "reordered", "renamed", "another column of the name", "no mapping"],
)
def test_names_say_which_columns_a_file_has_unless_one_was_renamed(
    kind: CatalogKind, change: Callable[[Any], None], needed: bool
) -> None:
    """A column that is dropped and added again is, by the mapping, what a file has under the name: so do all
    readers read it.
    """
    table = kind.create()
    change(kind.read())
    assert needs_field_ids(table.refresh()) is needed


@pytest.mark.parametrize("text", ["", "1", "[1]", '[{"field-id": 1}]'])
def test_a_mapping_that_cannot_be_read_says_nothing(kind: CatalogKind, text: str) -> None:
    table = kind.create()
    with kind.read().transaction() as transaction:
        transaction.set_properties({NAME_MAPPING: text})
    assert needs_field_ids(table.refresh())


def test_no_column_of_a_table_of_version_files_is_renamed() -> None:
    assert not needs_field_ids(Lake().table.head)
