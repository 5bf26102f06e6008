"""Upkeep of a key index: what it builds, merges and deletes, and what stops none of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streaming_sink.tasks import run_files
from streaming_sink.tasks.key_index import upkeep
from streaming_sink.tasks.key_index.upkeep import GRACE_MS, Upkeep
from streaming_sink.tasks.keys.probing import KeyEntries
from tests.unit.streaming_sink.tasks.keys.data_files import COLUMNS
from tests.unit.streaming_sink.tasks.keys.lake import FOLDER, Lake, make_lake, make_runs_tiny
from timeline import names


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    make_runs_tiny(monkeypatch)


@pytest.fixture(params=["memory", "local"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return make_lake(request.param, tmp_path)


def test_a_damaged_run_is_reported_then_deleted_and_built_again(lake: Lake) -> None:
    file = lake.write([(1, "a", 5)])
    (path,) = lake.maintain().built
    damaged = bytearray(lake.store.read(path).data)
    damaged[9] ^= 1
    lake.store.overwrite(path, bytes(damaged))
    lake.restart()
    found = lake.lookup()
    assert (found.scanned, found.damaged) == ((file,), (path,))
    done = lake.maintain(damaged=found.damaged)
    assert done.deleted == (path,)
    assert len(done.built) == 1
    assert lake.lookup().scanned == ()


def test_a_run_whose_copy_alone_is_damaged_stays(tmp_path: Path) -> None:
    lake = make_lake("memory", tmp_path)
    lake.write([(1, "a", 5)])
    lake.maintain()
    lake.lookup()
    (copy,) = lake.copies.iterdir()
    data = bytearray(copy.read_bytes())
    data[9] ^= 1
    copy.unlink()
    copy.write_bytes(data)
    lake.restart()
    found = lake.lookup()
    assert len(found.scanned) == 1
    assert lake.lookup().scanned == ()
    assert lake.maintain(damaged=found.damaged) == Upkeep((), (), ())
    assert lake.lookup().scanned == ()


def test_a_merge_that_meets_a_damaged_copy_is_tried_again_without_it(tmp_path: Path) -> None:
    lake = make_lake("memory", tmp_path)
    for _ in range(3):
        lake.write([(1, "a", 5)])
        lake.maintain()
    lake.lookup()
    copy = next(lake.copies.iterdir())
    data = bytearray(copy.read_bytes())
    data[9] ^= 1
    copy.unlink()
    copy.write_bytes(data)
    lake.restart()
    assert lake.maintain() == Upkeep((), (), ())
    assert len(lake.maintain().merged) == 1


def test_damage_that_a_merge_meets_is_deleted_and_the_next_upkeep_builds_it_again(lake: Lake) -> None:
    for _ in range(3):
        lake.write([(1, "a", 5)])
        last = lake.maintain()
    assert len(last.built) == 1
    first = lake.run_paths()[0]
    damaged = bytearray(lake.store.read(first).data)
    damaged[9] ^= 1
    lake.store.overwrite(first, bytes(damaged))
    lake.restart()
    assert lake.maintain() == Upkeep((), (), (first,))
    assert len(lake.run_paths()) == 2
    assert len(lake.maintain().built) == 1
    assert len(lake.maintain().merged) == 1
    assert lake.lookup().scanned == ()


def test_merged_runs_are_deleted_after_the_grace(lake: Lake) -> None:
    for _ in range(3):
        lake.write([(1, "a", 5)])
        lake.maintain()
    (merged,) = lake.maintain().merged
    assert len(lake.run_paths()) == 4
    lake.now += GRACE_MS - 1
    assert lake.maintain().deleted == ()
    lake.now += 1
    assert len(lake.maintain().deleted) == 3
    assert lake.run_paths() == [merged]
    assert lake.lookup().scanned == ()


def test_a_run_of_an_earlier_format_is_passed_over_and_replaced(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = lake.write([(1, "a", 5)])
    with monkeypatch.context() as patch:
        patch.setattr(run_files, "_VERSION", 1)
        (old,) = lake.maintain().built
    lake.restart()
    assert lake.lookup().scanned == (file,)
    (new,) = lake.maintain().built
    assert lake.lookup().scanned == ()
    lake.now += GRACE_MS
    assert lake.maintain() == Upkeep((), (), (old,))
    assert lake.run_paths() == [new]


def test_a_run_that_was_not_written_to_its_end_is_deleted_after_the_grace(lake: Lake) -> None:
    path = names.key_run_path(COLUMNS.digest, lake.new_id())
    lake.store.overwrite(path, b"SSKEYRUN")
    lake.now += GRACE_MS - 1
    assert lake.maintain().deleted == ()
    lake.lookup()
    lake.now += 1
    assert lake.maintain().deleted == (path,)


def test_a_run_that_another_process_deletes_before_a_merge_stops_no_upkeep(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        lake.write([(1, "a", 5)])
        lake.maintain()
    lake.restart()
    plan = upkeep.plan_upkeep

    def then_delete(*arguments: object) -> object:
        planned = plan(*arguments)  # type: ignore[arg-type]
        lake.store.delete(lake.run_paths()[:1])
        return planned

    monkeypatch.setattr(upkeep, "plan_upkeep", then_delete)
    assert lake.maintain() == Upkeep((), (), ())


def test_rows_that_a_task_has_just_written_need_no_scan(lake: Lake) -> None:
    file = lake.write([(1, "a", 5), (2, "b", None)])
    (entries,) = upkeep.scan_keys(lake.store, file, COLUMNS)
    known = KeyEntries(entries.hashes[::-1], np.array([1, 0]), entries.sequences[::-1])
    path = upkeep.write_run(lake.index, [file], [(0, known)], lake.new_id())
    assert lake.run_paths() == [path]
    assert lake.lookup().scanned == ()


def test_files_in_the_folder_that_are_no_runs_are_ignored(lake: Lake) -> None:
    lake.store.overwrite(f"{FOLDER}/notes.txt", b"by a person")
    lake.write([(1, "a", 5)])
    lake.now += 2 * GRACE_MS
    lake.maintain()
    assert f"{FOLDER}/notes.txt" in lake.run_paths()
