"""Which task reads which source files: each row once, right-sized files, one remainder a partition."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners.ingestion.consolidation import (
    SourceRows,
    partitions_of_shared_files,
    plan_consolidation,
)
from planners.inserts import SLACK
from planners.model import TableFile
from planners.sizing import FileSizing, FillPolicy

SIZING = FileSizing(max_file_bytes=1000, small_file_bytes=800)


def plan(sources: list[SourceRows], files: list[TableFile] | None = None, parallelism: int = 2):
    return plan_consolidation(
        sources, files or [], SIZING, bytes_per_row=1, policy=FillPolicy.AMORTIZED, parallelism=parallelism
    )


def test_fifteen_files_of_four_partitions_become_four_by_one_task() -> None:
    sources = [SourceRows(file, (f"p{file % 4}",), 10) for file in range(15)]
    made = plan(sources, parallelism=1)
    assert [bucket.rows for bucket in made.plan.buckets] == [40, 40, 40, 30]
    assert len(made.tasks) == 1
    assert partitions_of_shared_files(made.tasks[0], made.tasks) == {}


def test_a_large_partition_is_divided_where_files_end() -> None:
    made = plan([SourceRows(file, (), 10) for file in range(500)], parallelism=4)
    assert [share.rows for share in made.tasks] == [2000, 2000, 1000]
    assert [len(share.buckets) for share in made.tasks] == [2, 2, 1]


def test_a_source_file_that_ends_nowhere_near_a_file_divides_nothing() -> None:
    made = plan([SourceRows(file, (), 1700) for file in range(4)], parallelism=4)
    assert sum(share.rows for share in made.tasks) == 6800
    assert all(_fits(made, share) for share in made.tasks)


def test_small_files_of_the_table_are_filled_by_one_share() -> None:
    small = [TableFile(f"f{number}", (), 300, 300) for number in range(2)]
    made = plan([SourceRows(file, (), 10) for file in range(40)], small)
    (bucket,) = made.plan.buckets
    assert {each.path for each in bucket.inputs} == {"f0", "f1"}
    assert [share.buckets for share in made.tasks] == [(0,)]


def test_a_file_that_two_tasks_read_is_shared_by_partition() -> None:
    sources = [SourceRows(file, (part,), 700) for file in range(2) for part in "ab"]
    made = plan(sources)
    assert len(made.tasks) == 2
    kept = [partitions_of_shared_files(share, made.tasks) for share in made.tasks]
    assert kept == [{0: frozenset([("a",)]), 1: frozenset([("a",)])}, {0: {("b",)}, 1: {("b",)}}]


def copied(*rows: int) -> list[SourceRows]:
    return [SourceRows(file, (), each, copied=True) for file, each in enumerate(rows)]


@pytest.mark.parametrize(
    ("sources", "files"),
    [
        ([270] * 8, [810, 810, 540]),
        ([700] * 3, [1000, 1000, 100]),  # without the second source a file would be a small one
        ([300] * 10, [1000, 1000, 1000]),  # files that end before a source would be four
        ([300] * 11, [900, 800, 800, 800]),  # one that ends behind the second leaves too few for two others
        ([1500, 1500], [1000, 1000, 1000]),
        ([990, 20, 985, 15], [990, 1000, 20]),
    ],
)
def test_a_file_ends_where_a_copied_source_does(sources: list[int], files: list[int]) -> None:
    made = plan(copied(*sources), parallelism=1)
    assert [bucket.rows for bucket in made.plan.buckets] == files


def test_what_is_decoded_comes_behind_what_is_copied_and_fills_files() -> None:
    small = [SourceRows(10 + number, (), 10) for number in range(15)]
    made = plan([*small, *copied(300, 300, 300, 300)], parallelism=1)
    (share,) = made.tasks
    assert [source.copied for source in share.sources] == [True] * 4 + [False] * 15
    assert [bucket.rows for bucket in made.plan.buckets] == [900, 450]


def test_what_is_copied_comes_last_where_a_small_file_is_filled() -> None:
    table = [TableFile("f", (), 700, 700)]
    made = plan([*copied(900), *(SourceRows(1 + number, (), 10) for number in range(30))], table)
    sources = [source for share in made.tasks for source in share.sources]
    fills, new = made.plan.buckets
    assert (fills.fills, fills.rows, new.rows) == (True, 200, 1000)
    assert sources[-1].copied


@given(st.integers(0, 2**32))
def test_copied_sources_make_no_more_files_nor_larger_ones(seed: int) -> None:
    random = Random(seed)
    sources = [
        SourceRows(file, (random.choice("ab"),), random.randrange(1, 1200), random.random() < 0.8)
        for file in range(random.randrange(1, 60))
    ]
    parallelism = random.randrange(1, 5)
    made = plan(sources, parallelism=parallelism)
    decoded = plan([replace(each, copied=False) for each in sources], parallelism=parallelism)
    assert len(made.plan.buckets) == len(decoded.plan.buckets)
    assert Counter(each for share in made.tasks for each in share.sources) == Counter(sources)
    slack = 2 * (SIZING.max_file_bytes // SLACK)
    assert all(bucket.rows <= SIZING.max_file_bytes + slack for bucket in made.plan.buckets)
    for partition in "ab":
        sizes = [bucket.rows for bucket in made.plan.buckets if bucket.partition == (partition,)]
        assert sum(size < SIZING.small_file_bytes - slack for size in sizes) <= 1


@given(st.integers(0, 2**32))
def test_a_task_knows_how_many_rows_its_files_get(seed: int) -> None:
    random = Random(seed)
    sources = [
        SourceRows(file, (random.choice("ab"),), random.randrange(1, 40), random.random() < 0.2)
        for file in range(random.randrange(1, 200))
    ]
    made = plan(sources, parallelism=random.randrange(1, 9))
    for share in made.tasks:
        buckets = [made.plan.buckets[place] for place in share.buckets]
        for partition in {source.partition for source in share.sources}:
            planned = [bucket for bucket in buckets if bucket.partition == partition]
            rows = sum(source.rows for source in share.sources if source.partition == partition)
            assert sum(bucket.rows for bucket in planned) == rows


@given(st.integers(0, 2**32))
def test_each_row_is_in_one_share_and_each_file_is_written_by_one_task(seed: int) -> None:
    random = Random(seed)
    most = random.choice([5, 50, 3000])
    sources = [
        SourceRows(file, (random.choice("abc"[: random.randrange(1, 4)]),), random.randrange(1, most))
        for file in range(random.randrange(1, 120))
    ]
    made = plan(sources, parallelism=random.randrange(1, 9))
    assert Counter(each for share in made.tasks for each in share.sources) == Counter(sources)
    written = sorted(place for share in made.tasks for place in share.buckets)
    assert written == list(range(len(made.plan.buckets)))
    assert all(_fits(made, share) for share in made.tasks)
    for partition in {each.partition for each in sources}:
        sizes = [bucket.rows for bucket in made.plan.buckets if bucket.partition == partition]
        assert sum(size < SIZING.small_file_bytes for size in sizes) <= 1


def _fits(made, share) -> bool:
    """Whether the rows of a share are those that its files are planned for, within the slack of a file."""
    planned: Counter[object] = Counter()
    for place in share.buckets:
        bucket = made.plan.buckets[place]
        planned[bucket.partition] += bucket.rows
    came: Counter[object] = Counter()
    for each in share.sources:
        came[each.partition] += each.rows
    # What one share has too many, the next one of the partition has too few: at either end.
    slack = made.plan.rows_per_new_file // SLACK
    return all(abs(came[key] - planned[key]) <= 2 * slack for key in planned | came)
