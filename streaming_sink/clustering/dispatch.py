"""From groups to Spark tasks: who rewrites what, how many of them at once, and what each one answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark.util import inheritable_thread_target

from planners.clustering.plan import FILE_BY_FILE, ClusteringPlan
from planners.clustering.policy import SortField
from streaming_sink.clustering.groups import Group
from streaming_sink.clustering.options import Execution, check_keys
from streaming_sink.clustering.sort_orders import sorted_as, sorted_by
from streaming_sink.spark.run import described, parallelism
from streaming_sink.spark.worker_failures import explain_worker_failure
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.parquet_properties import leaf_names, metrics_modes, parquet_settings
from streaming_sink.table.spec import partition_sources
from streaming_sink.tasks import fast_workers
from streaming_sink.tasks.clustering.encrypting import Encrypt
from streaming_sink.tasks.clustering.job import GroupFailed, GroupJob, GroupResult, Input, RowStrategy, decode
from streaming_sink.tasks.clustering.ordering import sortable
from streaming_sink.tasks.clustering.strategies import strategy_of
from streaming_sink.tasks.clustering.task import ClusterTask
from streaming_sink.tasks.encryption import Cipher
from streaming_sink.tasks.job import RESULT_COLUMN, FileIds, TaskBuckets, WorkerJob
from timeline.clock import SYSTEM
from timeline.commit.succession import commit_time
from timeline.errors import StoreUnavailableError
from timeline.stores.base import Store
from timeline.table import Table
from timeline.versions.head import Head

_APP_ID = "cluster"
_RESULT = StructType([StructField(RESULT_COLUMN, BinaryType())])
_IDLE_TASKS = 4
"""Idle cores that one group takes at most: each of its tasks reads all of its files, and keeps its range."""
_TASK_BYTES = 4 * 1024**3
"""A larger group is cut into ranges even where no core is idle: sorting it takes one worker's disk."""

_FILE_BYTES = 256 * 1024
_LITTLE_BYTES = 16 * 1024**2
"""To open a file takes as long as to sort and write so many bytes. Where that is most of the work, tasks that
share a group would each do it, twice over for the sample. Below the second figure nobody notices."""

Rewrite = Callable[[Group, Sequence[float], int], GroupJob]
"""Makes the job of one task: of a group, cut at these parts of its rows, the range of that number."""


def rewrites(
    head: Head, table: Table, plan: ClusteringPlan, how: Execution
) -> tuple[Rewrite, Mapping[int, RowStrategy]]:
    """Return what makes a task's job, and the strategy of each group by its index.

    ValueError if the plan asks for what there is not.
    """
    schema = arrow_schema(head.schema)
    worker = WorkerJob(
        store=table.store,
        schema=schema,
        partition_by=partition_sources(head.schema, head.spec),
        parquet=parquet_settings(head.properties, head.schema),
        metrics=metrics_modes(head.schema, head.properties),
        # The time in the files' names runs with the table (R6).
        ids=FileIds(commit_time(SYSTEM, head), _APP_ID, 0),
        tasks={},
        shared=TaskBuckets(),
        rows_per_new_file=0,
        max_file_bytes=plan.target_file_bytes,
        fast_workers=fast_workers.wanted(),
        cipher=None if how.keys is None else Cipher(how.keys),
    )
    made = {}
    for group in plan.groups:
        for text in group.sort_by:
            sortable(schema, SortField.parse(text).column)
        if group.strategy not in made:
            made[group.strategy] = strategy_of(group.strategy, how.strategies)
        check_keys(group.strategy, how.keys)
    encrypting = {
        strategy: it.key_names(leaf_names(head.schema))
        for strategy, it in made.items()
        if isinstance(it, Encrypt)
    }

    def rewrite(group: Group, cuts: Sequence[float], part: int) -> GroupJob:
        planned = group.planned
        return GroupJob(
            index=group.index,
            worker=replace(worker, key_names=encrypting.get(planned.strategy, group.key_names)),
            inputs=tuple(
                Input(
                    file.location,
                    file.rows,
                    file.key_metadata is not None,
                    sorted_as(head, file.sort_order_id),
                )
                for file in group.inputs
            ),
            partition=group.inputs[0].partition,
            sort_by=tuple(SortField.parse(text) for text in planned.sort_by),
            strategy_name=planned.strategy.name,
            strategy=made[planned.strategy],
            rows_per_file=rows_per_file(group, plan.target_file_bytes),
            memory_bytes=how.memory_bytes,
            checksum=how.checksum,
            order=planned.order,
            level=planned.level,
            has_remainder=planned.remainder,
            cuts=tuple(cuts),
            part=part,
            sorted_by=sorted_by(head.schema, planned),
            file_by_file=planned.strategy.name in FILE_BY_FILE,
        )

    return rewrite, {index: made[group.strategy] for index, group in enumerate(plan.groups)}


def rows_per_file(group: Group, target_bytes: int) -> int:
    """Files of equal size; where the plan names a remainder, full files and a last one that stays small."""
    files = group.planned.output_files
    if group.planned.remainder and files > 1:
        return max(1, -(-group.rows * target_bytes // group.bytes))
    return max(1, -(-group.rows // files))


def cuts(group: Group, tasks: int, target_bytes: int) -> tuple[float, ...]:
    """Return behind which parts of its rows a group is cut for at most so many tasks: where files end."""
    a_file = rows_per_file(group, target_bytes)
    files = -(-group.rows // a_file)
    tasks = min(tasks, files)
    return tuple(files * task // tasks * a_file / group.rows for task in range(1, tasks))


def tasks_of(group: Group, strategy: RowStrategy, running: int, cores: int) -> int:
    """Return how many tasks a group is worth, when so many groups run on so many cores."""
    if not getattr(strategy, "in_ranges", False):
        return 1
    if len(group.inputs) * _FILE_BYTES > group.bytes + _LITTLE_BYTES:
        return 1
    return max(1, min(cores // running, _IDLE_TASKS), -(-group.bytes // _TASK_BYTES))


def rewritten(
    session: SparkSession,
    store: Store,
    groups: Sequence[Group],
    plan: ClusteringPlan,
    made: tuple[Rewrite, Mapping[int, RowStrategy]],
    is_wanted: Callable[[], bool],
    unwanted: str,
) -> Iterator[Group]:
    """Rewrite every group that has its files; yield all in the order of the plan, as they end.

    Each task is a Spark job of its own, so that one that fails takes no other group with it.
    """
    rewrite, strategies = made
    cores = parallelism(session)

    def run(group: Group, ends: tuple[float, ...], part: int) -> GroupResult:
        if not is_wanted():
            return GroupFailed(unwanted)
        with described(session, f"{store.location}: clustering group {group.index}"):
            one = session.range(0, 1, 1, 1)
            rows = one.mapInArrow(ClusterTask(rewrite(group, ends, part)), _RESULT).collect()
        return decode(bytes(rows[0][0]))

    # A streaming query that is stopped cancels the jobs of its threads, and of theirs.
    running = inheritable_thread_target(session)(run)
    runnable = [group for group in groups if not group.dropped]
    with ThreadPoolExecutor(max_workers=cores, thread_name_prefix="clustering") as pool:
        futures = {}
        for group in runnable:
            tasks = tasks_of(group, strategies[group.index], len(runnable), cores)
            ends = cuts(group, tasks, plan.target_file_bytes)
            futures[group.index] = [pool.submit(running, group, ends, part) for part in range(len(ends) + 1)]
        for group in groups:
            done = replace(group, results=tuple(_result(each) for each in futures.get(group.index, ())))
            if done.failure:
                _discard(store, done)
            yield done


def _result(future: Future[GroupResult]) -> GroupResult:
    failure = future.exception()
    if failure is None:
        return future.result()
    if not isinstance(failure, Exception):
        raise failure
    said = explain_worker_failure(failure) or failure
    return GroupFailed(f"its task failed, nothing of it is published: {_told(str(said))}")


def _told(text: str) -> str:
    """Return the line of a failure that says what it was: the last one of a Python worker's traceback."""
    lines = [line.strip() for line in text.partition("\n\n\tat ")[0].splitlines()]
    raised = [line for line in lines if line and not line.startswith(("at ", "File ", "Driver stacktrace"))]
    errors = [line for line in raised if "Error: " in line or "Exception: " in line]
    return (errors or raised or [text])[-1]


def _discard(store: Store, group: Group) -> None:
    """Delete what other tasks of a group wrote that is not published, best effort."""
    with suppress(StoreUnavailableError):
        store.delete([store.relative(file.path) for file in group.files])
