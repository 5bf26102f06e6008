"""What became of a platform's day: lags against the rule, commits and files against the fewest, rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pyiceberg.table import StaticTable

from benchmarks.aims import Aim
from benchmarks.measure import newest_metadata
from benchmarks.platform_arrivals import fewest_items
from planners.percentiles import percentiles
from streaming_sink.ingest.landed import landed_in, read_note
from timeline import names
from timeline.stores import open_store
from timeline.table import Table
from timeline.versions.work_items import published_items

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from benchmarks.platform_arrivals import Delivery
    from streaming_sink import ingest

TRIGGER_MS = 1000
_SAMPLES = 12


@dataclass(frozen=True, slots=True)
class Passage:
    """One file on its way: when it was announced, planned, and visible; None while it is not."""

    arrived_ms: int
    planned_ms: int | None
    visible_ms: int | None
    disturbed: bool
    """A worker was killed that had claimed its work item."""


@dataclass(frozen=True)
class Depth:
    """What waits at a moment, in files."""

    second: float
    waiting: int
    """For a rule."""
    planned: int
    """For a worker, or for its commit."""


@dataclass(frozen=True)
class Rows:
    """The rows of all tables against those that were delivered."""

    expected: int
    lost: int
    doubled: int
    changed: int


@dataclass(frozen=True)
class Day:
    """Milliseconds are those of the compressed day, as they passed."""

    files: int
    landed: int
    seconds: float
    drain_seconds: float
    """From the last delivery until nothing was left."""
    late_seconds: float
    """The most that a delivery was behind its time."""
    kills: int
    disturbed_items: int
    max_age_ms: int
    items: int
    fewest_items: int
    versions: int
    """Commits to all tables."""
    table_files: int
    fewest_table_files: int
    planned_over_ms: Mapping[str, int]
    """From the first arrival of an item to its plan, beyond the rule, of the items that age has made due."""
    planned_in_time: float
    """Share of all items that were planned within the rule and a trigger of a second."""
    lag_ms: Mapping[str, int]
    """From a file's arrival until it was visible, of files whose worker was not killed."""
    in_time: float
    """Share of these that were visible within the rule, a trigger and a second."""
    disturbed_lag_ms: Mapping[str, int]
    rows: Rows
    depth: Sequence[Depth]


def depth_of(passages: Sequence[Passage], samples: int = _SAMPLES) -> list[Depth]:
    """Return how many files waited at moments that are evenly spread from the first arrival to the end."""
    if not passages:
        return []
    first = min(each.arrived_ms for each in passages)
    last = max(each.visible_ms or each.planned_ms or each.arrived_ms for each in passages)
    found = []
    for at in np.linspace(first, last, samples + 1)[1:]:
        come = [each for each in passages if each.arrived_ms <= at]
        waiting = sum(each.planned_ms is None or each.planned_ms > at for each in come)
        gone = sum(each.visible_ms is not None and each.visible_ms <= at for each in come)
        found.append(Depth(round((at - first) / 1000, 1), waiting, len(come) - waiting - gone))
    return found


def compare_rows(found: np.ndarray, expected: np.ndarray, changed: int) -> Rows:
    """Compare the ids of rows with those that were delivered."""
    distinct = np.unique(found)
    lost = len(np.setdiff1d(expected, distinct)) + len(np.setdiff1d(distinct, expected))
    return Rows(len(expected), lost, len(found) - len(distinct), changed)


def found_in(
    zones: Sequence[ingest.BufferZone],
    arriving: Sequence[Delivery],
    disturbed: Collection[tuple[int, int]],
    *,
    rows_a_file: int,
    kills: int,
    late_seconds: float,
    seconds: float,
    drain_seconds: float,
) -> Day:
    """Return what the zones' logs and their tables, by pyiceberg, say of the day."""
    passages: list[Passage] = []
    waits, items, fewest, versions, files, fewest_files = [], 0, 0, 0, 0, 0
    rules, rows = zones[0].rules, Counter[str]()
    for place, zone in enumerate(zones):
        mine = [each for each in arriving if each.dataset == place]
        if not mine:
            continue
        table = Table.open(open_store(zone.sink_options.location))
        published = published_items(table.head.properties, zone.app_id)
        arrivals = []
        for _, plan in zone.plans_after(0):
            planned_ms = names.ulid_time_ms(plan.id)
            for item in plan.items:
                number, landed = item.number, None
                if number in published:
                    landed = read_note(zone.store, number) or landed_in(table.head, zone.app_id, number)
                visible_ms = None if landed is None else landed.landed_ms
                hit = (place, item.number) in disturbed
                arrivals += [file.arrived_ms for file in item.files]
                passages += [Passage(file.arrived_ms, planned_ms, visible_ms, hit) for file in item.files]
                waits.append(max(0, planned_ms - min(file.arrived_ms for file in item.files)))
                items += 1
        fewest += fewest_items(arrivals, max_files=rules.max_files, max_age_ms=rules.max_age_ms)
        versions += table.head.number - 1
        counted, live = _rows_in(Path(zone.sink_options.location), mine, rows_a_file)
        rows.update(counted)
        files += len(live)
        fewest_files += _fewest_files(live, zone.sink_options.sizing.max_file_bytes)
    calm = [_lag(each) for each in passages if each.visible_ms is not None and not each.disturbed]
    hit_lags = [_lag(each) for each in passages if each.visible_ms is not None and each.disturbed]
    in_time = rules.max_age_ms + TRIGGER_MS
    return Day(
        files=sum(len(each.files) for each in arriving),
        landed=len(calm) + len(hit_lags),
        seconds=seconds,
        drain_seconds=drain_seconds,
        late_seconds=late_seconds,
        kills=kills,
        disturbed_items=len(disturbed),
        max_age_ms=rules.max_age_ms,
        items=items,
        fewest_items=fewest,
        versions=versions,
        table_files=files,
        fewest_table_files=fewest_files,
        planned_over_ms=percentiles(wait - rules.max_age_ms for wait in waits if wait >= rules.max_age_ms),
        planned_in_time=sum(wait <= in_time for wait in waits) / max(1, len(waits)),
        lag_ms=percentiles(calm),
        in_time=sum(lag <= in_time + 1000 for lag in calm) / max(1, len(calm)),
        disturbed_lag_ms=percentiles(hit_lags),
        rows=Rows(**rows),
        depth=depth_of(passages),
    )


def _lag(passage: Passage) -> int:
    return max(0, (passage.visible_ms or 0) - passage.arrived_ms)


def _rows_in(
    location: Path, delivered: Sequence[Delivery], rows_a_file: int
) -> tuple[dict[str, int], list[tuple[int, int]]]:
    """Return the rows of a table against the delivered ones, and partition and bytes of its live files."""
    table = StaticTable.from_metadata(str(newest_metadata(location)))
    scan = table.scan()
    live = [(int(task.file.partition[0]), task.file.file_size_in_bytes) for task in scan.plan_files()]
    read = scan.to_arrow()
    ids = read["id"].to_numpy()
    numbers = np.concatenate([np.asarray(each.files) for each in delivered])
    expected = (numbers[:, None] * rows_a_file + np.arange(rows_a_file)).ravel()
    changed = int((read["amount"].to_numpy() != ids * 0.5).sum())
    compared = compare_rows(ids, expected, changed)
    return {name: getattr(compared, name) for name in ("expected", "lost", "doubled", "changed")}, live


def _fewest_files(live: Iterable[tuple[int, int]], max_file_bytes: int) -> int:
    sizes = Counter[int]()
    for partition, size in live:
        sizes[partition] += size
    return sum(-(-size // max_file_bytes) for size in sizes.values())


def aims(day: Day, patience_seconds: float) -> list[Aim]:
    """Return the aims of the day: no row is lost or doubled, and deadlines are kept."""
    rule, rows = day.max_age_ms / 1000, day.rows
    after = {name: (lags["max"] / 1000 - rule if lags else None) for name, lags in _lags(day)}
    return [
        Aim(what="files not landed", bound=0, measured=day.files - day.landed),
        Aim(what="rows lost, doubled or changed", bound=0, measured=rows.lost + rows.doubled + rows.changed),
        Aim(
            what="share of items planned within the rule and 1 s",
            bound=1,
            measured=day.planned_in_time,
            at_least=True,
        ),
        Aim(what="seconds beyond the rule until a file is visible, at most", bound=2, measured=after["calm"]),
        Aim(
            what=f"the same, where its worker was killed (taken to be dead after {patience_seconds:g} s)",
            bound=2 + patience_seconds + 1,
            measured=after["disturbed"],
        ),
    ]


def _lags(day: Day) -> list[tuple[str, Mapping[str, int]]]:
    return [("calm", day.lag_ms), ("disturbed", day.disturbed_lag_ms)]


def table_of(day: Day) -> str:
    """Return the day as tables."""
    rows = [
        ("files delivered, landed", f"{day.files:,}, {day.landed:,}"),
        ("seconds of deliveries, and until nothing was left", f"{day.seconds:.0f}, {day.drain_seconds:.0f}"),
        ("most that a delivery was late, s", f"{day.late_seconds:.1f}"),
        ("workers killed, items that they had", f"{day.kills}, {day.disturbed_items}"),
        ("work items, the fewest by the rules", f"{day.items:,}, {day.fewest_items:,}"),
        ("commits", f"{day.versions:,}"),
        ("files in the tables, the fewest of that size", f"{day.table_files:,}, {day.fewest_table_files:,}"),
        ("items planned within the rule and 1 s", f"{day.planned_in_time:.1%}"),
        (f"planned after the rule of {day.max_age_ms / 1000:g} s, s", _seconds(day.planned_over_ms)),
        ("lag from arrival to visible, s", _seconds(day.lag_ms)),
        ("files visible within the rule and 2 s", f"{day.in_time:.1%}"),
        ("lag where the worker was killed, s", _seconds(day.disturbed_lag_ms)),
        (
            "rows expected, lost, doubled, changed",
            f"{day.rows.expected:,}, {day.rows.lost}, {day.rows.doubled}, {day.rows.changed}",
        ),
    ]
    lines = ["| what (p50, p95, max) | figure |", "| --- | ---: |"]
    lines += [f"| {what} | {figure} |" for what, figure in rows]
    depths = ["| second | " + " | ".join(f"{each.second:.0f}" for each in day.depth) + " |"]
    depths.append("| --- |" + " ---: |" * len(day.depth))
    depths.append("| files that wait | " + " | ".join(f"{each.waiting:,}" for each in day.depth) + " |")
    depths.append("| planned | " + " | ".join(f"{each.planned:,}" for each in day.depth) + " |")
    return "\n".join(lines) + "\n\n" + "\n".join(depths)


def _seconds(lags: Mapping[str, int]) -> str:
    return ", ".join(f"{each / 1000:.1f}" for each in lags.values()) or "none"
