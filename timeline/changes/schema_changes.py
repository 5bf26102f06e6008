"""The kinds of change that evolve a table's schema and its partitioning, and add to its sort orders. The name
mapping, by which files without field ids are read, keeps the names of the past.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import (
    MappedField,
    NameMapping,
    create_mapping_from_schema,
    parse_mapping_from_json,
)
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import StructType

from timeline import properties
from timeline.changes.changes import Beside, Change, Over
from timeline.drafts.draft import Draft
from timeline.errors import SchemaMismatchError
from timeline.versions.evolution import merge_schemas
from timeline.versions.head import Head
from timeline.versions.partitioning import (
    Repartitioned,
    describe_spec,
    evolve_spec,
    last_partition_id,
    partitions_alike,
    repartitioned_by,
)


@dataclass(frozen=True)
class MergeSchema(Change):
    """Add the fields that only `wanted` has, by name, and widen and relax those that both have; see
    `merge_schemas`. Existing data files stay as they are: their rows have nulls in new fields.

    Writers that add the same field converge on the one that is committed first, and its id. Left out where
    the table's schema has everything already; SchemaMismatchError as `merge_schemas`, and for a new column
    that is named as a partition field.
    """

    over: ClassVar[Over] = Over(
        schema="merged by name",
        specs="names checked",
        when="refused for two types of one name",
    )
    precedes_files: ClassVar[bool] = True

    wanted: StructType
    """Its field ids mean nothing; the table assigns its own."""

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:  # noqa: ARG002 - as the base
        if self.merged(head.metadata) == head.schema:
            return "the table's schema has these fields already"
        return None

    def apply(self, draft: Draft) -> None:
        schema = self.merged(draft.metadata)
        known = draft.metadata.schemas
        draft.update_metadata(
            schemas=known if schema in known else [*known, schema],
            current_schema_id=schema.schema_id,
            last_column_id=max(draft.metadata.last_column_id, schema.highest_field_id),
        )
        if (stored := draft.properties.get(properties.NAME_MAPPING)) is not None:
            draft.properties[properties.NAME_MAPPING] = extend_name_mapping(stored, schema)

    def merged(self, metadata: TableMetadata) -> Schema:
        """Return the table's schema after the change."""
        merged = merge_schemas(metadata.schema(), self.wanted, metadata.last_column_id)
        if merged == metadata.schema():
            return merged
        _check_partition_names(metadata, merged)
        # The current schema may not have the greatest id, nor be the only one of its fields: another engine
        # may have set one back.
        if (same := next((each for each in metadata.schemas if each == merged), None)) is not None:
            return same
        free = max(schema.schema_id for schema in metadata.schemas) + 1
        return merged.model_copy(update={"schema_id": free})


def _check_partition_names(metadata: TableMetadata, merged: Schema) -> None:
    """Raise SchemaMismatchError for a new column that is named as a field of a partition spec: as no table is
    created so, every sink that names its partitions would refuse the table from then on.
    """
    partitions = {field.name for spec in metadata.partition_specs for field in spec.fields}
    known = metadata.schema().field_ids
    for number in merged.field_ids:
        name = merged.find_column_name(number)
        if number not in known and name in partitions:
            raise SchemaMismatchError(
                "a new column has the name of a partition field of the table, which may be that of a column"
                f" that was dropped; rename the column, or leave it out: {name}"
            )


@dataclass(frozen=True)
class AddSortOrder(Change):
    """Register an order that files may be sorted in; no-op where the table has one of the same fields.

    The order gets the next free id, and the table's default order does not change: look the id up by
    `Head.sort_order_id` afterwards. An order never leaves the table, so that files may refer to it for good.
    """

    order: SortOrder

    def apply(self, draft: Draft) -> None:
        draft.update_metadata(sort_orders=self.added_to(draft.metadata.sort_orders))

    def added_to(self, known: Sequence[SortOrder]) -> list[SortOrder]:
        """Return the table's orders after the change."""
        if any(each.fields == self.order.fields for each in known):
            return list(known)
        free = max((each.order_id for each in known), default=0) + 1
        return [*known, self.order.model_copy(update={"order_id": free})]


def extend_name_mapping(stored: str, schema: Schema) -> str:
    """Return a mapping with the names that a schema has besides. Pure.

    What it knows stays: a file that was written before a column was renamed has it under the old name. So a
    new column of that name gets no files without ids. A mapping that cannot be read stays as it is.
    """
    try:
        known = parse_mapping_from_json(stored)
    except ValueError:
        return stored
    merged = _merge(list(known), list(create_mapping_from_schema(schema)))
    return str(NameMapping(merged).model_dump_json())


def _merge(known: Sequence[MappedField], wanted: Sequence[MappedField]) -> list[MappedField]:
    """Return the fields of one struct, those that are known first."""
    taken = {name for field in known for name in field.names}
    now = {field.field_id: field for field in wanted}
    merged = list[MappedField]()
    for field in known:
        more = now.pop(field.field_id, MappedField(names=[]))
        names = [*field.names, *(name for name in more.names if name not in taken)]
        merged.append(_mapped(field.field_id, names, _merge(field.fields, more.fields)))
    return merged + [field for field in now.values() if taken.isdisjoint(field.names)]


def _mapped(field_id: int | None, names: list[str], fields: list[MappedField]) -> MappedField:
    return MappedField(names=names, fields=fields, **{"field-id": field_id})


@dataclass(frozen=True)
class SetPartitioning(Change):
    """Make the spec of the `wanted` fields the table's default; see `evolve_spec`. Files of other specs stay
    as they are, and files that are being written under one of them still land.

    Left out where the default spec partitions alike. An application may return to a spec that the table has
    had only where it has made the present one itself: so of two writers that ask for different ones the later
    one wins, the other is refused from then on, and they never take turns. SchemaMismatchError for that, and
    as `evolve_spec`.
    """

    over: ClassVar[Over] = Over(
        schema="names checked",
        specs="refused",
        when=(
            "where the table has had the spec, and another application has made the present one; else "
            "assigned anew"
        ),
    )
    precedes_files: ClassVar[bool] = True

    wanted: PartitionSpec
    """Its ids mean nothing but those of the source columns; the table assigns its own."""
    app_id: str
    """The application that asks."""

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:  # noqa: ARG002 - as the base
        if partitions_alike(self.wanted, head.spec):
            return "the table is partitioned so already"
        spec = evolve_spec(head.metadata, self.wanted)
        other = repartitioned_by(head.metadata)
        if spec in head.metadata.partition_specs and other not in (None, self.app_id):
            raise SchemaMismatchError(
                f"the table was partitioned by {describe_spec(spec, head.schema)} before, and application"
                f" {other!r} has changed that to {describe_spec(head.spec, head.schema)} since; only that"
                " application may change it back. Give both the same partition_by, or leave it out of this"
                " sink, which then follows the table",
                **head.where,
            )
        return None

    def apply(self, draft: Draft) -> None:
        metadata = draft.metadata
        spec = evolve_spec(metadata, self.wanted)
        specs = metadata.partition_specs
        draft.update_metadata(
            partition_specs=specs if spec in specs else [*specs, spec],
            default_spec_id=spec.spec_id,
            last_partition_id=max([last_partition_id(metadata), *(it.field_id for it in spec.fields)]),
        )
        draft.properties[properties.REPARTITIONED] = Repartitioned(spec.spec_id, self.app_id).to_property()
