"""An executor is lost, a task fails or runs twice at once: every row is in the table once (R10).

This file is a program too. The tests start it once; it lands a batch for each fault, on executors of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from uuid import uuid4

import pyarrow as pa
import pyspark
import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.table import StaticTable
from pyspark import SparkContext, TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from planners import FileSizing
from planners.model import Arrival
from streaming_sink.landing import row_writing
from streaming_sink.tasks.rows.count_task import RowCounts
from streaming_sink.tasks.rows.write_task import WriteTask
from streaming_sink.writing import routes, writer
from streaming_sink.writing.planning import Experience
from streaming_sink.writing.profile import count_rows
from tests.jvm import executor_options
from tests.sinks import flat_sink
from tests.spark.streams import ids_of, metadata_file
from tests.tiers import IN_SOAK, only_in_soak

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, and 127.0.0.2 as a second host"),
]

ROOT = Path(__file__).resolve().parents[2]
ROWS = 4000
SLICES = 4
STRUCK = 1
"""The task that a fault strikes, when it has written files of which nobody was told yet."""
PATIENCE = 120


@dataclass(frozen=True)
class Fault:
    """A batch, and what happens to it."""

    name: str
    kind: str
    partition_by: tuple[str, ...] = ()
    operation: str = "insert"
    max_file_bytes: str = "128KiB"
    by_position: bool = False
    """Rows are routed by their place in the batch and not by their values, which R10 forbids; and what would
    notice is off: the shuffle's checksums, and the comparison with what was counted.
    """
    fresh_values: bool = False
    """A part that is computed again has other values than before."""
    shuffles: int = 0
    """How many shuffles the batch itself has, the first one by the fresh values."""
    one_task: bool = False
    counted: bool = False
    """Counted first, as where small files wait; so that a hot partition is spread over tasks."""


LOSS = Fault("loss", "kill", partition_by=("p",), counted=True)
LOSS_COALESCED = Fault("loss-coalesced", "kill", fresh_values=True)
LOSS_BY_POSITION = Fault("loss-by-position", "kill", partition_by=("p",), by_position=True, counted=True)
LOSS_OF_FRESH = Fault("loss-of-fresh", "kill", partition_by=("p",), fresh_values=True, counted=True)
FRESH_IN_BULK = Fault("fresh-in-bulk", "kill", operation="bulk_insert", fresh_values=True, shuffles=1)
FRESH_TO_ONE_TASK = Fault("fresh-to-one-task", "kill-before", fresh_values=True, shuffles=2, one_task=True)
FRESH_AND_COUNTED = Fault("fresh-and-counted", "kill-counted", fresh_values=True, shuffles=1, counted=True)
LOSS_OF_CHANGES = Fault("loss-of-changes", "kill", operation="upsert")
FAILURE = Fault("failure", "fail", operation="bulk_insert", max_file_bytes="16KiB")
SPECULATION = Fault("speculation", "stall")


# ---------------------------------------------------------------------------------------------- the program


class FaultyTask(WriteTask):
    """A task that its fault strikes once. Leaves marks: `struck-<attempt>`, `wrote-<task>-<attempt>`."""

    def __init__(self, kind: str, marks: str, job: Any) -> None:
        super().__init__(job)
        self._kind = kind
        self._marks = Path(marks)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        task, attempt = context.partitionId(), context.taskAttemptId()
        if task != STRUCK or any(self._marks.glob("struck-*")):
            results = list(super().__call__(batches))
            (self._marks / f"wrote-{task}-{attempt}").touch()
            yield from results
            return
        (self._marks / f"struck-{attempt}").touch()
        if self._kind == "fail":
            batches = self._failing(batches, attempt)
        list(super().__call__(batches))
        if self._kind == "kill":
            # What another task has reported is final. The rows of this one travel once more.
            _wait_for((self._marks / "reported").exists)
            os.kill(_executor(), signal.SIGKILL)
        time.sleep(PATIENCE)
        raise AssertionError("the task was not ended")

    def _failing(self, batches: Iterable[pa.RecordBatch], attempt: int) -> Iterator[pa.RecordBatch]:
        yield from batches
        for file in self._marks.parent.glob(f"table/data/*-{attempt}.parquet"):
            (self._marks / f"begun-{file.name}").touch()
        raise RuntimeError("the first attempt fails")


def _executor() -> int:
    """Return the process id of the executor that this Python worker belongs to."""
    process = os.getpid()
    while process > 1:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{process}/cmdline").read_bytes():
            return process
    raise AssertionError("no executor stands above this worker")


class Upstream:
    """Hands on its rows, in another order when a part is computed again: no shuffle promises an order. Before
    the first parts end, each executor has one: whichever is lost, it held something.
    """

    def __init__(self, marks: str, fresh_values: bool) -> None:
        self._marks = Path(marks)
        self._fresh_values = fresh_values

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        part = context.partitionId()
        times = len(list(self._marks.glob(f"computed-{part}-*")))
        (self._marks / f"at-{_executor()}").touch()
        (self._marks / f"computed-{part}-{times}").touch()
        if not times:
            _wait_for(lambda: len(list(self._marks.glob("at-*"))) > 1)
        rows = pa.Table.from_batches(list(batches))
        if self._fresh_values:
            fresh = pa.array([uuid4().hex for _ in range(rows.num_rows)])
            rows = rows.set_column(rows.schema.get_field_index("text"), "text", fresh)
        turned = pa.concat_tables([rows.slice(times), rows.slice(0, times)])
        yield from turned.combine_chunks().to_batches()


class BetweenShuffles:
    """A stage between two shuffles of the batch itself. A task of it loses its executor once, after another
    one has ended.
    """

    def __init__(self, marks: str) -> None:
        self._marks = Path(marks)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        rows = list(batches)
        if context.partitionId() == STRUCK and not any(self._marks.glob("struck-*")):
            _wait_for(lambda: any(self._marks.glob("passed-*")))
            _kill_executor(self._marks)
        yield from rows
        (self._marks / f"passed-{context.taskAttemptId()}").touch()


def _kill_executor(marks: Path) -> None:
    context = TaskContext.get()
    assert context is not None
    (marks / f"struck-{context.taskAttemptId()}").touch()
    os.kill(_executor(), signal.SIGKILL)


def _count_and_kill(marks: Path, batch: DataFrame, *arguments: Any) -> RowCounts:
    """Count as the sink does; then an executor is lost, and with it a part of what is kept."""
    counted = count_rows(batch, *arguments)

    def kill(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not any(marks.glob("struck-*")):
            _kill_executor(marks)
        yield from rows

    batch.sparkSession.range(0, 1, 1, 1).mapInArrow(kill, "id long").collect()
    return counted


@contextmanager
def _watched(spark: SparkSession, marks: Path) -> Iterator[None]:
    """Leave the mark `reported` once the driver has the result of a task that has written."""
    ended = Event()

    def watch() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not ended.wait(0.02):
            stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
            done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
            if done and any(marks.glob("wrote-*")):
                (marks / "reported").touch()
                return

    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _land(spark: SparkSession, fault: Fault, base: Path) -> None:
    _wait_for(lambda: spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() == 3)  # and the driver
    started = time.monotonic()
    marks = base / fault.name / "marks"
    marks.mkdir(parents=True)
    rows = spark.range(0, ROWS, 1, SLICES).select(
        "id",
        sf.when(sf.col("id") % 10 > 0, "hot").otherwise("cold").alias("p"),
        sf.sha2(sf.col("id").cast("string"), 256).alias("text"),
    )
    make_sink = partial(
        flat_sink,
        str(base / fault.name / "table"),
        partition_by=fault.partition_by,
        operation=fault.operation,
        sizing=FileSizing(max_file_bytes=fault.max_file_bytes, small_file_bytes="8KiB"),
        app_id="app",
        **({"key": ["id"]} if fault.operation == "upsert" else {}),
    )
    if fault.operation == "upsert":  # the batch replaces every row of an older one
        make_sink()(rows.withColumn("text", sf.lit("old")), 0)
    rows = rows.mapInArrow(Upstream(str(marks), fault.fresh_values), rows.schema)
    if fault.shuffles:
        rows = rows.repartition(2 * SLICES, "text")
    if fault.shuffles > 1:
        rows = rows.mapInArrow(BetweenShuffles(str(marks)), rows.schema).repartition(SLICES, "id")
    with ExitStack() as patches:

        def replace(owner: Any, name: str, by: Any) -> None:
            patches.enter_context(patch.object(owner, name, by))

        replace(writer, "WriteTask", partial(FaultyTask, fault.kind, str(marks)))
        if fault.by_position:
            replace(routes, "row_hash", lambda rows: sf.xxhash64(sf.monotonically_increasing_id()))
            replace(row_writing, "safe_shuffle", lambda _: nullcontext())
            replace(row_writing, "check_as_counted", lambda *_: None)
        if fault.one_task:
            replace(Experience, "expected", lambda *_: (Arrival((), ROWS),))
            replace(Experience, "tasks", lambda _: 1)
        if fault.counted:
            replace(row_writing, "needs_counting", lambda *_: True)
        if fault.kind == "kill-counted":
            replace(row_writing, "count_rows", partial(_count_and_kill, marks))
        try:
            with _watched(spark, marks):
                make_sink()(rows, int(fault.operation == "upsert"))
        except Py4JJavaError as refused:
            if not fault.fresh_values:
                raise
            (marks / "refused").write_text(str(refused))
    print(f"landed {fault.name} in {time.monotonic() - started:.1f} s", flush=True)  # noqa: T201


def _wait_for(condition: Callable[[], Any]) -> None:
    give_up_at = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


@contextmanager
def _session(master: str, **settings: str) -> Iterator[SparkSession]:
    common = {
        "spark.cores.max": "2",
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.shuffle.io.maxRetries": "1",
        "spark.shuffle.io.retryWait": "100ms",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **executor_options(),
    }
    session = SparkSession.builder.master(master).config(map={**common, **settings}).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _cluster_of_two_hosts(folder: Path) -> str:
    """Start a standalone master and two workers in this JVM: Spark speculates on another host only."""
    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    gateway: Any = SparkContext._gateway
    deploy, conf = jvm.org.apache.spark.deploy, jvm.org.apache.spark.SparkConf()
    masters = gateway.new_array(jvm.String, 1)
    master = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)
    masters[0] = f"spark://{master._1().address().hostPort()}"
    start, option = deploy.worker.Worker.startRpcEnvAndEndpoint, jvm.scala.Option
    for number, host in enumerate(("127.0.0.1", "127.0.0.2")):
        start(host, 0, 0, 1, 1024, masters, str(folder), option.apply(number), conf, option.empty())
    return str(masters[0])


def main(base: Path) -> None:
    """Land a batch for each fault below `base`."""
    with _session("local-cluster[2,1,1024]") as spark:
        for fault in (LOSS, LOSS_OF_FRESH, LOSS_OF_CHANGES, FAILURE, FRESH_TO_ONE_TASK, FRESH_AND_COUNTED):
            _land(spark, fault, base)
        if not IN_SOAK:
            return
        for fault in (LOSS_COALESCED, LOSS_BY_POSITION, FRESH_IN_BULK):
            _land(spark, fault, base)
    hosts = _cluster_of_two_hosts(base / "work")
    with _session(hosts, **{"spark.speculation": "true", "spark.speculation.quantile": "0.5"}) as spark:
        _land(spark, SPECULATION, base)


# ------------------------------------------------------------------------------------------------ the tests


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where the program has landed its batches."""
    base = tmp_path_factory.mktemp("landed")
    told = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    command = [sys.executable, __file__, str(base)]
    done = subprocess.run(command, env=told, cwd=base, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    return base


ONCE = Counter(range(ROWS))


def _ids(landed, fault):
    return ids_of(str(landed / fault.name / "table"))


def _marks(landed, fault, kind):
    """Return what follows `kind` in the names of a fault's marks."""
    folder = landed / fault.name / "marks"
    return {path.name.removeprefix(f"{kind}-") for path in folder.glob(f"{kind}-*")}


def _computed_again(landed, fault):
    return {mark for mark in _marks(landed, fault, "computed") if not mark.endswith("-0")}


def _files_of_the_struck(landed, fault):
    """Return which files of the attempt that was struck exist, and which of those are in the table."""
    [attempt] = _marks(landed, fault, "struck")
    table = landed / fault.name / "table"
    scan = StaticTable.from_metadata(metadata_file(str(table))).scan()
    live = {task.file.file_path.rpartition("/")[2] for task in scan.plan_files()}
    found = {path.name for path in table.glob(f"data/**/*-{attempt}.parquet")}
    return found, found & live


def test_a_lost_executor_neither_doubles_nor_drops_a_row(landed):
    assert len(_marks(landed, LOSS, "wrote")) > 2, "the hot partition must be spread over tasks"
    assert _computed_again(landed, LOSS), "the lost executor held nothing that had to be computed again"
    assert _ids(landed, LOSS) == ONCE


@only_in_soak
def test_without_a_shuffle_a_task_that_ran_twice_has_its_rows_once_though_their_values_differ(landed):
    """One task computes them and writes them, and of its attempts one counts."""
    assert {mark.partition("-")[0] for mark in _marks(landed, LOSS_COALESCED, "wrote")} == {"0", "1"}
    assert _computed_again(landed, LOSS_COALESCED)
    assert _ids(landed, LOSS_COALESCED) == ONCE


def test_files_that_a_lost_executor_left_behind_are_not_in_the_table(landed):
    found, live = _files_of_the_struck(landed, LOSS)
    assert found
    assert not live


@only_in_soak
def test_routing_by_position_would_double_and_drop_rows(landed):
    """So the first test sees what it is for. Counting would not: as many are lost as are doubled."""
    ids = _ids(landed, LOSS_BY_POSITION)
    assert _computed_again(landed, LOSS_BY_POSITION)
    assert ONCE - ids, "no row was lost"
    assert ids - ONCE, "no row was doubled"


def test_an_executor_that_is_lost_among_changes_by_key_leaves_each_key_once_and_changed(landed):
    found = StaticTable.from_metadata(metadata_file(str(landed / LOSS_OF_CHANGES.name / "table"))).scan()
    texts = found.to_arrow().to_pydict()
    assert Counter(texts["id"]) == ONCE
    assert "old" not in texts["text"]
    assert _computed_again(landed, LOSS_OF_CHANGES) or len(_marks(landed, LOSS_OF_CHANGES, "wrote")) > 1
    written, live = _files_of_the_struck(landed, LOSS_OF_CHANGES)
    assert written
    assert not live


@pytest.mark.parametrize("name", [LOSS_OF_FRESH.name, pytest.param(FRESH_IN_BULK.name, marks=only_in_soak)])
def test_values_that_differ_when_computed_again_fail_the_batch_and_publish_nothing(landed, name):
    """Also those that only the batch's own shuffle carries."""
    fault = {each.name: each for each in (LOSS_OF_FRESH, FRESH_IN_BULK)}[name]
    folder = landed / name
    assert _computed_again(landed, fault), "the lost executor held nothing that had to be computed again"
    assert "indeterminate" in (folder / "marks" / "refused").read_text()
    assert not list(folder.glob("table/metadata/v*.metadata.json"))


def test_a_stage_of_the_batch_that_read_other_values_before_runs_again_as_a_whole(landed):
    """No task has reported yet, so Spark can begin again: 228 of 4,000 rows were lost and 238 doubled."""
    assert _computed_again(landed, FRESH_TO_ONE_TASK)
    assert {mark.partition("-")[0] for mark in _marks(landed, FRESH_TO_ONE_TASK, "wrote")} == {"0"}
    assert _ids(landed, FRESH_TO_ONE_TASK) == ONCE


def test_a_kept_part_that_differs_when_computed_again_has_the_batch_written_again(landed):
    """The other parts that are kept are of before, and no shuffle has both: 186 rows were lost and 188
    doubled.
    """
    assert _computed_again(landed, FRESH_AND_COUNTED)
    assert _ids(landed, FRESH_AND_COUNTED) == ONCE


def test_a_task_that_fails_and_is_tried_again_leaves_each_row_once_and_no_file(landed):
    assert len(_marks(landed, FAILURE, "begun")) > 1, "it must have closed a file before it failed"
    assert _ids(landed, FAILURE) == ONCE
    assert _files_of_the_struck(landed, FAILURE) == (set(), set())


@only_in_soak
def test_of_two_attempts_at_once_only_the_one_that_reported_is_in_the_table(landed):
    attempts = {mark for mark in _marks(landed, SPECULATION, "wrote") if mark.startswith(f"{STRUCK}-")}
    assert len(attempts) == 1, "spark started no second attempt"
    assert _ids(landed, SPECULATION) == ONCE
    _, live = _files_of_the_struck(landed, SPECULATION)
    assert not live


if __name__ == "__main__":
    main(Path(sys.argv[1]))
