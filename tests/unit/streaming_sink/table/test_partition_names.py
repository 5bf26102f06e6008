"""Which values the folder of a partition may have: all that are spelled as it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
)

from planners.model import TablePartition
from streaming_sink.table.partition_names import speller, values_of
from streaming_sink.table.spec import partition_spec
from timeline.versions.head import Head

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "city", StringType()),
    NestedField(3, "day", DateType()),
    NestedField(4, "at", TimestampType()),
    NestedField(5, "ok", BooleanType()),
    NestedField(6, "share", DoubleType()),
)
_LONGS, _TEXTS, _NUMBERS = (
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.text(max_size=40),
    st.integers(-1 << 31, 1 << 31),
)
_NEAR = st.integers(-500_000, 500_000)
_FIELDS = st.one_of(
    st.tuples(st.just("id"), _LONGS),
    st.tuples(st.just("bucket(16, id)"), st.integers(0, 15)),
    st.tuples(
        st.sampled_from(["city", "truncate(9, city)"]), _TEXTS | st.just("null") | st.text("~é/", min_size=99)
    ),
    st.tuples(st.sampled_from(["day", "year(at)", "month(at)", "day(at)", "hour(at)"]), _NEAR | _NUMBERS),
    st.tuples(st.just("ok"), st.booleans()),
    st.tuples(st.just("share"), st.floats()),
)


def _head(partition_by: str) -> Head:
    spec = partition_spec([partition_by], SCHEMA)
    metadata = SimpleNamespace(specs=lambda: {0: spec})
    return cast("Head", SimpleNamespace(schema=SCHEMA, metadata=metadata))


@given(_FIELDS, st.booleans())
def test_a_value_is_among_those_of_its_folder(given: tuple[str, Any], is_null: bool) -> None:
    partition_by, value = given
    head, value = _head(partition_by), None if is_null else value
    values = values_of(head, head.metadata.specs()[0].fields[0], speller(head)(TablePartition(0, (value,))))
    assert values is None or value in values


@pytest.mark.parametrize(
    ("partition_by", "folder", "known"),
    [
        ("city", "city=eu", ["eu"]),
        ("id", "id=7", [7, -1963]),
        ("day(at)", "at_day=1970-01-11", [10]),
        ("month(at)", "at_month=1971-02", [13]),
        ("hour(at)", "at_hour=1970-01-02-03", [27]),
        ("day", "day=2026-02-30", []),
        ("share", "share=0.5", None),
        ("city", "city=e~u", None),
    ],
)
def test_few_values_are_those_of_a_folder(partition_by: str, folder: str, known: list[Any] | None) -> None:
    head = _head(partition_by)
    assert values_of(head, head.metadata.specs()[0].fields[0], [folder]) == known
