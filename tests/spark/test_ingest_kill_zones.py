"""kill -9 of those that land two zones of one table: one registers its large files where they are, by
reference, the other copies them.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from planners import FileSizing
from streaming_sink import ingest
from streaming_sink.ingest.running import plan_waiting
from streaming_sink.zones.ledger import Ledger
from tests.spark.source_files import Row, rows_from, rows_in, write_parquet
from tests.spark.streams import head_of
from tests.spark.test_ingest_kill import Parts
from tests.tiers import count, only_in_soak
from timeline.diagnosis import doctor

pytestmark = [pytest.mark.spark, pytest.mark.slow, only_in_soak]

KILLS = count(2, 8)
ITEMS, LARGE, SMALL = 3, 2, 2
"""Of each zone after each kill, and files of each item."""
ZONES = ("stays", "copied")
_SECONDS = 600 + 60 * KILLS
_PARTS = ("dispatch", "work") if KILLS > 2 else ("dispatch",)
"""A dispatcher has workers of its own, of which every other kill hits one."""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.mark.parametrize("part", _PARTS)
def test_two_zones_of_a_table_whose_workers_are_killed_land_and_register_each_file_once(
    part: str, tmp_path: Path, stack: ExitStack
) -> None:
    rng, table, drop, logs = random.Random(11), str(tmp_path / "table"), tmp_path / "drop", tmp_path / "logs"
    zones = [zone_at(tmp_path, name) for name in ZONES]
    rows = announce(zones, drop, 0)
    logs.mkdir()
    parts = start_parts(part, zones, logs, stack)
    give_up_at = time.monotonic() + _SECONDS
    for kill in range(1, KILLS + 1):
        rows += announce(zones, drop, kill)  # so that who runs now has something to land
        while not (landed := [it for it in parts if it.has_committed(part)]):
            assert time.monotonic() < give_up_at, said(logs)
            time.sleep(0.02)
        time.sleep(rng.choice([0.0, rng.uniform(0.0, 1.0)]))
        if part == "dispatch" and kill % 2 == 0:
            while not parts[0].kill_a_worker(rng):  # alone: its dispatcher sees to it
                assert time.monotonic() < give_up_at, said(logs)
                time.sleep(0.02)
        else:
            hit = rng.choice(landed)
            hit.kill(part, whole_group=True)  # else its workers leave nothing to the next one
            hit.start(part)
        if kill == (KILLS + 1) // 2:  # workers that start from now on stage and audit
            for name in ZONES:
                ingest.BufferZone(str(tmp_path / name), audit=True).definition  # noqa: B018
    files = (KILLS + 1) * ITEMS * (LARGE + SMALL)
    while (states := [states_of(zone) for zone in zones]) != [{"landed": files}] * 2:
        assert time.monotonic() < give_up_at, (states, said(logs))
        time.sleep(0.5)
    assert_each_is_there_once(table, drop, rows)
    assert not any(Ledger(zone).staged for zone in zones)


def zone_at(folder: Path, name: str) -> ingest.BufferZone:
    return ingest.BufferZone(
        str(folder / name),
        table=str(folder / "table"),
        partition_by=["day"],
        sizing=FileSizing(max_file_bytes=40000, small_file_bytes=4000),
        rules=ingest.Rules(max_files=LARGE + SMALL),
        sources=ingest.SourceFolders(by_reference=name == "stays"),
    )


def announce(zones: list[ingest.BufferZone], drop: Path, share: int) -> list[Row]:
    """Announce and plan some items of each zone; return their rows."""
    rows: list[Row] = []
    for place, (name, zone) in enumerate(zip(ZONES, zones, strict=True)):
        for item in range(ITEMS):
            first = ((place * (KILLS + 1) + share) * ITEMS + item) * (LARGE + SMALL)
            for number in range(first, first + LARGE + SMALL):
                large = number < first + LARGE
                made = rows_from(
                    number * 10_000, 3_000 if large else 10, ["mon"] if large else ["mon", "tue"]
                )
                folder = drop / name / ("large" if large else "small")
                zone.push(write_parquet(folder / f"{number:04}.parquet", made))
                rows += made
            assert plan_waiting(zone) == 1
    return rows


def start_parts(part: str, zones: list[ingest.BufferZone], logs: Path, stack: ExitStack) -> list[Parts]:
    """Start a worker for each zone, or one dispatcher for both."""
    at = [zone.store.location for zone in zones]
    parts = []
    for place in range(len(at) if part == "work" else 1):
        (folder := logs / str(place)).mkdir()
        parts.append(Parts(at[place], folder, other_zones=[it for it in at if it != at[place]]))
        stack.callback(parts[-1].end)
        parts[-1].start(part)
    return parts


def assert_each_is_there_once(table: str, drop: Path, rows: list[Row]) -> None:
    """Each row once, and each file that stays where it is; the table healthy."""
    assert rows_in(table) == sorted(rows)
    references = sorted(file.location for file in head_of(table).live_files() if str(drop) in file.location)
    assert references == sorted(map(str, (drop / "stays" / "large").iterdir()))
    assert len(list(drop.rglob("*.parquet"))) == len(ZONES) * (KILLS + 1) * ITEMS * (LARGE + SMALL)
    assert doctor(table).healthy, doctor(table).text()


def states_of(zone: ingest.BufferZone) -> Counter[str]:
    return Counter(entry.state for entry in Ledger(zone).entries())


def said(logs: Path) -> str:
    return "".join(each.read_text()[-1500:] for each in sorted(logs.rglob("log-*")))
