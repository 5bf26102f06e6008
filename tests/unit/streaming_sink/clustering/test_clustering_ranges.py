"""One group cut into ranges of its order for several tasks: together they write every row once, in order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planners.clustering.plan import ClusteringGroup
from planners.clustering.sort_fields import SortField
from planners.clustering.strategies import Strategy
from planners.model import TableFile
from streaming_sink.clustering.dispatch import range_boundaries, task_count
from streaming_sink.clustering.groups import LiveGroup
from streaming_sink.tasks.clustering.group_task import rewrite_group
from streaming_sink.tasks.clustering.ordering import order_by_columns, sort_indices
from streaming_sink.tasks.clustering.ranges import boundary_rows, range_numbers
from streaming_sink.tasks.clustering.rows import GroupRows
from streaming_sink.tasks.clustering.strategies import BinPack, Sort, ZOrder
from tests.unit.streaming_sink.group_jobs import (
    MIB,
    SCHEMA,
    arrow_field,
    group_job,
    multiset,
    random_rows,
    written,
)
from timeline.manifests.entries import LiveFile
from timeline.stores import MemoryStore

_COLUMNS = ["id", "score", "text", "at", "day", "price", "ok", "place.town"]


def _parts(job, ends):
    """Return what each task of the group wrote, and its tables."""
    return [written(replace(job, range_ends=ends, part=part)) for part in range(len(ends) + 1)]


@settings(max_examples=30, deadline=None)
@given(
    sort_by=st.lists(
        st.builds(SortField, st.sampled_from(_COLUMNS), st.booleans(), st.booleans()),
        min_size=1,
        max_size=3,
        unique_by=lambda field: field.column,
    ),
    seed=st.integers(0, 99),
    ends=st.sampled_from([(0.5,), (0.25, 0.5, 0.75), (0.1, 0.11, 0.9)]),
)
def test_the_ranges_one_after_the_other_are_the_whole_in_order(sort_by, seed, ends):
    """For any columns, directions, nulls and NaN, and for any rows, those of the sample or not."""
    order = order_by_columns(SCHEMA, sort_by)
    sampled, others = (pa.Table.from_batches([random_rows(90, seed + each)]) for each in range(2))
    rows = pa.concat_tables([sampled, others])
    numbers = range_numbers(rows, boundary_rows(sampled, order, ends), order)
    ranges = [rows.take(np.flatnonzero(numbers == number)) for number in range(len(ends) + 1)]
    in_order = [each.take(sort_indices(order(each))) for each in ranges]
    assert repr(pa.concat_tables(in_order).to_pylist()) == repr(
        rows.take(sort_indices(order(rows))).to_pylist()
    )
    assert sum(each.num_rows > 0 for each in ranges) > 1 or len(set(map(str, sort_by))) == 1


@pytest.mark.parametrize("memory_bytes", [64 * 1024, 512 * MIB])
@pytest.mark.parametrize(
    ("strategy", "sort_by"),
    [
        ("sort", ["text desc nulls last", "id"]),
        ("zorder", ["id", "place.town"]),
        ("hilbert", ["at", "score"]),
    ],
)
def test_the_tasks_of_a_group_write_every_row_once_and_agree_where_they_meet(strategy, sort_by, memory_bytes):
    files = [random_rows(300, seed) for seed in range(3)]
    job = group_job(
        MemoryStore(),
        files,
        strategy=strategy,
        sort_by=sort_by,
        rows_per_file=100,
        memory_bytes=memory_bytes,
    )
    parts = _parts(job, (3 / 9, 6 / 9))
    assert multiset([table for _, tables in parts for table in tables]) == multiset(
        [pa.Table.from_batches([each]) for each in files]
    )
    assert len({result.ranges for result, _ in parts}) == 1
    assert all(result.rows for result, _ in parts)


def _opened(store):
    """Return a list that gains the path of each object that is opened from now on."""
    opened = []
    store.before = lambda verb, path: opened.append(path) if verb == "open" else None
    return opened


@pytest.mark.parametrize(
    ("strategy", "ends"), [("sort", (0.5,)), ("hilbert", (0.5,)), ("hilbert", ())], ids=str
)
def test_a_group_that_fits_is_read_once_for_its_sample_and_its_rows(strategy, ends):
    store = MemoryStore()
    files = [random_rows(300, seed) for seed in range(3)]
    job = group_job(store, files, strategy=strategy, sort_by=["id"], rows_per_file=400, checksum=False)
    opened = _opened(store)
    for part in range(len(ends) + 1):
        opened.clear()
        rewrite_group(replace(job, range_ends=ends, part=part), attempt=5)
        assert opened == ["data/in-0.parquet", "data/in-1.parquet", "data/in-2.parquet"]


def _wide_and_narrow(widths):
    schema = pa.schema([arrow_field("key", pa.int64(), 1), arrow_field("text", pa.string(), 2)])
    keys = np.random.default_rng(2).integers(0, 500, (len(widths), 500))
    texts = [[f"{number:0{wide}d}" for number in range(500)] for wide in widths]
    columns = [[pa.array(key), pa.array(text)] for key, text in zip(keys, texts, strict=True)]
    return schema, [pa.RecordBatch.from_arrays(each, schema=schema) for each in columns]


@pytest.mark.parametrize("strategy", ["sort", "zorder"])
@pytest.mark.parametrize("widths", [(100, 100, 100), (9, 9, 280), (280, 9, 9)], ids=str)
def test_a_group_that_fits_is_cut_and_written_like_one_that_does_not(widths, strategy):
    """Rows with equal keys stay in the order in which they came, and the sample is the same rows. However
    wide the other columns are, no file is opened twice.
    """
    schema, files = _wide_and_narrow(widths)
    store = MemoryStore()
    job = group_job(
        store, files, schema=schema, strategy=strategy, sort_by=["key"], rows_per_file=250, checksum=False
    )
    opened = _opened(store)
    plenty = _parts(replace(job, memory_bytes=MIB), (0.3, 0.7))
    assert opened.count("data/in-0.parquet") == 3
    opened.clear()
    scarce = _parts(replace(job, memory_bytes=MIB // 2), (0.3, 0.7))
    assert opened.count("data/in-0.parquet") == 3
    assert {result.ranges for result, _ in plenty} == {result.ranges for result, _ in scarce}
    assert [table.to_pylist() for _, tables in plenty for table in tables] == [
        table.to_pylist() for _, tables in scarce for table in tables
    ]


def test_all_rows_are_read_again_after_a_read_that_was_given_up():
    """A strategy may look at the first rows, after its sample, before it reads them all."""
    job = group_job(MemoryStore(), [random_rows(100, seed) for seed in range(3)])
    group = GroupRows(job)
    group.sample(["id"])
    next(group.read())
    assert [sum(batch.num_rows for batch in group.read()) for _ in range(2)] == [300, 300]


def test_files_of_several_tasks_share_no_keys_and_come_out_even():
    """Far more rows than are sampled: a range has not quite the rows that it was to have, its files even."""
    schema = pa.schema([arrow_field("key", pa.int64(), 1)])
    keys = np.random.default_rng(1).integers(0, 2**60, 200_000)
    files = [pa.RecordBatch.from_arrays([pa.array(part)], schema=schema) for part in np.split(keys, 4)]
    job = group_job(
        MemoryStore(), files, sort_by=["key"], schema=schema, rows_per_file=20_000, checksum=False
    )
    tables = [table for _, tables in _parts(job, (0.5,)) for table in tables]
    assert len(tables) == 10
    assert all(abs(table.num_rows - 20_000) < 400 for table in tables)
    assert np.array_equal(np.concatenate([table["key"].to_numpy() for table in tables]), np.sort(keys))


def test_where_a_plan_names_a_remainder_the_last_file_of_the_last_range_is_it():
    schema = pa.schema([arrow_field("key", pa.int64(), 1)])
    rows = pa.RecordBatch.from_arrays([pa.array(range(1000))], schema=schema)
    job = group_job(MemoryStore(), [rows], sort_by=["key"], schema=schema, rows_per_file=300)
    tables = [table for _, tables in _parts(replace(job, has_remainder=True), (0.6,)) for table in tables]
    assert [table.num_rows for table in tables] == [300, 300, 300, 100]


def test_a_group_whose_rows_are_all_alike_is_one_range():
    schema = pa.schema([arrow_field("key", pa.int64(), 1)])
    rows = pa.RecordBatch.from_arrays([pa.array([7] * 100)], schema=schema)
    job = group_job(MemoryStore(), [rows], sort_by=["key"], schema=schema, rows_per_file=50)
    assert [result.rows for result, _ in _parts(job, (0.5,))] == [0, 100]


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")], ids=str)
def test_ranges_meet_at_dates_and_times_that_python_does_not_have(kind):
    schema = pa.schema([arrow_field("at", kind, 1), arrow_field("row", pa.int64(), 2)])
    bits = 31 if pa.types.is_date(kind) else 62
    values = pa.array([-(2**bits), 0, 2**bits - 1] * 30, pa.int32() if bits == 31 else pa.int64())
    rows = pa.RecordBatch.from_arrays([values.cast(kind), pa.array(range(90))], schema=schema)
    job = group_job(MemoryStore(), [rows], schema=schema, sort_by=["at"], rows_per_file=30)
    parts = _parts(job, (1 / 3, 2 / 3))
    assert [result.rows for result, _ in parts] == [30] * 3
    assert sorted(row for _, tables in parts for each in tables for row in each["row"].to_pylist()) == [
        *range(90)
    ]
    assert len({result.ranges for result, _ in parts}) == 1


class SamplesOthers:
    """Sorts by two columns, after a look at one of them, or at another one."""

    in_ranges = True

    def __init__(self, sampled):
        self._sampled = sampled

    def rewrite(self, group):
        group.sample(self._sampled)
        return group.sorted(order_by_columns(SCHEMA, group.sort_by), ["id", "text"])


@pytest.mark.parametrize("sampled", [["id"], ["score"], ["id", "text", "score"]], ids=str)
def test_a_strategy_may_sample_other_columns_than_those_that_it_sorts_by(sampled):
    files = [random_rows(100, seed) for seed in range(3)]
    job = group_job(MemoryStore(), files, sort_by=["id", "text"], rows_per_file=50)
    parts = _parts(replace(job, strategy=SamplesOthers(sampled)), (0.5,))
    assert all(result.rows for result, _ in parts)
    assert multiset([table for _, tables in parts for table in tables]) == multiset(
        [pa.Table.from_batches([each]) for each in files]
    )


class Reads:
    """Says that it sorts ranges, and writes all rows whatever its task's range is."""

    in_ranges = True

    def rewrite(self, group):
        yield from group.sorted(order_by_columns(SCHEMA, group.sort_by))
        yield from group.read()


def test_a_strategy_that_does_not_keep_to_its_range_is_caught():
    files = [random_rows(100, seed) for seed in range(2)]
    job = group_job(MemoryStore(), files, sort_by=["id"], rows_per_file=50, strategy_name="mine")
    result = rewrite_group(replace(job, strategy=Reads(), range_ends=(0.5,), part=1), attempt=1)
    assert "strategy 'mine' returned other rows than it received" in result.reason


def _group(rows=900, size=90 * MIB, files=9, remainder=False, inputs=1):
    names = tuple(map(str, range(inputs)))
    planned = ClusteringGroup(
        inputs=names,
        partition=(),
        bytes=size,
        rows=rows,
        output_files=files,
        sort_by=("id asc nulls first",),
        strategy=Strategy("sort"),
        remainder=remainder,
        level=0,
        files_saved=0,
        reasons=(),
    )
    a_file = [LiveFile(name, 0, (), size // inputs, rows // inputs, 0, 1) for name in names]
    known = (TableFile(name, (), size // inputs, rows // inputs) for name in names)
    return LiveGroup(0, planned, tuple(a_file), tuple(known))


def _with_results(group, job, ends):
    return replace(group, results=tuple(result for result, _ in _parts(job, ends)))


def test_a_group_is_published_only_with_all_its_rows_and_where_its_tasks_agree():
    files = [random_rows(300, seed) for seed in range(3)]
    job = group_job(MemoryStore(), files, sort_by=["id"], rows_per_file=100)
    done = _with_results(_group(), job, (0.5,))
    assert done.succeeded
    assert done.report().tasks == 2
    first, second = done.results
    assert "wrote 0 rows instead of 900" not in done.failure
    assert "instead of 900" in replace(done, results=(first,)).failure
    assert "instead of 900" in replace(done, results=(first, second, second)).failure
    elsewhere = replace(second, ranges=b"elsewhere")
    assert "did not agree where their ranges meet" in replace(done, results=(first, elsewhere)).failure
    deleted = replace(second, deleted_rows=1)
    assert "did not agree which rows are deleted" in replace(done, results=(first, deleted)).failure


def test_a_group_is_cut_where_files_end():
    assert range_boundaries(_group(), 1, 10 * MIB) == ()
    assert range_boundaries(_group(), 2, 10 * MIB) == (pytest.approx(4 / 9),)
    assert range_boundaries(_group(), 4, 10 * MIB) == pytest.approx((2 / 9, 4 / 9, 6 / 9))
    assert len(range_boundaries(_group(files=2), 4, 45 * MIB)) == 1


@pytest.mark.parametrize(("files", "tasks"), [(60, 2), (400, 2), (1000, 1)])
def test_a_group_of_very_small_files_is_not_shared(files, tasks):
    """Each task would open each of them, and all of them once more for the sample."""
    assert task_count(_group(inputs=files, rows=10_000), Sort(), 1, 2) == tasks


@pytest.mark.parametrize(
    ("strategy", "size", "running", "cores", "tasks"),
    [
        (Sort(), 90 * MIB, 1, 2, 2),
        (Sort(), 90 * MIB, 2, 2, 1),
        (Sort(), 90 * MIB, 1, 64, 4),
        (ZOrder(), 90 * MIB, 1, 2, 2),
        (BinPack(), 90 * MIB, 1, 2, 1),
        (Sort(), 20 * 1024 * MIB, 9, 2, 5),
    ],
    ids=["alone", "as many as cores", "many cores", "a curve", "no order", "too large for one"],
)
def test_how_many_tasks_share_a_group(strategy, size, running, cores, tasks):
    assert task_count(_group(size=size), strategy, running, cores) == tasks
