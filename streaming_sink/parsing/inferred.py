"""The types of the JSON objects of one batch, from the text in which Spark infers them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyspark.sql import types as spark

_TOKEN = re.compile(r"`(?:[^`]|``)*`|\w+|[<>(),:]")
BEYOND_LONG = spark.DecimalType(38, 0)
"""Whole numbers, some of which are larger than a long."""
_DIGITS_OF_A_LONG = 18
"""A whole number of so many digits is a long, so a decimal of them had a fraction, as `1.0` has."""
MIXED = spark.VariantType()
"""Values that share no type, or that lie too deep for one."""
DEEPEST = 32
"""So many levels of objects and lists have types. Arrow refuses a column of 64 levels."""


def inferred_type(text: str) -> spark.DataType:
    """Return the type that `schema_of_variant_agg` has in its own words, such as `OBJECT<id: BIGINT>`.

    Numbers are long, double as soon as one has a fraction or an exponent, or `BEYOND_LONG`; that one also
    where whole numbers are beside such as `1.0`, since Spark forgets their zeros. `NullType` has
    only nulls; a struct without fields only `{}`. Objects and lists below `DEEPEST` levels are `MIXED`.
    """
    return _read(iter(_TOKEN.findall(text)), DEEPEST)


def _read(tokens: Iterator[str], levels: int) -> spark.DataType:
    word = next(tokens)
    if word in ("OBJECT", "ARRAY") and not levels:
        _skip(tokens)
        return MIXED
    if word == "OBJECT":
        return spark.StructType(list(_fields(tokens, levels - 1)))
    if word == "ARRAY":
        next(tokens)
        element = _read(tokens, levels - 1)
        next(tokens)
        return spark.ArrayType(element)
    if word == "DECIMAL":
        _, digits, _, scale, _ = (next(tokens) for _ in range(5))
        return BEYOND_LONG if scale == "0" and int(digits) > _DIGITS_OF_A_LONG else spark.DoubleType()
    return _PRIMITIVES[word]


def _skip(tokens: Iterator[str]) -> None:
    """Read what is between two brackets, and the brackets."""
    inside = 0
    for token in tokens:
        inside += {"<": 1, ">": -1}.get(token, 0)
        if not inside:
            return


def _fields(tokens: Iterator[str], levels: int) -> Iterator[spark.StructField]:
    next(tokens)
    while (name := next(tokens)) != ">":
        if name == ",":
            name = next(tokens)
        next(tokens)
        plain = name[1:-1].replace("``", "`") if name.startswith("`") else name
        yield spark.StructField(plain, _read(tokens, levels))


_PRIMITIVES: dict[str, spark.DataType] = {
    "VOID": spark.NullType(),
    "VARIANT": MIXED,
    "BOOLEAN": spark.BooleanType(),
    "BIGINT": spark.LongType(),
    "DOUBLE": spark.DoubleType(),
    "STRING": spark.StringType(),
}


def common_type(one: spark.DataType, other: spark.DataType) -> spark.DataType:
    """Return the type of values of two types, as a batch with both would have it."""
    if one == other or isinstance(other, spark.NullType):
        return one
    if isinstance(one, spark.NullType):
        return other
    if isinstance(one, spark.StructType) and isinstance(other, spark.StructType):
        fields = {field.name: field.dataType for field in one.fields}
        for field in other.fields:
            known = fields.get(field.name, spark.NullType())
            fields[field.name] = common_type(known, field.dataType)
        return spark.StructType([spark.StructField(name, fields[name]) for name in sorted(fields)])
    if isinstance(one, spark.ArrayType) and isinstance(other, spark.ArrayType):
        return spark.ArrayType(common_type(one.elementType, other.elementType))
    numbers: list[spark.DataType] = [spark.LongType(), BEYOND_LONG, spark.DoubleType()]
    if one in numbers and other in numbers:
        return numbers[max(numbers.index(one), numbers.index(other))]
    return MIXED
