"""What became of a platform's day: lags against the rule, commits and files against the fewest, rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.aims import Aim
from benchmarks.platform_arrivals import items_without_delay
from benchmarks.platform_passages import Passage, Rows, compare_rows, depths, live_of, passages_in
from benchmarks.platform_workers import PATIENCE_SECONDS
from planners.percentiles import percentiles

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from benchmarks.platform_arrivals import Delivery
    from streaming_sink import ingest

TRIGGER_MS = 1000
TAKEOVER_SECONDS = PATIENCE_SECONDS + 2
"""Until another worker has seen no heartbeat for its patience, which it looks at between two items."""


@dataclass(frozen=True)
class Day:
    """Seconds and milliseconds are those that passed, of the compressed day."""

    files: int
    landed: int
    seconds: float
    late_seconds: float
    """The most that a delivery was announced behind its time."""
    kills: int
    disturbed_items: int
    max_age_ms: int
    items: int
    items_without_delay: int
    """Of a planner that acts at the moment at which a rule is met."""
    commits: int
    table_files: int
    fewest_table_files: int
    planned_in_time: float
    """Share of the items that were planned within the rule and a trigger."""
    visible_in_time: float
    """Share of the files, but for those whose worker was killed, that were visible within the rule, a trigger
    and a second.
    """
    percentiles: Mapping[str, Mapping[str, int]]
    rows: Rows
    left: Sequence[str]
    """What was planned or waited still, when the time was over."""


def day_of(
    zones: Sequence[ingest.BufferZone],
    arriving: Sequence[Delivery],
    disturbed: Collection[tuple[int, int]],
    rows_of: Callable[[int], pa.Table],
    *,
    kills: int,
    late_seconds: float,
    seconds: float,
    left: Sequence[str],
) -> Day:
    """Return what the zones' logs and, by pyiceberg, their tables say of the day."""
    rules, rows = zones[0].rules, Rows()
    passages: list[Passage] = []
    prompt = commits = table_files = fewest_files = 0
    for place, zone in enumerate(zones):
        own = passages_in(zone, [number for at, number in disturbed if at == place])
        passages += own
        arrived = [at for each in own for at in each.arrived_ms]
        prompt += items_without_delay(arrived, max_files=rules.max_files, max_age_ms=rules.max_age_ms)
        delivered = [rows_of(number) for each in arriving if each.dataset == place for number in each.files]
        expected = pa.concat_tables([rows_of(0).slice(0, 0), *delivered])
        if not any(each.lags_ms for each in own):
            rows += Rows(len(expected), len(expected))
            continue
        found, live, versions = live_of(zone.definition.table)
        rows += compare_rows(found, expected)
        commits += versions
        table_files += len(live)
        fewest_files += _fewest_files(live, zone.sink_options.sizing.max_file_bytes)
    calm = [lag for each in passages if not each.disturbed for lag in each.lags_ms]
    hit = [lag for each in passages if each.disturbed for lag in each.lags_ms]
    waited = [each.waited_ms for each in passages]
    in_time = rules.max_age_ms + TRIGGER_MS
    waiting, planned = depths(passages)
    return Day(
        files=sum(len(each.files) for each in arriving),
        landed=len(calm) + len(hit),
        seconds=seconds,
        late_seconds=late_seconds,
        kills=kills,
        disturbed_items=len(disturbed),
        max_age_ms=rules.max_age_ms,
        items=len(passages),
        items_without_delay=prompt,
        commits=commits,
        table_files=table_files,
        fewest_table_files=fewest_files,
        planned_in_time=_share(waited, in_time),
        visible_in_time=_share(calm, in_time + 1000),
        percentiles={
            "wait": percentiles(waited),
            "lag": percentiles(calm),
            "disturbed lag": percentiles(hit),
            "worker": percentiles(each.spent_ms for each in passages if each.spent_ms),
            "waiting": percentiles(waiting),
            "planned": percentiles(planned),
        },
        rows=rows,
        left=left,
    )


def _share(values: Sequence[int], bound: int) -> float:
    return sum(value <= bound for value in values) / max(1, len(values))


def _fewest_files(live: Iterable[tuple[object, int]], max_file_bytes: int) -> int:
    sizes = Counter[object]()
    for partition, size in live:
        sizes[partition] += size
    return sum(-(-size // max_file_bytes) for size in sizes.values())


def aims(day: Day) -> list[Aim]:
    """Return the aims of the day: no row is lost or doubled, and deadlines are kept."""
    rule, rows = day.max_age_ms / 1000, day.rows

    def beyond(what: str) -> float | None:
        lags = day.percentiles[what]
        return lags["max"] / 1000 - rule if lags else None

    return [
        Aim(what="files that have not landed", bound=0, measured=day.files - day.landed),
        Aim(what="rows lost, doubled or changed", bound=0, measured=rows.lost + rows.doubled + rows.changed),
        Aim(
            what="share of items planned within the rule and a trigger of 1 s",
            bound=1,
            measured=day.planned_in_time,
            at_least=True,
        ),
        Aim(
            what="seconds beyond the rule until the last of a file's rows was visible",
            bound=2,
            measured=beyond("lag"),
        ),
        Aim(
            what="the same, of items whose worker was killed",
            bound=2 + TAKEOVER_SECONDS,
            measured=beyond("disturbed lag"),
        ),
    ]


def tables_of(day: Day) -> list[str]:
    """Return the day as tables."""
    rule, rows = f"the rule's {day.max_age_ms / 1000:g} s", day.rows
    spread = {
        f"s from the first file of an item to its plan ({rule})": "wait",
        f"s from a file's arrival until it was visible ({rule})": "lag",
        "s the same, where the worker was killed": "disturbed lag",
        "s of a worker for an item": "worker",
    }
    lines = ["| what | p50 | p95 | max |", "| --- | ---: | ---: | ---: |"]
    for what, name in spread.items():
        lines.append(_row(what, [f"{each / 1000:.1f}" for each in day.percentiles[name].values()]))
    for what, name in {"waited for a rule": "waiting", "waited for a worker": "planned"}.items():
        lines.append(_row(f"files that {what}", [f"{each:,}" for each in day.percentiles[name].values()]))
    counts = {
        "files delivered, landed": (day.files, day.landed),
        "rows delivered, lost, doubled, changed": (rows.expected, rows.lost, rows.doubled, rows.changed),
        "work items, those of a planner without delay, commits": (
            day.items,
            day.items_without_delay,
            day.commits,
        ),
        "files of the tables, the fewest of that size": (day.table_files, day.fewest_table_files),
        "workers killed, items that they had claimed": (day.kills, day.disturbed_items),
    }
    counted = ["| what | figure |", "| --- | ---: |"]
    counted += [
        f"| {what} | {', '.join(f'{each:,}' for each in each_of)} |" for what, each_of in counts.items()
    ]
    counted += [
        f"| items planned within the rule and 1 s | {day.planned_in_time:.1%} |",
        f"| files visible within the rule and 2 s, where no worker was killed | {day.visible_in_time:.1%} |",
        f"| s of deliveries, the most that one was late | {day.seconds:.0f}, {day.late_seconds:.1f} |",
    ]
    left = ["Left when the time was over:", *day.left] if day.left else []
    return ["\n".join(lines), "\n".join(counted), *(["\n".join(left)] if left else [])]


def _row(what: str, figures: Sequence[str]) -> str:
    return f"| {what} | {' | '.join(figures or ['', '', ''])} |"
