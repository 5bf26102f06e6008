"""Clustering over files with position deletes: their rows are left out, and their delete files leave too."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from planners import All
from planners.model import PositionDeletes
from streaming_sink.clustering import execution
from streaming_sink.tasks.clustering.group_task import rewrite_group
from streaming_sink.tasks.clustering.job import GroupFailed
from streaming_sink.tasks.files.delete_files import write_position_deletes
from streaming_sink.tasks.job import ParquetSettings
from tests.tiers import only_in_soak
from tests.unit.streaming_sink.group_jobs import group_job, multiset, random_rows, written
from tests.unit.streaming_sink.small_tables import (
    append,
    carry_out,
    delete_rows,
    drop_columns,
    entries,
    live_rows,
    make_table,
    path_of,
    plan_of,
)
from tests.unit.streaming_sink.vault import Vault
from tests.unit.timeline.world import Audit
from timeline import names
from timeline.stores import MemoryStore

SORTED = {"sort_by": ["key"], "select": All()}
STRATEGIES = {
    "sort": SORTED,
    "zorder": {"strategy": "zorder", "sort_by": ["id", "key"], "select": All()},
    "drop_columns": {"strategy": "drop_columns"},
    "encrypt": {"strategy": "encrypt", "parameters": {"footer_key": "lake"}},
}


@pytest.fixture
def table(tmp_path):
    """Two files in each of two partitions, of 200 rows each."""
    table = make_table(tmp_path / "table")
    append(table, 0)
    append(table, 1)
    return table


def _data_files(table):
    return [file.location for file in table.refresh().live_files()]


@pytest.fixture
def vault(tmp_path):
    return Vault(str(tmp_path / "keys")).put(lake=b"0123456789abcdef".decode())


def _delete_some(table):
    """Delete rows of three of four files, twice of one, and all of one."""
    one, two, three, _ = sorted(_data_files(table))
    delete_rows(table, {one: [0, 199], two: [*range(50)]})
    delete_rows(table, {one: [7], three: [*range(200)]})
    return live_rows(table)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_every_strategy_leaves_the_deleted_rows_out_and_their_delete_files_go(table, vault, kind):
    if kind == "drop_columns":
        drop_columns(table)
    before = _delete_some(table)
    assert before.total() == 800 - 3 - 50 - 200
    report = carry_out(table, plan_of(table, **STRATEGIES[kind]), keys=vault if kind == "encrypt" else None)
    assert {group.outcome for group in report.groups} == {"committed"}
    assert list(table.refresh().delete_files()) == []
    assert sum(file.rows for file in table.head.live_files()) == before.total()
    if kind == "encrypt":  # no key is known to the judge
        carry_out(table, plan_of(table, **SORTED), keys=vault)
    else:
        assert live_rows(table) == before
    assert sum(group.rows for group in report.groups) == before.total()


def test_joined_files_are_without_their_deleted_rows(table):
    one, two, *_ = sorted(_data_files(table))
    delete_rows(table, {one: [0, 199], two: [*range(50)]})
    before, largest = live_rows(table), max(file.bytes for file in table.refresh().live_files())
    report = carry_out(table, plan_of(table, small_file_bytes=largest + 1))
    assert [group.output_files for group in report.committed] == [1, 1]
    assert live_rows(table) == before
    assert list(table.head.delete_files()) == []


def test_a_group_of_which_no_row_is_live_leaves_no_file(table):
    for location in _data_files(table):
        delete_rows(table, {location: range(200)})
    report = carry_out(table, plan_of(table, **SORTED))
    assert [(group.outcome, group.rows, group.output_files) for group in report.groups] == [
        ("committed", 0, 0)
    ] * 2
    assert list(table.refresh().live_files()) == list(table.head.delete_files()) == []


def test_deletes_that_came_after_the_plan_was_made_are_applied(table):
    """A plan waits on the timeline; what its files' delete files are is read when it is executed."""
    plan = plan_of(table, **SORTED)
    before = _delete_some(table)
    assert carry_out(table, plan).committed
    assert live_rows(table) == before
    assert list(table.head.delete_files()) == []


def test_a_group_that_got_deletes_while_it_ran_is_dropped_alone(table, monkeypatch):
    plan, late = plan_of(table, **SORTED), []
    [mine, other] = [group.inputs[0] for group in plan.groups]
    delete_rows(table, {mine: [3], other: [4]})
    commit = type(table).commit

    def commit_after_another(self, *given, **named):
        if not late:
            late.append(mine)
            delete_rows(type(table).open(table.store), {mine: [5]})
        return commit(self, *given, **named)

    monkeypatch.setattr(execution.Table, "commit", commit_after_another)
    before = live_rows(table)
    report = carry_out(table, plan)
    assert [group.outcome for group in report.groups] == ["dropped", "committed"]
    assert "an input has deletes that the replace has not applied" in report.groups[0].why
    assert live_rows(table).total() == before.total() - 1
    assert [it.refers_to for it in table.head.delete_files()] == [mine, mine]
    Audit(table.store).check()


def test_a_group_whose_delete_file_is_missing_fails_alone_and_says_so(table):
    plan = plan_of(table, **SORTED)
    mine = plan.groups[0].inputs[0]
    [gone] = delete_rows(table, {mine: [3]})
    path_of(gone).unlink()
    report = carry_out(table, plan)
    assert [group.outcome for group in report.groups] == ["failed", "committed"]
    assert report.groups[0].why == f"a delete file is missing: {gone}"


def test_deletes_of_encrypted_files_are_plain_and_are_applied(table, vault):
    """A delete file names a path and positions, and no value."""
    carry_out(table, plan_of(table, **STRATEGIES["encrypt"]), keys=vault)
    encrypted = min(_data_files(table))
    [deletes] = delete_rows(table, {encrypted: [0, 5]})
    rows = sum(file.rows for file in table.refresh().live_files())
    report = carry_out(table, plan_of(table, **SORTED), keys=vault)
    assert report.committed
    assert list(table.refresh().delete_files()) == []
    assert sum(file.rows for file in table.head.live_files()) == rows - 2
    assert all(file.key_metadata for file in entries(table).values())
    assert path_of(deletes).exists()


# ------------------------------------------------------------------------------------------ one task


def _with_deletes(job, *positions):
    """The job, with these rows of each of its inputs deleted."""
    store, inputs = job.worker.store, []
    for number, (given, gone) in enumerate(zip(job.inputs, positions, strict=True)):
        path = f"data/{number}-deletes.parquet"
        write_position_deletes(store, path, given.path, pa.array(gone, pa.int64()), ParquetSettings())
        inputs.append(replace(given, deletes=(PositionDeletes(store.uri(path), len(gone)),)))
    return replace(job, inputs=tuple(inputs))


@pytest.mark.parametrize(
    ("ends", "memory_bytes"),
    [
        ((), 1 << 29),
        pytest.param((), 100_000, marks=only_in_soak),
        ((0.3, 0.7), 1 << 29),
        ((0.3, 0.7), 100_000),
    ],
)
def test_every_task_of_a_group_reads_the_live_rows_whatever_its_memory(memory_bytes, ends):
    files = [random_rows(3_000, seed) for seed in range(2)]
    job = group_job(MemoryStore(), files, sort_by=["id", "score"], memory_bytes=memory_bytes, range_ends=ends)
    job = _with_deletes(job, [0, 7, 2_999], list(range(0, 3_000, 2)))
    parts = [written(replace(job, part=part)) for part in range(len(ends) + 1)]
    expected = [files[0].take([at for at in range(3_000) if at not in (0, 7, 2_999)])]
    expected.append(files[1].take(list(range(1, 3_000, 2))))
    assert multiset([table for _, tables in parts for table in tables]) == multiset(
        [pa.Table.from_batches([batch]) for batch in expected]
    )
    assert {result.deleted_rows for result, _ in parts} == {1_503}


def test_deletes_beyond_the_end_of_a_file_fail_the_group_and_leave_nothing():
    store = MemoryStore("memory://t")
    job = _with_deletes(group_job(store, [random_rows(50, 1)], sort_by=["id"]), [50])
    before = {each.path for each in store.list_below("data")}
    result = rewrite_group(job, attempt=5)
    assert isinstance(result, GroupFailed)
    assert "its data file does not hold: positions 50 to 50 of 50 rows" in result.reason
    assert {each.path for each in store.list_below("data")} == before


def test_a_clustered_file_with_deletes_is_rewritten_in_its_order_file_by_file(table):
    carry_out(table, plan_of(table, **SORTED))
    drop_columns(table)
    first = min(_data_files(table))
    delete_rows(table, {first: [0]})
    before = {names.clustering_of(path) for path in _data_files(table)}
    carry_out(table, plan_of(table, strategy="drop_columns"))
    assert {names.clustering_of(path) for path in _data_files(table)} == before != {None}
    assert list(table.head.delete_files()) == []
