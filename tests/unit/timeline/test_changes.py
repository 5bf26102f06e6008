"""A kind of change is one class: new kinds need no arm elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from tests.unit.timeline.world import SCHEMA, Audit, Lake
from timeline.changes.changes import Change
from timeline.drafts.draft import Draft
from timeline.errors import CommitConflictError
from timeline.table import Committed
from timeline.versions.head import Head


@dataclass(frozen=True)
class AddColumn(Change):
    """A schema update: metadata only, so it applies itself."""

    column: NestedField

    def find_conflict(self, head: Head, schema_id: int, beside: object) -> str | None:
        if self.column.name in head.schema.column_names:
            return f"another commit has added the column: {self.column.name}"
        return None

    def apply(self, draft: Draft) -> None:
        schema = draft.head.schema
        added = Schema(*schema.fields, self.column, schema_id=schema.schema_id + 1)
        draft.update_metadata(
            schemas=[*draft.metadata.schemas, added],
            current_schema_id=added.schema_id,
            last_column_id=self.column.field_id,
        )


def test_a_schema_update_is_one_class() -> None:
    lake = Lake()
    committed = lake.table.commit([AddColumn(NestedField(3, "note", StringType(), required=False))])
    assert isinstance(committed, Committed)
    assert lake.open().head.schema.column_names == [*SCHEMA.column_names, "note"]
    Audit(lake.store).check_snapshots(lake.open().head.metadata)


def test_a_change_that_no_longer_fits_is_dropped_with_its_own_reason() -> None:
    lake = Lake()
    mine, column = lake.open(), NestedField(3, "note", StringType(), required=False)
    lake.table.commit([AddColumn(column)])
    with pytest.raises(CommitConflictError, match="another commit has added the column: note"):
        mine.commit([AddColumn(column)])
