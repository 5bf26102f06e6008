"""An index of paths: each that came is known by its number, however many there are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timeline.retention import path_index
from timeline.retention.path_index import PathIndex


@given(st.lists(st.text(max_size=3)), st.lists(st.text(max_size=3)))
def test_paths_are_numbered_as_they_come(came: list[str], others: list[str]) -> None:
    index, numbers = PathIndex(), dict[str, int]()
    for path in came:
        assert index.add(path) == numbers.setdefault(path, len(numbers))
    assert len(index) == len(numbers)
    assert [index.find(path) for path in (*came, *others)] == [numbers.get(it) for it in (*came, *others)]


def test_it_grows_and_keeps_some_bytes_a_path() -> None:
    index = PathIndex()
    paths = [f"data/{number}.parquet" for number in range(20_000)]
    assert [index.add(path) for path in paths] == list(range(len(paths)))
    assert [index.find(path) for path in paths] == list(range(len(paths)))
    kept = sum(column.itemsize * len(column) for column in (index._hashes, index._slots))
    assert kept <= 20 * len(paths)


def test_paths_of_one_slot_are_told_apart() -> None:
    index = PathIndex()
    index._slots = path_index._empty(2)
    paths = [f"{number}" for number in range(50)]
    assert [index.add(path) for path in paths] == [index.find(path) for path in paths] == list(range(50))
    assert "50" not in index
