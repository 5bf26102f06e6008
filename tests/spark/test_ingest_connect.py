"""Buffered ingestion on Spark Connect: workers are clients of one server, and are killed after items have
landed. What the server still runs for a dead client changes no row.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_sink import ingest
from streaming_sink.ingest.running import plan_waiting
from streaming_sink.zones.ledger import Ledger, retry
from tests.readers import judges
from tests.servers import connect
from tests.spark.source_files import rows_from, rows_in, write_parquet
from tests.spark.test_ingest_by_key import Change, latest, write_changes, zone_at
from tests.spark.test_ingest_by_key import rows_in as rows_by_key_in
from tests.spark.test_ingest_kill import Parts
from tests.tiers import count, longer_in_soak, only_in_soak

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.servers, longer_in_soak]

WORKERS = ("work", "work-2")
KILLS = count(1, 5)
ITEMS, FILES, ROWS = 4 + 2 * KILLS, 4, 12
_SECONDS = 600


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect.server(tmp_path_factory.mktemp("connect")) as address:
        yield address


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def land_under_kills(zone: ingest.BufferZone, remote: str, folder: Path, stack: ExitStack) -> None:
    """Let two workers land all items that are planned; kill one that has landed some, time after time."""
    rng, logs = random.Random(7), folder / "logs"
    logs.mkdir()
    parts = Parts(zone.store.location, logs, {"SPARK_REMOTE": remote})
    stack.callback(parts.end)

    def log() -> str:
        return "".join(each.read_text() for each in sorted(logs.iterdir()))

    for worker in WORKERS:
        parts.start(worker)
    give_up_at = time.monotonic() + _SECONDS
    for _ in range(KILLS):
        while not (landed := [worker for worker in WORKERS if parts.has_committed(worker)]):
            assert time.monotonic() < give_up_at, log()[-3000:]
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.5))
        worker = rng.choice(landed)
        parts.kill(worker, whole_group=True)
        parts.start(worker)
    while (states := Counter(entry.state for entry in Ledger(zone).entries()))["landed"] < ITEMS * FILES:
        assert time.monotonic() < give_up_at, (states, log()[-3000:])
        retry(zone)  # an item that three killed workers have had is set apart, and an operator frees it
        time.sleep(0.5)
    assert states == {"landed": ITEMS * FILES}
    assert "KeyError" not in log()


@only_in_soak
def test_clients_that_are_killed_land_each_file_once(remote: str, tmp_path: Path, stack: ExitStack) -> None:
    zone = ingest.BufferZone(
        str(tmp_path / "zone"),
        table=str(tmp_path / "table"),
        partition_by=["day"],
        rules=ingest.Rules(max_files=FILES),
    )
    for number in range(ITEMS * FILES):
        rows = rows_from(number * ROWS, ROWS)
        zone.push(write_parquet(tmp_path / "drop" / f"{number:03}.parquet", rows))
        plan_waiting(zone)
    land_under_kills(zone, remote, tmp_path, stack)
    wanted = rows_from(0, ITEMS * FILES * ROWS)
    assert rows_in(str(tmp_path / "table")) == wanted
    expected = pa.table({"id": [row[0] for row in wanted], "day": [row[1] for row in wanted]})
    judges.assert_all_readers_agree(str(tmp_path / "table"), expected)


@only_in_soak
def test_clients_that_are_killed_land_each_change_once(remote: str, tmp_path: Path, stack: ExitStack) -> None:
    rng = random.Random(3)
    count = ITEMS * FILES * ROWS
    changes = [
        Change(rng.randrange(count // 2), at, f"n{at}", rng.choice(("U", "U", "U", "D")))
        for at in range(count)
    ]
    rng.shuffle(changes)
    zone = zone_at(tmp_path, rules=ingest.Rules(max_files=FILES))
    for number in range(ITEMS * FILES):
        share = changes[number * ROWS : (number + 1) * ROWS]
        zone.push(write_changes(tmp_path / "drop" / f"{number:03}.parquet", share))
        plan_waiting(zone)
    land_under_kills(zone, remote, tmp_path, stack)
    assert rows_by_key_in(str(tmp_path / "table")) == latest(changes)
