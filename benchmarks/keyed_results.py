"""The figures of `benchmarks.upserts`, their tables, and the aims that they are held against."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from benchmarks.aims import Aim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

OURS, PLAIN = "ours", "ours-insert"
_WARM_UP_BATCHES = 5


@dataclass
class Result:
    """The run of one writer on one workload."""

    writer: str
    workload: str
    order: str
    milliseconds: list[int]
    """addBatch, of all batches."""
    processor_seconds: float
    """A batch, of those that count; with what runs beside the stream."""
    drained_ms: int
    """How long something ran beside the stream after the last batch."""
    written_bytes: int
    """Of all files that the stream has left in the table's folder, metadata too."""
    files: int
    delete_files: int
    scan_ms: dict[str, float]
    """Reader → a scan of all columns of the whole table; the median of three."""
    clean_scan_ms: dict[str, float]
    """The same of a table of the same rows, which were inserted; turns were taken. Ours alone."""
    point_ms: dict[str, float]
    """Reader → one key; the median of five."""
    million_ms: int | None = None
    """One batch of a million changes, or as many as the table had rows, after all this. Ours alone."""

    @staticmethod
    def warm_up_of(batches: int) -> int:
        """Return how many batches at the begin of a run do not count."""
        return min(_WARM_UP_BATCHES, batches // 2)

    @property
    def warm(self) -> list[int]:
        return self.milliseconds[self.warm_up_of(len(self.milliseconds)) :]

    @property
    def median(self) -> float:
        return statistics.median(self.warm)

    @property
    def p95(self) -> float:
        return statistics.quantiles(self.warm, n=20, method="inclusive")[-1]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, of which `from_dict` makes the same again."""
        return {**asdict(self), "median_ms": self.median, "p95_ms": self.p95}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Result:
        return cls(**{each.name: values[each.name] for each in fields(cls)})


def markdown(results: Sequence[Result]) -> list[str]:
    """Return a table for each workload."""
    return [
        _table(workload, [each for each in results if each.workload == workload])
        for workload in dict.fromkeys(each.workload for each in results)
    ]


def _table(workload: str, results: Iterable[Result]) -> str:
    lines = [
        f"Keys {workload}:",
        "",
        "| writer | median ms | p95 ms | processor s | MiB written | files | delete files | scan ms, Spark |"
        " DuckDB | point ms, Spark | DuckDB |",
        f"|{' --- |'}{' ---: |' * 10}",
    ]
    for each in results:
        cells = [
            each.writer,
            f"{each.median:,.0f}",
            f"{each.p95:,.0f}",
            f"{each.processor_seconds:.2f}",
            f"{each.written_bytes / 2**20:,.0f}",
            f"{each.files:,}",
            f"{each.delete_files:,}",
            *(
                f"{times[reader]:,.0f}" if reader in times else ""
                for times in (each.scan_ms, each.point_ms)
                for reader in ("spark", "duckdb")
            ),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def aims(results: Sequence[Result]) -> list[Aim]:
    """Return the aims of our sink on every workload that was measured."""
    listed = []
    for workload in dict.fromkeys(each.workload for each in results):
        of_workload = {each.writer: each for each in results if each.workload == workload}
        listed += _aims_of(workload, of_workload)
    return listed


def _aims_of(workload: str, results: dict[str, Result]) -> list[Aim]:
    ours, plain = results.get(OURS), results.get(PLAIN)
    peers = [each for name, each in results.items() if name not in (OURS, PLAIN)]

    def fastest(figure: Callable[[Result], float]) -> float | None:
        return min(map(figure, peers)) / figure(ours) if ours and peers else None

    found = []
    if next(iter(results.values())).order == "random":
        for what, figure in (("median batch", _median), ("processor time", _processor)):
            found.append(Aim(what=f"{what} of the best peer ÷ ours", bound=10, measured=fastest(figure)))
        found = [Aim(what=it.what, bound=it.bound, measured=it.measured, at_least=True) for it in found]
    else:
        price = ours.median / plain.median if ours and plain else None
        found.append(Aim(what="median batch ÷ a plain insert of its rows", bound=2, measured=price))
    slower = None
    if ours and ours.clean_scan_ms:
        slower = max(ours.scan_ms[it] / ours.clean_scan_ms[it] for it in ours.clean_scan_ms)
    found.append(Aim(what="scan ÷ one without deletes, the worse reader", bound=1.2, measured=slower))
    million = ours.million_ms / 1_000 if ours and ours.million_ms is not None else None
    found.append(Aim(what="a million changes in a batch, s", bound=30, measured=million))
    return [
        Aim(what=f"{workload}: {it.what}", bound=it.bound, measured=it.measured, at_least=it.at_least)
        for it in found
    ]


def _median(result: Result) -> float:
    return result.median


def _processor(result: Result) -> float:
    return result.processor_seconds
