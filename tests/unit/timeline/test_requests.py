"""What a commit and a refresh cost in requests, and in which order they are sent."""

from __future__ import annotations

import pytest

from tests.unit.timeline.world import Lake
from timeline.changes import Append, Replace, SetProperties
from timeline.errors import CorruptTableError
from timeline.names import HINT_PATH, version_path
from timeline.table import Committed


def test_an_uncontended_append_with_a_warm_cache_costs_one_list_one_get_and_four_puts() -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    lake.store.count()
    lake.table.commit([Append((lake.file(),))])
    assert lake.store.count() == {"LIST": 1, "GET": 1, "PUT": 4}


def test_a_fill_costs_at_most_seven_puts() -> None:
    lake = Lake()
    a = lake.file()
    lake.table.commit([Append((a,))], open_below_bytes=5000)
    lake.store.count()
    new = lake.file()
    replace = Replace(frozenset({a.file_path, new.file_path}), (lake.merged(a, new),))
    lake.table.commit([Append((new,)), replace], open_below_bytes=5000)
    counted = lake.store.count()
    assert counted["PUT"] <= 7
    assert (counted["LIST"], counted["GET"], counted["DELETE"]) == (1, 1, 0)


def test_one_lost_race_costs_only_the_list_and_the_version_again() -> None:
    """The appended files' manifest is written once (R15), and the winner's bytes came with settling."""
    lake = Lake()
    other = lake.open()
    lake.table.commit([SetProperties({})])
    lake.store.count()
    other.refresh()
    lake.store.creates.append(lambda: other.commit([SetProperties({"a": "b"})]))
    lake.table.commit([Append((lake.file(),))])
    counted = lake.store.count()
    assert counted["PUT"] == 4 + 2
    assert counted["GET"] <= 3
    assert counted["LIST"] == 1


def test_refreshing_costs_one_list_while_nothing_changed() -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    lake.store.count()
    lake.table.refresh()
    assert lake.store.count() == {"LIST": 1}


@pytest.mark.parametrize("new", [1, 3, 10])
def test_refreshing_after_others_committed_reads_only_what_is_new(new: int) -> None:
    lake = Lake()
    for _ in range(15):
        lake.table.commit([Append((lake.file(),))])
    watcher = lake.open(lake.store)
    list(watcher.head.live_files())
    for _ in range(new):
        lake.table.commit([Append((lake.file(),))])
    lake.store.count()
    files = len(list(watcher.refresh().live_files()))
    assert files == 15 + new
    lists = 0 if new == 1 else 1  # the next version tells which manifests it added to ours
    assert lake.store.count() == {"LIST": 1, "GET": 1 + lists + new}


def test_a_commit_on_a_stale_head_costs_requests_by_what_is_new_only() -> None:
    lake = Lake()
    for _ in range(15):
        lake.table.commit([Append((lake.file(),))])
    mine = lake.open(lake.store)
    list(mine.head.live_files())
    for _ in range(8):
        lake.open().commit([Append((lake.file(),))])
    lake.store.count()
    mine.commit([Append((lake.file(),))])
    counted = lake.store.count()
    assert counted["GET"] <= 6 + 8
    assert counted["LIST"] <= 2


def test_the_hint_is_written_after_the_commit() -> None:
    lake = Lake()
    lake.store.requests.clear()
    lake.table.commit([Append((lake.file(),))])
    puts = [path for verb, path in lake.store.requests if verb in ("create", "overwrite")]
    assert puts[-2:] == [version_path(2), HINT_PATH]


def test_a_hint_that_cannot_be_written_does_not_fail_the_commit(caplog: pytest.LogCaptureFixture) -> None:
    lake = Lake()

    def no_hint(verb: str, path: str) -> None:
        if path == HINT_PATH:
            raise ConnectionError("no")

    lake.store.before = no_hint
    assert isinstance(lake.table.commit([Append((lake.file(),))]), Committed)
    assert "version 2 is committed; tidying after it failed" in caplog.text


def test_refreshing_never_steps_back_to_a_lower_version() -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    lake.store.delete([version_path(lake.table.head.number)])
    with pytest.raises(CorruptTableError, match="has vanished"):
        lake.table.refresh()
