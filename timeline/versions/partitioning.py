"""Partition evolution: the spec that a table gets for wanted fields, and which application changed it last.

The Iceberg spec, "Partition Evolution": the id of a partition field means one source column and one
transform, in all specs of the table. All functions are pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform, VoidTransform
from pyiceberg.types import DecimalType, FloatType, IcebergType, IntegerType, NestedField

from timeline import properties
from timeline.errors import SchemaMismatchError, UnsupportedTableError
from timeline.manifests.entries import LiveFile
from timeline.manifests.manifest_format import check_partition_names

_WIDENED = IntegerType, FloatType, DecimalType
_Meaning = tuple[int, str]
"""The id of the source column, and the transform as metadata spells it."""


class Repartitioned(NamedTuple):
    """The last change of the table's default spec by this protocol."""

    spec_id: int
    app_id: str

    def to_property(self) -> str:
        return json.dumps({"spec-id": self.spec_id, "app-id": self.app_id})


def partitions_alike(one: PartitionSpec, other: PartitionSpec) -> bool:
    """Return whether two specs put rows into the same partitions: the same transforms of the same columns in
    the same order. A `void` transform, which other engines leave where they remove a field, does not count.
    """
    return _meanings(one) == _meanings(other)


def describe_spec(spec: PartitionSpec, schema: Schema) -> str:
    """Return a spec as `partition_by` spells it: "day(event_time), bucket(16, id)", or "nothing"."""
    return ", ".join(_spelled(field, schema) for field in _used(spec)) or "nothing"


def evolve_spec(metadata: TableMetadataV2, wanted: PartitionSpec) -> PartitionSpec:
    """Return the table's spec of the `wanted` fields: one that it has, or a new one. The ids of `wanted` mean
    nothing; the table assigns its own.

    A field that any spec of the table has had keeps its id and its name. A new one gets the next id above all
    that were ever assigned, and a name that no other field of the table has.

    SchemaMismatchError where a field would have the name of a column, or one that manifests cannot spell
    beside another.
    """
    for known in metadata.partition_specs:
        if partitions_alike(known, wanted):
            return known
    ever = [field for spec in metadata.partition_specs for field in _used(spec)]
    of_meaning = {_meaning(field): field for field in reversed(ever)}
    taken = {field.name for field in ever}
    last_id = last_partition_id(metadata)
    fields: list[PartitionField] = []
    for field in wanted.fields:
        known_field = of_meaning.get(_meaning(field))
        if known_field is None:
            last_id += 1
            name = _free_name(field, taken, metadata.schema())
            known_field = PartitionField(field.source_id, last_id, field.transform, name)
            taken.add(name)
        fields.append(known_field)
    spec = PartitionSpec(*fields, spec_id=max(spec.spec_id for spec in metadata.partition_specs) + 1)
    try:
        check_partition_names(spec.partition_type(metadata.schema()))
    except ValueError as unspellable:
        raise SchemaMismatchError(f"the table cannot be partitioned so: {unspellable}") from unspellable
    return spec


def last_partition_id(metadata: TableMetadataV2) -> int:
    """Return the greatest id that a partition field of the table was ever given; 999 where there is none."""
    ever = (field.field_id for spec in metadata.partition_specs for field in spec.fields)
    return max(PARTITION_FIELD_ID_START - 1, metadata.last_partition_id or 0, *ever)


def schemas_of_spec(metadata: TableMetadataV2, spec: PartitionSpec) -> tuple[Schema, Schema | None]:
    """Return the schema in which the manifests of a spec are written: the table's own, and with it, optional
    and of their newest types, the columns of the spec that another engine has dropped, without which a
    manifest has no place for the values that files have. And the schema of the table that such a manifest
    states: the newest one that has its columns. None where it is the same.

    UnsupportedTableError where no schema has such a column any more, and the type of a value depends on it.
    """
    dropped = _dropped_columns(metadata, spec)
    if None in dropped.values():
        raise UnsupportedTableError(
            f"{describe_lost_types(spec.spec_id)}; nothing was changed. Have that engine rewrite the files of"
            f" that spec: {metadata.location}",
            location=metadata.location,
        )
    schema, columns = metadata.schema(), []
    if not dropped:
        return schema, None
    for field_id, kind in dropped.items():
        name = f"dropped_{field_id}"
        while name in schema.column_names:
            name += "_"
        columns.append(NestedField(field_id, name, kind, required=False))
    return Schema(*schema.fields, *columns, schema_id=schema.schema_id), _newest_schema(metadata, spec)


def _newest_schema(metadata: TableMetadataV2, spec: PartitionSpec) -> Schema:
    newest = sorted(metadata.schemas, key=lambda it: it.schema_id, reverse=True)
    for fields in (spec.fields, _used(spec)):
        sources = {field.source_id for field in fields}
        if (found := next((it for it in newest if sources <= it.field_ids), None)) is not None:
            return found
    return metadata.schema()


def specs_without_types(metadata: TableMetadataV2) -> AbstractSet[int]:
    """Return the ids of the specs whose manifests cannot be written, so that their files have to stay."""
    specs = metadata.partition_specs
    return {it.spec_id for it in specs if None in _dropped_columns(metadata, it).values()}


def find_lost_types(metadata: TableMetadataV2, files: Iterable[LiveFile]) -> str | None:
    """Return why one of these files cannot leave its manifest, or None where all can."""
    fixed = specs_without_types(metadata)
    lost = next((it for it in files if it.spec_id in fixed), None) if fixed else None
    return None if lost is None else f"{describe_lost_types(lost.spec_id)}: {lost.location}"


def describe_lost_types(spec_id: int) -> str:
    """Return why the manifests of a spec without types cannot be written."""
    return (
        f"another engine has dropped a column of partition spec {spec_id} and removed a schema that its type"
        " may have been in, so manifests of that spec cannot be written again"
    )


def _dropped_columns(metadata: TableMetadataV2, spec: PartitionSpec) -> dict[int, IcebergType | None]:
    """Return the columns of a spec that the table has no more, by field id, with their newest types; None
    where no schema has one, or one with a wider type may have been removed. A transform whose values are of
    one type, of whichever column, gets an integer.
    """
    ids = metadata.schema().field_ids
    dropped = {field.source_id for field in spec.fields} - ids
    newest = sorted(metadata.schemas, key=lambda it: it.schema_id, reverse=True) if dropped else ()
    return {it: _newest_type(it, newest, spec) for it in sorted(dropped)}


def _newest_type(field_id: int, schemas: Sequence[Schema], spec: PartitionSpec) -> IcebergType | None:
    transforms = (field.transform for field in spec.fields if field.source_id == field_id)
    depends = any(isinstance(it, IdentityTransform | TruncateTransform) for it in transforms)
    found = next((it for it in schemas if field_id in it.field_ids), None)
    if found is None:
        return None if depends else IntegerType()
    kind = found.find_type(field_id)
    # A schema with a wider type may have been removed, unless the next one is there, or none ever was.
    ids = {it.schema_id for it in schemas}
    is_whole = found.schema_id == max(ids) and len(ids) == max(ids) - min(ids) + 1
    is_known = is_whole or found.schema_id + 1 in ids
    return None if depends and isinstance(kind, _WIDENED) and not is_known else kind


def repartitioned_by(metadata: TableMetadataV2) -> str | None:
    """Return the application that made the default spec what it is; None where it is that of the table's
    creation, or another engine has changed it.
    """
    try:
        stored = json.loads(metadata.properties.get(properties.REPARTITIONED, "{}"))
        last = Repartitioned(stored["spec-id"], stored["app-id"])
    except (ValueError, KeyError, TypeError):
        return None
    return last.app_id if last.spec_id == metadata.default_spec_id else None


def _free_name(field: PartitionField, taken: AbstractSet[str], schema: Schema) -> str:
    """Return a name for a new field. Engines show the fields of all specs in one struct, so `bucket(16, id)`
    beside an older `bucket(8, id)` is named with its number, as Iceberg's library does.
    """
    names = [field.name]
    if isinstance(field.transform, BucketTransform):
        names.append(f"{field.name}_{field.transform.num_buckets}")
    elif isinstance(field.transform, TruncateTransform):
        names.append(f"{field.name}_{field.transform.width}")
    for name in names:
        if name not in taken and not _names_another_column(name, field, schema):
            return name
    raise SchemaMismatchError(
        "a partition field would have the name of a column, or of another partition field that the table has"
        f" had; rename the column: {names[-1]}"
    )


def _names_another_column(name: str, field: PartitionField, schema: Schema) -> bool:
    if name not in schema.column_names:
        return False
    return str(field.transform) != "identity" or schema.find_field(name).field_id != field.source_id


def _meaning(field: PartitionField) -> _Meaning:
    return field.source_id, str(field.transform)


def _meanings(spec: PartitionSpec) -> list[_Meaning]:
    return [_meaning(field) for field in _used(spec)]


def _used(spec: PartitionSpec) -> list[PartitionField]:
    return [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]


def _spelled(field: PartitionField, schema: Schema) -> str:
    column = schema.find_column_name(field.source_id) or f"column {field.source_id}"
    name, _, size = str(field.transform).rstrip("]").partition("[")
    if name == "identity":
        return column
    return f"{name}({size}, {column})" if size else f"{name}({column})"
