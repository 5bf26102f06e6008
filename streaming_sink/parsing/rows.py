"""`parse_json`: the columns of a batch from a column of JSON text, with the keys that are new."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TypeGuard

from pyiceberg import types as iceberg
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.parsing.columns import (
    ParsePlan,
    doubtful_numbers,
    finest_conversion,
    plan_columns,
    possible_conversions,
    tested_type,
    type_down_to,
)
from streaming_sink.parsing.given import as_struct, known_columns, with_keys
from streaming_sink.parsing.inferred import inferred_type
from streaming_sink.parsing.malformed import framed, is_malformed
from streaming_sink.sink import IcebergSink
from streaming_sink.spark.jobs import described
from streaming_sink.spark.settings import case_sensitive
from streaming_sink.table.contract import Difference, SchemaContract
from streaming_sink.table.conversions import is_text
from streaming_sink.table.fitting import Misfit, Path
from streaming_sink.table.longs import with_longs
from streaming_sink.table.rules import fit_value
from streaming_sink.table.sql_names import quoted
from streaming_sink.tasks.batches import RESERVED_PREFIX
from streaming_sink.tasks.rows.failures import UNPARSED
from streaming_sink.writing.persisting import is_persisted
from timeline.errors import SchemaMismatchError

_LOG = logging.getLogger("streaming_sink")
_PARSED = RESERVED_PREFIX + "parsed"
_EXAMPLE_CHARACTERS = 200


@dataclass(frozen=True)
class ParsedJson:
    """A batch whose JSON text has become columns."""

    rows: DataFrame
    """The rows to give to the sink: the batch's other columns, then those of the text, by name."""
    new: Mapping[str, str]
    """Columns and nested fields that the table lacks, by their dotted names, with their Spark types. What
    becomes of them is for the sink's contract."""


@contextmanager
def parse_json(
    batch: DataFrame, column: str, sink: IcebergSink, as_type: spark.StructType | str | None = None
) -> Iterator[ParsedJson]:
    """Yield `batch` with the JSON objects of a text column as columns, to give to `sink` within the block.

    One or two Spark jobs infer the types of this batch. A column that the table has is read with its type
    where that holds all values, else with the text's, and the sink's contract decides. Keys that hold only
    nulls (or `{}`, or `[]`) make no columns. Rows whose text is null have nulls. What is no JSON object with
    distinct keys, and a row with a key that cannot be a column, is for the contract's `mismatch`: the text is
    rescued or quarantined whole, or the row dropped; by default the batch is refused.

    `as_type`, a StructType or DDL, has columns that the rows have in any case, null where no text has them,
    and that are read as if the table had them: the envelope of a message, for example, one half of which may
    be null throughout. Other keys are inferred as ever.

    The batch is persisted within the block, unless it is already, so that its source is read once.

    Raises ValueError for a column that is no text, SchemaMismatchError for what the contract refuses, and as
    the reading of a table does.
    """
    if column not in batch.columns or not is_text(batch.schema[column].dataType):
        raise ValueError(
            f"parse_json reads a column of text, as selectExpr('CAST({column} AS STRING) AS {column}', ...)"
            f" makes of Kafka's: {column} in {batch.schema.simpleString()}"
        )
    schema = sink.known_schema()
    table = None if schema is None else schema.as_struct()
    given = spark.StructType() if as_type is None else as_struct(as_type)
    if given.fields:
        table = known_columns(table, given)
    persists = not is_persisted(batch)
    text = batch.persist() if persists else batch
    try:
        what = f"{sink.options.location}: types of the JSON in {column}"
        with described(batch.sparkSession, what), case_sensitive(batch.sparkSession):
            seen = _look_at(text, column, table, given)
        parsed = _parse(text, column, seen, table, sink.options.schema)
        if parsed.new:
            new = ", ".join(f"{name} {kind}" for name, kind in parsed.new.items())
            _LOG.info("%s: the batch has JSON keys that the table lacks: %s", sink.options.location, new)
        yield parsed
    finally:
        if persists:
            text.unpersist()


@dataclass(frozen=True)
class _Seen:
    """What a batch's text holds."""

    inferred: spark.StructType
    malformed: int
    example: str | None
    possible: Mapping[Path, Misfit]
    """The conversions to the table's types that all values of the batch take."""
    failing: Mapping[Path, tuple[Misfit, int, str]]
    """The other ones, with the number of rows that do not convert, and the text of one."""
    fractions: Collection[Path]
    """The keys that the table lacks whose whole numbers, larger than a long perhaps, are beside fractions."""
    unreadable: Column | None
    """Whether a text is none that can be read: malformed, or with a number that its decimal column does not
    hold. None where all can be."""


def _look_at(
    batch: DataFrame, column: str, table: iceberg.StructType | None, given: spark.StructType
) -> _Seen:
    value = sf.col(quoted(column))
    possible = {} if table is None else possible_conversions(table)
    # The text of a number is that of the double, so what a decimal is read as is tested too.
    exact = {path: finest_conversion(each.into) for path, each in possible.items() if _is_decimal(each.into)}
    tests: list[tuple[Path, Column]] = []
    for conversions in (possible, exact):
        tested = None if table is None else tested_type(table, conversions, ())
        if isinstance(tested, spark.StructType):
            tests += fit_value(sf.from_json(value, tested), tested, (), conversions).failing
    malformed = is_malformed(value)
    found = batch.select(
        sf.schema_of_variant_agg(sf.when(~malformed, sf.try_variant_get(framed(value), "$[0]", "variant"))),
        *_count(malformed, value),
        *(each for _, unfit in tests for each in _count(~malformed & unfit, value)),
    ).first()
    assert isinstance(found, Row)
    counts = [(found[place], found[place + 1]) for place in range(1, len(found), 2)]
    failing = {
        path: (possible[path], rows, text)
        for (path, _), (rows, text) in zip(tests, counts[1:], strict=True)
        if rows
    }
    kind = inferred_type(found[0])
    inferred = kind if isinstance(kind, spark.StructType) else spark.StructType()
    unreadable = [malformed] if counts[0][0] else []
    unreadable += [unfit for path, unfit in tests if path in failing and _is_decimal(possible[path].into)]
    return _Seen(
        inferred=with_keys(inferred, given),
        malformed=counts[0][0],
        example=counts[0][1],
        possible={path: each for path, each in possible.items() if path not in failing},
        failing=failing,
        fractions=_find_fractions(batch, sf.when(~malformed, value), inferred, table),
        unreadable=_any(unreadable) if unreadable else None,
    )


def _find_fractions(
    batch: DataFrame, value: Column, inferred: spark.StructType, table: iceberg.StructType | None
) -> Collection[Path]:
    """Return the keys with fractions, of those whose type does not say it. If there are such, it is a job."""
    doubtful = list(doubtful_numbers(inferred, table or iceberg.StructType(), ()))
    if not doubtful:
        return ()
    has = (_reads(value, path, inferred, table, _has_fraction) for path in doubtful)
    found = batch.select(*(sf.bool_or(each) for each in has))
    return {path for path, fraction in zip(doubtful, found.first() or (), strict=True) if fraction}


def _has_fraction(number: Column) -> Column:
    return number.contains(".")  # the text of a number is that of the double, `1.0E20` for 1e20


def _is_decimal(kind: iceberg.IcebergType | None) -> TypeGuard[iceberg.DecimalType]:
    return isinstance(kind, iceberg.DecimalType)


def _any(conditions: Sequence[Column]) -> Column:
    return reduce(or_, (sf.coalesce(each, sf.lit(False)) for each in conditions))


def _count(condition: Column, value: Column) -> tuple[Column, Column]:
    """Return how many rows there are, and the beginning of one's text: the same one of equal batches."""
    example = sf.min(sf.when(condition, sf.substring(value, 1, _EXAMPLE_CHARACTERS)))
    return sf.count_if(condition), example


def _parse(
    batch: DataFrame, column: str, seen: _Seen, table: iceberg.StructType | None, contract: SchemaContract
) -> ParsedJson:
    others = [name for name in batch.columns if name != column]
    plan = plan_columns(seen.inferred, table, contract, seen.possible, seen.fractions, batch.columns)
    if contract.mismatch == "refuse":
        _refuse(seen, plan, contract)
    value = sf.col(quoted(column))
    text = value if seen.unreadable is None else sf.when(~seen.unreadable, value)
    # All of this text can be read; rows that were computed again and differ must fail, not lose their values.
    parsed = sf.from_json(text, plan.read, {"mode": "FAILFAST"}) if plan.read.fields else sf.lit(None)
    kept = [sf.col(quoted(name)) for name in others]
    unparsed = _unparsed(value, column, seen, plan, table)
    first = batch.select(*kept, parsed.alias(_PARSED), *unparsed)
    columns = [_column(field, plan) for field in plan.read.fields]
    return ParsedJson(first.select(*kept, *columns, *([UNPARSED] if unparsed else [])), plan.new)


def _column(field: spark.StructField, plan: ParsePlan) -> Column:
    column, longs = _converted(field, plan.converted), with_longs(field.name, plan.longs)
    return column.alias(field.name, metadata=longs) if longs else column.alias(field.name)


def _converted(field: spark.StructField, converted: Mapping[Path, Misfit]) -> Column:
    given = sf.col(_PARSED).getField(field.name)
    fitted = fit_value(given, field.dataType, (field.name,), converted)
    if fitted.value is None:
        return given
    differs = _any([unfit for _, unfit in fitted.failing])
    why = f"the batch was computed again, with other values than those that were inferred from: {field.name}"
    return sf.when(differs, sf.raise_error(why)).otherwise(fitted.value)


def _unparsed(
    value: Column, column: str, seen: _Seen, plan: ParsePlan, table: iceberg.StructType | None
) -> list[Column]:
    """Return the column of the texts that cannot all become columns, if there are any."""
    conditions = [] if seen.unreadable is None else [seen.unreadable]
    conditions += [_reads(value, path, seen.inferred, table, Column.isNotNull) for path in plan.unfit_keys]
    if not conditions:
        return []
    return [sf.when(_any(conditions), sf.struct(value.alias(column))).alias(UNPARSED)]


def _reads(
    text: Column,
    path: Path,
    inferred: spark.StructType,
    table: iceberg.StructType | None,
    is_it: Callable[[Column], Column],
) -> Column:
    """Return whether a text has at one path what is looked for."""
    kind = type_down_to(path, inferred, table)
    assert isinstance(kind, spark.StructType)
    return _holds(sf.from_json(text, kind), kind, is_it)


def _holds(value: Column, kind: spark.DataType, is_it: Callable[[Column], Column]) -> Column:
    """Return whether the one leaf of a value is what is looked for."""
    if isinstance(kind, spark.StructType):
        only = kind.fields[0]
        return _holds(value.getField(only.name), only.dataType, is_it)
    if isinstance(kind, spark.ArrayType | spark.MapType):
        inside = kind.elementType if isinstance(kind, spark.ArrayType) else kind.valueType
        values = value if isinstance(kind, spark.ArrayType) else sf.map_values(value)
        return sf.exists(values, lambda each: sf.coalesce(_holds(each, inside, is_it), sf.lit(False)))
    return is_it(value)


def _refuse(seen: _Seen, plan: ParsePlan, contract: SchemaContract) -> None:
    """Raise SchemaMismatchError for what cannot become columns, or not be converted."""
    advice = 'or choose what happens to such rows: SchemaContract(mismatch="rescue"), "quarantine" or "drop"'
    if seen.malformed:
        raise SchemaMismatchError(
            f"{seen.malformed} rows hold text that is not one JSON object in valid UTF-8 with distinct keys;"
            f" filter them, {advice}: {seen.example!r}"
        )
    if plan.unfit_keys:
        keys = ", ".join(repr(".".join(path)) for path in plan.unfit_keys)
        raise SchemaMismatchError(
            "the batch has JSON keys that cannot be columns: empty, *, with a dot, a backtick or a NUL, or of"
            " a name that a column has already, perhaps in another case; rename the batch's own column if it"
            f" is that, {advice}: {keys}"
        )
    for path, (misfit, rows, text) in seen.failing.items():
        if isinstance(misfit.into, iceberg.IntegerType):
            continue  # read as long, which the contract may widen
        if contract.choice(Difference.UNFIT, path) == "refuse":
            raise SchemaMismatchError(
                f"{rows} rows hold values that the table's type does not; correct them, {advice}:"
                f" {'.'.join(path)} is {misfit.into} in the table, and in the text {text!r}"
            )
