"""Sorting by several keys one after the other: rows that are alike stay as they came."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streaming_sink.tasks.clustering.ordering import Key, sort_indices

_FEW = st.integers(-3, 3)
_ANY = st.integers(-(2**63), 2**63 - 1)
_TEXTS = st.one_of(
    st.sampled_from(["", "a", "ab", "b" * 12]),
    st.text(max_size=12),
    st.text(alphabet="a\0b\x7f", max_size=12),
    st.builds("common prefix {}".format, st.text(alphabet="\0aé", max_size=10)),
)


def _column(values, kind):
    return st.lists(st.none() | values, min_size=40, max_size=40).map(
        lambda them: pa.chunked_array([them[:15], them[15:]], kind)
    )


_KEYS = st.builds(
    Key,
    st.one_of(
        _column(_FEW | _ANY, pa.int64()),
        _column(st.integers(0, 3) | st.integers(0, 2**64 - 1), pa.uint64()),
        _column(_FEW, pa.int8()),
        _column(_TEXTS, pa.string()),
        _column(_TEXTS.map(str.encode), pa.binary()),
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
