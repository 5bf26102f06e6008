"""Keys of files that no index covers: a process reads a file once, and what it keeps of them is bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.key_index.scanned_keys import ScannedKeys
from streaming_sink.tasks.keys.scanning import KeyColumns, KeyedFile, find_in_file
from tests.unit.streaming_sink.tasks.keys.data_files import COLUMNS, TABLE, filter_of, probe_of, put_rows
from timeline.stores import MemoryStore

ROW_BYTES = 32
KEYS = [(number, "a") for number in range(4)]


class Lake:
    """A store whose reads are counted, and data files in it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.reads: list[str] = []
        opened = self.store.open_input

        def open_input(path: str):
            self.reads.append(path.rpartition("/")[2])
            return opened(path)

        self.store.open_input = open_input

    def file(self, name: str, ids: list[int]) -> KeyedFile:
        return put_rows(self.store, [(number, "a", number + 10) for number in ids], path=f"data/{name}")

    def find(self, files: list[KeyedFile], known: ScannedKeys, columns: KeyColumns = COLUMNS):
        found = known.find(self.store, files, columns, probe_of(KEYS), wanted=filter_of(KEYS))
        return [each.positions.tolist() for each in found]

    def read_by(self, files: list[KeyedFile], known: ScannedKeys) -> str:
        """Return the names of the files that a look-up has read."""
        before = len(self.reads)
        self.find(files, known)
        return "".join(sorted(self.reads[before:]))


def test_a_file_is_read_once_by_a_process_and_each_probe_is_answered():
    lake, known = Lake(), ScannedKeys()
    files = [lake.file("a", [9, 1]), lake.file("b", [2, 8, 3])]
    for _ in range(3):
        assert lake.find(files, known) == [[1], [0, 2]]
    [one] = known.find(lake.store, files[:1], COLUMNS, probe_of([(9, "a"), (1, "a")]))
    assert (one.indexes.tolist(), one.positions.tolist(), one.sequences.tolist()) == (
        [0, 1],
        [0, 1],
        [19, 11],
    )
    assert sorted(lake.reads) == ["a", "b"]


def test_a_file_elsewhere_is_read_each_time_since_its_owner_may_use_the_name_again():
    lake, drop, known = Lake(), MemoryStore(), ScannedKeys()

    def written(ids: list[int]) -> KeyedFile:
        file = put_rows(drop, [(number, "a", 0) for number in ids], path="latest")
        return file._replace(location=drop.uri("latest"))

    assert lake.find([written([9, 1])], known) == [[1]]
    assert lake.find([written([2, 8])], known) == [[0]]


def test_what_is_kept_of_a_file_answers_a_batch_of_other_keys():
    lake, known = Lake(), ScannedKeys()
    file = lake.file("a", [1, 9])
    assert lake.find([file], known) == [[0]]
    others = [(9, "a")]
    [found] = known.find(lake.store, [file], COLUMNS, probe_of(others), wanted=filter_of(others))
    assert found.positions.tolist() == [1]


def test_a_file_is_read_again_for_a_key_of_other_columns():
    lake, known = Lake(), ScannedKeys()
    file = lake.file("a", [1])
    assert lake.find([file], known) == [[0]]
    without = KeyColumns(TABLE, COLUMNS.keys)
    assert known.find(lake.store, [file], without, probe_of(KEYS))[0].sequences is None
    assert lake.reads == ["a", "a"]


def test_files_that_are_not_asked_for_any_more_leave_where_the_bound_is_passed():
    lake, known = Lake(), ScannedKeys(kept_bytes=4 * ROW_BYTES)
    a, b, c = (lake.file(name, [1, 2]) for name in "abc")
    assert lake.read_by([a, b], known) == "ab"
    assert lake.read_by([b, c], known) == "c"
    assert lake.read_by([b, c], known) == ""
    assert lake.read_by([a], known) == "a", "it left for c"


def test_of_a_table_beyond_the_bound_a_part_is_kept_and_the_rest_is_scanned_each_time():
    lake, known = Lake(), ScannedKeys(kept_bytes=4 * ROW_BYTES)
    files = [lake.file(name, [1, 2]) for name in "abcd"]
    assert lake.read_by(files, known) == "abcd"
    assert len(lake.read_by(files, known)) == 2
    assert len(lake.read_by(files, known)) == 2


def test_a_file_beyond_the_bound_is_scanned_each_time_and_pushes_out_none_that_is_asked_for():
    lake, known = Lake(), ScannedKeys(kept_bytes=4 * ROW_BYTES)
    small, large = lake.file("s", [1]), lake.file("l", [1, 2, 3, 7, 8])
    assert lake.read_by([small, large], known) == "ls"
    assert lake.read_by([small, large], known) == "l"


def test_a_file_that_is_missing_stops_the_batch_and_is_not_remembered():
    lake, known = Lake(), ScannedKeys()
    file = KeyedFile(lake.store.uri("data/gone"), 1)
    for _ in range(2):
        with pytest.raises(DataFileError, match="missing"):
            lake.find([file], known)


@given(
    st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=1, max_size=4),
    st.lists(st.sets(st.integers(0, 3), min_size=1), max_size=6),
    st.integers(0, 10 * ROW_BYTES),
)
def test_whatever_is_kept_the_answer_is_that_of_a_scan(
    contents: list[list[int]], asked: list[set[int]], bound: int
) -> None:
    lake, known = Lake(), ScannedKeys(bound)
    files = [lake.file(str(number), ids) for number, ids in enumerate(contents)]
    for numbers in asked:
        wanted = [files[number] for number in sorted(numbers) if number < len(files)]
        scanned = [find_in_file(lake.store, file, COLUMNS, probe_of(KEYS)) for file in wanted]
        assert lake.find(wanted, known) == [each.positions.tolist() for each in scanned]
        assert known._bytes == sum(ROW_BYTES * file.rows for _, file in known._known)
        assert known._bytes <= bound
