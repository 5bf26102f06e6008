"""Workers that are started as processes: within bounds, and taken over once they die."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink import ingest
from streaming_sink.ingest import compute
from streaming_sink.ingest.running import plan_waiting
from streaming_sink.ingest.worker import Worker
from streaming_sink.zones.records import KIND
from streaming_sink.zones.status import status
from timeline.errors import CorruptTableError
from timeline.plans.claims import all_instants

_DIES = """
import os, sys
from streaming_sink import ingest
from streaming_sink.ingest import item_landing, running, jobs
jobs.warm = lambda _: None
item_landing.ItemLanding.land = lambda *_: os._exit(9)
running.work(None, ingest.BufferZone(sys.argv[1]), until_idle=True, name=sys.argv[2])
"""


def zone_with_an_item(folder: Path) -> ingest.BufferZone:
    zone = ingest.BufferZone(str(folder / "zone"), table=str(folder / "table"))
    (folder / "drop").mkdir()
    pq.write_table(pa.table({"id": [1]}), folder / "drop" / "a.parquet")
    zone.push(f"{folder}/drop/")
    assert plan_waiting(zone, flush=True) == 1
    return zone


def test_an_item_whose_workers_die_is_taken_over_at_once_and_set_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute, "_LONGEST_PAUSE_SECONDS", 0.01)
    zone = zone_with_an_item(tmp_path)
    command = [sys.executable, "-c", _DIES, "{zone}", "{worker}"]
    started = ingest.dispatch([zone], command=command, available_now=True, poll_seconds=0.05)
    assert started == compute.Started(workers=4, failed=3)  # the fourth sets it apart
    (item,) = status(zone).open_items
    assert item.state == "set apart"


def test_a_worker_that_lives_keeps_its_item_from_others(tmp_path: Path) -> None:
    zone = zone_with_an_item(tmp_path)
    worker, dispatcher = Worker(zone, name="first"), Worker(zone)
    assert dispatcher.free_and_claimed() == ({0}, set())
    (plan, item) = worker.open_items()[0]
    assert worker._claim(plan, item, {}) is not None
    assert dispatcher.free_and_claimed() == (set(), {0})
    assert compute.fail_claims(zone, "another", "it has ended") == 0
    assert compute.fail_claims(zone, "first", "it has ended") == 1
    assert dispatcher.free_and_claimed() == ({0}, set())


def test_an_item_of_a_worker_that_died_with_its_dispatcher_is_taken_over(tmp_path: Path) -> None:
    """The worker that starts then has not watched the claim."""
    zone = zone_with_an_item(tmp_path)
    dead = Worker(zone, name="dead")
    (plan, item) = dead.open_items()[0]
    assert dead._claim(plan, item, {}) is not None
    dispatcher = Worker(zone, patience_seconds=0.0)
    assert [dispatcher.free_and_claimed() for _ in range(2)] == [(set(), {0}), ({0}, set())]
    states = all_instants(zone.store, KIND)[plan.claim_id(item)]
    taken = Worker(zone)._claim(plan, item, states)
    assert taken is not None
    assert taken.number == 2


def test_workers_that_end_and_leave_an_item_as_it_was_are_not_started_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute, "_LONGEST_PAUSE_SECONDS", 0.001)
    zone = zone_with_an_item(tmp_path)
    started = ingest.dispatch([zone], command="true {zone}", available_now=True, poll_seconds=0.001)
    assert started == compute.Started(workers=10, failed=10)


def test_a_zone_that_cannot_be_read_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "_LONGEST_PAUSE_SECONDS", 0.001)
    zones = []
    for name in ("damaged", "sound"):
        (tmp_path / name).mkdir()
        zones.append(zone_with_an_item(tmp_path / name))
    zones[0].store.overwrite(zones[0].plans.path(1), b"no plan")
    started: list[str] = []
    monkeypatch.setattr(compute, "_start", lambda known, _: started.append(known.zone.store.location))
    monkeypatch.setattr(compute, "_reap", lambda known: _count_failure(known, started))
    with pytest.raises(CorruptTableError):
        ingest.dispatch(zones, command="true {zone}", available_now=True, poll_seconds=0.001)
    assert set(started) == {zones[1].store.location}


def _count_failure(known: compute._Zone, started: list[str]) -> int:
    known.failures += known.zone.store.location in started
    return 0


def test_no_log_has_the_options_of_a_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    zone = zone_with_an_item(tmp_path)
    known = compute._Zone(zone, Worker(zone))
    compute._start(known, ["true", "{zone}", "--option=secret_access_key=hunter2"])
    assert known.running[0].child.wait() == 0
    assert "starts for" in caplog.text
    assert "hunter2" not in caplog.text


def test_no_worker_starts_where_none_is_needed(tmp_path: Path) -> None:
    zone = ingest.BufferZone(str(tmp_path / "zone"), table=str(tmp_path / "table"))
    started = ingest.dispatch([zone], command=["false", "{zone}"], available_now=True, poll_seconds=0.01)
    assert started == compute.Started(workers=0, failed=0)


def test_a_command_that_fails_at_once_pauses_its_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone, stop, pauses = zone_with_an_item(tmp_path), threading.Event(), list[float]()

    def reap(known: compute._Zone) -> int:
        failed = _reap(known)
        if failed:
            pauses.append(known.paused_until)
            known.paused_until = 0.0
        if len(pauses) == 3:
            stop.set()
        return failed

    _reap = compute._reap
    monkeypatch.setattr(compute, "_reap", reap)
    monkeypatch.setattr(compute.time, "monotonic", lambda: 0.0)
    started = ingest.dispatch([zone], command="false {zone}", stop=stop, poll_seconds=0.01)
    assert started.failed == started.workers
    assert pauses[:3] == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"command": "spark-submit work.py"}, r"the command of a worker has \{zone\} where"),
        ({"command": "no-such-program {zone}"}, "there is no such program for a worker: no-such-program"),
        ({"most": 0}, "most must be a whole number of 1 or more, not 0"),
        ({"most_each": True}, "most_each must be a whole number of 1 or more, not True"),
    ],
)
def test_what_cannot_run_is_refused(tmp_path: Path, given: dict[str, object], message: str) -> None:
    zone = ingest.BufferZone(str(tmp_path / "zone"), table=str(tmp_path / "table"))
    with pytest.raises(ValueError, match=message):
        ingest.dispatch([zone], available_now=True, **given)  # type: ignore[arg-type]
