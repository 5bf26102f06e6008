"""What sorts the rows of a clustering group: our external sort, beside DuckDB and DataFusion. No Spark.

    python -m benchmarks.sorters --quick
    python -m benchmarks.sorters --check --json

A run is the group task in a process of its own: it reads Parquet files, sorts within `memory_bytes`, and
writes Parquet files. Only the sorter differs (`benchmarks.sorter_task`); `none` joins the files as they are.
Sorters take turns. Processor time is that of the whole process, with its threads and imports; memory is the
most that was resident. A library that is not installed is named and passed over; a run that fails is reported
with its error.

Before that, each sorter sorts odd values of every type, and what comes out is compared with ours, bit by bit.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.aims import Aim, benchmark_parser, conclude

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MIB = 1024 * 1024
SORTERS = ("none", "ours", "duckdb", "duckdb stream", "datafusion")
SORT_BY = {"narrow": ["key"], "wide": ["day desc", "key"], "text": ["session"]}
"""The tables, and what each is sorted by."""
_BATCH_ROWS = 64 * 1024
_WORDS = np.array([f"{number:x}-{'word' * (number % 5)}" for number in range(4_096)])


@dataclass(frozen=True)
class Run:
    """One process: `error` says why it wrote no rows."""

    table: str
    sorter: str
    seconds: float = 0.0
    processor_seconds: float = 0.0
    peak_mib: int = 0
    error: str = ""


def write_table(folder: Path, table: str, arrow_mib: int) -> None:
    """Write so many MiB of Arrow into files of about an eighth each."""
    folder.mkdir()
    random = np.random.default_rng(1)
    rows = arrow_mib * _MIB * _BATCH_ROWS // _batch(random, table).nbytes
    batches = max(8, rows // _BATCH_ROWS)
    for number in range(8):
        with pq.ParquetWriter(folder / f"{number}.parquet", _batch(random, table).schema) as file:
            for _ in range(batches // 8):
                file.write_batch(_batch(random, table))


def _batch(random: np.random.Generator, table: str) -> pa.RecordBatch:
    count = _BATCH_ROWS
    columns: dict[str, Any] = {
        "key": random.integers(0, 2**40, count),
        "user": random.integers(0, 10**6, count),
    }
    if table == "text":
        columns["session"] = [f"{value:016x}" for value in random.integers(0, 2**63, count)]
    columns["status"] = random.integers(0, 9, count)
    columns["day"] = pa.array(random.integers(20_000, 20_100, count), pa.int32()).cast(pa.date32())
    if table == "wide":
        columns |= {f"number_{each}": random.integers(0, 10**4, count) for each in range(4)}
        columns |= {f"amount_{each}": np.round(random.gamma(2.0, 40.0, count), 2) for each in range(4)}
        columns |= {f"text_{each}": _WORDS[random.integers(0, len(_WORDS), count)] for each in range(8)}
    return pa.RecordBatch.from_pydict(columns)


def measure(work: Path, tables: Sequence[str], sorters: Sequence[str], options: Any) -> Iterator[Run]:
    """Yield the runs of all rounds; in each, every sorter sorts each table once."""
    for table in tables:
        write_table(work / table, table, options.arrow_mib)
        for number in range(options.rounds):
            for sorter in (*sorters[number % len(sorters) :], *sorters[: number % len(sorters)]):
                run = _run(work / table, table, sorter, options.memory_mib * _MIB)
                yield run
        shutil.rmtree(work / table)


def _run(folder: Path, table: str, sorter: str, memory_bytes: int) -> Run:
    started = time.perf_counter()
    found = _process(sorter, str(folder), str(memory_bytes), *SORT_BY[table])
    seconds = time.perf_counter() - started
    shutil.rmtree(folder / "data", ignore_errors=True)
    return Run(table, sorter, error=found) if isinstance(found, str) else Run(table, sorter, seconds, **found)


def _process(*arguments: str) -> Any:
    """Return what one process of `benchmarks.sorter_task` prints, or its error as text."""
    command = [sys.executable, "-m", "benchmarks.sorter_task", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "Error" in line or "Exception" in line]
        return (said or [f"exit code {done.returncode}"])[-1][:160]
    return json.loads(done.stdout)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    parser = benchmark_parser("benchmarks.sorters", __doc__, "96 MiB within 64 MiB, one round")
    parser.add_argument("--tables", nargs="+", choices=SORT_BY, default=list(SORT_BY))
    parser.add_argument("--sorters", nargs="+", choices=SORTERS, default=list(SORTERS))
    parser.add_argument("--arrow-mib", type=int, default=320, help="size of each table in memory")
    parser.add_argument("--memory-mib", type=int, default=128, help="`memory_bytes` of the task")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    if options.quick:
        options.arrow_mib, options.memory_mib, options.rounds = 96, 64, 1
    missing = [it for it in options.sorters if it not in ("none", "ours") and not find_spec(it.split()[0])]
    sorters = [it for it in options.sorters if it not in missing]
    work = Path(tempfile.mkdtemp(prefix="sorters-", dir=options.work))
    try:
        odd = {it: _process(it) for it in sorters if it not in ("none", "ours")}
        runs = list(measure(work, options.tables, sorters, options))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    introduction = (
        f"{options.arrow_mib} MiB of Arrow within {options.memory_mib} MiB, {options.rounds} rounds."
    )
    if missing:
        introduction += f" Not installed, passed over: {', '.join(missing)}."
    figures = {"runs": [asdict(run) for run in runs], "differences": odd}
    tables = [_markdown(runs), _odd_markdown(odd)]
    return conclude(options, introduction, tables, figures, aims(runs))


def _medians(runs: Sequence[Run]) -> dict[tuple[str, str], Run]:
    """Return the medians by table and sorter, with the highest peak, and an error that a run had."""
    those: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        those.setdefault((run.table, run.sorter), []).append(run)
    return {
        key: Run(
            *key,
            statistics.median(run.seconds for run in each),
            statistics.median(run.processor_seconds for run in each),
            max(run.peak_mib for run in each),
            next((run.error for run in each if run.error), ""),
        )
        for key, each in those.items()
    }


def _markdown(runs: Sequence[Run]) -> str:
    lines = ["| table | sorter | s | CPU s | ÷ ours | peak MiB |", "| --- | --- |" + " ---: |" * 4]
    medians = _medians(runs)
    for (table, sorter), it in medians.items():
        if it.error:
            lines.append(f"| {table} | {sorter} | {it.error} |  |  |  |")
            continue
        ours = medians.get((table, "ours"))
        ratio = f"{it.processor_seconds / ours.processor_seconds:.2f}" if ours and not ours.error else ""
        figures = f"{it.seconds:.1f} | {it.processor_seconds:.1f} | {ratio} | {it.peak_mib:,}"
        lines.append(f"| {table} | {sorter} | {figures} |")
    return "\n".join(lines)


def _odd_markdown(odd: dict[str, Any]) -> str:
    lines = ["| sorter | odd values that differ from ours |", "| --- | --- |"]
    for sorter, found in odd.items():
        said = found if isinstance(found, str) else "; ".join(found) or "none"
        lines.append(f"| {sorter} | {said} |")
    return "\n".join(lines)


def aims(runs: Sequence[Run]) -> list[Aim]:
    """Return the aims: at most half as much again as DuckDB takes, and not more memory. Its stream and
    DataFusion do not hold their memory.
    """
    found = []
    medians = _medians(runs)
    for table in SORT_BY:
        ours, other = (medians.get((table, sorter)) for sorter in ("ours", "duckdb"))
        processor = peak = None
        if ours and other and not ours.error and not other.error:
            processor = ours.processor_seconds / other.processor_seconds
            peak = ours.peak_mib / other.peak_mib
        found += [
            Aim(what=f"{table}: processor time ÷ DuckDB's", bound=1.5, measured=processor),
            Aim(what=f"{table}: peak memory ÷ DuckDB's", bound=1, measured=peak),
        ]
    return found


if __name__ == "__main__":
    sys.exit(main())
