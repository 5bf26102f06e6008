"""Sorting whole numbers, and by several keys one after the other: rows that are alike stay as they came."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_sink.tasks.clustering.number_sort import sort_number_indices
from streaming_sink.tasks.clustering.ordering import Key, sort_indices

_FEW = st.integers(-3, 3)
_ANY = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
@given(numbers=st.lists(_FEW | _ANY, max_size=60), descending=st.booleans())
def test_numbers_are_sorted_and_alike_ones_stay_as_they_came(kind, numbers, descending):
    given_numbers = np.array(numbers, np.int64).view(kind)
    found = sort_number_indices(given_numbers, descending).tolist()
    sign = -1 if descending else 1
    assert found == sorted(range(len(numbers)), key=lambda row: sign * int(given_numbers[row]))


def _column(values, kind):
    return st.lists(st.none() | values, min_size=40, max_size=40).map(
        lambda them: pa.chunked_array([them[:15], them[15:]], kind)
    )


_KEYS = st.builds(
    Key,
    st.one_of(
        _column(_FEW | _ANY, pa.int64()),
        _column(_FEW, pa.int8()),
        _column(st.sampled_from(["", "a", "ab", "b" * 12]) | st.text(max_size=12), pa.string()),
    ),
    st.booleans(),
)


@given(keys=st.lists(_KEYS, min_size=1, max_size=3))
def test_an_earlier_key_comes_before_a_later_one_and_nulls_behind_all_values(keys):
    rows = list(range(40))
    for key in reversed(keys):
        values = [it.encode() if isinstance(it, str) else it for it in key.values.to_pylist()]
        present = [row for row in rows if values[row] is not None]
        # Python keeps rows that are alike in place with `reverse` too.
        in_order = sorted(present, key=values.__getitem__, reverse=key.descending)
        rows = in_order + [row for row in rows if values[row] is None]
    assert sort_indices(keys).to_pylist() == rows
