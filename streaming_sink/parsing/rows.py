"""`parse_json`: the columns of a batch from a column of JSON text, with the keys that are new."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyiceberg import types as iceberg
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.checks.rules import fit_value
from streaming_sink.options.values.contract import Difference, SchemaContract
from streaming_sink.parsing.columns import ParsePlan
from streaming_sink.parsing.given import as_given, as_struct, known_columns
from streaming_sink.parsing.inference import ADVICE, SeenTypes, any_of, reads
from streaming_sink.parsing.mixed import look_and_plan
from streaming_sink.sink import IcebergSink
from streaming_sink.spark.jobs import described
from streaming_sink.spark.settings import case_sensitive
from streaming_sink.table.conversions import is_text
from streaming_sink.table.fitting import Misfit, Path
from streaming_sink.table.longs import with_longs
from streaming_sink.table.sql_names import quoted
from streaming_sink.tasks.batches import RESERVED_PREFIX
from streaming_sink.tasks.rows.failures import UNPARSED
from streaming_sink.writing.profile import is_persisted
from timeline.errors import SchemaMismatchError

_LOG = logging.getLogger("streaming_sink")
_PARSED = RESERVED_PREFIX + "parsed"


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

    One or two Spark jobs infer the types of this batch, a few where values of a key differ in kind. A column
    that the table has is read with its type where that holds all values, else with the text's, and the sink's
    contract decides. A key with objects (or lists) in some texts has their type, and the other texts are for
    `mismatch`, unless that is "refuse". Keys that hold only nulls (or `{}`, or `[]`) make no columns. Rows
    whose text is null have nulls. What is no JSON object with distinct keys, and a row with a key that cannot
    be a column, is for the contract's `mismatch`: the text is rescued or quarantined whole, or the row
    dropped; by default the batch is refused.

    `as_type`, a StructType or DDL, has columns that the rows have in any case, of these types, null where no
    text has them: the envelope of a message, for example, one half of which may be null throughout. A text
    with a value that they do not hold is for `mismatch` as one that is no object. Other keys are inferred as
    ever.

    The batch is persisted within the block, unless it is already, so that its source is read once.

    Raises ValueError for a column that is no text, SchemaMismatchError for what the contract refuses, and as
    the reading of a table does.
    """
    given: Any = column
    if not isinstance(given, str) or not isinstance(sink, IcebergSink):
        raise TypeError(
            "parse_json takes a batch, the name of its column of text, and the sink, in this order:"
            f" parse_json(batch, 'value', sink); not {column!r} and {sink!r}"
        )
    if column not in batch.columns or not is_text(batch.schema[column].dataType):
        raise ValueError(
            f"parse_json reads a column of text, as selectExpr('CAST({column} AS STRING) AS {column}', ...)"
            f" makes of Kafka's: {column} in {batch.schema.simpleString()}"
        )
    schema = sink.known_schema()
    stored = None if schema is None else schema.as_struct()
    given = spark.StructType() if as_type is None else as_struct(as_type)
    table = known_columns(stored, given) if given.fields else stored
    persists = not is_persisted(batch)
    text = batch.persist() if persists else batch
    try:
        what = f"{sink.options.location}: types of the JSON in {column}"
        with described(batch.sparkSession, what), case_sensitive(batch.sparkSession):
            seen, plan = look_and_plan(text, column, table, stored, given, sink.options.contract)
        if sink.options.contract.mismatch == "refuse":
            _refuse(seen, plan, sink.options.contract)
        parsed = ParsedJson(as_given(_parse(text, column, seen, plan, table), given), plan.new)
        if parsed.new:
            new = ", ".join(f"{name} {kind}" for name, kind in parsed.new.items())
            _LOG.info("%s: the batch has JSON keys that the table lacks: %s", sink.options.location, new)
        yield parsed
    finally:
        if persists:
            text.unpersist()


def _parse(
    batch: DataFrame, column: str, seen: SeenTypes, plan: ParsePlan, table: iceberg.StructType | None
) -> DataFrame:
    others = [name for name in batch.columns if name != column]
    value = sf.col(quoted(column))
    text = value if seen.unreadable is None else sf.when(~seen.unreadable, value)
    parsed = _read(text, seen.aside, plan.read) if plan.read.fields else sf.lit(None)
    kept = [sf.col(quoted(name)) for name in others]
    unparsed = _unparsed(value, column, seen, plan, table)
    first = batch.select(*kept, parsed.alias(_PARSED), *unparsed)
    columns = [_column(field, plan, bool(unparsed)) for field in plan.read.fields]
    return first.select(*kept, *columns, *([UNPARSED] if unparsed else []))


def _read(text: Column, aside: Column | None, kind: spark.StructType) -> Column:
    """Return a text as a struct. Of one that is aside, what fits it."""
    # All other text can be read; rows that were computed again and differ must fail, not lose their values.
    whole = sf.from_json(text if aside is None else sf.when(~aside, text), kind, {"mode": "FAILFAST"})
    return whole if aside is None else sf.coalesce(whole, sf.from_json(sf.when(aside, text), kind))


def _column(field: spark.StructField, plan: ParsePlan, some_unparsed: bool) -> Column:
    column, longs = _converted(field, plan.converted, some_unparsed), with_longs(field.name, plan.longs)
    return column.alias(field.name, metadata=longs) if longs else column.alias(field.name)


def _converted(field: spark.StructField, converted: Mapping[Path, Misfit], some_unparsed: bool) -> Column:
    given = sf.col(_PARSED).getField(field.name)
    fitted = fit_value(given, field.dataType, (field.name,), converted)
    if fitted.value is None:
        return given
    differs = any_of([unfit for _, unfit in fitted.failing])
    if some_unparsed:
        differs = differs & sf.col(UNPARSED).isNull()  # which has its text whole
    why = f"the batch was computed again, with other values than those that were inferred from: {field.name}"
    return sf.when(differs, sf.raise_error(why)).otherwise(fitted.value)


def _unparsed(
    value: Column, column: str, seen: SeenTypes, plan: ParsePlan, table: iceberg.StructType | None
) -> list[Column]:
    """Return the column of the texts that cannot all become columns, if there are any."""
    conditions = [each for each in (seen.unreadable, seen.aside) if each is not None]
    conditions += [reads(value, path, seen.inferred, table, Column.isNotNull) for path in plan.unfit_keys]
    if not conditions:
        return []
    return [sf.when(any_of(conditions), sf.struct(value.alias(column))).alias(UNPARSED)]


def _refuse(seen: SeenTypes, plan: ParsePlan, contract: SchemaContract) -> None:
    """Raise SchemaMismatchError for what cannot become columns, or not be converted."""
    if seen.malformed:
        raise SchemaMismatchError(
            f"{seen.malformed} rows hold text that is not one JSON object in valid UTF-8 with distinct keys;"
            f" filter them, {ADVICE}: {seen.example!r}"
        )
    if plan.unfit_keys:
        keys = ", ".join(repr(".".join(path)) for path in plan.unfit_keys)
        raise SchemaMismatchError(
            "the batch has JSON keys that cannot be columns: empty, *, with a dot, a backtick or a NUL, or of"
            " a name that a column has already, perhaps in another case; rename the batch's own column if it"
            f" is that, {ADVICE}: {keys}"
        )
    for path, (misfit, rows, text) in seen.failing.items():
        if isinstance(misfit.into, iceberg.IntegerType):
            continue  # read as long, which the contract may widen
        if contract.choice(Difference.UNFIT, path) == "refuse":
            raise SchemaMismatchError(
                f"{rows} rows hold values that the table's type does not; correct them, {ADVICE}:"
                f" {'.'.join(path)} is {misfit.into} in the table, and in the text {text!r}"
            )
