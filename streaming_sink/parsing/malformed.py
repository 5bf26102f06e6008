"""Which texts are no JSON objects that can become columns, as Spark columns."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as sf

from streaming_sink.tasks.batches import RESERVED_PREFIX

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
