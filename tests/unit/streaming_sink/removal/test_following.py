"""A purge beside a change log: it waits for one that follows, and not for one that cannot follow any more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from streaming_sink.removal.purge import await_followed, skip_purges
from tests.unit.timeline.world import Lake
from timeline.changes.changes import Append
from timeline.changes.follow_changes import Follow, followed, following
from timeline.clock import Environment
from timeline.maintenance.expiry import expire_snapshots


class Followed:
    """A table, and a log that has followed it to its first version."""

    def __init__(self) -> None:
        self.main, self.log = Lake(), Lake()
        self.uuid = str(self.main.table.head.metadata.table_uuid)
        self.number = self.main.table.head.number
        first = Follow((), self.uuid, None)
        self.log.table.commit([first], transaction=following(self.uuid, self.number))

        self.now = 0.0
        self.environment = Environment(monotonic=lambda: self.now, sleep=self.sleep)
        self.stream: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.stream()

    def append(self, versions: int = 1) -> None:
        for _ in range(versions):
            self.main.table.commit([Append((self.main.file(),))])


def test_a_log_that_lacks_a_version_stops_a_purge_and_is_not_skipped_over() -> None:
    it = Followed()
    await_followed(it.log.table, it.main.table, it.environment)
    it.append()
    with pytest.raises(ValueError, match="not in its change log yet"):
        await_followed(it.log.table, it.main.table, it.environment)
    skip_purges(it.log.table, it.main.table)
    assert followed(it.log.table.refresh(), it.uuid) == it.number


def test_a_purge_waits_for_a_stream_that_appends_what_it_has_committed_just_now() -> None:
    """Of a stream that goes on there is always a last commit, of which the log may be a moment behind."""
    it = Followed()
    it.append()
    number = it.main.table.refresh().number

    def follow() -> None:
        it.append()
        if it.now >= 2:
            log, after = it.log.table, followed(it.log.table.refresh(), it.uuid)
            log.commit([Follow((), it.uuid, after)], transaction=following(it.uuid, number))
            it.stream = lambda: None

    it.stream = follow
    await_followed(it.log.table, it.main.table, it.environment)
    assert it.now == 2.0, "not for the versions that came meanwhile"
    assert followed(it.log.table.refresh(), it.uuid) == number


def test_a_log_whose_versions_have_expired_stops_no_purge_and_is_not_skipped_over() -> None:
    """Its stream was given up: no row may stay for it. Who starts it again is told what is missing."""
    it = Followed()
    it.append(120)
    expire_snapshots(it.main.table, max_snapshot_age=timedelta(0), min_snapshots_to_keep=1)
    await_followed(it.log.table, it.main.table, it.environment)
    skip_purges(it.log.table, it.main.table)
    assert followed(it.log.table.refresh(), it.uuid) == it.number
