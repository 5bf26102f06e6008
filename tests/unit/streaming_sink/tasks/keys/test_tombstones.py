"""Deleted keys: files of them, and how a batch that deletes merges those that are known."""

from __future__ import annotations

import numpy as np
import pytest

from streaming_sink.keyed.row_deletes import FILES_A_TIER, files_to_merge, remember_deletes
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.job import FileIds, KeyJob
from streaming_sink.tasks.keys.sequences import LONG, WIDE
from streaming_sink.tasks.keys.tombstones import (
    AT_COMMIT,
    Tombstones,
    deleted_until,
    merge_tombstones,
    read_tombstones,
    write_tombstones,
)
from streaming_sink.tasks.results import DeletedKeys
from streaming_sink.writing.writer import WriteResult
from tests.unit.streaming_sink.tasks.keys.numbers import numbers_of, sequences_of
from tests.unit.timeline.world import DAY_MS, Lake
from timeline.changes.key_changes import DeclareKey
from timeline.versions.keys import TableKey
from timeline.versions.tombstones import TombstoneFile, tombstones_of


def tombstones(*keys: tuple[int, int, int]) -> Tombstones:
    """Keys, the sequences that deleted them, and when."""
    columns = np.array(keys, np.int64).reshape(-1, 3)
    hashes = np.column_stack([columns[:, 0], columns[:, 0]]).astype(np.uint64)
    return Tombstones(hashes, columns[:, 1], columns[:, 2])


def listed(held: Tombstones) -> list[tuple[int, int, int]]:
    columns = (held.hashes[:, 0].tolist(), held.sequences.tolist(), held.deleted_at_ms.tolist())
    return list(zip(*columns, strict=True))


def hashes(*keys: int) -> np.ndarray:
    return np.array([[key, key] for key in keys], np.uint64)


def test_of_each_key_a_merge_keeps_the_largest_sequence_and_when_that_was_deleted() -> None:
    merged = merge_tombstones([tombstones((2, 5, 10), (1, 9, 11)), tombstones((1, 4, 12), (2, 7, 9))], 0)
    assert listed(merged) == [(1, 9, 11), (2, 7, 9)]


def test_a_merge_forgets_what_was_deleted_before_a_time() -> None:
    held = tombstones((1, 5, 9), (2, 5, 10), (3, 5, AT_COMMIT))
    assert listed(merge_tombstones([held], 10)) == [(2, 5, 10), (3, 5, AT_COMMIT)]


def test_a_file_reads_back_and_says_until_when_keys_are_deleted() -> None:
    store = Lake().store
    for path, held in (("data/a", tombstones((1, 5, 0), (2, -3, 0))), ("data/b", tombstones((1, 9, 0)))):
        write_tombstones(store, path, held)
        assert listed(read_tombstones(store, store.uri(path))) == listed(held)
    found = deleted_until(store, [store.uri("data/a"), store.uri("data/b")], hashes(2, 1, 7), LONG)
    assert found.deleted.tolist() == [True, True, False]
    assert found.sequences.tolist()[:2] == [-3, 9]


def test_of_a_key_in_several_files_the_largest_wide_sequence_counts() -> None:
    store, at = Lake().store, (10**37, -(10**37), 2**64, 2**64 + 1)
    sequences = sequences_of(at, WIDE)
    for path, chosen in (("data/a", slice(0, 4)), ("data/b", slice(2, 4))):
        held = Tombstones(hashes(1, 2, 3, 3)[chosen], sequences[chosen], np.zeros(4, np.int64)[chosen])
        write_tombstones(store, path, held)
        assert numbers_of(read_tombstones(store, store.uri(path)).sequences) == list(at[chosen])
    locations = [store.uri("data/a"), store.uri("data/b")]
    found = deleted_until(store, locations, hashes(2, 3, 9, 1), WIDE)
    assert found.covers(np.arange(4), sequences_of([-(10**37), 2**64 + 1, 0, 10**37], WIDE)).tolist() == [
        True,
        True,
        False,
        True,
    ]
    assert not found.covers(np.arange(4), sequences_of([1 - 10**37, 2**64 + 2, 0, 10**37 + 1], WIDE)).any()
    merged = merge_tombstones([read_tombstones(store, each) for each in locations], 0)
    assert numbers_of(merged.sequences) == [10**37, -(10**37), 2**64 + 1]


def test_a_file_that_is_missing_or_damaged_is_an_error() -> None:
    store = Lake().store
    with pytest.raises(DataFileError, match="is missing"):
        deleted_until(store, [store.uri("data/none")], hashes(1), LONG)
    store.overwrite("data/damaged", b"PAR1")
    with pytest.raises(DataFileError, match="cannot be read"):
        deleted_until(store, [store.uri("data/damaged")], hashes(1), LONG)


@pytest.mark.parametrize(
    ("known", "rows", "merged"),
    [
        ([1] * 6, 1, []),
        ([1] * 7, 1, [1] * 7),
        ([1] * 6 + [8], 1, []),
        ([8] * 7 + [1] * 7, 1, [1] * 7 + [8] * 7),
        ([8] * 6 + [1] * 7, 1, [1] * 7),
        ([64] * 7, 8, []),
        ([1] * 10, 1, [1] * 7),  # two writers have each added one at a time
        ([], 1, []),
    ],
)
def test_a_tier_is_merged_where_it_would_be_full(known: list[int], rows: int, merged: list[int]) -> None:
    assert FILES_A_TIER == 8
    files = [TombstoneFile(f"memory://t/{number}", held, 1) for number, held in enumerate(known)]
    found = files_to_merge(files, rows)
    assert sorted(file.rows for file in found) == sorted(merged)
    assert len(set(found)) == len(found)


def test_the_deletes_of_a_batch_are_remembered_from_its_commit_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have begun long before; a merge finds its own deletes older by that much, unless it knows."""
    monkeypatch.setattr("streaming_sink.keyed.row_deletes.FILES_A_TIER", 2)
    lake = Lake()
    lake.table.commit([DeclareKey(TableKey((1,), 2))])

    def delete(key: int) -> None:
        keys = DeletedKeys(hashes(key).tobytes(), np.array([5]).tobytes(), "<i8")
        result = WriteResult((), (), (), (), deleted_keys=(keys,))
        job = KeyJob(("id",), "p", lake.table.head.metadata.table_uuid)
        ids = FileIds(lake.clock.now_ms, "app", 1)
        remembered = remember_deletes(lake.table, job, result, ids)
        lake.clock.now_ms += 5 * DAY_MS  # the writer sleeps
        lake.table.commit(remembered)

    for key in (1, 2, 3, 4):
        delete(key)
    (file,) = tombstones_of(lake.table.head.properties)
    now = lake.clock.now_ms
    assert file.newest_ms == now
    found = listed(read_tombstones(lake.store, file.location))
    assert found == [(2, 5, now - 10 * DAY_MS), (3, 5, now - 5 * DAY_MS), (4, 5, AT_COMMIT)]


def test_without_a_sequence_or_a_delete_nothing_is_remembered() -> None:
    lake = Lake()
    uuid = lake.table.head.metadata.table_uuid
    ids = FileIds(lake.clock.now_ms, "app", 1)
    keys = DeletedKeys(hashes(1).tobytes(), np.array([0]).tobytes(), "<i8")
    nothing = WriteResult((), (), (), ())
    deletes = WriteResult((), (), (), (), deleted_keys=(keys,))
    assert remember_deletes(lake.table, KeyJob(("id",), "p", uuid), nothing, ids) == []
    assert remember_deletes(lake.table, KeyJob(("id",), None, uuid), deletes, ids) == []
