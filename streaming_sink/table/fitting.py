"""Whether the rows of a batch fit a table, and what the table's schema must get for them to fit."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql import types as spark

from planners.suggestions import nearest_name
from streaming_sink.table.contract import STRICT, Difference, SchemaContract
from streaming_sink.table.schema import PRIMITIVES, check_names, iceberg_type, type_name
from timeline.errors import SchemaMismatchError
from timeline.versions.evolution import holds


def fit_batch(
    schema: Schema, batch: spark.StructType, contract: SchemaContract = STRICT
) -> iceberg.StructType | None:
    """Return the fields that the table's schema must get, or must have wider, before rows of `batch` are
    written to it without loss; None where they fit as it is. Ids of the result mean nothing.

    Raises SchemaMismatchError for what the contract refuses. A column that the batch lacks is written as
    nulls, unless the contract refuses that. Columns match by name, in any order. Whether a nullable column of
    the batch that the table requires holds nulls shows only while writing.
    """
    check_names(batch)
    wanted = _Fitting(contract).fit_struct(schema.as_struct(), batch, ())
    return iceberg.StructType(*wanted) if wanted else None


def without_ignored(
    kind: spark.StructType, contract: SchemaContract, path: tuple[str, ...] = ()
) -> spark.StructType:
    """Return a struct without the fields, at any depth, that a contract of their own ignores."""
    return spark.StructType(
        [
            spark.StructField(
                field.name,
                _without_ignored(field.dataType, contract, (*path, field.name)),
                field.nullable,
                field.metadata,
            )
            for field in kind.fields
            if not contract.ignores((*path, field.name))
        ]
    )


def _without_ignored(kind: spark.DataType, contract: SchemaContract, path: tuple[str, ...]) -> spark.DataType:
    if isinstance(kind, spark.StructType):
        return without_ignored(kind, contract, path)
    if isinstance(kind, spark.ArrayType):
        element = _without_ignored(kind.elementType, contract, (*path, "element"))
        return spark.ArrayType(element, kind.containsNull)
    if isinstance(kind, spark.MapType):  # its keys stay whole: keys may not become equal
        value = _without_ignored(kind.valueType, contract, (*path, "value"))
        return spark.MapType(kind.keyType, value, kind.valueContainsNull)
    return kind


class _Fitting:
    """Walks a table's schema and a batch's together, under one contract."""

    def __init__(self, contract: SchemaContract) -> None:
        self._contract = contract
        self._ids = count(1)

    def fit_struct(
        self, table: iceberg.StructType, batch: spark.StructType, path: tuple[str, ...]
    ) -> list[iceberg.NestedField]:
        """Return what the table's struct lacks of the batch's."""
        known = {field.name: field for field in table.fields}
        given = {field.name: field for field in batch.fields}
        wanted = []
        for name, field in given.items():
            at = (*path, name)
            kind = (
                self._fit_new(field, at, list(known))
                if name not in known
                else self.fit_type(known[name].field_type, field.dataType, at)
            )
            if kind is not None:
                required = name in known and known[name].required
                wanted.append(self._field(name, kind, required, field.metadata.get("comment")))
        missing = [field for name, field in known.items() if name not in given]
        relaxed = [field for field in missing if self._fit_missing(field, (*path, field.name))]
        return wanted + [self._field(field.name, field.field_type, required=False) for field in relaxed]

    def fit_type(
        self, table: iceberg.IcebergType, kind: spark.DataType, path: tuple[str, ...]
    ) -> iceberg.IcebergType | None:
        """Return the type that the table's column must be merged with, or None where it holds the values."""
        if isinstance(table, iceberg.StructType) and isinstance(kind, spark.StructType):
            wanted = self.fit_struct(table, kind, path)
            return iceberg.StructType(*wanted) if wanted else None
        if isinstance(table, iceberg.ListType) and isinstance(kind, spark.ArrayType):
            element = self.fit_type(table.element_type, kind.elementType, (*path, "element"))
            return (
                None
                if element is None
                else iceberg.ListType(next(self._ids), element, table.element_required)
            )
        if isinstance(table, iceberg.MapType) and isinstance(kind, spark.MapType):
            # A field that is ignored would make two keys of one map equal, so any difference counts.
            keys = _Fitting(replace(self._contract, new_fields="add", widening="widen", columns={}))
            if keys.fit_type(table.key_type, kind.keyType, (*path, "key")) is not None:
                raise _refusal_of_type(table.key_type, kind.keyType, (*path, "key"), "the key of a map")
            value = self.fit_type(table.value_type, kind.valueType, (*path, "value"))
            if value is None:
                return None
            return iceberg.MapType(
                next(self._ids), table.key_type, next(self._ids), value, table.value_required
            )
        if _fits(table, kind):
            return None
        wider = _wider_type(table, kind)
        if wider is not None and self._contract.choice(Difference.WIDER, path) == "widen":
            return wider
        raise _refusal_of_type(table, kind, path, "the column" if wider is None else "")

    def _fit_new(
        self, field: spark.StructField, path: tuple[str, ...], known: list[str]
    ) -> iceberg.IcebergType | None:
        same = [other for other in known if other.lower() == field.name.lower()]
        if same:
            raise SchemaMismatchError(
                "the batch spells a column of the table in another case; rename it:"
                f" {'.'.join(path)} (table: {same[0]})"
            )
        choice = self._contract.choice(
            Difference.NEW_COLUMN if len(path) == 1 else Difference.NEW_FIELD, path
        )
        if choice == "refuse":
            raise SchemaMismatchError(_new_column(path, known))
        # A column of nulls alone is no different from one that is absent, and has no type yet.
        if choice == "ignore" or isinstance(field.dataType, spark.NullType):
            return None
        kept = _without_ignored(field.dataType, self._contract, path)
        return iceberg_type(kept, ".".join(path), self._ids)

    def _fit_missing(self, field: iceberg.NestedField, path: tuple[str, ...]) -> bool:
        """Return whether the table's field must become optional."""
        name = ".".join(path)
        if self._contract.choice(Difference.MISSING, path) == "refuse":
            raise SchemaMismatchError(
                'the batch lacks a column of the table, and missing_columns="refuse"; add it to the batch:'
                f" {name}"
            )
        if field.required and self._contract.choice(Difference.WIDER, path) == "refuse":
            raise SchemaMismatchError(
                f"the table requires a column that the batch lacks: {name}; add it to the batch, or let the"
                ' column become optional: SchemaContract(widening="widen")'
            )
        return field.required

    def _field(
        self, name: str, kind: iceberg.IcebergType, required: bool, doc: str | None = None
    ) -> iceberg.NestedField:
        return iceberg.NestedField(next(self._ids), name, kind, required=required, doc=doc)


def _new_column(path: tuple[str, ...], known: list[str]) -> str:
    near = nearest_name(path[-1], known)
    hint = f" (did you mean {near}?)" if near else ""
    return (
        "the batch has a column that the table lacks; drop it from the batch, or let the table grow with"
        f" IcebergSink(..., schema=SchemaContract.evolving()): {'.'.join(path)}{hint}"
    )


def _refusal_of_type(
    table: iceberg.IcebergType, kind: spark.DataType, path: tuple[str, ...], what: str
) -> SchemaMismatchError:
    advice = (
        f"cast {what}" if what else 'cast the column, or widen the table\'s: SchemaContract(widening="widen")'
    )
    return SchemaMismatchError(
        f"the batch's type does not fit the table's without loss; {advice}: {'.'.join(path)} is"
        f" {kind.simpleString()} in the batch and {table} in the table"
    )


def _wider_type(table: iceberg.IcebergType, kind: spark.DataType) -> iceberg.IcebergType | None:
    """Return the batch's type if a column of the table's type can be widened to it (Iceberg v2)."""
    if isinstance(kind, spark.DecimalType):
        batch: iceberg.IcebergType = iceberg.DecimalType(kind.precision, kind.scale)
    elif (primitive := PRIMITIVES.get(type_name(kind))) is not None:
        batch = primitive()
    else:
        return None
    return batch if table.is_primitive and holds(batch, table) else None


_WIDER = {
    "int": {"byte", "short", "integer"},
    "long": {"byte", "short", "integer", "long"},
    "double": {"float", "double"},
    "uuid": {"string", "char", "varchar"},
}


def _fits(table: iceberg.IcebergType, kind: spark.DataType) -> bool:
    if isinstance(table, iceberg.DecimalType):
        if not isinstance(kind, spark.DecimalType):
            return False
        return kind.scale == table.scale and kind.precision <= table.precision
    if isinstance(table, iceberg.FixedType):
        return isinstance(kind, spark.BinaryType)
    if not isinstance(table, iceberg.PrimitiveType):
        return False
    if str(table) in _WIDER:
        return type_name(kind) in _WIDER[str(table)]
    same = PRIMITIVES.get(type_name(kind))
    return same is not None and isinstance(table, same)
