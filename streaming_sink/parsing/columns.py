"""Plans how JSON text becomes columns: with the table's types where they hold the values, else the text's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

from pyiceberg import types as iceberg
from pyspark.sql import types as spark

from streaming_sink.options.values.contract import Difference, SchemaContract
from streaming_sink.parsing.inferred import BEYOND_LONG, DEEPEST, MIXED, common_type
from streaming_sink.table.conversions import spark_type
from streaming_sink.table.fitting import Misfit, Path
from streaming_sink.table.rescue import RESCUED
from streaming_sink.table.sql_names import cannot_be_passed, folded
from streaming_sink.tasks.batches import RESERVED_PREFIX

_WITH_FIELDS = (spark.StructType, spark.ArrayType)
_NUMBERS = (spark.LongType(), spark.DoubleType(), BEYOND_LONG)
_TIMES = iceberg.DateType | iceberg.TimestampType | iceberg.TimestamptzType


@dataclass(frozen=True)
class ParsePlan:
    """How the texts of one batch are parsed. Equal texts and an equal table make an equal plan."""

    read: spark.StructType
    """The columns, and the types in which the text is read. No key of the batch is missing that may become a
    column; keys of nulls alone are."""
    converted: Mapping[Path, Misfit]
    """Columns and fields that are then converted to the table's type, in which all their values fit."""
    new: Mapping[str, str]
    """Columns and fields that the table lacks, with their types."""
    longs: tuple[Path, ...]
    """Columns and fields that are int in the table and read as text: the batch has whole numbers beyond an
    int there, and values that are no long."""
    unfit_keys: tuple[Path, ...]
    """Keys that cannot be columns: empty or with a NUL character, or in another case than one that is, or in
    its place."""
    mixed: Mapping[Path, iceberg.IcebergType | None]
    """Keys read as text for values of several types, where the table has objects, lists, or no such key."""


def possible_conversions(table: iceberg.StructType) -> dict[Path, Misfit]:
    """Return the columns and fields of a table whose types JSON lacks, each with the type in which its values
    are read. Whether all of a batch convert must be known for the plan.
    """
    return conversions_of(table, _from_json)


def _from_json(kind: iceberg.IcebergType) -> Misfit | None:
    if isinstance(kind, iceberg.IntegerType):
        return Misfit("drop", spark.LongType(), kind)
    return (
        Misfit("drop", spark.StringType(), kind) if isinstance(kind, iceberg.DecimalType | _TIMES) else None
    )


def conversions_of(
    kind: iceberg.IcebergType, of_leaf: Callable[[iceberg.IcebergType], Misfit | None], path: Path = ()
) -> dict[Path, Misfit]:
    """Return the conversions to those types at and below a path for which `of_leaf` has one."""
    if isinstance(kind, iceberg.StructType):
        inside = [((*path, each.name), each.field_type) for each in kind.fields]
    elif isinstance(kind, iceberg.ListType):
        inside = [((*path, "element"), kind.element_type)]
    elif _has_text_keys(kind):
        inside = [((*path, "value"), kind.value_type)]
    else:
        conversion = of_leaf(kind)
        return {} if conversion is None else {path: conversion}
    return {at: found for below, each in inside for at, found in conversions_of(each, of_leaf, below).items()}


def finest_conversion(table: iceberg.DecimalType) -> Misfit:
    """Return the conversion of JSON's numbers to a decimal, from the finest type of the same range."""
    return Misfit("drop", spark.DecimalType(38, 38 - table.precision + table.scale), table)


def plan_columns(
    inferred: spark.StructType,
    table: iceberg.StructType | None,
    contract: SchemaContract,
    possible: Mapping[Path, Misfit],
    fractions: Collection[Path],
    taken: Collection[str],
    certain: Mapping[Path, Misfit],
) -> ParsePlan:
    """Return how to parse a batch whose objects have the type `inferred`. `possible` has the conversions to
    the table's types that fit all values of the batch, `fractions` those of `doubtful_numbers` that have
    fractions, `taken` the names of the batch's other columns, `certain` the conversions from text that fit
    each value, however it is spelled.
    `table` is None where this batch will create it.
    """
    names = {folded(name) for name in taken} | {RESCUED}
    planner = _Planner(contract, possible, fractions, names, table is None, certain)
    read = planner.read_struct(inferred, iceberg.StructType() if table is None else table, ())
    return ParsePlan(
        spark.StructType() if read is None else read,
        planner.converted,
        planner.new,
        tuple(planner.longs),
        tuple(planner.unfit_keys),
        planner.mixed,
    )


@dataclass
class _Planner:
    contract: SchemaContract
    possible: Mapping[Path, Misfit]
    fractions: Collection[Path]
    taken: Collection[str]
    creates: bool
    certain: Mapping[Path, Misfit]
    converted: dict[Path, Misfit] = field(default_factory=dict)
    new: dict[str, str] = field(default_factory=dict)
    longs: list[Path] = field(default_factory=list)
    unfit_keys: list[Path] = field(default_factory=list)
    mixed: dict[Path, iceberg.IcebergType | None] = field(default_factory=dict)

    def read_struct(
        self, inferred: spark.StructType, table: iceberg.StructType | None, path: Path
    ) -> spark.StructType | None:
        """Return the fields to read, None where there are none."""
        known = {} if table is None else {each.name: each.field_type for each in table.fields}
        spelled = {folded(name): name for name in known}
        fields = []
        for each in sorted(inferred.fields, key=lambda each: each.name):
            name, at = each.name, (*path, each.name)
            if isinstance(each.dataType, spark.NullType) and name not in known:
                continue
            if spelled.setdefault(folded(name), name) != name:
                self.unfit_keys.append(at)
                continue
            if name not in known and self._ignores(at, table):
                continue
            if self._cannot_be_column(name, path):
                self.unfit_keys.append(at)
                continue
            kind = self.read(each.dataType, known.get(name), at)
            if kind is None:
                continue
            if table is not None and name not in known:
                self.new[".".join(at)] = kind.simpleString()
            fields.append(spark.StructField(name, kind))
        return spark.StructType(fields) if fields else None

    def _ignores(self, path: Path, around: iceberg.StructType | None) -> bool:
        """Return whether a key that the table lacks is not written: by a contract of its own, or, where the
        table or the struct around it exists, by any.
        """
        difference = Difference.NEW_COLUMN if len(path) == 1 else Difference.NEW_FIELD
        by_any = around is not None and (len(path) > 1 or not self.creates)
        return self.contract.ignores(path) or (by_any and self.contract.choice(difference, path) == "ignore")

    def _cannot_be_column(self, name: str, path: Path) -> bool:
        if not name or "\0" in name:
            return True
        in_place = folded(name) in self.taken or name.startswith(RESERVED_PREFIX)
        return not path and (in_place or cannot_be_passed(name))

    def read(
        self, inferred: spark.DataType, table: iceberg.IcebergType | None, path: Path
    ) -> spark.DataType | None:
        """Return the type in which a value is read, None for one that has no type yet."""
        if table is None:
            return self._read_new(inferred, path)
        if isinstance(table, iceberg.StringType) or isinstance(inferred, spark.NullType):
            return spark_type(table)
        if isinstance(table, iceberg.StructType) and isinstance(inferred, spark.StructType):
            return self.read_struct(inferred, table, path) or spark_type(table)
        if isinstance(table, iceberg.ListType) and isinstance(inferred, spark.ArrayType):
            element = self.read(inferred.elementType, table.element_type, (*path, "element"))
            return spark.ArrayType(element or spark.StringType())
        if _has_text_keys(table) and isinstance(inferred, spark.StructType):
            value = self.read(_values_type(inferred), table.value_type, (*path, "value"))
            return spark.MapType(spark.StringType(), value or spark.StringType())
        return self._read_leaf(inferred, table, path)

    def _read_leaf(
        self, inferred: spark.DataType, table: iceberg.IcebergType, path: Path
    ) -> spark.DataType | None:
        if isinstance(table, iceberg.FloatType | iceberg.DoubleType) and inferred in _NUMBERS:
            return spark_type(table)
        if isinstance(table, iceberg.DecimalType) and not isinstance(inferred, _WITH_FIELDS):
            # Exact also where a double is not. Rows whose value overflows it are not read.
            self.converted[path] = finest_conversion(table)
            return self.converted[path].kind
        conversion = self.possible.get(path)
        if conversion is not None and inferred == conversion.kind:
            self.converted[path] = conversion
            return conversion.kind
        if path in self.certain and inferred != spark_type(table):
            self.converted[path] = self.certain[path]
            return self.certain[path].kind
        if isinstance(table, iceberg.IntegerType) and conversion is None and inferred != spark.LongType():
            self.longs.append(path)
        if isinstance(table, iceberg.IntegerType | iceberg.LongType) and inferred == spark.DoubleType():
            return spark.StringType()  # a double would round the longs beside the fractions
        if inferred == MIXED:
            if isinstance(table, iceberg.StructType | iceberg.ListType) or _has_text_keys(table):
                self.mixed[path] = table
            return spark.StringType()
        return self._read_new(inferred, path) or spark.StringType()

    def _read_new(self, inferred: spark.DataType, path: Path) -> spark.DataType | None:
        """Return the type of a value where there is no table's; None where nothing is known of it yet."""
        if isinstance(inferred, spark.NullType):
            return None
        if isinstance(inferred, spark.StructType):
            return self.read_struct(inferred, None, path)
        if isinstance(inferred, spark.ArrayType):
            element = self._read_new(inferred.elementType, (*path, "element"))
            return None if element is None else spark.ArrayType(element)
        if inferred == BEYOND_LONG and path in self.fractions:
            return spark.DoubleType()
        if inferred == MIXED and len(path) < DEEPEST:
            self.mixed[path] = None
        return spark.StringType() if inferred in (MIXED, BEYOND_LONG) else inferred


def doubtful_numbers(
    inferred: spark.DataType, table: iceberg.IcebergType | None, path: Path
) -> Iterator[Path]:
    """Yield the columns and fields that the table lacks with whole numbers of which `inferred` does not say
    whether there are fractions beside them.
    """
    if inferred == BEYOND_LONG:
        if table is None:
            yield path
    elif _has_text_keys(table) and isinstance(inferred, spark.StructType):
        yield from doubtful_numbers(_values_type(inferred), table.value_type, (*path, "value"))
    elif isinstance(inferred, spark.ArrayType) and isinstance(table, iceberg.ListType | None):
        element = None if table is None else table.element_type
        yield from doubtful_numbers(inferred.elementType, element, (*path, "element"))
    elif isinstance(inferred, spark.StructType) and isinstance(table, iceberg.StructType | None):
        known = {} if table is None else {each.name: each.field_type for each in table.fields}
        for each in inferred.fields:
            yield from doubtful_numbers(each.dataType, known.get(each.name), (*path, each.name))


def tested_type(
    table: iceberg.IcebergType, possible: Mapping[Path, Misfit], path: Path
) -> spark.DataType | None:
    """Return the type in which JSON is read to see which possible conversions fit; None without any."""
    if path in possible:
        return possible[path].kind
    if isinstance(table, iceberg.StructType):
        kinds = {
            each.name: tested_type(each.field_type, possible, (*path, each.name)) for each in table.fields
        }
        fields = [spark.StructField(name, kind) for name, kind in kinds.items() if kind is not None]
        return spark.StructType(fields) if fields else None
    if isinstance(table, iceberg.ListType):
        element = tested_type(table.element_type, possible, (*path, "element"))
        return None if element is None else spark.ArrayType(element)
    if _has_text_keys(table):
        value = tested_type(table.value_type, possible, (*path, "value"))
        return None if value is None else spark.MapType(spark.StringType(), value)
    return None


def type_down_to(
    path: Path, inferred: spark.DataType, table: iceberg.IcebergType | None, leaf: spark.DataType
) -> spark.DataType:
    """Return a type that reads one key of JSON of the type `inferred`, as `leaf`, and nothing beside it."""
    if not path:
        return leaf
    if isinstance(inferred, spark.ArrayType):
        element = table.element_type if isinstance(table, iceberg.ListType) else None
        return spark.ArrayType(type_down_to(path[1:], inferred.elementType, element, leaf))
    assert isinstance(inferred, spark.StructType)
    if _has_text_keys(table):
        values = _values_type(inferred)
        return spark.MapType(spark.StringType(), type_down_to(path[1:], values, table.value_type, leaf))
    known = (
        {each.name: each.field_type for each in table.fields} if isinstance(table, iceberg.StructType) else {}
    )
    kind = type_down_to(path[1:], inferred[path[0]].dataType, known.get(path[0]), leaf)
    return spark.StructType([spark.StructField(path[0], kind)])


def _has_text_keys(kind: iceberg.IcebergType | None) -> TypeGuard[iceberg.MapType]:
    """Return whether a type is that of JSON objects: a map from text."""
    return isinstance(kind, iceberg.MapType) and isinstance(kind.key_type, iceberg.StringType)


def _values_type(inferred: spark.StructType) -> spark.DataType:
    values: spark.DataType = spark.NullType()
    for each in inferred.fields:
        values = common_type(values, each.dataType)
    return values
