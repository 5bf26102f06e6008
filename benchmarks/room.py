"""How many of Spark's jobs succeed beside two writers that commit once a second, and merge small files.

    python -m benchmarks.room --quick
    python -m benchmarks.room --jobs 200 --check

Spark deletes a row, merges five rows into the table and compacts it, one after the other without a pause,
in a process of its own, by the same REST catalog, at isolation `snapshot`. The writers are two sinks of
this process. A job that fails has met a conflict: a file that it read was merged away. `never` is without
merges, `beside` with them, `no room` with merges that do not wait for Spark's jobs, and `serializable` is
`beside` at that isolation, where each append makes a job fail. They take turns at tables of their own, so
that the noise of the machine meets them alike. Small files are the most of any batch's report.
"""

from __future__ import annotations

import itertools
import random
import shutil
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from benchmarks.aims import Aim, benchmark_parser, conclude
from benchmarks.sessions import local_session
from planners.sizing import FileSizing
from streaming_sink import CatalogTable, IcebergSink
from streaming_sink.table import foreign_rewrites
from tests.servers.rest_catalog import rest_catalog
from tests.servers.sql import Sql

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

MODES = ("never", "beside", "no room", "serializable")
KINDS = ("copy-on-write", "merge-on-read")
JOBS = ("delete", "merge", "rewrite")
WRITERS = 2
ROWS = 2_000
"""Of a batch."""
_BOUND = 3 * 24
"""Small files of a partition: three times what a sink promises while a pass runs."""
TURN_JOBS = 15
FEW_JOBS = 45


@dataclass
class Outcome:
    """What became of the jobs beside the writers of one mode."""

    kind: str
    mode: str
    ran: dict[str, int] = field(default_factory=lambda: dict.fromkeys(JOBS, 0))
    lost: dict[str, int] = field(default_factory=lambda: dict.fromkeys(JOBS, 0))
    small_files: int = 0
    commits: int = 0
    seconds: float = 0.0

    @property
    def jobs(self) -> int:
        return sum(self.ran.values()) + sum(self.lost.values())

    @property
    def rate(self) -> float:
        return sum(self.ran.values()) / max(1, self.jobs)


class Writer(threading.Thread):
    """A sink that lands a batch a second until it is told to stop."""

    def __init__(self, session: SparkSession, sink: IcebergSink, numbers: Iterator[int], outcome: Outcome):
        super().__init__(name="writer")
        self.session, self.sink, self.numbers, self.outcome = session, sink, numbers, outcome
        self.stopping = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        batch, due = 0, time.monotonic()
        try:
            while not self.stopping.is_set():
                first = next(self.numbers) * ROWS
                rows = self.session.range(first, first + ROWS).selectExpr("id", "uuid() text")
                report = self.sink(rows.coalesce(1), batch)
                self.outcome.small_files = max(self.outcome.small_files, report.small_files)
                self.outcome.commits += 1
                batch += 1
                due = max(due + 1, time.monotonic() - 1)
                self.stopping.wait(max(0.0, due - time.monotonic()))
            self.sink.finish()
        except Exception as failure:  # noqa: BLE001 - the benchmark raises it
            self.failure = failure


class Case:
    """A table of one kind and mode, whose writers pause between the turns."""

    def __init__(
        self, sql: Sql, properties: dict[str, str], kind: str, mode: str, statements: Sequence[str]
    ) -> None:
        self.sql, self.outcome, self.statements = sql, Outcome(kind, mode), statements
        self.name = f"db.{kind}_{mode}".replace("-", "_").replace(" ", "_")
        self.table = CatalogTable(self.name, properties)
        stated = {f"write.{job}.mode": kind for job in ("delete", "update", "merge")}
        isolation = mode if mode == "serializable" else "snapshot"
        stated |= {f"write.{job}.isolation-level": isolation for job in ("delete", "update", "merge")}
        listed = ", ".join(f"'{key}'='{value}'" for key, value in stated.items())
        sql.run(f"CREATE TABLE lake.{self.name} (id BIGINT, text STRING) TBLPROPERTIES ({listed})")
        self._numbers, self._sinks = itertools.count(), itertools.count()
        self._random = random.Random(self.name)

    def turn(self, session: SparkSession, jobs: int) -> None:
        """Let the writers write, and so many jobs run beside them."""
        fill = "never" if self.outcome.mode == "never" else "beside"
        off = patch.object(foreign_rewrites, "partitions_that_wait", lambda *_: frozenset())
        with off if self.outcome.mode == "no room" else nullcontext():
            writers = [
                Writer(session, self._new_sink(fill), self._numbers, self.outcome) for _ in range(WRITERS)
            ]
            for writer in writers:
                writer.start()
            time.sleep(5)
            began = time.monotonic()
            for place in range(jobs):
                job = self.statements[place % len(self.statements)]
                landed = self.sql.try_once(self._statement(job))
                counts = self.outcome.ran if landed else self.outcome.lost
                counts[job] += 1
            self.outcome.seconds += time.monotonic() - began
            for writer in writers:
                writer.stopping.set()
            for writer in writers:
                writer.join()
                if writer.failure is not None:
                    raise writer.failure

    def _new_sink(self, fill: str) -> IcebergSink:
        sizing = FileSizing(max_file_bytes="4MiB", small_file_bytes="3MiB", fill=fill, warn_small_files=0)
        return IcebergSink(self.table, app_id=f"writer-{next(self._sinks)}", sizing=sizing)

    def _statement(self, job: str) -> str:
        most = max(1, self.outcome.commits * ROWS)
        ids = [self._random.randrange(most) for _ in range(5)]
        if job == "delete":
            return f"DELETE FROM lake.{self.name} WHERE id = {ids[0]}"
        if job == "rewrite":
            options = "options => map('min-input-files', '2')"
            return f"CALL lake.system.rewrite_data_files(table => '{self.name}', {options})"
        source = " UNION ALL ".join(f"SELECT {it} id, 'merged' text" for it in sorted(set(ids)))
        return (
            f"MERGE INTO lake.{self.name} t USING ({source}) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET"
            " t.text = s.text WHEN NOT MATCHED THEN INSERT *"
        )


def measure(
    server: Any,
    sql: Sql,
    session: SparkSession,
    kinds: Sequence[str],
    modes: Sequence[str],
    jobs: int,
    statements: Sequence[str] = JOBS,
) -> list[Outcome]:
    """Run so many jobs of each kind and mode, some at a time."""
    sql.run("CREATE NAMESPACE IF NOT EXISTS lake.db")
    cases = [Case(sql, server.properties, kind, mode, statements) for kind in kinds for mode in modes]
    while any(case.outcome.jobs < jobs for case in cases):
        for case in cases:
            left = jobs - case.outcome.jobs
            if left > 0:
                case.turn(session, min(TURN_JOBS, left))
    return [case.outcome for case in cases]


def run(
    work: Path, kinds: Sequence[str], modes: Sequence[str], jobs: int, statements: Sequence[str] = JOBS
) -> list[Outcome]:
    """Run so many jobs of each kind and mode, on a REST server of their own."""
    with ExitStack() as stack:
        server = stack.enter_context(rest_catalog(work))
        sql = Sql(server.uri, stack.enter_context((work / "errors").open("w")))
        stack.callback(sql.kill)
        sql.says("STARTED")
        session = local_session("room", {"spark.driver.memory": "1g"})
        stack.callback(session.stop)
        return measure(server, sql, session, kinds, modes, jobs, statements)


def aims(outcomes: Sequence[Outcome]) -> list[Aim]:
    """Return the aims: with merges, 95 % of the jobs succeed that succeed without, and small files stay
    within their bound. At `serializable` the share is stated alone.
    """
    found = []
    for kind in KINDS:
        of = {it.mode: it for it in outcomes if it.kind == kind}
        measured = (
            of["beside"].rate / max(of["never"].rate, 0.01) if {"never", "beside"} <= of.keys() else None
        )
        jobs = f" ({of['beside'].jobs})" if "beside" in of else ""
        what = f"share of Spark's {kind} jobs{jobs} that succeed, of that without merges"
        found.append(Aim(what=what, bound=0.95, measured=measured, at_least=True))
        small = of["beside"].small_files if "beside" in of else None
        found.append(Aim(what=f"small files beside {kind} jobs", bound=_BOUND, measured=small))
    return found


def table(outcomes: Sequence[Outcome]) -> str:
    """Return what became of the jobs, by kind and mode."""
    header = (
        f"| kind | merges | jobs | succeed | {' | '.join(JOBS)} | seconds a job | small files | commits |"
    )
    lines = [header, "| --- | --- | ---: | ---: |" + " ---: |" * (len(JOBS) + 3)]
    for it in outcomes:
        each = " | ".join(f"{it.ran[job]} of {it.ran[job] + it.lost[job]}" for job in JOBS)
        took = it.seconds / max(1, it.jobs)
        lines.append(
            f"| {it.kind} | {it.mode} | {it.jobs} | {it.rate:.0%} | {each} | {took:.1f} | {it.small_files} |"
            f" {it.commits} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    parser = benchmark_parser("benchmarks.room", __doc__, "fifteen jobs of each kind and mode")
    parser.add_argument("--jobs", type=int, default=FEW_JOBS, help="of each kind and mode")
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--modes", nargs="*", default=MODES, choices=MODES)
    parser.add_argument("--statements", nargs="*", default=JOBS, choices=JOBS)
    options = parser.parse_args(arguments)
    work = Path(tempfile.mkdtemp(prefix="room-", dir=options.work))
    try:
        jobs = TURN_JOBS if options.quick else options.jobs
        outcomes = run(work, options.kinds, options.modes, jobs, options.statements)
    finally:
        shutil.rmtree(work)
    found = aims(outcomes)
    figures = {"jobs": [asdict(it) | {"rate": it.rate} for it in outcomes]}
    conclude(options, "", [table(outcomes)], figures, found)
    return 1 if options.check and any(aim.measured is None for aim in found) else 0


if __name__ == "__main__":
    sys.exit(main())
