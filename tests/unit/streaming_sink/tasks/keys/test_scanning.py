"""The keys of real data files: where a batch's keys are found in one, and which rows have no key."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.keys import scanning
from streaming_sink.tasks.keys.hashing import hash_keys
from streaming_sink.tasks.keys.probing import KeyProbe
from streaming_sink.tasks.keys.scanning import KeyColumns, KeyedFile, find_in_file, scan_keys
from streaming_sink.tasks.keys.sequences import NO_SEQUENCE
from tests.unit.streaming_sink.tasks.keys.data_files import (
    COLUMNS,
    ID,
    NAME,
    TABLE,
    field,
    filter_of,
    probe_of,
    put_file,
    put_rows,
)
from timeline.stores import MemoryStore

KEYS = st.tuples(st.integers(0, 5), st.sampled_from(["", "a", "b"]))
ROWS = st.tuples(st.integers(0, 5), st.sampled_from(["", "a", "b", None]), st.none() | st.integers(0, 9))


@given(st.lists(ROWS), st.lists(KEYS), st.integers(1, 4))
def test_every_row_that_has_a_key_of_the_batch_is_found(
    rows: list[tuple[int, str | None, int | None]], keys: list[tuple[int, str]], group: int
) -> None:
    store = MemoryStore()
    file = put_rows(store, rows, row_group_size=group)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "SCAN_ROWS", 3)
        found = find_in_file(store, file, COLUMNS, probe_of(keys))
        near = find_in_file(store, file, COLUMNS, probe_of(keys), wanted=filter_of(keys))
    assert [each.tolist() for each in near] == [each.tolist() for each in found]
    assert found.sequences is not None
    assert sorted(zip(*(each.tolist() for each in found), strict=True)) == [
        (index, position, NO_SEQUENCE if at is None else at)
        for index, key in enumerate(keys)
        for position, (number, name, at) in enumerate(rows)
        if key == (number, name)
    ]
    assert found.positions.tolist() == sorted(found.positions.tolist())


def test_without_a_sequence_column_there_are_no_sequences() -> None:
    store = MemoryStore()
    file = put_rows(store, [(1, "a", 5)])
    columns = KeyColumns(TABLE, COLUMNS.keys)
    assert find_in_file(store, file, columns, probe_of([(1, "a")])).sequences is None
    assert find_in_file(store, file, columns, probe_of([(1, "b")])).sequences is None


def test_a_column_is_found_by_its_id_under_its_old_name_and_type() -> None:
    store = MemoryStore()
    old = pa.schema([field("was", pa.int32(), 1), NAME])
    file = put_file(store, pa.table([[4, 5], ["a", "b"]], old))
    found = find_in_file(store, file, COLUMNS, probe_of([(5, "b")]))
    assert (found.positions.tolist(), found.sequences.tolist()) == ([1], [NO_SEQUENCE])


def test_rows_from_before_a_key_column_was_added_have_no_key() -> None:
    store = MemoryStore()
    file = put_file(store, pa.table([[4, 5]], pa.schema([ID])))
    assert [len(entries.hashes) for entries in scan_keys(store, file, COLUMNS)] == [0]


def test_the_keys_of_a_uuid_column_are_its_bytes() -> None:
    store = MemoryStore()
    ids = [UUID(int=1).bytes, UUID(int=2).bytes]
    file = put_file(store, pa.table([ids], pa.schema([field("u", pa.binary(16), 1)])))
    columns = KeyColumns(TABLE, pa.schema([field("u", pa.uuid(), 1)]))
    probe = KeyProbe(hash_keys([pa.array(ids[1:])], columns.seed))
    assert find_in_file(store, file, columns, probe).positions.tolist() == [1]


def test_a_file_with_other_rows_than_the_table_says_is_damage() -> None:
    store = MemoryStore()
    file = put_rows(store, [(1, "a", 5)])
    with pytest.raises(DataFileError, match="has 1 rows, not 2 as the table says"):
        find_in_file(store, file._replace(rows=2), COLUMNS, probe_of([]))


def test_a_missing_file_is_no_empty_one() -> None:
    with pytest.raises(DataFileError, match="a data file is missing"):
        find_in_file(MemoryStore("none"), KeyedFile("memory://none/data/x", 1), COLUMNS, probe_of([]))


def test_rows_of_most_other_keys_are_not_hashed() -> None:
    store = MemoryStore()
    file = put_rows(store, [(number, "a", None) for number in range(10_000)])
    wanted = [(number, "a") for number in range(0, 10_000, 100)]
    hashed = list(scan_keys(store, file, COLUMNS, wanted=filter_of(wanted)))
    assert 100 <= sum(len(each.positions) for each in hashed) < 1_500


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.float64(), pa.timestamp("ns"), pa.decimal128(9, 2)], ids=str
)
def test_a_sequence_of_another_type_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(TypeError, match="cannot order changes"):
        KeyColumns(TABLE, COLUMNS.keys, field("at", kind, 3))


def test_a_key_of_a_type_without_hashes_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be part of a key"):
        KeyColumns(TABLE, pa.schema([field("x", pa.float64(), 1)]))


@given(st.lists(st.integers(0, 2**64 - 1), max_size=8), st.data())
def test_hashes_are_equal_only_where_both_words_are(words: list[int], data: st.DataObject) -> None:
    """Hashes whose first words are equal do not happen; matching them must be right all the same."""
    one = st.tuples(st.sampled_from([*words, 0, 2**64 - 1]), st.integers(0, 2))
    hashes, rows = (data.draw(st.lists(one, max_size=12)) for _ in range(2))
    probe = KeyProbe(np.array(hashes, np.uint64).reshape(-1, 2))
    expected = sorted((i, r) for i, it in enumerate(hashes) for r, row in enumerate(rows) if it == row)
    found = probe.match_rows(np.array(rows, np.uint64).reshape(-1, 2))
    assert sorted(zip(*(each.tolist() for each in found), strict=True)) == expected
    ordered = sorted(range(len(rows)), key=lambda row: rows[row][0])
    high, low = np.array([rows[row] for row in ordered], np.uint64).reshape(-1, 2).T.copy()
    indexes, places = probe.match_sorted(high, low)
    assert sorted((i, ordered[p]) for i, p in zip(indexes.tolist(), places.tolist(), strict=True)) == expected
