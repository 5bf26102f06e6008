"""A table that follows another one: each version once, in order, whichever process appends it."""

from __future__ import annotations

import pytest

from tests.unit.timeline.world import Lake
from timeline.changes.follow_changes import Follow, NameSecondTable, followed, following
from timeline.errors import CheckpointRegressionError, CommitConflictError
from timeline.table import AlreadyCommitted, Table
from timeline.versions.outbox import second_tables_of

MAIN = "9c12d441-03fe-4693-9a96-a0705ddf69c1"


def follow(lake: Lake, table: Table, after: int | None, number: int, rows: int = 1) -> object:
    files = (lake.file(rows),) if rows else ()
    return table.commit([Follow(files, MAIN, after)], transaction=following(MAIN, number))


def test_versions_follow_one_another_from_the_one_that_it_begins_after() -> None:
    lake = Lake()
    assert followed(lake.table.head, MAIN) is None
    follow(lake, lake.table, None, 7, rows=0)
    follow(lake, lake.table, 7, 9)
    assert followed(lake.table.head, MAIN) == 9
    assert lake.live_rows().total() == 1


def test_a_process_that_begins_where_another_one_is_no_longer_is_refused() -> None:
    lake = Lake()
    follow(lake, lake.table, None, 3, rows=0)
    other = lake.open()
    follow(lake, other, 3, 5)
    with pytest.raises(CommitConflictError, match="has followed the main table to version 5"):
        follow(lake, lake.table, 3, 6)  # it would append 4 and 5 again
    assert lake.live_rows().total() == 1
    with pytest.raises(CheckpointRegressionError):
        follow(lake, lake.open(), 3, 4)
    assert isinstance(follow(lake, lake.open(), 3, 5), AlreadyCommitted)
    assert lake.live_rows().total() == 1


def test_two_that_begin_at_once_begin_at_one_version() -> None:
    lake = Lake()
    other = lake.open()
    follow(lake, lake.table, None, 3, rows=0)
    with pytest.raises(CommitConflictError):
        follow(lake, other, None, 4, rows=0)  # version 4 would be in no log
    assert followed(lake.open().head, MAIN) == 3


def test_second_tables_are_named_once() -> None:
    lake = Lake()
    for _ in range(2):
        lake.table.commit([NameSecondTable("s3://lake/log")])
    lake.table.commit([NameSecondTable("s3://lake/a")])
    assert list(second_tables_of(lake.table.head.properties)) == ["s3://lake/a", "s3://lake/log"]
