"""What commits to tables of catalogs cost, on Iceberg's own REST server, in SQL and in Glue.

    python -m benchmarks.catalogs --quick
    python -m benchmarks.catalogs --only own requests --check --json
    python -m benchmarks.catalogs --only room --jobs 200

`own`: milliseconds of an append that no other writer races, at tables of so many snapshots: in all; in
requests to the catalog; in requests to the store, which syncs; and `own`, the rest: the manifests, the next
metadata, the JSON of the request and of the answer. `bare` are commits of such updates by pyiceberg's
`commit_table` alone, through the same store. Both, and the tables, take turns, so that the noise of the
machine meets them alike. A figure is the median, and the quartiles follow it. On a busy machine `own` has
waits for a processor in it; `own processor` is the time on one, without that in requests.

`requests` are those of twenty appends in a row, and of appends that each lose a race. `writers` append to one
table as fast as they can: processes of this sink, and threads of one JVM by the fast append of Iceberg's
library, which appends such files to such a table of the same catalog. With turns ours see each other, as on a
local disk; unseen they do not, as on an object store. A commit is missing if it was acknowledged and the
table does not have its file. `files`: the metadata files that are left of many commits with lost races.
`properties`: the bytes of what a table remembers of fifty applications, a key, a zone and a quarantine.
`room` is `benchmarks.room`. `log`: commits to the file log by this code and by that of another checkout.

The server shares the cores with its clients, so that what its answers take says little of other servers.
Unlike elsewhere, `--check` exits with 1 only if the figure of an aim was not measured; a missed aim is
reported as one.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import catalog_commits as commits
from benchmarks import catalog_state as state
from benchmarks import catalog_writers as writers
from benchmarks import room
from benchmarks.aims import Aim, benchmark_parser, conclude
from benchmarks.catalog_servers import KINDS, Meter, serving

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

_ROUNDS = 5
"""Of the file log, before and after."""
_WINDOW = 100


@dataclass(frozen=True)
class Section:
    """What one part of the benchmark has found."""

    tables: list[str] = field(default_factory=list)
    figures: Any = None
    aims: list[Aim] = field(default_factory=list)


def _own(options: argparse.Namespace, work: Path) -> Section:
    marks = commits.MARKS[:2] if options.quick else commits.MARKS
    samples = {}
    for kind in options.kinds:
        with serving(kind, work) as served:
            samples[kind] = commits.sample_commits(served, Meter(), marks, options.rounds)
    figures = [
        {"catalog": kind, "snapshots": mark, "of": of, "commits": [sample.parts for sample in taken]}
        for kind, each in samples.items()
        for (mark, of), taken in each.items()
    ]
    aims = [aim for kind, each in samples.items() for aim in commits.own_aims(kind, each)]
    return Section([commits.own_table(samples)], figures, aims)


def _requests(options: argparse.Namespace, work: Path) -> Section:
    found = {}
    for kind in options.kinds:
        with serving(kind, work) as served:
            found[kind] = commits.count_requests(served, Meter())
    aims = commits.requests_aims(found["REST"]) if "REST" in found else []
    return Section([commits.requests_table(found)], found, aims)


def _writers(options: argparse.Namespace, work: Path) -> Section:
    rounds, seconds = (1, 3.0) if options.quick else (options.rounds_of_writers, options.seconds)
    with ExitStack() as stack:
        kinds = [kind for kind in writers.KINDS if kind in options.kinds]
        served = [stack.enter_context(serving(kind, work)) for kind in kinds]
        found = writers.race(served, writers.WRITERS, rounds, seconds)
    figures = [asdict(it) | {"per_minute": it.per_minute} for it in found]
    return Section([writers.writers_table(found)], figures, writers.writers_aims(found))


def _files(options: argparse.Namespace, work: Path) -> Section:
    most = 300 if options.quick else state.COMMITS
    found = []
    for kind in options.kinds:
        with serving(kind, work) as served:
            found.append(state.count_metadata_files(served, most))
    figures = [asdict(it) for it in found]
    return Section([state.files_table(found)], figures, state.files_aims(found, most))


def _properties(options: argparse.Namespace, work: Path) -> Section:  # noqa: ARG001 - as the others
    with serving("SQL", work) as served:
        found = state.measure_properties(served)
    return Section([state.properties_table(found)], asdict(found), state.properties_aims(found))


def _room(options: argparse.Namespace, work: Path) -> Section:
    jobs = room.TURN_JOBS if options.quick else options.jobs
    found = room.run(work, room.KINDS, room.MODES, jobs)
    return Section([room.table(found)], [asdict(it) for it in found], room.aims(found))


def _log(options: argparse.Namespace, work: Path) -> Section:
    """Compare the file log with that of a checkout of other code, run after run."""
    figures = dict[str, list[dict[str, float]]]()
    if options.before is not None:
        places = {"before": options.before, "after": Path(__file__).parents[1]}
        figures = {of: [] for of in places}
        for _ in range(_ROUNDS):
            for of, place in places.items():
                figures[of].append(_file_log(place, work))
    aims, lines = [], ["| file log: ms of a commit | of | runs |", "| --- | --- | --- |"]
    for part, named in (("seconds", "ms"), ("cpu_seconds", "ms of processor time")):
        taken = {of: [run[part] for run in runs] for of, runs in figures.items()}
        lines += [
            f"| {named} | {of} | {', '.join(f'{it:.1f}' for it in each)} |" for of, each in taken.items()
        ]
        measured = statistics.median(taken["after"]) / max(taken["before"]) if taken else None
        what = f"file log: {named} of a commit over the slowest run before"
        aims.append(Aim(what=what, bound=1, measured=measured))
    return Section(["\n".join(lines)] if figures else [], figures, aims)


def _file_log(checkout: Path, work: Path) -> dict[str, float]:
    """Return the median milliseconds of the last commits of a run of a checkout's own benchmark."""
    figures = work / "log.json"
    command = [sys.executable, "-m", "benchmarks.commits", "--quick", "--workloads", "append"]
    command += ["--json", str(figures), "--work", str(work)]
    subprocess.run(
        command,
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        check=True,
        capture_output=True,
    )
    said = json.loads(figures.read_text())
    return {
        part: 1_000 * statistics.median(said[part]["append"][-_WINDOW:])
        for part in ("seconds", "cpu_seconds")
    }


SECTIONS: dict[str, Callable[[argparse.Namespace, Path], Section]] = {
    "own": _own,
    "requests": _requests,
    "room": _room,
    "writers": _writers,
    "files": _files,
    "properties": _properties,
    "log": _log,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    parser = benchmark_parser("benchmarks.catalogs", __doc__, "up to 500 snapshots, and short runs of all")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="NAME")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="of catalogs")
    parser.add_argument("--rounds", type=int, default=30, help="commits of each kind at each table, up to 50")
    parser.add_argument("--rounds-of-writers", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long writers write")
    parser.add_argument("--jobs", type=int, default=room.FEW_JOBS, help="Spark's, of each kind and mode")
    parser.add_argument("--before", type=Path, help="a checkout of code to compare the file log with")
    options = parser.parse_args(arguments)
    found = dict[str, Section]()
    for name in options.only:
        work = Path(tempfile.mkdtemp(prefix=f"catalogs-{name}-", dir=options.work))
        try:
            found[name] = SECTIONS[name](options, work)
        finally:
            shutil.rmtree(work)
    tables = [table for section in found.values() for table in section.tables]
    aims = [aim for section in found.values() for aim in section.aims]
    conclude(options, "", tables, {name: section.figures for name, section in found.items()}, aims)
    return 1 if options.check and any(aim.measured is None for aim in aims) else 0


if __name__ == "__main__":
    sys.exit(main())
