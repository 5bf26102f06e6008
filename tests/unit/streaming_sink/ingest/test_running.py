"""A worker that is to end: it takes over what a dead one has left, and leaves what a live one has."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming_sink import SchemaContract, ingest
from streaming_sink.ingest import jobs, running
from streaming_sink.ingest.item_landing import ItemLanding
from streaming_sink.ingest.publishing import NotWantedError
from streaming_sink.ingest.worker import Worker
from streaming_sink.spark.worker_failures import WorkerEnvironmentError
from streaming_sink.zones.records import KIND
from tests.unit.streaming_sink.ingest.test_compute import zone_with_an_item
from timeline.errors import StoreUnavailableError
from timeline.plans.claims import all_instants, heartbeat


def test_the_next_run_takes_over_what_a_run_that_was_killed_had_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a cron job: every run looks at the claim for the first time."""
    zone, taken = zone_with_an_item(tmp_path), list[int]()

    def land(self: ItemLanding, session: object, item: object, is_wanted: object) -> None:
        taken.append(0)
        raise NotWantedError("enough is known")

    monkeypatch.setattr(ItemLanding, "land", land)
    monkeypatch.setattr(running, "_MOST_FAILURES", 1)
    killed = Worker(zone)
    assert killed._claim(*killed.open_items()[0], {}) is not None
    with pytest.raises(NotWantedError, match="enough is known"):
        running.work(None, zone, until_idle=True, patience_seconds=0.05, poll_seconds=0.01)  # type: ignore[arg-type]
    assert taken == [0]


def test_a_run_that_leaves_held_items_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    zone = zone_with_an_item(tmp_path)
    worker = Worker(zone)
    plan, item = worker.open_items()[0]
    worker._set_apart(plan.claim_id(item), item, "its audit has failed")
    caplog.clear()
    assert running.run(None, zone, available_now=True) == []  # type: ignore[arg-type]
    assert [it.getMessage() for it in caplog.records] == [
        "1 work items are held or set apart and did not land;"
        f" `streaming-sink ingest status {zone.store.location}` says why: 0"
    ]


def test_a_worker_claims_nothing_before_spark_runs_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = zone_with_an_item(tmp_path)

    def lacks_a_package(session: object) -> None:
        assert not all_instants(zone.store, KIND)
        raise WorkerEnvironmentError("the Python of Spark's workers lacks pyarrow")

    monkeypatch.setattr(jobs, "warm", lacks_a_package)
    with pytest.raises(WorkerEnvironmentError):
        running.work(None, zone, until_idle=True)  # type: ignore[arg-type]
    assert not all_instants(zone.store, KIND)


def test_a_worker_whose_spark_has_gone_ends_and_sets_no_item_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone, tried = zone_with_an_item(tmp_path), list[int]()

    def land(self: ItemLanding, session: object, item: object, is_wanted: object) -> None:
        tried.append(1)
        raise ConnectionRefusedError("the JVM has gone")

    monkeypatch.setattr(ItemLanding, "land", land)
    monkeypatch.setattr(jobs, "runs_tasks", lambda session: False)
    with pytest.raises(ConnectionRefusedError, match="the JVM has gone"):
        running.work(None, zone, until_idle=True, poll_seconds=0.0)  # type: ignore[arg-type]
    assert len(tried) == 1
    free, _ = Worker(zone).free_and_claimed()
    assert free == {0}


def test_a_run_ends_once_it_has_seen_a_heartbeat_of_each_other_worker(tmp_path: Path) -> None:
    zone = zone_with_an_item(tmp_path)
    other = Worker(zone)
    claim = other._claim(*other.open_items()[0], {})
    assert claim is not None
    with heartbeat(claim, 0.02) as is_ours:
        running.work(None, zone, until_idle=True, patience_seconds=600.0, poll_seconds=0.01)  # type: ignore[arg-type]
        assert is_ours()


def test_a_run_ends_though_it_is_not_known_what_others_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = zone_with_an_item(tmp_path)
    other = Worker(zone)
    assert other._claim(*other.open_items()[0], {}) is not None

    def is_away(_: Worker) -> bool:
        raise StoreUnavailableError("away")

    monkeypatch.setattr(Worker, "has_more", is_away)
    running.work(None, zone, until_idle=True, poll_seconds=0.01)  # type: ignore[arg-type]


def test_a_worker_that_runs_takes_the_zones_new_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone, stop, seen = zone_with_an_item(tmp_path), threading.Event(), list[tuple[str, bool]]()

    def land(self: ItemLanding, session: object, item: object, is_wanted: object) -> None:
        seen.append((self._landing.options.contract.new_columns, self._publishing.auditor is not None))
        if len(seen) == 2:
            _ = ingest.BufferZone(
                zone.store.location, contract=SchemaContract(new_columns="ignore")
            ).definition
        elif len(seen) == 4:
            _ = ingest.BufferZone(zone.store.location, audit=True).definition
        elif len(seen) == 6:
            stop.set()
        raise NotWantedError("not yet")

    monkeypatch.setattr(ItemLanding, "land", land)
    monkeypatch.setattr(running, "RULES_SECONDS", -1.0)
    running.work(None, zone, stop=stop, poll_seconds=0.0)  # type: ignore[arg-type]
    assert seen == [*[("refuse", False)] * 2, *[("ignore", False)] * 2, *[("ignore", True)] * 2]


@pytest.mark.parametrize(("available_now", "kept"), [(True, [0, 1, 2]), (False, [1, 2])])
def test_a_run_without_an_end_remembers_the_last_items_alone(
    available_now: bool, kept: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[object]()

    def work(session: object, zone: object, *, on_landed: Callable[[object], None], **_: object) -> None:
        for number in range(3):
            on_landed(number)

    monkeypatch.setattr(running, "work", work)
    monkeypatch.setattr(running, "_KEPT", 2)
    zone = zone_with_an_item(tmp_path)
    done = running.run(None, zone, available_now=available_now, on_landed=seen.append)  # type: ignore[arg-type]
    assert (done, seen) == (kept, [0, 1, 2])
