"""Sequences in numpy order as the numbers that they stand for, whatever their type."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_sink.tasks.keys.sequences import (
    LONG,
    NO_SEQUENCE,
    WIDE,
    kind_of_sequences,
    largest_sequences,
    no_sequences,
    sequence_values,
    sequences_from_arrow,
    sequences_to_arrow,
)
from tests.unit.streaming_sink.tasks.keys.numbers import TYPES, numbers_of, sequences_of

KINDS = pytest.mark.parametrize("kind", [LONG, WIDE], ids=["long", "wide"])
_EDGES = [0, 1, -1, 255, 256, -256, 2**63 - 1, -(2**63) + 1]
_WIDE_EDGES = [2**63, 2**64, -(2**64), 2**64 - 1, 10**38 - 1, 1 - 10**38, 1 << 72, 10**37 << 3]
NUMBERS = {
    LONG: st.sampled_from(_EDGES) | st.integers(-(2**63) + 1, 2**63 - 1),
    WIDE: st.sampled_from(_EDGES + _WIDE_EDGES) | st.integers(1 - 10**38, 10**38 - 1),
}


@KINDS
@given(st.data())
def test_sequences_compare_and_sort_as_their_numbers(kind: np.dtype, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(NUMBERS[kind], max_size=20))
    held = sequences_of(numbers, kind)
    assert (held.dtype, numbers_of(held)) == (kind, numbers)
    for number in numbers[:3]:
        other = sequences_of([number], kind)[0]
        assert (held > other).tolist() == [it > number for it in numbers]
        assert (held == other).tolist() == [it == number for it in numbers]
        assert (held >= other).tolist() == [it >= number for it in numbers]
    assert numbers_of(held[np.lexsort((held,))]) == sorted(numbers)
    assert (held > no_sequences(1, kind)[0]).all()


@KINDS
@given(st.data())
def test_of_each_place_the_largest_sequence_is_found(kind: np.dtype, data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(st.integers(0, 4), NUMBERS[kind]), max_size=20))
    places = np.array([place for place, _ in pairs], np.intp)
    found = largest_sequences(5, places, sequences_of([number for _, number in pairs], kind))
    none = numbers_of(no_sequences(1, kind))
    wanted = [max(none + [number for where, number in pairs if where == place]) for place in range(5)]
    assert numbers_of(found) == wanted


@KINDS
@given(st.data())
def test_a_file_gives_sequences_back(kind: np.dtype, data: st.DataObject) -> None:
    parts = data.draw(st.lists(st.lists(st.none() | NUMBERS[kind], max_size=4), max_size=3))
    held = [sequences_of(numbers, kind) for numbers in parts]
    stored = pa.chunked_array(
        [sequences_to_arrow(each) for each in held], sequences_to_arrow(no_sequences(0, kind)).type
    )
    assert numbers_of(sequences_from_arrow(stored)) == [it for each in held for it in numbers_of(each)]


@KINDS
def test_nulls_are_older_than_any_number_and_slices_keep_their_place(kind: np.dtype) -> None:
    lowest = 1 - 10**38 if kind == WIDE else NO_SEQUENCE + 1
    values = [3, None, lowest, None, 7]
    column = pa.array([it if kind == LONG or it is None else Decimal(it) for it in values], TYPES[kind])
    whole = sequence_values(pa.chunked_array([column, column.slice(2)]))
    assert (whole[[1, 3, 6]] == no_sequences(1, kind)).all()
    assert (whole[[0, 2, 4, 5, 7]] > no_sequences(1, kind)).all()
    assert sequence_values(column.slice(2, 1)).tolist() == whole[2:3].tolist()
    assert sequence_values(column.slice(1, 0)).dtype == kind
    assert sequence_values(column.slice(1, 1)).tolist() == whole[1:2].tolist()


def test_a_decimal_of_any_precision_is_wide_so_that_it_may_widen() -> None:
    narrow = pa.array([Decimal(-5), Decimal(7)], pa.decimal128(2, 0))
    assert sequence_values(narrow).tolist() == sequence_values(narrow.cast(pa.decimal128(38, 0))).tolist()


def test_times_are_longs_in_their_order() -> None:
    times = pa.array([5, None, -3]).cast(pa.timestamp("us", "UTC"))
    assert sequence_values(times).tolist() == [5, NO_SEQUENCE, -3]
    assert sequence_values(pa.array([], pa.int32())).dtype == np.int64
    assert kind_of_sequences(pa.date32()) == LONG


@pytest.mark.parametrize(
    "column", [pa.float64(), pa.string(), pa.decimal128(9, 2), pa.timestamp("ns"), pa.uint64()]
)
def test_a_type_that_orders_nothing_is_refused(column: pa.DataType) -> None:
    with pytest.raises(TypeError, match="cannot order changes"):
        kind_of_sequences(column)
