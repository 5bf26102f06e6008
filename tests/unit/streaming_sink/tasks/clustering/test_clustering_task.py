"""What the task of one clustering group writes: order, cuts, bounded memory, and nothing when it fails."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planners.clustering.sort_fields import SortField
from streaming_sink.tasks.clustering import external_sort
from streaming_sink.tasks.clustering.checksum import checksum
from streaming_sink.tasks.clustering.group_task import rewrite_group
from streaming_sink.tasks.clustering.job import GroupFailed
from streaming_sink.tasks.clustering.ordering import order_by_columns, sort_column
from tests.unit.streaming_sink.group_jobs import (
    MIB,
    SCHEMA,
    arrow_field,
    group_job,
    multiset,
    random_rows,
    written,
)
from timeline.stores import LocalStore, MemoryStore


def _key(value, field):
    """Return Python's idea of a column's order: where nulls stand, NaN above all, text by its bytes."""
    nan = isinstance(value, float) and value != value
    if value is None:
        return (-2 if field.nulls_first else 2, 0)
    if isinstance(value, str):
        value = value.encode()
    return (1 if nan else 0, 0 if nan else value)


class _Down:
    def __init__(self, key):
        self.key = key

    def __lt__(self, other):
        return other.key < self.key

    def __eq__(self, other):
        return self.key == other.key


def _sorted_by_python(rows, sort_by):
    def key(row):
        found = []
        for field in map(SortField.parse, sort_by):
            value = row[field.column.partition(".")[0]]
            if "." in field.column:
                value = None if value is None else value[field.column.partition(".")[2]]
            place, rest = _key(value, field)
            if field.descending and place in (0, 1):
                found.append((0, _Down((place, rest))))
            else:
                found.append((place, rest))
        return tuple(found)

    return sorted(rows, key=key)


_COLUMNS = ["id", "score", "text", "at", "day", "price", "ok", "place.town"]
_SORT_BY = st.lists(
    st.builds(SortField, st.sampled_from(_COLUMNS), st.booleans(), st.booleans()),
    min_size=1,
    max_size=3,
    unique_by=lambda field: field.column,
)


@settings(max_examples=20, deadline=None)
@given(sort_by=_SORT_BY, seed=st.integers(0, 99), memory_bytes=st.sampled_from([8 * 1024, MIB]))
def test_sorting_agrees_with_python_for_any_columns_directions_nulls_and_memory(sort_by, seed, memory_bytes):
    batches = [random_rows(60, seed + each) for each in range(4)]
    names = [str(field) for field in sort_by]
    order, counts = order_by_columns(SCHEMA, sort_by), external_sort.SortCounts()
    found = list(external_sort.sort(batches, SCHEMA, order, memory_bytes, counts))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert repr([row for batch in found for row in batch.to_pylist()]) == repr(_sorted_by_python(rows, names))
    assert (counts.runs > 1) == (memory_bytes == 8 * 1024)


def test_no_column_of_a_run_outgrows_its_offsets_however_much_memory_there_is(monkeypatch):
    """Text of 2 GiB and more in one piece was an error of Arrow's, so that its group was never clustered."""
    monkeypatch.setattr(external_sort, "_COLUMN_BYTES", 32 * 1024)
    held = []

    def joined(batches, schema):
        rows = join_pieces(batches, schema)
        held.append(max(column.nbytes for column in rows.columns))
        return rows

    join_pieces = external_sort.join_pieces
    monkeypatch.setattr(external_sort, "join_pieces", joined)
    schema, batches = _key_and_text(100, 50)
    order, counts = order_by_columns(schema, [SortField.parse("text")]), external_sort.SortCounts()
    found = list(external_sort.sort(batches, schema, order, 512 * MIB, counts))
    rows = sorted(text for batch in batches for text in batch["text"].to_pylist())
    assert [text for batch in found for text in batch["text"].to_pylist()] == rows
    assert counts.runs == len(held) == 2
    assert max(held) <= 32 * 1024


def test_a_group_becomes_sorted_files_of_equal_rows_whose_bounds_do_not_overlap():
    files = [
        random_rows(300, seed).set_column(0, SCHEMA.field(0), pa.array(range(seed, 900, 3)))
        for seed in range(3)
    ]
    job = group_job(MemoryStore("memory://t"), files, sort_by=["id desc"], rows_per_file=225)
    result, tables = written(job)
    assert [table.num_rows for table in tables] == [225] * 4
    assert [row for table in tables for row in table["id"].to_pylist()] == list(range(899, -1, -1))
    bounds = [
        tuple(int.from_bytes(each[1], "little") for each in (file.lower_bounds, file.upper_bounds))
        for file in result.files
    ]
    assert bounds == [(675, 899), (450, 674), (225, 449), (0, 224)]
    assert multiset(tables) == multiset([pa.Table.from_batches([each]) for each in files])


@pytest.mark.parametrize("memory_bytes", [32 * 1024, 512 * MIB])
@pytest.mark.parametrize(
    ("strategy", "sort_by"),
    [
        ("bin_pack", []),
        *(
            (curve, columns)
            for curve in ("zorder", "hilbert")
            for columns in (_COLUMNS[:2], _COLUMNS[2:5], _COLUMNS[5:], ["text nulls last"])
        ),
    ],
)
def test_every_strategy_keeps_the_rows_of_any_types(strategy, sort_by, memory_bytes):
    files = [random_rows(200, seed) for seed in range(3)]
    job = group_job(
        MemoryStore("memory://t"), files, strategy=strategy, sort_by=sort_by, memory_bytes=memory_bytes
    )
    _, tables = written(job)
    assert multiset(tables) == multiset([pa.Table.from_batches([each]) for each in files])


@pytest.mark.parametrize("most", [2, 40], ids=["few values", "skewed"])
@pytest.mark.parametrize("curve", ["zorder", "hilbert"])
def test_a_curve_bounds_every_column_where_a_sort_bounds_only_the_first(curve, most):
    random = Random(1)
    schema = pa.schema([arrow_field("a", pa.int64(), 1), arrow_field("b", pa.string(), 2)])
    rows = [(int(2 ** random.uniform(0, most)), f"{random.random():.9f}") for _ in range(4096)]
    batch = pa.RecordBatch.from_pydict({"a": [a for a, _ in rows], "b": [b for _, b in rows]}, schema)

    def files_searched(strategy):
        store, columns = MemoryStore("memory://t"), ["b", "a"]
        job = group_job(store, [batch], schema=schema, strategy=strategy, sort_by=columns, rows_per_file=256)
        tables = written(job)[1]
        assert len(tables) == 16
        return [
            sum(min(table[column].to_pylist()) <= value <= max(table[column].to_pylist()) for table in tables)
            for column, value in (("a", 2 ** (most // 2)), ("b", "0.5"))
        ]

    assert files_searched("sort")[0] == 16
    assert all(found <= 10 for found in files_searched(curve))


class Returns:
    """A strategy that hands on what a function makes of the group's batches."""

    def __init__(self, change):
        self.change = change

    def rewrite(self, group):
        return self.change(list(group.read()))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda batches: batches[1:], "200 instead of 300"),
        (lambda batches: [*batches, batches[0]], "400 instead of 300"),
        (lambda batches: [batches[0], batches[0], batches[2]], "as many, with checksum"),
        (lambda _: [], "0 instead of 300"),
    ],
)
def test_other_rows_than_were_given_are_caught_and_leave_nothing_behind(change, said):
    store = MemoryStore("memory://t")
    job = group_job(
        store, [random_rows(100, seed) for seed in range(3)], strategy="bin_pack", strategy_name="mine"
    )
    result = rewrite_group(replace(job, strategy=Returns(change), rows_per_file=50), attempt=5)
    assert isinstance(result, GroupFailed)
    assert "'mine' returned other rows" in result.reason
    assert said in result.reason
    assert _data_files(store) == {"data/in-0.parquet", "data/in-1.parquet", "data/in-2.parquet"}


@pytest.mark.parametrize(("rows_per_file", "groups"), [(300, [[100] * 3]), (150, [[50, 100], [50, 100]])])
def test_files_that_are_joined_keep_their_row_groups_where_a_file_has_all_rows_of_an_input(
    rows_per_file, groups
):
    store = MemoryStore("memory://t")
    given_rows = [random_rows(100, seed).drop_columns(["tags"]) for seed in range(3)]  # lists are decoded
    schema = given_rows[0].schema
    job = group_job(store, given_rows, strategy="bin_pack", rows_per_file=rows_per_file, schema=schema)
    copying = replace(job.worker, parquet=replace(job.worker.parquet, copied_from_bytes=1))
    result, tables = written(replace(job, worker=copying))
    assert multiset(tables) == multiset([pa.Table.from_batches([each]) for each in given_rows])
    footers = [
        pq.read_metadata(pa.BufferReader(store.read(store.relative(file.path)).data)) for file in result.files
    ]
    assert [
        sorted(footer.row_group(at).num_rows for at in range(footer.num_row_groups)) for footer in footers
    ] == groups
    if rows_per_file == 300:
        assert 2 not in result.files[0].nan_counts  # no manifest says how many there are


def _data_files(store):
    return {each.path for each in store.list_below("data")}


def test_a_strategy_that_raises_leaves_nothing_behind():
    store = MemoryStore("memory://t")

    def half(batches):
        yield batches[0]
        raise RuntimeError("out of ideas")

    job = group_job(
        store, [random_rows(100, seed) for seed in range(2)], strategy="bin_pack", rows_per_file=40
    )
    with pytest.raises(RuntimeError, match="out of ideas"):
        rewrite_group(replace(job, strategy=Returns(half)), attempt=5)
    assert _data_files(store) == {"data/in-0.parquet", "data/in-1.parquet"}


def _damage(store, job, what):
    path = store.relative(job.inputs[1].path)
    if what == "gone":
        store.delete([path])
    elif what == "damaged":
        store.overwrite(path, b"PAR1 nothing of the kind PAR1")
    else:
        return replace(job, inputs=(job.inputs[0], replace(job.inputs[1], rows=99)))
    return job


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("gone", "an input is missing: "),
        ("damaged", "an input cannot be read: "),
        ("other", "an input holds more or fewer rows than the table says: 100 != 99"),
    ],
)
def test_an_input_that_is_not_what_the_table_says_fails_the_group_and_leaves_nothing_behind(what, said):
    store = MemoryStore("memory://t")
    job = group_job(store, [random_rows(100, seed) for seed in range(2)], sort_by=["id"], strategy="sort")
    job = _damage(store, job, what)
    before = _data_files(store)
    result = rewrite_group(job, attempt=5)
    assert isinstance(result, GroupFailed)
    assert said in result.reason
    assert _data_files(store) == before


def test_columns_are_matched_by_field_id_and_those_that_a_file_lacks_are_null():
    old = pa.schema([arrow_field("number", pa.int32(), 1), arrow_field("old", pa.string(), 99)])
    file = pa.RecordBatch.from_pydict({"number": [3, 1, 2], "old": ["x", "y", "z"]}, old)
    job = group_job(
        MemoryStore("memory://t"), [file, random_rows(5)], sort_by=["id nulls last"], checksum=False
    )
    _, (table,) = written(job)
    found = sorted(table["id"].drop_null().to_pylist())
    assert {1, 2, 3} <= set(found)
    assert table.column_names == SCHEMA.names


def test_a_column_that_has_no_order_is_refused_by_name():
    with pytest.raises(ValueError, match="'tags' has no order to sort by"):
        sort_column(SCHEMA, "tags")
    with pytest.raises(ValueError, match=r"did you mean 'place\.town'"):
        sort_column(SCHEMA, "place.twon")


def test_a_checksum_is_of_times_that_python_does_not_have():
    kind = pa.list_(arrow_field("element", pa.timestamp("us"), 2))
    times = pa.array([2**62, 2**62 - 1]).cast(pa.timestamp("us"))
    lists = pa.ListArray.from_arrays([0, 1, 2], times, type=kind)
    rows = pa.RecordBatch.from_arrays([lists], ["at"])
    assert checksum([rows.slice(0, 1)]) != checksum([rows.slice(1)])


def test_a_checksum_is_that_of_a_multiset_of_rows():
    rows = random_rows(200)
    turned = rows.take(pa.array(range(199, -1, -1)))
    assert checksum([rows]) == checksum([turned.slice(0, 70), turned.slice(70)])
    assert checksum([rows]) != checksum([rows.slice(1), rows.slice(1, 1)])
    for place, field in enumerate(SCHEMA):
        column = rows.column(place)
        rolled = pa.concat_arrays([column.slice(1), column.slice(0, 1)])
        assert checksum([rows]) != checksum([rows.set_column(place, field, rolled)]), field.name


_MEASURED = """
import pickle, sys
import pyarrow as pa
from streaming_sink.tasks.clustering.group_task import rewrite_group

result = rewrite_group(pickle.loads(open(sys.argv[1], "rb").read()), attempt=0)
print(sum(file.rows for file in result.files), result.spilled_bytes, pa.default_memory_pool().max_memory())
"""


def _key_and_text(wide, count):
    """Return eight files of so many rows, with a text of so many characters, and their schema."""
    schema = pa.schema([arrow_field("key", pa.int64(), 1), arrow_field("text", pa.string(), 2)])
    files = [
        pa.RecordBatch.from_pydict(
            {
                "key": pa.array([each * 2654435761 % 2**32 for each in ids], pa.int64()),
                "text": [f"{each * 40503 % 2**16:0{wide}d}" for each in ids],
            },
            schema,
        )
        for ids in (range(start, start + count) for start in range(0, 8 * count, count))
    ]
    return schema, files


def _measured(job, folder):
    """Return the rows that a task wrote, the bytes that it spilled, and the most that it held.

    Held is what Arrow's allocator ever had out, in a process that does nothing else.
    """
    saved = folder / "job"
    saved.write_bytes(pickle.dumps(job))
    told = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(saved)],
        cwd=Path(__file__).parents[5],
        check=True,
        capture_output=True,
        text=True,
    )
    return tuple(map(int, told.stdout.split()))


@pytest.mark.parametrize(
    ("strategy", "sort_by"),
    [("sort", ["key desc"]), ("sort", ["text", "key"]), ("hilbert", ["key", "text"])],
    ids=str,
)
def test_a_group_of_four_times_the_memory_is_sorted_within_it(tmp_path, strategy, sort_by):
    memory_bytes, count = 8 * MIB, 16 * 1024
    schema, files = _key_and_text(236, count)
    assert sum(each.nbytes for each in files) >= 3.8 * memory_bytes
    job = group_job(
        LocalStore(str(tmp_path)),
        files,
        schema=schema,
        strategy=strategy,
        sort_by=sort_by,
        memory_bytes=memory_bytes,
        rows_per_file=3 * count,
        checksum=False,
    )
    rows, spilled, held = _measured(job, tmp_path)
    assert rows == 8 * count
    assert spilled
    assert held <= memory_bytes, f"{held / memory_bytes:.2f} of the bound"


@pytest.mark.parametrize(
    ("wide", "count", "spills"),
    [(157, 1900, False), (157, 2100, True), (1000, 4096, True)],
    ids=["just sorted at once", "just spilled", "wide rows"],
)
def test_a_range_of_a_group_is_sorted_within_the_memory(tmp_path, wide, count, spills):
    memory_bytes = 8 * MIB
    schema, files = _key_and_text(wide, count)
    job = group_job(
        LocalStore(str(tmp_path)),
        files,
        schema=schema,
        sort_by=["key"],
        memory_bytes=memory_bytes,
        rows_per_file=4 * count,
        checksum=False,
    )
    rows, spilled, held = _measured(replace(job, range_ends=(0.1,), part=1), tmp_path)
    assert 7 * count < rows < 7.5 * count
    assert bool(spilled) == spills
    assert held <= memory_bytes, f"{held / memory_bytes:.2f} of the bound"
