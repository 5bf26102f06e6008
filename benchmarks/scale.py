"""What open, plan and commit cost as a table grows, in a new process each: metadata alone, no Spark.

    python -m benchmarks.scale --quick
    python -m benchmarks.scale --check --json

The tables are made by the timeline itself: full files of ten columns with bounds, in up to 10,000 partitions,
and some small ones at the end. `first` is the first commit of a process that has just opened the table;
`fills` the planning of merges after it, in so many partitions; `later` the median of ten commits after that,
and `later, young` the same on a table of a hundred files with as many versions;
`expiry` is that of a table in a catalog, which asks all snapshots; `orphans` and `doctor` are of one whose
files exist.
Processor time is the process's own, from after its imports. `far` adds 60 ms to each request of the same.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.aims import Aim, benchmark_parser, conclude
from benchmarks.big_tables import make_index, make_table, make_young_table
from benchmarks.scale_steps import STEPS

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = (100, 10_000, 100_000, 1_000_000, 5_000_000)
_QUICK = SIZES[:3]
_YOUNG = SIZES[0]
_FAR_MS = 60
_LATER = "later"
_ALSO_FAR = ("first", "fills", "status", "describe")


@dataclass(frozen=True)
class Run:
    """One step in a process of its own, on a table of so many files."""

    step: str
    files: int
    far_ms: int
    figures: dict[str, Any]


def run_step(location: Path, step: str, files: int, far_ms: int = 0) -> Run:
    """Run a step on a copy of the table's newest metadata, in a new process, and return what it measured."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", "--child", step, str(location), str(far_ms)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Run(step, files, far_ms, json.loads(done.stdout.splitlines()[-1]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--child"]:
        return _child(*given[1:])
    parser = benchmark_parser("benchmarks.scale", __doc__, "up to 100,000 files")
    parser.add_argument("--sizes", nargs="+", type=int, help="live files of the tables")
    parser.add_argument("--steps", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--keep", type=Path, help="make the tables there, or find them, and leave them")
    options = parser.parse_args(given)
    sizes = options.sizes or (_QUICK if options.quick else SIZES)
    work = options.keep or Path(tempfile.mkdtemp(prefix="scale-", dir=options.work))
    work.mkdir(parents=True, exist_ok=True)
    try:
        runs = [run for files in sizes for run in _measure(work, files, options.steps)]
    finally:
        if not options.keep:
            shutil.rmtree(work)
    return conclude(options, "", [_markdown(runs)], {"runs": [asdict(run) for run in runs]}, aims(runs))


def _measure(work: Path, files: int, steps: Sequence[str]) -> list[Run]:
    location = work / str(files)
    if not location.exists():
        print(f"making a table of {files:,} files", file=sys.stderr)
        make_table(location, files)
    if not (location / "_timeline" / "index").exists():
        make_index(location)
    runs = []
    for step in steps:
        runs.append(run_step(location, step, files))
        print(f"{files:,} files, {step}: {runs[-1].figures}", file=sys.stderr)
        if step == _LATER and files > _YOUNG:
            young = work / f"{_YOUNG}-beside-{files}"
            if not young.exists():
                make_young_table(young, location, _YOUNG)
            runs.append(replace(run_step(young, step, files), step=f"{_LATER}, young"))
        if step in _ALSO_FAR:
            runs.append(run_step(location, step, files, _FAR_MS))
    return runs


def _child(step: str, location: str, far_ms: str) -> int:
    before = _most_resident_mib()
    figures = STEPS[step](Path(location), int(far_ms) / 1_000)
    figures["resident_mib"] = round(_most_resident_mib() - before, 1)
    print(json.dumps(figures))
    return 0


def _most_resident_mib() -> float:
    """Return the most memory that this process has had so far. `getrusage` has that of its parent, too, up to
    the moment at which this program began, and the parent may have made the table.
    """
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) / 1024


def _markdown(runs: Sequence[Run]) -> str:
    lines = [
        "| files | step | processor s | wall s | requests | manifests | MB read | MiB more |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for run in runs:
        it, name = run.figures, f"{run.step}, far" if run.far_ms else run.step
        lines.append(
            f"| {run.files:,} | {name} | {it['cpu_seconds']:.2f} | {it['seconds']:.2f} | {it['requests']} |"
            f" {it['manifests']} | {it['bytes_read'] / 1e6:.1f} | {it['resident_mib']:.0f} |"
        )
    return "\n".join(lines)


def aims(runs: Sequence[Run]) -> list[Aim]:
    """Return the aims: what a batch does not touch costs it nothing."""

    def figure(files: int, step: str, name: str) -> float | None:
        found = (it.figures[name] for it in runs if (it.files, it.step, it.far_ms) == (files, step, 0))
        return next(found, None)

    def over(files: int, step: str, name: str) -> float | None:
        old, young = figure(files, step, name), figure(_YOUNG, step, name)
        return None if old is None or young is None else old - young

    def times(files: int, step: str, than: int, than_step: str | None = None) -> float | None:
        old, young = figure(files, step, "cpu_seconds"), figure(than, than_step or step, "cpu_seconds")
        return None if old is None or not young else old / young

    found = []
    for files in (1_000_000, 5_000_000):
        rows: list[tuple[str, float, float | None]] = [
            ("requests of open and first commit above a young table", 8, over(files, "first", "requests")),
            ("manifests that these read", 0, figure(files, "first", "manifests")),
            ("their processor s above a young table", 0.3, over(files, "first", "cpu_seconds")),
            ("their resident MiB", 150, figure(files, "first", "resident_mib")),
            (
                "a later commit, times that of a young table of as many versions",
                1.5,
                times(files, _LATER, files, f"{_LATER}, young"),
            ),
            ("manifests read to plan fills in 100 partitions", 100, figure(files, "fills", "manifests")),
            ("requests at a time of these", 32, figure(files, "fills", "at_once")),
            ("first look for keys, processor s above a young table", 2, over(files, "keys", "cpu_seconds")),
            ("its resident MiB", 64, figure(files, "keys", "resident_mib")),
        ]
        found += [
            Aim(what=f"{what}, at {files:,} files", bound=at_most, measured=it) for what, at_most, it in rows
        ]
    million = 1_000_000
    found += [
        Aim(
            what=f"{step} at {million:,} files, processor s",
            bound=bound,
            measured=figure(million, step, "cpu_seconds"),
        )
        for step, bound in (("status", 1.5), ("describe", 8), ("sort all", 2), ("join all", 2))
    ]
    found += [
        Aim(
            what=f"{step} at {million:,} files, resident MiB",
            bound=150,
            measured=figure(million, step, "resident_mib"),
        )
        for step in ("doctor", "orphans", "expiry")
    ]
    return found + [
        Aim(
            what=f"{step} at 5,000,000 over {million:,} files, processor time",
            bound=1.2,
            measured=times(5_000_000, step, million),
        )
        for step in ("first", "fills", "later")
    ]


if __name__ == "__main__":
    sys.exit(main())
