"""Rewriting the files that still carry columns which the table has dropped."""

from __future__ import annotations

from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from planners import All, BySize, ClusteringPolicy
from streaming_sink.tasks.clustering.group_task import rewrite_group
from streaming_sink.tasks.clustering.job import GroupFailed
from tests.unit.streaming_sink.group_jobs import group_job, random_rows
from tests.unit.streaming_sink.small_tables import (
    append,
    carry_out,
    drop_columns,
    entries,
    make_table,
    multiset,
    path_of,
    plan_of,
    read,
)
from timeline import names
from timeline.stores import MemoryStore

SORTED = {"sort_by": ["key", "id desc"], "select": All()}


@pytest.fixture
def table(tmp_path):
    """Two sorted files and two unsorted ones that carry dropped columns, and two that never had them."""
    made = make_table(tmp_path / "table")
    for batch in range(2):
        append(made, batch)
    carry_out(made, plan_of(made, **SORTED))
    append(made, 2)
    drop_columns(made)
    append(made, 3)
    return made


def _columns(location):
    return set(pq.read_schema(path_of(location)).names)


def _rows(table):
    """Return the rows of the head, as pyiceberg reads them."""
    path = f"{table.store.location}/metadata/v{table.head.number}.metadata.json"
    return multiset([StaticTable.from_metadata(path).scan().to_arrow()])


def test_just_the_files_that_carry_dropped_columns_are_planned(table):
    plan = plan_of(table, strategy="drop_columns")
    planned = {path for group in plan.groups for path in group.inputs}
    assert planned == {path for path in entries(table) if "note" in _columns(path)}
    assert len(planned) == 4
    assert {it.reason for it in plan.left_out} == {"drop_columns has nothing to change in it"}
    assert {group.reasons for group in plan.groups} == {
        ("2 files: hold columns that the table dropped, fields 5, 7",)
    }


def test_the_columns_go_and_the_rows_and_their_order_stay(table):
    before, rows = entries(table), _rows(table)
    order = {path: read(path)["id"].to_pylist() for path in before}
    report = carry_out(table, plan_of(table, strategy="drop_columns"))

    assert [group.outcome for group in report.groups] == ["committed"] * 2
    assert _rows(table) == rows
    after = entries(table)
    for path in after:
        assert _columns(path) == {"id", "p", "key", "place"}
        assert read(path).schema.field("place").type.num_fields == 1
    assert sorted(read(path)["id"].to_pylist() for path in after) == sorted(order.values())


def test_what_the_table_says_of_a_files_order_stays(table):
    def said():
        return sorted(
            (
                names.clustering_of(path) or ("", 0),
                file.sort_order_id,
                [str(it) for it in pq.read_metadata(path_of(path)).row_group(0).sorting_columns],
                file.record_count,
            )
            for path, file in entries(table).items()
        )

    before = said()
    assert [it[1] for it in before] == [0] * 4 + [1] * 2
    assert all(len(it[2]) == 2 * it[1] for it in before)
    carry_out(table, plan_of(table, strategy="drop_columns"))
    assert said() == before


def test_the_saved_bytes_are_told_and_a_second_pass_finds_nothing(table):
    before = sum(file.file_size_in_bytes for file in entries(table).values())
    report = carry_out(table, plan_of(table, strategy="drop_columns"))
    after = sum(file.file_size_in_bytes for file in entries(table).values())
    assert report.saved_bytes == before - after > before / 4
    assert report.saved_bytes == sum(group.saved_bytes for group in report.groups)
    assert not plan_of(table, strategy="drop_columns").groups


def test_sorted_files_are_still_known_as_sorted_and_the_others_may_be_filled(table):
    carry_out(table, plan_of(table, strategy="drop_columns"))
    plan = plan_of(table, **SORTED)
    fresh = sum(names.clustering_of(path) is None for group in plan.groups for path in group.inputs)
    assert fresh == 4
    assert all("2 files not in this order" in group.reasons for group in plan.groups)


def test_a_column_that_is_dropped_meanwhile_is_left_out_by_every_strategy(table):
    carry_out(table, plan_of(table, sort_by=["id"], select=All()))
    assert all("note" not in _columns(path) for path in entries(table))


def test_a_file_whose_columns_the_manifest_does_not_tell_is_left_alone(table):
    paths = entries(table)
    for file in paths.values():
        file[6], file[7] = None, None  # column_sizes, value_counts
    assert not plan_of(table, strategy="drop_columns").groups


def test_a_file_that_cannot_be_read_fails_its_group_and_leaves_nothing_behind():
    store = MemoryStore("memory://t")
    job = group_job(store, [random_rows(50, seed) for seed in range(3)], strategy="drop_columns")
    job = replace(job, file_by_file=True, inputs=(*job.inputs[:2], replace(job.inputs[2], rows=49)))
    before = {each.path for each in store.list_below("data")}
    result = rewrite_group(job, attempt=5)
    assert isinstance(result, GroupFailed)
    assert "more or fewer rows than the table says: 50 != 49" in result.reason
    assert {each.path for each in store.list_below("data")} == before


def test_it_takes_files_of_any_size_unless_told_otherwise_and_neither_sorts_nor_takes_parameters():
    assert ClusteringPolicy(strategy="drop_columns").select == (All(),)
    assert ClusteringPolicy(strategy="drop_columns", select=BySize()).select == (BySize(),)
    with pytest.raises(ValueError, match="strategy 'drop_columns' does not sort; drop sort_by"):
        ClusteringPolicy(strategy="drop_columns", sort_by=["id"])
