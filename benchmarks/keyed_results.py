"""The figures of `benchmarks.upserts`, their tables, and the aims that they are held against."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from benchmarks.aims import Aim

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

OURS, PLAIN = "ours", "ours-insert"
_WARM_UP_BATCHES = 5


@dataclass
class Result:
    """The run of one writer on one workload."""

    writer: str
    workload: str
    order: str
    batches: int
    """As many as it was to land."""
    milliseconds: list[float] = field(default_factory=list)
    """Of each batch, until it was committed."""
    beside_ms: list[float] = field(default_factory=list)
    """How much longer what ran beside the stream took, after each batch."""
    processor_seconds: list[float] = field(default_factory=list)
    """Of each batch, with what ran beside the stream."""
    load: list[float] = field(default_factory=list)
    """The machine's load before each batch: how many processes wanted a core in the last minute."""
    cut_off: str = ""
    """Why it landed no more batches; the figures of the last one are then the least that it takes."""
    written_bytes: int = 0
    """Of all files that the stream has left in the table's folder, metadata too."""
    files: int = 0
    delete_files: int = 0
    scan_ms: dict[str, float] = field(default_factory=dict)
    """Reader → a scan of all columns of the whole table; the median of three."""
    clean_scan_ms: dict[str, float] = field(default_factory=dict)
    """The same of a table of the same rows, which were inserted; turns were taken. Ours alone."""
    point_ms: dict[str, float] = field(default_factory=dict)
    """Reader → one key; the median of five."""
    million_rows: int = 0
    """Of one batch after all this: a million changes, or as many as the table had rows. Ours alone."""
    million_ms: float | None = None
    million_processor_seconds: float | None = None

    @staticmethod
    def warm_up_of(batches: int) -> int:
        """Return how many batches at the begin of a run do not count."""
        return min(_WARM_UP_BATCHES, batches // 2)

    @property
    def is_complete(self) -> bool:
        return bool(self.cut_off) or len(self.milliseconds) == self.batches

    @property
    def median(self) -> float:
        return statistics.median(self._warm(self.milliseconds))

    @property
    def p95(self) -> float:
        warm = self._warm(self.milliseconds)
        return statistics.quantiles(warm, n=20, method="inclusive")[-1] if len(warm) > 1 else warm[0]

    @property
    def processor_mean(self) -> float:
        """Seconds a batch, of those that count."""
        return statistics.mean(self._warm(self.processor_seconds))

    def _warm(self, figures: list[float]) -> list[float]:
        return figures[self.warm_up_of(len(figures)) :]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, of which `from_dict` makes the same again."""
        derived = {
            "median_ms": self.median,
            "p95_ms": self.p95,
            "processor_seconds_mean": self.processor_mean,
        }
        return {**asdict(self), **derived}

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
        "| writer | batches | median ms | p95 ms | beside ms | processor s | MiB written | files |"
        " delete files | scan ms, Spark | DuckDB | point ms, Spark | DuckDB | load |",
        f"|{' --- |'}{' ---: |' * 13}",
    ]
    for each in results:
        least = "> " if each.cut_off else ""
        figures = [
            f"{each.written_bytes / 2**20:,.0f}",
            f"{each.files:,}",
            f"{each.delete_files:,}",
            *(
                f"{times[reader]:,.0f}" if reader in times else ""
                for times in (each.scan_ms, each.point_ms)
                for reader in ("spark", "duckdb")
            ),
        ]
        cells = [
            each.writer,
            str(len(each.milliseconds)),
            f"{least}{each.median:,.0f}",
            f"{least}{each.p95:,.0f}",
            f"{statistics.mean(each.beside_ms):,.0f}",
            f"{least}{each.processor_mean:.2f}",
            *([""] * len(figures) if each.cut_off else figures),
            f"{statistics.median(each.load):.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [f"\n{each.writer} was stopped: {each.cut_off}." for each in results if each.cut_off]
    for each in results:
        if each.million_ms is not None:
            lines.append(
                f"\nA batch of {each.million_rows:,} changes after that, {each.writer}:"
                f" {each.million_ms / 1000:.1f} s, {each.million_processor_seconds:.1f} processor s."
            )
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
    found = []
    for what, figure in (("median batch", _median), ("processor time a batch", _processor)):
        if next(iter(results.values())).order == "random":
            best = min(map(figure, peers)) / figure(ours) if ours and peers else None
            name = f"{what}, the best peer ÷ ours"
            found.append(Aim(what=f"{workload}: {name}", bound=10, measured=best, at_least=True))
        else:
            price = figure(ours) / figure(plain) if ours and plain else None
            name = f"{what} ÷ that of a plain insert of its rows"
            found.append(Aim(what=f"{workload}: {name}", bound=2, measured=price))
    slower = None
    if ours and ours.clean_scan_ms:
        slower = max(ours.scan_ms[it] / ours.clean_scan_ms[it] for it in ours.clean_scan_ms)
    name = "scan ÷ one without deletes, the worse reader"
    found.append(Aim(what=f"{workload}: {name}", bound=1.2, measured=slower))
    million = ours.million_ms / 1_000 if ours and ours.million_ms is not None else None
    if ours and ours.million_rows < 1_000_000:
        million = None
    found.append(Aim(what=f"{workload}: a million changes in a batch, s", bound=30, measured=million))
    return found


def _median(result: Result) -> float:
    return result.median


def _processor(result: Result) -> float:
    return result.processor_mean
