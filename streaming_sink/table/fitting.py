"""Whether the rows of a batch fit a table: what the table's schema must get, and which values may not fit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import count

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql import types as spark

from planners.suggestions import nearest_name
from streaming_sink.options.values.contract import STRICT, Difference, SchemaContract
from streaming_sink.table.column_sequences import is_own_field
from streaming_sink.table.conversions import fits, refusal_of_type, wider_type
from streaming_sink.table.longs import find_longs
from streaming_sink.table.rescue import check_rescued_name, is_rescued_field, rescued_field
from streaming_sink.table.schema import check_column_names, iceberg_schema, iceberg_type
from streaming_sink.table.sql_names import folded
from streaming_sink.tasks.rows.failures import UNPARSED, UNREADABLE
from timeline.errors import SchemaMismatchError

Path = tuple[str, ...]
"""Names from a column down to a nested field: `element` is inside a list, `key` and `value` inside a map."""


@dataclass(frozen=True)
class Misfit:
    """A column of a batch, or a nested field, some of whose values the table does not hold."""

    action: str
    """"rescue", or what becomes of a row with such a value: "quarantine", "drop" or "refuse"."""
    kind: spark.DataType
    into: iceberg.IcebergType | None
    """The type of the table's column, to which values are converted where that loses nothing; None where the
    table has no such column."""


@dataclass(frozen=True)
class Fit:
    """How the rows of a batch fit a table, under a contract."""

    wanted: iceberg.StructType | None
    """The fields that the table's schema must get, or must have wider, before the rows are written; None
    where it stays as it is. Ids mean nothing."""
    misfits: Mapping[Path, Misfit]


def fit_batch(
    schema: Schema, batch: spark.StructType, contract: SchemaContract = STRICT, checks_text: bool = False
) -> Fit:
    """Return what must happen so that rows of `batch` are written to the table without loss.

    Raises SchemaMismatchError for what the contract refuses. A column that the batch lacks is written as
    nulls, unless the contract refuses that. Columns match by name, in any order. Whether a nullable column of
    the batch that the table requires holds nulls shows only while writing. `checks_text` says that text may
    not be valid UTF-8, so it is checked where tasks cannot treat it as the contract says.
    """
    fitting = _Fitting(contract, find_longs(batch), checks_text)
    columns = _columns(batch)
    check_column_names(columns)
    wanted = fitting.fit_struct(schema.as_struct(), columns, ())
    if UNPARSED in batch.names:
        fitting.add_misfit(batch[UNPARSED].dataType, None, (UNPARSED,), required=False)
    rescues = any(misfit.action == "rescue" for misfit in fitting.misfits.values())
    known = any(is_rescued_field(field) for field in schema.fields)
    if rescues or known or contract.rescues:
        check_rescued_name(schema, columns)
    if rescues and not known:
        wanted.append(rescued_field(next(fitting.ids)))
    return Fit(iceberg.StructType(*wanted) if wanted else None, fitting.misfits)


def new_schema(batch: spark.StructType, contract: SchemaContract, checks_text: bool = False) -> Schema:
    """Return the schema of a table that is created for `batch`: all of its columns that the contract does not
    ignore by their names. Raises SchemaMismatchError as `iceberg_schema` does; `checks_text` as `fit_batch`.
    """
    schema = iceberg_schema(without_ignored(_columns(batch), contract))
    if contract.rescues:
        check_rescued_name(Schema(), _columns(batch))
    if (checks_text and contract.rescues) or (UNPARSED in batch.names and contract.mismatch == "rescue"):
        schema = Schema(*schema.fields, rescued_field(schema.highest_field_id + 1))
    return schema


def _columns(batch: spark.StructType) -> spark.StructType:
    return spark.StructType([field for field in batch.fields if field.name not in (UNPARSED, UNREADABLE)])


def without_ignored(kind: spark.StructType, contract: SchemaContract, path: Path = ()) -> spark.StructType:
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


def _without_ignored(kind: spark.DataType, contract: SchemaContract, path: Path) -> spark.DataType:
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

    def __init__(
        self, contract: SchemaContract, longs: Collection[Path] = (), checks_text: bool = False
    ) -> None:
        self._contract = contract
        self._longs = longs
        self._checks_text = checks_text
        self.ids = count(1)
        self.misfits: dict[Path, Misfit] = {}

    def fit_struct(
        self, table: iceberg.StructType, batch: spark.StructType, path: Path
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
                else self.fit_type(known[name].field_type, field.dataType, at, known[name].required)
            )
            if kind is not None:
                required = name in known and known[name].required
                wanted.append(self._field(name, kind, required, field.metadata.get("comment")))
        missing = [known[name] for name in known if name not in given]
        lacked = [field for field in missing if path or not is_own_field(field)]
        relaxed = [field for field in lacked if self._fit_missing(field, (*path, field.name))]
        return wanted + [self._field(field.name, field.field_type, required=False) for field in relaxed]

    def fit_type(
        self, table: iceberg.IcebergType, kind: spark.DataType, path: Path, required: bool
    ) -> iceberg.IcebergType | None:
        """Return the type that the table's column must be merged with, or None where it stays as it is."""
        if isinstance(table, iceberg.StructType) and isinstance(kind, spark.StructType):
            wanted = self.fit_struct(table, kind, path)
            return iceberg.StructType(*wanted) if wanted else None
        if isinstance(table, iceberg.ListType) and isinstance(kind, spark.ArrayType):
            element = self.fit_type(
                table.element_type, kind.elementType, (*path, "element"), table.element_required
            )
            return (
                None if element is None else iceberg.ListType(next(self.ids), element, table.element_required)
            )
        if isinstance(table, iceberg.MapType) and isinstance(kind, spark.MapType):
            return self._fit_map(table, kind, path, required)
        if isinstance(kind, spark.NullType) and not required:
            return None
        if fits(table, kind):
            if self._checks_text and isinstance(table, iceberg.StringType):
                self._fit_text(kind, table, path, required)
            return None
        wider, choice = wider_type(table, kind), self._contract.choice(Difference.WIDER, path)
        if wider is None:
            self.add_misfit(kind, table, path, required)
            if path in self._longs and choice == "widen" and isinstance(table, iceberg.IntegerType):
                return iceberg.LongType()
        elif choice == "widen":
            return wider
        elif choice == "rescue":
            self._add(Misfit(choice, kind, table), path, required)
        else:
            raise refusal_of_type(table, kind, path, "")
        return None

    def _fit_text(self, kind: spark.DataType, table: iceberg.StringType, path: Path, required: bool) -> None:
        choice = self._contract.choice(Difference.UNFIT, path)
        # Without columns apart, tasks do with any row as the contract says, and find it without a check.
        if not required if choice == "rescue" else self._contract.apart:
            self._add(Misfit(choice, kind, table), path, required)

    def _fit_map(
        self, table: iceberg.MapType, kind: spark.MapType, path: Path, required: bool
    ) -> iceberg.IcebergType | None:
        # A field that is ignored would make two keys of one map equal, so any difference counts.
        strict = replace(self._contract, new_fields="add", widening="widen", mismatch="refuse", columns={})
        keys = _Fitting(strict)
        try:
            if keys.fit_type(table.key_type, kind.keyType, (*path, "key"), True) is not None:
                raise refusal_of_type(table.key_type, kind.keyType, (*path, "key"), "the key of a map")
        except SchemaMismatchError:
            if self._contract.choice(Difference.UNFIT, path) == "refuse":
                raise
            self.add_misfit(kind, table, path, required)
            return None
        value = self.fit_type(table.value_type, kind.valueType, (*path, "value"), table.value_required)
        if value is None:
            return None
        return iceberg.MapType(next(self.ids), table.key_type, next(self.ids), value, table.value_required)

    def add_misfit(
        self, kind: spark.DataType, table: iceberg.IcebergType | None, path: Path, required: bool
    ) -> None:
        """Record that values may not fit, or raise SchemaMismatchError where the contract refuses that."""
        choice = self._contract.choice(Difference.UNFIT, path)
        if choice == "refuse":
            if table is None:
                raise SchemaMismatchError(
                    f"the contract refuses what does not fit, which the batch may hold: {'.'.join(path)}"
                )
            raise refusal_of_type(table, kind, path, "the column")
        self._add(Misfit(choice, kind, table), path, required)

    def _add(self, misfit: Misfit, path: Path, required: bool) -> None:
        if required and misfit.action == "rescue":
            raise SchemaMismatchError(
                "the table requires a column whose values cannot all be converted, and where one is rescued"
                f" the column would be null: {'.'.join(path)} is {misfit.kind.simpleString()} in the batch"
                f" and {misfit.into} in the table; cast the column, or choose what happens to such rows:"
                ' SchemaContract(mismatch="quarantine") or "drop"'
            )
        self.misfits[path] = misfit

    def _fit_new(self, field: spark.StructField, path: Path, known: list[str]) -> iceberg.IcebergType | None:
        unfit = self._contract.choice(Difference.UNFIT, path)
        same = [other for other in known if folded(other) == folded(field.name)]
        if same and unfit == "refuse":
            raise SchemaMismatchError(
                "the batch spells a column of the table in another case; rename it:"
                f" {'.'.join(path)} (table: {same[0]})"
            )
        choice = self._contract.choice(
            Difference.NEW_COLUMN if len(path) == 1 else Difference.NEW_FIELD, path
        )
        # A column of nulls alone is no different from one that is absent, and has no type yet.
        if isinstance(field.dataType, spark.NullType) or (choice == "ignore" and not same):
            return None
        if same:
            choice = unfit
        elif choice == "refuse":
            raise SchemaMismatchError(_new_column(path, known))
        elif choice == "add":
            try:
                kept = _without_ignored(field.dataType, self._contract, path)
                return iceberg_type(kept, ".".join(path), self.ids)
            except SchemaMismatchError:  # Iceberg has no such type
                if unfit == "refuse":
                    raise
                choice = unfit
        self._add(Misfit(choice, field.dataType, None), path, required=False)
        return None

    def _fit_missing(self, field: iceberg.NestedField, path: Path) -> bool:
        """Return whether the table's field must become optional."""
        name = ".".join(path)
        if self._contract.choice(Difference.MISSING, path) == "refuse":
            raise SchemaMismatchError(
                'the batch lacks a column of the table, and missing_columns="refuse"; add it to the batch:'
                f" {name}"
            )
        if field.required and self._contract.choice(Difference.WIDER, path) != "widen":
            raise SchemaMismatchError(
                f"the table requires a column that the batch lacks: {name}; add it to the batch, or let the"
                ' column become optional: SchemaContract(widening="widen")'
            )
        return field.required

    def _field(
        self, name: str, kind: iceberg.IcebergType, required: bool, doc: str | None = None
    ) -> iceberg.NestedField:
        return iceberg.NestedField(next(self.ids), name, kind, required=required, doc=doc)


def _new_column(path: Path, known: list[str]) -> str:
    hint = f" (did you mean {near}?)" if (near := nearest_name(path[-1], known)) else ""
    return (
        "the batch has a column that the table lacks; drop it from the batch, or let the table grow with"
        f" IcebergSink(..., contract=SchemaContract.evolving()): {'.'.join(path)}{hint}"
    )
