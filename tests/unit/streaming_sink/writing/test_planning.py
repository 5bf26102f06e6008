"""From what the table and the last batches tell to a plan: between `timeline` and `planners`."""

from __future__ import annotations

from collections import deque
from itertools import count

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField

from planners import ClusteringPolicy, FileSizing
from planners.clustering.planner import plan_clustering
from planners.model import Arrival, TablePartition
from streaming_sink.clustering.groups import match_groups
from streaming_sink.clustering.known_files import known_files
from streaming_sink.table.planned_files import files_to_fold
from streaming_sink.tasks.results import TaskReport, WrittenFile
from streaming_sink.tasks.rows.count_task import RowCounts
from streaming_sink.writing.planning import (
    ONE_TASK_SECONDS,
    Experience,
    bulk_plan,
    commit_sizes,
    needs_counting,
    plan_batch,
    uncounted_plan,
)
from streaming_sink.writing.writer import WriteResult
from tests.sinks import flat_options
from tests.unit.timeline.world import Lake
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.stores import MemoryStore
from timeline.table import Table

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "p", IntegerType(), required=False)
)
BY_P = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="p"))
MIB = 1024 * 1024
SIZING = FileSizing(max_file_bytes=8 * MIB, small_file_bytes=7 * MIB)
OPTIONS = flat_options("/lake/events", {"sizing": SIZING, "fill_policy": "always", "fill": "inline"})
_numbers = count()


@pytest.fixture
def table():
    return Table.create(MemoryStore(), SCHEMA, BY_P, store_is_checked=True)


def _file(table, partition, rows, size, sort_order=0):
    """A file of a partition of `p`, or of an unpartitioned table: ()."""
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=table.store.uri(f"data/{next(_numbers)}.parquet"),
        file_format=FileFormat.PARQUET,
        partition=Record() if partition == () else Record(partition),
        record_count=rows,
        file_size_in_bytes=size,
        sort_order_id=sort_order,
    )
    file.spec_id = 0
    return file


def _append(table, *files):
    table.commit([Append(files)], open_below_bytes=SIZING.small_file_bytes)


def _fill(table, inputs, new, merged):
    """Commit as the sink does: the new rows, and one file in the place of the inputs and of them."""
    replaced = frozenset(file.file_path for file in (*inputs, new))
    table.commit([Append((new,)), Replace(replaced, (merged,))], open_below_bytes=SIZING.small_file_bytes)


def _sizes(table):
    return [(size.rows, size.bytes, size.files) for size in commit_sizes(table.head)]


def _plan(table, *arrivals, counted=0.0, seconds=9.0, options=OPTIONS):
    """Plan rows that were counted in so many seconds, or, with None, rows that are only expected. The last
    batches took their tasks so many `seconds`.
    """
    head = None if table is None else table.head
    rows = {(partition,): rows for partition, rows in arrivals}
    expected = (
        [Arrival(key, each) for key, each in rows.items()] if counted is None else RowCounts(rows, counted)
    )
    return plan_batch(head, 0, expected, options, 2, _known(seconds))


def _known(seconds):
    return Experience(deque([{(1,): 1}] * 2), deque([seconds]))


# ------------------------------------------------------------------------------ what commits tell


def test_each_append_tells_its_rows_bytes_and_files_oldest_first(table):
    _append(table, _file(table, 1, 10, 1000), _file(table, 2, 20, 2000))
    table.commit([SetProperties({"owner": "me"})])
    _append(table, _file(table, 1, 30, 3000))
    assert _sizes(table) == [(30, 3000, 2), (30, 3000, 1)]


def test_a_fill_tells_its_merged_file_too(table):
    small, new = _file(table, 1, 10, 1000), _file(table, 1, 5, 600)
    _append(table, small)
    _fill(table, [small], new, _file(table, 1, 15, 1400))
    assert _sizes(table) == [(10, 1000, 1), (5, 600, 1), (15, 1400, 1)]


def test_a_clustering_tells_nothing_since_sorted_rows_compress_better(table):
    first = _file(table, 1, 10, 1000)
    _append(table, first)
    table.commit([Replace(frozenset([first.file_path]), (_file(table, 1, 10, 300, sort_order=1),))])
    assert _sizes(table) == [(10, 1000, 1)]


def test_only_the_latest_sixteen_are_looked_at(table):
    for number in range(20):
        _append(table, _file(table, 1, number + 1, 1000))
    assert [rows for rows, _, _ in _sizes(table)] == list(range(5, 21))


# --------------------------------------------------------------------------------------- plans


def test_small_files_of_the_partitions_that_rows_come_to_are_filled_and_no_others(table):
    here, elsewhere, large = (
        _file(table, 1, 100, MIB),
        _file(table, 2, 100, MIB),
        _file(table, 1, 700, 7 * MIB),
    )
    _append(table, here, elsewhere, large)
    planned = _plan(table, (1, 50))
    assert [[it.path for it in bucket.inputs] for bucket in planned.plan.buckets] == [[here.file_path]]
    assert [decision.path for decision in planned.plan.decisions] == [here.file_path]


def test_sorted_files_are_not_filled(table):
    _append(table, _file(table, 1, 100, MIB, sort_order=1))
    planned = _plan(table, (1, 50))
    assert [bucket.inputs for bucket in planned.plan.buckets] == [()]
    assert planned.plan.decisions == ()  # its manifest, whose name says that it has no other, was not read
    _append(table, _file(table, 1, 100, MIB), _file(table, 1, 100, MIB, sort_order=1))
    reasons = [decision.reason for decision in _plan(table, (1, 50)).plan.decisions]
    assert "carries a sort order" in reasons


def test_bytes_per_row_come_from_the_table_and_where_there_is_none_from_the_default(table):
    _append(table, _file(table, 1, 1000, 5 * MIB))
    assert _plan(table, (1, 50)).plan.bytes_per_row == 5 * MIB // 1000 + 1
    assert _plan(None, (1, 50)).plan.bytes_per_row == 128


def test_the_fill_policy_is_the_one_of_the_options(table):
    _append(table, _file(table, 1, 100, MIB))
    never = flat_options("/lake/events", {"sizing": SIZING, "fill_policy": "never"})
    assert [bucket.inputs for bucket in _plan(table, (1, 50), options=never).plan.buckets] == [()]


@pytest.mark.parametrize(
    ("counted", "seconds", "made_from", "route"),
    [
        (0.1, ONE_TASK_SECONDS * 1.1, "profile", "shuffle"),
        (0.1, ONE_TASK_SECONDS, "profile", "shuffle"),
        (None, ONE_TASK_SECONDS * 1.1, "forecast", "shuffle"),
        (None, ONE_TASK_SECONDS, "forecast", "one task"),
    ],
)
def test_a_plan_says_what_it_was_made_from_and_how_rows_travel(table, counted, seconds, made_from, route):
    planned = _plan(table, (1, 50), counted=counted, seconds=seconds)
    assert (planned.made_from, planned.route) == (made_from, route)
    assert planned.routing.shuffled is (route == "shuffle")


def test_a_tiny_batch_makes_one_task(table):
    assert _plan(table, *((p, 3) for p in range(50))).routing.tasks == 1


def test_a_bulk_plan_cuts_by_size_alone_and_leaves_rows_where_they_are():
    planned = bulk_plan(OPTIONS)
    assert (planned.made_from, planned.route, planned.routing) == ("bulk_insert", "as read", None)
    assert planned.plan.buckets == ()
    assert planned.plan.max_file_bytes == 8 * MIB
    assert planned.plan.rows_per_new_file > 10**15


# --------------------------------------------------------------- unpartitioned: tasks without a shuffle


@pytest.mark.parametrize(
    ("files", "seconds", "route"),
    [
        (0.1, 1.0, "one task"),
        (0.1, 1.1, "shuffle"),  # slow to compute, and too few rows for two tasks
        (0.8, 1.1, "2 tasks"),
        (0.8, 99, "shuffle"),  # three at most would leave tails of their own
        (0.9, 1.1, "one task"),  # a full file by the small limit
        (1.5, 2.0, "one task"),  # two would make small files of a full one
        (1.5, 2.1, "shuffle"),
        (2.5, 2.1, "2 tasks"),
        (9.0, 5.1, "6 tasks"),
        (9.0, 99, "8 tasks"),
    ],
)
def test_an_unpartitioned_batch_has_as_many_tasks_as_its_time_asks_for_and_its_files_allow(
    files, seconds, route
):
    planned = _unpartitioned(files, seconds)
    assert planned.route == route
    assert planned.routing.shuffled is (route == "shuffle")


def _unpartitioned(files, seconds, small=0, options=OPTIONS, **changed):
    table = Table.create(MemoryStore(), SCHEMA, store_is_checked=True)
    _append(table, *(_file(table, (), 10_000, MIB) for _ in range(small)))
    rows = int(files * 8 * MIB / (128 if not small else MIB // 10_000 + 1))
    known = Experience(deque([{(): rows}] * 2), deque([seconds]))
    for name, value in changed.items():
        setattr(known, name, value)
    return plan_batch(table.head, 0, [Arrival((), rows)], options, 8, known)


def test_the_second_batch_is_never_shuffled_since_the_first_one_paid_for_its_workers():
    assert _unpartitioned(0.1, 99, batches=deque([{(): 9}])).route == "one task"


def test_rows_that_were_counted_are_kept_so_that_the_width_of_the_tasks_costs_nothing_upstream():
    for rows, route in ((50, "one task"), (10 * 8 * MIB // 128, "8 tasks")):
        planned = plan_batch(None, 0, RowCounts({(): rows}, 99.0, 7), OPTIONS, 8, Experience())
        assert (planned.route, planned.made_from, planned.fingerprint) == (route, "profile", 7)


@pytest.mark.parametrize(("small", "route"), [(7, "2 tasks"), (8, "shuffle")])
def test_where_eight_small_files_wait_rows_are_shuffled_so_that_they_are_surely_merged(small, route):
    amortized = flat_options("/lake/events", {"sizing": SIZING, "fill": "inline"})
    assert _unpartitioned(2.5, 2.0, small, amortized).route == route


def test_where_a_batch_fills_nothing_any_number_of_small_files_may_wait():
    for options in ({"fill_policy": "never"}, {"fill": "beside"}):
        asked = flat_options("/lake/events", {"sizing": SIZING, **options})
        assert _unpartitioned(2.5, 2.0, 8, asked).route == "2 tasks"


# --------------------------------------------------------------------------- nothing to count for


@pytest.mark.parametrize(
    ("size", "expected", "options", "counted"),
    [
        (MIB, None, {"fill": "inline"}, True),
        (MIB, (), {"fill": "inline"}, False),
        (7 * MIB, None, {"fill": "inline"}, False),
        (MIB, None, {"fill": "beside"}, False),
        (MIB, None, {"fill_policy": "never"}, False),
        (MIB, None, {"operation": "bulk_insert"}, False),
    ],
)
def test_a_batch_is_counted_only_where_nothing_is_expected_and_small_files_wait(
    table, size, expected, options, counted
):
    _append(table, _file(table, 1, 100, size))
    options = flat_options("/lake/events", {"sizing": SIZING, **options})
    assert needs_counting(expected, table.head, options) is counted
    assert not needs_counting(expected, None, options)


@pytest.mark.parametrize(("partitioned", "route"), [(False, "3 tasks"), (True, "shuffle")])
def test_without_counting_files_are_cut_by_size_alone(partitioned, route):
    planned = uncounted_plan(OPTIONS, partitioned, 3)
    assert (planned.made_from, planned.route, planned.plan.buckets) == ("size", route, ())
    assert (planned.routing.tasks, planned.routing.cold_tasks, planned.routing.hot) == (3, 3, ())
    assert planned.plan.max_file_bytes == 8 * MIB
    assert planned.plan.rows_per_new_file > 10**15
    cut = flat_options("/lake/events", {"sizing": FileSizing(rows_per_new_file=77)})
    assert uncounted_plan(cut, partitioned, 3).plan.rows_per_new_file == 77


# ---------------------------------------------------------------------------------- experience


def _result(rows_by_partition, seconds):
    new = tuple(
        WrittenFile(f"{partition}-{number}", (partition,), 0, rows, 1, {}, {}, {}, {}, {}, {}, ())
        for partition, files in rows_by_partition.items()
        for number, rows in enumerate(files)
    )
    return WriteResult(new, (), (), (TaskReport(0, 0, 1, seconds, 0.0),))


ONE_TASK, SHUFFLE = (_plan(None, (1, 1), counted=None, seconds=seconds) for seconds in (0.1, 9.0))


def test_what_is_expected_is_what_the_last_batches_brought():
    known = Experience()
    assert known.expected(0) is None
    for _ in range(2):
        known.add(_result({1: [60, 40], 2: [5]}, 0.1), SHUFFLE, 0, seconds=0.1, parallelism=2)
    assert known.expected(0) == (Arrival((1,), 100), Arrival((2,), 5))
    assert known.expected(1) is None, "of partitions of another spec nothing is known"
    known.add(_result({7: [3]}, 0.1), SHUFFLE, 1, seconds=0.1, parallelism=2)
    known.add(_result({7: [3]}, 0.1), SHUFFLE, 1, seconds=0.1, parallelism=2)
    assert (known.expected(0), known.expected(1)) == (None, (Arrival((7,), 3),))


@pytest.mark.parametrize(("seconds", "fits"), [(ONE_TASK_SECONDS, True), (ONE_TASK_SECONDS * 1.1, False)])
def test_a_batch_that_one_task_wrote_is_judged_by_that_tasks_time(seconds, fits):
    known = Experience()
    known.add(_result({1: [1]}, seconds), ONE_TASK, 0, seconds=99.0, parallelism=8)
    assert (known.tasks() == 1) is fits


@pytest.mark.parametrize(("seconds", "fits"), [(ONE_TASK_SECONDS / 2, True), (ONE_TASK_SECONDS, False)])
def test_after_a_shuffle_of_what_was_not_counted_only_the_time_of_all_cores_bounds_the_tasks(seconds, fits):
    known = Experience()
    known.add(_result({1: [1]}, 0.1), SHUFFLE, 0, seconds=seconds, parallelism=2)
    assert (known.tasks() == 1) is fits


@pytest.mark.parametrize(("counting", "fits"), [(0.5, True), (1.0, False)])
def test_a_batch_that_was_counted_is_judged_by_counting_and_writing(counting, fits):
    known = Experience()
    counted = _plan(None, (1, 1), counted=counting)
    known.add(_result({1: [1]}, 0.5), counted, 0, seconds=99.0, parallelism=8)
    assert (known.tasks() == 1) is fits


def test_the_least_of_the_last_three_batches_counts_since_a_machine_may_be_busy_for_a_moment():
    known = Experience()
    for seconds, fits in ((0.1, True), (9.0, True), (9.0, True), (9.0, False)):
        known.add(_result({1: [1]}, seconds), ONE_TASK, 0, seconds=seconds, parallelism=2)
        assert (known.tasks() == 1) is fits


# ------------------------------------------------------------------- files with deletes


def test_a_small_file_with_position_deletes_is_filled_and_one_with_deletes_by_value_is_not():
    lake = Lake()
    full, small, other = (lake.file(p=1, size=size) for size in (SIZING.small_file_bytes + 1, 1000, 1000))
    elsewhere = lake.file(p=2, size=1000)
    lake.table.commit([Append((full, small, other, elsewhere))])
    for each in (full, small):
        lake.add_delete_file(1, paths=(each.file_path, each.file_path), rows=5)
    lake.add_delete_file(2, content=DataFileContent.EQUALITY_DELETES)
    plan = _plan(lake.open(), (1, 10_000), (2, 10)).plan
    inputs = {it.path: it for bucket in plan.buckets for it in bucket.inputs}
    assert inputs.keys() == {small.file_path, other.file_path}
    assert [(it.rows, [each.rows for each in it.deletes]) for it in inputs.values() if it.deletes] == [
        (10, [5])
    ]
    reasons = {it.path: it.reason for it in plan.decisions}
    assert reasons[elsewhere.file_path] == "carries deletes by value"
    assert full.file_path not in reasons


def test_a_pass_considers_full_files_of_its_partitions_that_have_deletes():
    lake = Lake()
    one, other = (lake.file(p=p, size=SIZING.small_file_bytes + 1) for p in (1, 2))
    lake.table.commit([Append((one, other))])
    for p, each in ((1, one), (2, other)):
        lake.add_delete_file(p, paths=(each.file_path, each.file_path), rows=5)
    found = list(files_to_fold(lake.open().head, {TablePartition(0, (1,))}, SIZING.small_file_bytes, {}))
    assert [(it.path, it.rows, it.deleted_rows) for it in found] == [(one.file_path, 5, 5)]
    assert found[0].bytes == (SIZING.small_file_bytes + 1) * 5 // 10
    assert found[0].bytes + found[0].deleted_bytes == SIZING.small_file_bytes + 1


def test_a_clustering_plan_says_why_files_with_deletes_are_left_out():
    lake = Lake()
    files = [lake.file(p=p, size=1000) for p in (1, 1, 2)]
    lake.table.commit([Append(tuple(files))])
    positions = lake.add_delete_file(1, paths=(files[0].file_path, files[0].file_path), rows=5)
    values = lake.add_delete_file(2, content=DataFileContent.EQUALITY_DELETES)
    policy = ClusteringPolicy(target_file_bytes=100_000, small_file_bytes=1_400)
    known = {file.path: file for file in known_files(lake.open().head, policy, {}).files}
    assert [(known[file.file_path].bytes, known[file.file_path].rows) for file in files] == [
        (500, 5),
        (1000, 10),
        (1000, 10),
    ]
    plan = plan_clustering(known.values(), 1, policy)
    reasons = {it.path: it.reason for it in plan.left_out}
    assert reasons[files[2].file_path] == "carries deletes by value"
    assert reasons[positions] == "holds position deletes, not rows"
    assert reasons[values] == "holds equality deletes, not rows"
    [group] = plan.groups
    assert set(group.inputs) == {file.file_path for file in files[:2]}
    assert (group.bytes, group.rows) == (1500, 15)
    [matched] = match_groups(lake.open().head, plan, has_keys=False)
    assert (matched.dropped, matched.rows, matched.applied) == ("", 15, {positions})
    shared = lake.add_delete_file(1)
    [matched] = match_groups(lake.open().head, plan, has_keys=False)
    assert (matched.dropped, matched.rows, matched.applied) == ("", 15, {positions, shared})
    lake.add_delete_file(1, content=DataFileContent.EQUALITY_DELETES)
    [matched] = match_groups(lake.open().head, plan, has_keys=False)
    assert matched.dropped.startswith("an input has deletes by value: ")
