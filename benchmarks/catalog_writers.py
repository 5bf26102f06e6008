"""Writers that append to one table of a catalog as fast as they can: ours, and Iceberg's Java library."""

from __future__ import annotations

import json
import math
import multiprocessing
import statistics
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

from benchmarks.aims import Aim
from benchmarks.catalog_commits import Appender
from tests.jars import iceberg_runtime
from tests.servers.binaries import java
from tests.servers.rest_catalog import sqlite_driver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.catalog_servers import Served

KINDS, WRITERS = ("REST", "SQL"), (1, 4, 8)
OURS, UNSEEN, JAVA = "ours", "ours, unseen", "Java"
"""On one disk our writers take turns; unseen they do not, as on an object store."""
_SOURCE = Path(__file__).with_name("FastAppends.java")
_START_TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class Writing:
    """What writers did together."""

    kind: str
    of: str
    seconds: float
    commits: list[int]
    """Of each writer, within the time."""
    processor: float
    """Milliseconds on a processor, of all writers together; the server's are not among them."""
    attempts: int | None = None
    missing: int | None = None
    """Acknowledged commits that the table does not have; None where it was not looked."""
    failed: int = 0
    """Commits that were given up."""

    @property
    def per_minute(self) -> float:
        return 60 * sum(self.commits) / self.seconds

    @property
    def processor_a_commit(self) -> float:
        return self.processor / max(1, sum(self.commits))

    @property
    def slowest_share(self) -> float:
        return min(self.commits) * len(self.commits) / max(1, sum(self.commits))


def _write(
    served: Served, table: str, writer: int, seconds: float, most: float, total: Any, gate: Any, done: Any
) -> None:
    """Commit until the time is over, or all writers together have committed enough."""
    appender = Appender.open(served, served.connect(), table, f"writer-{writer}")
    appender.prepare()()  # the first one loads modules
    gate.wait(_START_TIMEOUT_SECONDS)
    attempts, within, end, processor = 0, 0, time.perf_counter() + seconds, time.process_time()
    while time.perf_counter() < end and total.value < most:
        attempts += appender.prepare()().attempts
        within += time.perf_counter() < end  # the last one may end later, and is acknowledged all the same
        with total.get_lock():
            total.value += 1
    done.put((within, attempts, 1_000 * (time.process_time() - processor), appender.acknowledged))


def let_write(
    served: Served, name: str, writers: int, seconds: float, most: float = math.inf, *, seen: bool = True
) -> Writing:
    """Let writers, a process each, append to a new table, and look for the files of their commits in it."""
    served = replace(served, seen=seen)
    catalog = served.connect()
    Appender.create(served, catalog, name)
    context = multiprocessing.get_context("spawn")
    gate, done, total = context.Barrier(writers), context.Queue(), context.Value("q", 0)
    processes = [
        context.Process(
            target=_write, args=(served, name, writer, seconds, most, total, gate, done), daemon=True
        )
        for writer in range(writers)
    ]
    for process in processes:
        process.start()
    shares = [done.get(timeout=_START_TIMEOUT_SECONDS + 2 * seconds) for _ in processes]
    for process in processes:
        process.join()
    head = Appender.open(served, catalog, name, "reader").table.head
    live = {file.location for file in head.live_files()}
    missing = sum(file not in live for *_, files in shares for file in files)
    within, attempts, processor, _ = zip(*shares, strict=True)
    of = OURS if seen else UNSEEN
    return Writing(served.kind, of, seconds, list(within), sum(processor), sum(attempts), missing)


def let_java_write(served: Served, name: str, writers: int, seconds: float) -> Writing:
    """Let writers, threads of one JVM, append to a new table by the fast append of Iceberg's library."""
    catalog = served.connect()
    for table in (name, f"{name}_warm"):
        Appender.create(served, catalog, table)
    jars = [iceberg_runtime(), sqlite_driver(), Path(pyspark.__file__).parent / "jars" / "*"]
    command = [java(), "-Xmx512m", "-cp", ":".join(map(str, jars)), str(_SOURCE)]
    command += [name, f"{name}_warm", str(writers), str(seconds)]
    command += [f"{key}={value}" for key, value in _for_java(served).items()]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=_START_TIMEOUT_SECONDS + 2 * seconds, check=False
    )
    if ran.returncode:
        raise RuntimeError(f"Iceberg's library has failed: {ran.stderr[-2_000:]}")
    return Writing(served.kind, JAVA, seconds, **json.loads(ran.stdout))


def _for_java(served: Served) -> dict[str, str]:
    given = served.properties
    if served.kind == "REST":
        return given
    file = given["uri"].removeprefix("sqlite:///")
    address = f"jdbc:sqlite:file:{file}?busy_timeout=10000"
    return {"type": "jdbc", "uri": address, "warehouse": given["warehouse"]}


def race(served: Sequence[Served], writers: Sequence[int], rounds: int, seconds: float) -> list[Writing]:
    """Let ours and Java's write, taking turns, each at a table of its own."""
    found = []
    for each in range(rounds):
        for catalog in served:
            for count in writers:
                name = f"of_{count}_in_{each}"
                found.append(let_write(catalog, f"ours_{name}", count, seconds))
                found.append(let_java_write(catalog, f"java_{name}", count, seconds))
                if count > 1:
                    found.append(let_write(catalog, f"unseen_{name}", count, seconds, seen=False))
    return found


def _median(writing: Sequence[Writing], kind: str, of: str, writers: int, figure: str) -> float | None:
    found = [
        getattr(it, figure) for it in writing if (it.kind, it.of, len(it.commits)) == (kind, of, writers)
    ]
    return statistics.median(found) if found else None


def writers_aims(writing: Sequence[Writing]) -> list[Aim]:
    """Return the aims: as many commits as by Iceberg's library, no writer starves, and none is missing."""
    found = []
    for kind in dict.fromkeys(it.kind for it in writing):
        for writers in WRITERS:
            java_rate = _median(writing, kind, JAVA, writers, "per_minute")
            for of in (OURS, UNSEEN) if writers > 1 else (OURS,):
                rate = _median(writing, kind, of, writers, "per_minute")
                ratio = None if rate is None or not java_rate else rate / java_rate
                what = f"{kind}: commits a minute of {writers} writers ({of}) over Java's"
                found.append(Aim(what=what, bound=1, measured=ratio, at_least=True))
        for of in (OURS, UNSEEN):
            slowest = _median(writing, kind, of, 8, "slowest_share")
            what = f"{kind}: slowest of eight writers ({of}) over their mean"
            found.append(Aim(what=what, bound=0.25, measured=slowest, at_least=True))
    looked = [it.missing for it in writing if it.missing is not None]
    missing = sum(looked) if looked else None
    return [*found, Aim(what="acknowledged commits that are missing", bound=0, measured=missing)]


def writers_table(writing: Sequence[Writing]) -> str:
    """Return medians by catalog, number of writers, and whose they are."""
    lines = [
        "| catalog | writers | of | commits a minute | runs | processor ms | slowest ÷ mean | attempts | lost"
        " | missing |",
        "| --- | ---: | --- |" + " ---: |" * 7,
    ]
    kinds = dict.fromkeys((it.kind, len(it.commits), it.of) for it in writing)
    for kind, writers, of in kinds:
        those = [it for it in writing if (it.kind, len(it.commits), it.of) == (kind, writers, of)]
        attempts = "" if of == JAVA else f"{sum(it.attempts or 0 for it in those)}"
        missing = "" if of == JAVA else f"{sum(it.missing or 0 for it in those)}"
        rates = ", ".join(f"{it.per_minute:,.0f}" for it in those)
        processor = statistics.median(it.processor_a_commit for it in those)
        slowest = statistics.median(it.slowest_share for it in those)
        failed = sum(it.failed for it in those)
        lines.append(
            f"| {kind} | {writers} | {of} | {statistics.median(it.per_minute for it in those):,.0f} | {rates}"
            f" | {processor:.1f} | {slowest:.0%} | {attempts} | {failed} | {missing} |"
        )
    return "\n".join(lines)
