"""What a platform's day of buffered ingestion costs on S3: requests, dollars and cores, on paper.

    python -m benchmarks.request_costs --check --json

The requests of each step are counted on a store in memory, in the place of S3: real announcements, planners
and workers, whose tasks run in this process and not in Spark. `requests_of` adds them up for a day, and a
test compares its sum with what another small run has counted.
"""

from __future__ import annotations

import io
import sys
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.store import MemoryStore as InMemory

from benchmarks.aims import Aim, benchmark_parser, conclude
from benchmarks.request_prices import (
    DOLLARS_PER_CORE_HOUR,
    Requests,
    Steps,
    cores_for,
    platform_day,
    requests_of,
    uploads,
)
from streaming_sink import ingest
from streaming_sink.ingest import consolidating, profiling
from streaming_sink.ingest.worker import Worker
from streaming_sink.tasks.ingest import consolidation_task, profile_task
from streaming_sink.tasks.results import RESULT_COLUMN, decode_result
from streaming_sink.zones.planning.flux import Flux
from streaming_sink.zones.planning.watching import FolderWatch
from timeline.stores import open_store
from timeline.stores.object import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streaming_sink.spark.jobs import Task

_PUTS, _LISTS, _GETS = ("put",), ("list", "list_with_delimiter"), ("get", "get_range", "head")
_KIND_OF = {**dict.fromkeys(_PUTS, "puts"), **dict.fromkeys(_LISTS, "lists"), **dict.fromkeys(_GETS, "gets")}


@contextmanager
def _stores_in_memory(found: Counter[str]) -> Iterator[None]:
    """Answer S3's requests by obstore's store in memory, count them, and run tasks in this process."""
    clients: dict[str, Any] = defaultdict(InMemory)

    def counting(kind: str, send: Callable[..., Any]) -> Callable[..., Any]:
        def request(*arguments: Any, **options: Any) -> Any:
            found[kind] += 1
            return send(*arguments, **options)

        return request

    with ExitStack() as patched:
        for name, kind in {**_KIND_OF, "open_writer": "data files"}.items():
            patched.enter_context(patch.object(obstore, name, counting(kind, getattr(obstore, name))))
        client_of = patch.object(ObjectStore, "_client", lambda store, _: clients[store.location])
        patched.enter_context(client_of)
        for module in (profiling, consolidating):
            patched.enter_context(patch.object(module, "run_tasks", _run_here))
            patched.enter_context(patch.object(module, "parallelism", lambda _: 1))
        for task in (profile_task, consolidation_task):
            patched.enter_context(patch.object(task, "start_task_without_rows", lambda *_: (0, 0)))
        yield


def _run_here(session: Any, what: str, tasks: Sequence[Task]) -> list[list[Any]]:
    del session, what
    found = []
    for task in tasks:
        rows = (row for batch in task(iter(())) for row in batch[RESULT_COLUMN].to_pylist())
        found.append([decode_result(row) for row in rows])
    return found


class SmallRun:
    """A zone whose table has a version already, on stores in memory."""

    def __init__(self, found: Counter[str]) -> None:
        self._found, self._files = found, 0
        self._drop = open_store("s3://bucket/drop")
        rules = ingest.Rules(max_files=1_000_000)
        self.zone = ingest.BufferZone("s3://bucket/zone", table="s3://bucket/table", rules=rules)
        self._flux, self._worker = Flux(self.zone), Worker(self.zone)
        self._watch = FolderWatch(self.zone, self._flux.known)
        self.land(1, 1)

    def _write(self, count: int) -> list[str]:
        made = range(self._files, self._files + count)
        for number in made:
            data = io.BytesIO()
            pq.write_table(pa.table({"id": [number]}), data)
            self._drop.overwrite(f"{number:06}.parquet", data.getvalue())
        self._files += count
        return [self._drop.uri(f"{number:06}.parquet") for number in made]

    def land(self, files: int, messages: int) -> tuple[Requests, int]:
        """Land files by one work item, announced by so many messages of equal size; return the requests,
        those of data files aside, and how many data files were written.
        """
        parts = [self._write(files // messages) for _ in range(messages)]
        self._found.clear()
        for names in parts:
            self.zone.push(*names)
        self._flux.plan(flush=True)
        landed = self._worker.land_next(cast(Any, None))
        if landed is None or landed.files_in != files:
            raise AssertionError(f"{files} files were announced, and this landed: {landed}")
        return _requests(self._found), self._found["data files"]

    def looks(self) -> tuple[Requests, Requests, Requests]:
        """Return the requests of one look of a planner, at watched folders, and of a worker, where nothing is
        new.
        """
        found = []
        for look in (self._flux.plan, self._watch.look, lambda: self._worker.land_next(cast(Any, None))):
            self._found.clear()
            look()
            found.append(_requests(self._found))
        return found[0], found[1], found[2]


def _requests(found: Counter[str]) -> Requests:
    return Requests(found["puts"], found["lists"], found["gets"])


def counted_steps() -> Steps:
    """Count the requests of each step, by the differences of small runs."""
    found = Counter[str]()
    with _stores_in_memory(found):
        run = SmallRun(found)
        few, more, split = run.land(20, 1)[0], run.land(40, 1)[0], run.land(40, 2)[0]
        file, message = (more - few).times(1 / 20), split - more
        run.looks()
        planner, unwatched, worker = run.looks()
        run.zone.watch("s3://bucket/drop")
        run.looks()
        watched = run.looks()[1] - unwatched
    return Steps(message, file, few - message - file.times(20), planner + unwatched, watched, worker)


def counted_run(files: int, messages: int) -> tuple[Requests, int]:
    """Land files by one item in another run; return the requests, and the data files that were written."""
    found = Counter[str]()
    with _stores_in_memory(found):
        run = SmallRun(found)
        run.land(20, 1)
        requests, data_files = run.land(files, messages)
    return requests + uploads(data_files, 0), data_files


def _table(found: dict[str, Requests]) -> str:
    total = sum(found.values(), Requests())
    lines = ["| what for | PUT | LIST | GET | dollars |", "| --- | ---: | ---: | ---: | ---: |"]
    lines += [
        f"| {name} | {it.puts:,.0f} | {it.lists:,.0f} | {it.gets:,.0f} | {it.dollars:.2f} |"
        for name, it in [*found.items(), ("together", total)]
    ]
    return "\n".join(lines)


def _steps_table(steps: Steps) -> str:
    lines = ["| step | PUT | LIST | GET |", "| --- | ---: | ---: | ---: |"]
    lines += [
        f"| {name.replace('_', ' ')} | {it['puts']:g} | {it['lists']:g} | {it['gets']:g} |"
        for name, it in asdict(steps).items()
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, report, and return the exit code."""
    parser = benchmark_parser("benchmarks.request_costs", __doc__, "the same: it takes a second")
    parser.add_argument(
        "--milliseconds", type=float, help="of processor time a source file, as benchmarks.ingestion says"
    )
    options = parser.parse_args(arguments)
    steps = counted_steps()
    every, tables = {}, [_steps_table(steps)]
    for seconds in (1.0, 15.0):
        every[seconds] = requests_of(platform_day(poll_seconds=seconds), steps)
        tables.append(f"A look every {seconds:g} s:\n\n{_table(every[seconds])}")
    cores = None
    if options.milliseconds is not None:
        cores = cores_for(platform_day().files, options.milliseconds)
        dollars = 24 * cores * DOLLARS_PER_CORE_HOUR
        tables.append(
            f"{cores:.2f} cores at {options.milliseconds:g} ms a file: {dollars:.2f} dollars a day."
        )
    figures = {
        "steps": asdict(steps),
        "days": {
            str(seconds): {name: asdict(it) for name, it in found.items()} for seconds, found in every.items()
        },
        "cores": cores,
    }
    aims = [Aim(what="GETs a source file", bound=2, measured=steps.file.gets)]
    return conclude(options, "700,000 files and 1.5 TB a day, on S3.", tables, figures, aims)


if __name__ == "__main__":
    sys.exit(main())
