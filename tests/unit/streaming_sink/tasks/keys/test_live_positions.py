"""Which rows are live: delete files are read once, and what is kept of them is bounded."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_sink.tasks.changes.live_positions import ENTRY_BYTES, DeletedPositions, are_live, by_number
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.files.delete_files import write_position_deletes, write_shared_deletes
from streaming_sink.tasks.job import ParquetSettings, SearchedFile
from timeline.stores import MemoryStore


class Lake:
    """A store whose reads are counted, and delete files of its data files."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.reads: list[str] = []
        opened = self.store.open_input

        def open_input(path: str):
            self.reads.append(path)
            return opened(path)

        self.store.open_input = open_input

    def file(self, name: str, *deletes: list[int]) -> SearchedFile:
        paths = [f"data/{name}-{number}.parquet" for number in range(len(deletes))]
        for path, positions in zip(paths, deletes, strict=True):
            write_position_deletes(self.store, path, name, pa.array(positions), ParquetSettings())
        return SearchedFile(name, 1000, tuple(map(self.store.uri, paths)))

    def live(self, files: list[SearchedFile], rows: list[tuple[int, int]], known: DeletedPositions):
        numbers, positions = (np.array([row[at] for row in rows], np.int64) for at in (0, 1))
        return are_live(self.store, files, numbers, positions, known).tolist()


def test_rows_are_live_that_no_delete_file_of_their_file_names():
    lake = Lake()
    files = [lake.file("a", [1, 5], [7]), lake.file("b"), lake.file("c", [0])]
    rows = [(2, 0), (0, 7), (1, 5), (0, 6), (0, 1), (0, 999), (2, 1)]
    expected = [False, False, True, True, False, True, True]
    assert lake.live(files, rows, DeletedPositions()) == expected


def test_a_delete_file_is_read_once_by_a_process():
    lake, known = Lake(), DeletedPositions()
    files = [lake.file("a", [1], [2]), lake.file("b", [3])]
    for _ in range(3):
        assert lake.live(files, [(0, 1), (0, 2), (1, 3), (1, 4)], known) == [False, False, False, True]
    assert len(lake.reads) == 3


def test_a_delete_file_that_data_files_share_is_read_once_for_all_of_them():
    lake, known = Lake(), DeletedPositions()
    arrays = {name: pa.array([at, at + 5], pa.int64()) for at, name in enumerate("abc")}
    write_shared_deletes(lake.store, "data/shared.parquet", arrays, ParquetSettings())
    shared = (lake.store.uri("data/shared.parquet"),)
    files = [SearchedFile(name, 1000, shared) for name in "abcd"]
    rows = [(number, position) for number in range(4) for position in (0, 1, 6)]
    expected = [False, True, True, True, False, False, True, True, True, True, True, True]
    for _ in range(2):
        assert lake.live(files, rows, known) == expected
        assert lake.reads == ["data/shared.parquet"]


def test_entries_count_that_have_no_positions():
    """A shared delete file may apply to data files that it does not name."""
    lake, known = Lake(), DeletedPositions(kept_bytes=16 + 4 * ENTRY_BYTES)
    write_position_deletes(lake.store, "data/d.parquet", "a", pa.array([1]), ParquetSettings())
    for number in range(50):
        file = SearchedFile(f"b{number}", 1000, (lake.store.uri("data/d.parquet"),))
        assert lake.live([file], [(0, 1)], known) == [True]
    assert len(known._known) == 4


def test_delete_files_of_files_without_a_match_are_not_read():
    lake = Lake()
    lake.live([lake.file("a", [1]), lake.file("b", [3])], [(1, 3)], DeletedPositions())
    assert len(lake.reads) == 1


def test_what_was_used_least_recently_leaves_where_the_bound_is_passed():
    lake, known = Lake(), DeletedPositions(kept_bytes=32 + 2 * ENTRY_BYTES)  # four positions of two files
    a, b, c = (lake.file(name, [1, 2]) for name in "abc")
    for file, reads in ((a, 1), (b, 2), (a, 2), (c, 3), (a, 3), (c, 3), (b, 4)):
        assert lake.live([file], [(0, 2), (0, 3)], known) == [False, True]
        assert len(lake.reads) == reads


def test_a_delete_file_larger_than_the_bound_is_applied_and_not_kept():
    lake, known = Lake(), DeletedPositions(kept_bytes=8)
    file = lake.file("a", [1, 2, 3])
    for reads in (1, 2):
        assert lake.live([file], [(0, 3), (0, 4)], known) == [False, True]
        assert len(lake.reads) == reads


def test_a_delete_file_that_is_missing_stops_the_batch():
    lake = Lake()
    file = SearchedFile("a", 10, (lake.store.uri("data/gone.parquet"),))
    with pytest.raises(DataFileError, match="missing"):
        lake.live([file], [(0, 1)], DeletedPositions())


@given(st.lists(st.integers(0, 5)))
def test_rows_are_told_apart_by_the_numbers_of_their_files(numbers: list[int]):
    found = {number: places.tolist() for number, places in by_number(np.array(numbers, np.int64))}
    assert found == {it: [i for i, at in enumerate(numbers) if at == it] for it in sorted(set(numbers))}
