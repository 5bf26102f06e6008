"""Sorting text by numbers gives exactly Arrow's order, ties in the order in which they came."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_sink.tasks.clustering import text_sort
from streaming_sink.tasks.clustering.ordering import Key, sort_indices

TEXTS = st.one_of(
    st.text(max_size=20),
    st.text(alphabet="a\0b\x7f", max_size=12),
    st.builds("common prefix {}".format, st.text(alphabet="\0aé", max_size=10)),
    st.builds("{:020d}".format, st.integers(0, 300)),
)


@pytest.mark.parametrize("direction", ["ascending", "descending"])
@given(texts=st.lists(TEXTS, max_size=60), cut=st.integers(0, 5), binary=st.booleans())
def test_the_order_is_arrows(direction: str, texts: list[str], cut: int, binary: bool) -> None:
    values = pa.array(texts, pa.string())[cut:]
    values = values.cast(pa.binary()) if binary else values
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_sort, "_MOST_ALIKE", 1.0)
        found = text_sort.sort_text_indices(values, direction)
    assert (found is None) == (not len(values))
    if found is not None:
        assert found.to_pylist() == _stable(values.to_pylist(), direction)
    if len(values):
        key = Key(pa.chunked_array([values]), direction == "descending")
        assert sort_indices([key]).to_pylist() == _stable(values.to_pylist(), direction)


def test_texts_that_differ_late_only_are_left_to_arrow() -> None:
    alike = pa.array([f"{'a' * (number % 2)}{'b' * 30}{number:03d}" for number in range(100)])
    assert text_sort.sort_text_indices(alike, "ascending") is None
    apart = pa.array([f"{'b' * 30}{number:03d}" for number in range(99, -1, -1)])
    assert text_sort.sort_text_indices(apart, "ascending") == pa.array(range(99, -1, -1), pa.uint64())
    assert text_sort.sort_text_indices(pa.array(["a", None]), "ascending") is None


def test_most_texts_are_sorted_without_comparing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    values = pa.array([f"{number * 2654435761 % 2**32:08x}-tail" for number in range(2_000)] * 1)
    monkeypatch.setattr(text_sort, "_settle_ties", None)
    found = text_sort.sort_text_indices(values, "ascending")
    assert found == pc.array_sort_indices(values)


def _stable(values: list[str] | list[bytes], direction: str) -> list[int]:
    raw = [value.encode() if isinstance(value, str) else value for value in values]
    ascending = sorted(range(len(raw)), key=lambda place: raw[place])
    if direction == "ascending":
        return ascending
    return sorted(range(len(raw)), key=lambda place: [-byte for byte in raw[place]] + [1])
