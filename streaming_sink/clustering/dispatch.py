"""Dispatch of groups to Spark tasks: the job of each task, how many run at once, and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import cast

from pyspark.sql import SparkSession
from pyspark.util import inheritable_thread_target

from planners.clustering.plan import ClusteringPlan
from planners.clustering.sort_fields import SortField
from planners.clustering.strategies import traits
from streaming_sink.clustering.groups import LiveGroup
from streaming_sink.clustering.options import Execution, check_encryption_keys
from streaming_sink.clustering.sort_orders import planned_sort_order, recorded_sort_order
from streaming_sink.spark.jobs import collect_results, described, parallelism
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.data_files import stated_metrics
from streaming_sink.table.file_jobs import file_job
from streaming_sink.table.parquet_properties import leaf_names
from streaming_sink.table.spec import partition_sources
from streaming_sink.tasks.clustering.group_task import GroupTask
from streaming_sink.tasks.clustering.job import GroupFailed, GroupJob, GroupResult, Input
from streaming_sink.tasks.clustering.ordering import sort_column
from streaming_sink.tasks.clustering.row_strategy import KeySettingStrategy, RowStrategy, joins
from streaming_sink.tasks.clustering.strategies import make_strategy
from streaming_sink.tasks.encryption import Cipher
from streaming_sink.tasks.job import FileIds
from streaming_sink.tasks.results import delete_files
from timeline.clock import SYSTEM
from timeline.drafts.succession import commit_time
from timeline.stores.base import Store
from timeline.table import Table
from timeline.versions.head import Head

_APP_ID = "cluster"
_IDLE_TASKS = 4
"""The most idle cores that one group takes: each of its tasks reads all of its files, and keeps its range.
For two of them a shuffle of the rows costs more than to read them twice (`docs/measurements.md`)."""
_TASK_BYTES = 4 * 1024**3
"""A larger group is divided into ranges even where no core is idle: one task would sort it on one worker's
disk.
"""

_FILE_BYTES = 256 * 1024
_LITTLE_BYTES = 16 * 1024**2
"""Opening a file takes as long as sorting and writing so many bytes. Where that is most of the work, sharing
a group multiplies it: each task opens all files, twice with the sample. Below the second figure it is
negligible."""

JobFactory = Callable[[LiveGroup, Sequence[float], int], GroupJob]
"""Makes the job of one task: the group, the boundaries of its ranges, and the number of the task's range."""


def prepare_jobs(
    head: Head, table: Table, plan: ClusteringPlan, how: Execution
) -> tuple[JobFactory, Mapping[int, RowStrategy]]:
    """Return the factory of the tasks' jobs, and the strategy of each group by its index.

    ValueError for a plan with a column, strategy or parameter that does not exist, or that needs keys.
    """
    schema = arrow_schema(head.schema)
    # The time in the files' names runs with the table (R6).
    ids = FileIds(commit_time(SYSTEM, head), _APP_ID, 0)
    worker = replace(
        file_job(table.store, head, ids, plan.target_file_bytes, needs_ids=head.version.is_shared),
        partition_by=(),  # a group is of one partition
        cipher=None if how.keys is None else Cipher(how.keys),
    )
    strategies = {}
    for group in plan.groups:
        for text in group.sort_by:
            sort_column(schema, SortField.parse(text).column)
        if group.strategy not in strategies:
            strategies[group.strategy] = make_strategy(group.strategy, how.strategies)
        check_encryption_keys(group.strategy, how.keys)
    joined = (group.inputs for group in plan.groups if joins(strategies[group.strategy]))
    worker = replace(worker, stated=stated_metrics(head, [path for inputs in joined for path in inputs]))
    own_keys = {
        strategy: cast(KeySettingStrategy, it).key_names(leaf_names(head.schema))
        for strategy, it in strategies.items()
        if traits(strategy.name).sets_keys
    }

    def job(group: LiveGroup, boundaries: Sequence[float], part: int) -> GroupJob:
        planned = group.planned
        return GroupJob(
            index=group.index,
            worker=replace(
                worker,
                partition_by=partition_sources(head.schema, head.metadata.specs()[group.spec_id]),
                key_names=own_keys.get(planned.strategy, group.key_names),
            ),
            inputs=tuple(
                Input(
                    file.location,
                    file.rows,
                    known.deletes,
                    file.key_metadata is not None,
                    recorded_sort_order(head, file.sort_order_id),
                )
                for file, known in zip(group.inputs, group.known, strict=True)
            ),
            partition=group.inputs[0].partition,
            sort_by=tuple(SortField.parse(text) for text in planned.sort_by),
            strategy_name=planned.strategy.name,
            strategy=strategies[planned.strategy],
            rows_per_file=rows_per_file(group, plan.target_file_bytes),
            memory_bytes=how.memory_bytes,
            checksum=how.checksum,
            order=planned.order,
            level=planned.level,
            has_remainder=planned.remainder,
            range_ends=tuple(boundaries),
            part=part,
            sorted_by=planned_sort_order(head.schema, planned),
            file_by_file=traits(planned.strategy.name).file_by_file,
        )

    return job, {index: strategies[group.strategy] for index, group in enumerate(plan.groups)}


def rows_per_file(group: LiveGroup, target_bytes: int) -> int:
    """Return the rows of a file: all files equal or, where the plan has a remainder, full files and a small
    last one.
    """
    files = group.planned.output_files
    if group.planned.remainder and files > 1:
        return max(1, -(-group.rows * target_bytes // max(1, group.bytes)))
    return max(1, -(-group.rows // files))


def range_boundaries(group: LiveGroup, tasks: int, target_bytes: int) -> tuple[float, ...]:
    """Return the fractions of its rows at which a group is divided for at most so many tasks. Files end
    there.
    """
    a_file = rows_per_file(group, target_bytes)
    files = -(-group.rows // a_file)
    tasks = min(tasks, files)
    return tuple(files * task // tasks * a_file / group.rows for task in range(1, tasks))


def task_count(group: LiveGroup, strategy: RowStrategy, running: int, cores: int) -> int:
    """Return how many tasks share a group, when so many groups run on so many cores."""
    if not getattr(strategy, "in_ranges", False):
        return 1
    if len(group.inputs) * _FILE_BYTES > group.bytes + _LITTLE_BYTES:
        return 1
    return max(1, min(cores // running, _IDLE_TASKS), -(-group.bytes // _TASK_BYTES))


def rewrite_groups(
    session: SparkSession,
    store: Store,
    groups: Sequence[LiveGroup],
    plan: ClusteringPlan,
    jobs: tuple[JobFactory, Mapping[int, RowStrategy]],
    is_wanted: Callable[[], bool],
    unwanted: str,
) -> Iterator[LiveGroup]:
    """Rewrite every group that has its files; yield all groups in the order of the plan, as they end.

    Each task is a Spark job of its own, so that a failure affects one group only.
    """
    make_job, strategies = jobs
    cores = parallelism(session)

    def run(group: LiveGroup, ends: tuple[float, ...], part: int) -> GroupResult:
        if not is_wanted():
            return GroupFailed(unwanted)
        with described(session, f"{store.location}: clustering group {group.index}"):
            task = GroupTask(make_job(group, ends, part))
            results: list[GroupResult] = collect_results(session.range(0, 1, 1, 1), task)
        return results[0]

    # Stopping a streaming query cancels the jobs of its threads, and of the threads that they start.
    running = inheritable_thread_target(session)(run)
    runnable = [group for group in groups if not group.dropped]
    with ThreadPoolExecutor(max_workers=cores, thread_name_prefix="clustering") as pool:
        futures = {}
        for group in runnable:
            tasks = task_count(group, strategies[group.index], len(runnable), cores)
            ends = range_boundaries(group, tasks, plan.target_file_bytes)
            futures[group.index] = [pool.submit(running, group, ends, part) for part in range(len(ends) + 1)]
        for group in groups:
            done = replace(group, results=tuple(_result(each) for each in futures.get(group.index, ())))
            if done.failure:
                delete_files(store, done.files)  # other tasks of the group may have succeeded
            yield done


def _result(future: Future[GroupResult]) -> GroupResult:
    failure = future.exception()
    if failure is None:
        return future.result()
    if not isinstance(failure, Exception):
        raise failure
    return GroupFailed(f"its task failed, nothing of it is published: {_error_line(str(failure))}")


def _error_line(text: str) -> str:
    """Return the line of a failure that names the error: the last one of a Python worker's traceback."""
    lines = [line.strip() for line in text.partition("\n\n\tat ")[0].splitlines()]
    raised = [line for line in lines if line and not line.startswith(("at ", "File ", "Driver stacktrace"))]
    errors = [line for line in raised if "Error: " in line or "Exception: " in line]
    return (errors or raised or [text])[-1]
