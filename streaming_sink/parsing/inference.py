"""What the JSON text of a batch holds: the types of its keys, and the texts that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TypeGuard

from pyiceberg import types as iceberg
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.checks.rules import fit_value
from streaming_sink.options.values.contract import SchemaContract
from streaming_sink.parsing.columns import (
    doubtful_numbers,
    finest_conversion,
    possible_conversions,
    tested_type,
    type_down_to,
)
from streaming_sink.parsing.given import not_of_type, with_keys
from streaming_sink.parsing.inferred import inferred_type
from streaming_sink.table.fitting import Misfit, Path
from streaming_sink.table.sql_names import quoted
from streaming_sink.tasks.batches import RESERVED_PREFIX
from timeline.errors import SchemaMismatchError

_EXAMPLE_CHARACTERS = 200
_MALFORMED = RESERVED_PREFIX + "malformed"
_READABLE = RESERVED_PREFIX + "readable"
_CONDITION = RESERVED_PREFIX + "condition_"
ADVICE = 'or choose what happens to such rows: SchemaContract(mismatch="rescue"), "quarantine" or "drop"'


@dataclass(frozen=True)
class SeenTypes:
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
    malformed_texts: Column
    """Whether a text is malformed, or has a value that the given type does not hold."""
    aside: Column | None = None
    """Whether a text that can be read has a value that is none of the objects or lists of its key, so that it
    decided no type. None where no text has."""


def look_at(
    batch: DataFrame,
    column: str,
    table: iceberg.StructType | None,
    given: spark.StructType,
    contract: SchemaContract,
) -> SeenTypes:
    value = sf.col(quoted(column))
    malformed, misplaced = is_malformed(value), list(not_of_type(value, given))
    seen, counts = _infer(batch, value, table, given, malformed, [unfit for _, unfit in misplaced])
    found = [(what, *each) for (what, _), each in zip(misplaced, counts, strict=True) if each[0]]
    if not found:
        return seen
    if contract.mismatch == "refuse":
        what, rows, text = found[0]
        raise SchemaMismatchError(
            f"{rows} rows hold values that the given type does not; correct them, {ADVICE}:"
            f" {what} in as_type, and in the text {text!r}"
        )
    # One value of another type hides what the other texts have in its place, so these are looked at alone.
    unreadable = malformed | any_of([unfit for _, unfit in misplaced])
    seen, _ = _infer(batch, value, table, given, unreadable, [])
    return seen


def look_again(
    batch: DataFrame,
    column: str,
    table: iceberg.StructType | None,
    given: spark.StructType,
    seen: SeenTypes,
    aside: Column,
) -> SeenTypes:
    """Return what the texts hold that are not aside."""
    value = sf.col(quoted(column))
    return replace(_infer(batch, value, table, given, seen.malformed_texts, [], aside)[0], aside=aside)


def _infer(
    batch: DataFrame,
    value: Column,
    table: iceberg.StructType | None,
    given: spark.StructType,
    malformed: Column,
    misplaced: Sequence[Column],
    aside: Column | None = None,
) -> tuple[SeenTypes, list[tuple[int, str]]]:
    """Return what the texts hold that are neither malformed nor aside, and of how many of them each condition
    holds.
    """
    possible = {} if table is None else possible_conversions(table)
    # The text of a number is that of the double, so what a decimal is read as is tested too.
    exact = {path: finest_conversion(each.into) for path, each in possible.items() if _is_decimal(each.into)}
    tests: list[tuple[Path, Column]] = []
    for conversions in (possible, exact):
        tested = None if table is None else tested_type(table, conversions, ())
        if isinstance(tested, spark.StructType):
            tests += fit_value(sf.from_json(value, tested), tested, (), conversions).failing
    conditions = [unfit for _, unfit in tests] + list(misplaced)
    # Each of these is a large expression, which Spark would plan and compile wherever an aggregate names it.
    bad, readable = sf.col(quoted(_MALFORMED)), sf.col(quoted(_READABLE))
    names = [f"{_CONDITION}{place}" for place in range(len(conditions))]
    judged = batch.select(value, malformed.alias(_MALFORMED))
    judged = judged.select(value, bad, (~bad if aside is None else ~bad & ~aside).alias(_READABLE))
    # With `and`, and not `when`: of a condition that may not be evaluated Spark shares no part with another.
    held = [(readable & each).alias(name) for each, name in zip(conditions, names, strict=True)]
    found = (
        judged.select(value, bad, readable, *held)
        .select(
            sf.schema_of_variant_agg(sf.when(readable, sf.try_variant_get(framed(value), "$[0]", "variant"))),
            *_count(bad, value),
            *(each for name in names for each in _count(sf.col(quoted(name)), value)),
        )
        .first()
    )
    assert isinstance(found, Row)
    counts = [(found[place], found[place + 1]) for place in range(1, len(found), 2)]
    failing = {
        path: (possible[path], rows, text)
        for (path, _), (rows, text) in zip(tests, counts[1:], strict=False)
        if rows
    }
    kind = inferred_type(found[0])
    inferred = kind if isinstance(kind, spark.StructType) else spark.StructType()
    unreadable = [malformed] if counts[0][0] else []
    unreadable += [unfit for path, unfit in tests if path in failing and _is_decimal(possible[path].into)]
    seen = SeenTypes(
        inferred=with_keys(inferred, given),
        malformed=counts[0][0],
        example=counts[0][1],
        possible={path: each for path, each in possible.items() if path not in failing},
        failing=failing,
        fractions=_find_fractions(judged, sf.when(readable, value), inferred, table),
        unreadable=any_of(unreadable) if unreadable else None,
        malformed_texts=malformed,
    )
    return seen, counts[1 + len(tests) :]


def _find_fractions(
    texts: DataFrame, value: Column, inferred: spark.StructType, table: iceberg.StructType | None
) -> Collection[Path]:
    """Return the keys with fractions, of those whose type does not say it. If there are such, it is a job."""
    doubtful = list(doubtful_numbers(inferred, table or iceberg.StructType(), ()))
    if not doubtful:
        return ()
    has = (reads(value, path, inferred, table, _has_fraction) for path in doubtful)
    found = texts.select(*(sf.bool_or(each) for each in has))
    return {path for path, fraction in zip(doubtful, found.first() or (), strict=True) if fraction}


def _has_fraction(number: Column) -> Column:
    return number.contains(".")  # the text of a number is that of the double, `1.0E20` for 1e20


def _is_decimal(kind: iceberg.IcebergType | None) -> TypeGuard[iceberg.DecimalType]:
    return isinstance(kind, iceberg.DecimalType)


def any_of(conditions: Sequence[Column]) -> Column:
    return reduce(or_, (sf.coalesce(each, sf.lit(False)) for each in conditions))


def _count(condition: Column, value: Column) -> tuple[Column, Column]:
    """Return how many rows there are, and the beginning of one's text: the same one of equal batches."""
    example = sf.min(sf.when(condition, sf.substring(value, 1, _EXAMPLE_CHARACTERS)))
    return sf.count_if(condition), example


def reads(
    text: Column,
    path: Path,
    inferred: spark.StructType,
    table: iceberg.StructType | None,
    is_it: Callable[[Column], Column],
    leaf: spark.DataType | None = None,
) -> Column:
    """Return whether a text has at one path what is looked for, in text, or in the type `leaf`."""
    kind = type_down_to(path, inferred, table, leaf or spark.StringType())
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


_END = RESERVED_PREFIX + "end"
_MOST_LEVELS = 100


def framed(value: Column) -> Column:
    """Return a text as the first of two elements of a list. Spark's JSON functions ignore what comes after
    the first value of a text; within a list they cannot.
    """
    return sf.try_parse_json(sf.concat(sf.lit("["), value, sf.lit(f',"{_END}"]')))


def is_malformed(value: Column) -> Column:
    """Return whether a text is anything but one JSON object in valid UTF-8, whose keys are distinct, or too
    deep to read, or has half of a character.
    """
    ends = sf.try_variant_get(framed(value), "$[1]", "string") == _END
    is_object = sf.coalesce(ends, sf.lit(False)) & value.rlike(r"^\s*\{")
    # Spark reads bytes that are no UTF-8 as replacement characters, without a word.
    readable = sf.is_valid_utf8(value) & is_object & ~_has_half_character(value) & ~_is_too_deep(value)
    return value.isNotNull() & ~readable


def _has_half_character(value: Column) -> Column:
    """Return whether a text escapes one of the two halves of a character (a surrogate of UTF-16) without the
    other, as JavaScript does where it has cut a string. Spark reads a question mark.
    """
    escapes = sf.regexp_replace(value, r"\\[^u]", " ")  # the u after an escaped backslash is text
    pair = r"(?i)\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}"
    half = sf.regexp_replace(escapes, pair, "").rlike(r"(?i)\\ud[89a-f]")
    return value.contains("\\u") & half


def _is_too_deep(value: Column) -> Column:
    """Return whether a JSON text has more levels than Spark infers without a stack overflow, of which the
    executor would die.
    """
    begins = sf.length(value) - sf.length(sf.translate(value, "[{", ""))
    # Without escapes, strings and the rest, in this order, only brackets are left.
    brackets = value
    for rest in (r"\\.", '"[^"]*"', r"[^\[\]{}]"):
        brackets = sf.regexp_replace(brackets, rest, "")
    level = sf.struct(sf.lit(0).alias("level"), sf.lit(0).alias("deepest"))
    deepest = sf.aggregate(sf.split(brackets, ""), level, _next_level, lambda last: last["deepest"])
    return (begins > _MOST_LEVELS) & (deepest > _MOST_LEVELS)


def _next_level(before: Column, bracket: Column) -> Column:
    step = sf.when(bracket.isin("[", "{"), 1).when(bracket.isin("]", "}"), -1).otherwise(0)
    level = before["level"] + step
    return sf.struct(level.alias("level"), sf.greatest(before["deepest"], level).alias("deepest"))
