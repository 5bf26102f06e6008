"""Where the rows of a batch go: decided on examples, and as properties of any plan."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners import FileSizing
from planners.inserts import plan_inserts
from planners.model import Arrival, Bucket, FillVerdict, InsertPlan, TableFile
from planners.sizing import FillPolicy

MB = 1_000_000
ALWAYS, AMORTIZED, NEVER = FillPolicy.ALWAYS, FillPolicy.AMORTIZED, FillPolicy.NEVER
SIZING = FileSizing(max_file_bytes="120MB", small_file_bytes="100MB")
PUBLISHED = FileSizing(max_file_bytes="120MB", small_file_bytes="100MB", rows_per_new_file=120_000)


def file(size_mb: float, path: str | None = None, **flags: Any) -> TableFile:
    size = int(size_mb * MB)
    partition = flags.pop("partition", ())
    return TableFile(path or f"{size_mb}MB", partition, size, size // 1_000, **flags)


def plan(
    rows: int,
    files: list[TableFile],
    *,
    sizing: FileSizing = SIZING,
    policy: FillPolicy = AMORTIZED,
    exact: bool = True,
) -> InsertPlan:
    return plan_inserts([Arrival((), rows)], files, sizing, bytes_per_row=1_000, policy=policy, exact=exact)


def shape(buckets: tuple[Bucket, ...]) -> list[tuple[int, tuple[str, ...]]]:
    return [(bucket.rows, tuple(it.path for it in bucket.inputs)) for bucket in buckets]


def test_published_example() -> None:
    """40, 80 and 90 MB are filled with 80, 40 and 30 MB, the rest cut at 120,000 rows; the tail is next."""
    files = [file(size) for size in (40, 80, 90, 130, 105)]
    first = plan(450_000, files, sizing=PUBLISHED, policy=ALWAYS)
    assert shape(first.buckets) == [
        (80_000, ("40MB",)),
        (40_000, ("80MB",)),
        (30_000, ("90MB",)),
        (120_000, ()),
        (120_000, ()),
        (60_000, ()),
    ]
    kept = {decision.path for decision in first.decisions if decision.verdict is FillVerdict.KEPT}
    assert kept == {"130MB", "105MB"}

    after = [file(120, f"full{at}") for at in range(5)] + [file(130), file(105), file(60, "tail")]
    second = plan(100_000, after, sizing=PUBLISHED, policy=ALWAYS)
    assert shape(second.buckets) == [(60_000, ("tail",)), (40_000, ())]


def test_a_file_at_the_limit_is_not_small() -> None:
    assert shape(plan(5, [file(100)], policy=ALWAYS).buckets) == [(5, ())]
    assert shape(plan(5, [file(99.999)], policy=ALWAYS).buckets) == [(5, ("99.999MB",))]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"sorted": True}, "sort order"),
        ({"has_deletes_by_value": True}, "deletes by value"),
        ({"reserved_by": "plan-7"}, "reserved by plan plan-7"),
    ],
)
@pytest.mark.parametrize("policy", [ALWAYS, AMORTIZED])
def test_such_a_file_is_never_filled(flags: dict[str, Any], reason: str, policy: FillPolicy) -> None:
    answer = plan(60_000, [file(50, **flags)], policy=policy)
    assert shape(answer.buckets) == [(60_000, ())]
    assert reason in answer.decisions[0].reason


def test_policy_never_fills_nothing() -> None:
    assert shape(plan(60_000, [file(50)], policy=NEVER).buckets) == [(60_000, ())]


@pytest.mark.parametrize("policy", list(FillPolicy))
def test_a_small_limit_of_0_turns_filling_off(policy: FillPolicy) -> None:
    off = FileSizing(max_file_bytes="120MB", small_file_bytes=0)
    answer = plan(60_000, [file(1)], sizing=off, policy=policy)
    assert shape(answer.buckets) == [(60_000, ())]


def test_a_file_of_another_partition_is_never_filled() -> None:
    answer = plan(60_000, [file(50, partition=(1,))], policy=ALWAYS)
    assert shape(answer.buckets) == [(60_000, ())]
    assert answer.decisions[0].reason == "no rows arrive in its partition"


def test_rows_split_evenly_where_that_leaves_no_small_file() -> None:
    assert [bucket.rows for bucket in plan(310_000, []).buckets] == [103_334, 103_333, 103_333]


def test_rows_are_cut_full_with_one_tail_where_an_even_split_would_be_small() -> None:
    assert [bucket.rows for bucket in plan(250_000, []).buckets] == [120_000, 120_000, 10_000]


def test_rows_are_cut_where_rows_per_new_file_says_and_never_evenly() -> None:
    sizing = FileSizing(max_file_bytes="120MB", small_file_bytes="0", rows_per_new_file=110_000)
    assert [bucket.rows for bucket in plan(330_001, [], sizing=sizing).buckets] == [110_000] * 3 + [1]


def test_the_maximum_wins_over_rows_per_new_file() -> None:
    sizing = FileSizing(max_file_bytes="120MB", small_file_bytes="0", rows_per_new_file=999_999)
    assert [bucket.rows for bucket in plan(240_000, [], sizing=sizing).buckets] == [120_000] * 2


def test_a_row_wider_than_a_file_gets_a_file_of_its_own() -> None:
    sizing = FileSizing(max_file_bytes=500, small_file_bytes=400)
    assert [bucket.rows for bucket in plan(3, [], sizing=sizing).buckets] == [1, 1, 1]


def test_amortized_waits_until_a_full_file_can_be_made() -> None:
    small = [file(30, "a"), file(31, "b")]
    waiting = plan(30_000, small)
    assert shape(waiting.buckets) == [(30_000, ())]
    assert "waits: 91,000,000 bytes" in waiting.decisions[0].reason
    assert shape(plan(42_000, small).buckets) == [(42_000, ("b", "a"))]


def test_amortized_splits_a_batch_that_does_not_fit_beside_a_small_file() -> None:
    assert shape(plan(80_000, [file(80, "a")]).buckets) == [(40_000, ("a",)), (40_000, ())]


def test_amortized_lets_only_the_tail_of_a_large_batch_join() -> None:
    assert shape(plan(300_000, [file(50, "a")], sizing=PUBLISHED).buckets) == [
        (60_000, ("a",)),
        (120_000, ()),
        (120_000, ()),
    ]


def test_a_forecast_bucket_stands_by_for_more_rows_than_foreseen() -> None:
    bucket = plan(30_000, [file(30, "a"), file(31, "b")], exact=False).buckets[0]
    assert (bucket.rows, bucket.min_rows, bucket.max_rows) == (30_000, 41_500, 59_000)
    assert not bucket.fills


def test_a_planned_merge_still_happens_with_fewer_rows_that_reach_the_limit() -> None:
    bucket = plan(45_000, [file(30, "a"), file(31, "b")], exact=False).buckets[0]
    assert (bucket.fills, bucket.min_rows) == (True, 39_000)


@pytest.mark.parametrize("exact", [True, False])
def test_eight_small_files_force_a_merge_of_those_that_repay_it_best(exact: bool) -> None:
    """Of 30 20 14 10 7 1 1 1 MB, those of 1 are merged: one is rewritten for two of its size."""
    small = [file(size, f"{at}") for at, size in enumerate((30, 20, 14, 10, 7, 1, 1, 1))]
    (bucket,) = plan(1_000, small, exact=exact).buckets
    assert sorted(it.path for it in bucket.inputs) == ["5", "6", "7"]
    assert (bucket.rows, bucket.min_rows) == (1_000, 1)


def test_twelve_small_files_are_brought_down_to_eight_even_where_fewer_would_repay_better() -> None:
    """The four equal ones repay best, but leave eight others beside the merged file."""
    sizes = [0.01] * 4 + [0.026 * 1.6**at for at in range(8)]
    small = [file(size, f"{at:02}") for at, size in enumerate(sizes)]
    (bucket,) = plan(1, small).buckets
    assert len(bucket.inputs) >= 5


def test_a_small_file_without_room_for_one_more_row_is_kept() -> None:
    answer = plan_inserts([Arrival((), 1)], [file(99)], SIZING, bytes_per_row=30 * MB, exact=True)
    assert shape(answer.buckets) == [(1, ())]
    assert answer.decisions[0].reason == "no room for one more row"


def test_files_of_equal_size_are_filled_in_the_order_of_their_paths() -> None:
    answer = plan(5, [file(7, "b"), file(7, "a")], policy=ALWAYS)
    assert shape(answer.buckets) == [(5, ("a",))]
    assert [it.reason for it in answer.decisions] == ["5 rows join", "no rows are left for it"]


def test_a_crowded_partition_without_foreseen_rows_has_a_bucket_that_stands_by() -> None:
    small = [file(1, f"{at}") for at in range(8)]
    (bucket,) = plan_inserts([], small, SIZING, bytes_per_row=1_000, exact=False).buckets
    assert (bucket.rows, bucket.min_rows, len(bucket.inputs)) == (0, 1, 8)
    assert plan_inserts([], small, SIZING, bytes_per_row=1_000, exact=True).buckets == ()


def test_arrivals_of_one_partition_add_up() -> None:
    parts = [Arrival((1,), 2), Arrival((2,), 5), Arrival((1,), 3)]
    answer = plan_inserts(parts, [], SIZING, bytes_per_row=1_000, exact=True)
    assert [(bucket.partition, bucket.rows) for bucket in answer.buckets] == [((1,), 5), ((2,), 5)]


def test_a_partition_of_nan_finds_its_files() -> None:
    answer = plan_inserts(
        [Arrival((float("nan"),), 60_000)],
        [file(50, "a", partition=(float("nan"),))],
        SIZING,
        bytes_per_row=1_000,
        exact=True,
    )
    assert shape(answer.buckets) == [(60_000, ("a",))]


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="fewer than 0 rows"):
        plan_inserts([Arrival((), -1)], [], SIZING, bytes_per_row=1, exact=True)
    with pytest.raises(ValueError, match="at least 1"):
        plan_inserts([], [], SIZING, bytes_per_row=0, exact=True)


values = st.sampled_from([None, 0, 1, -5, "a", "", 2.5, (1, 2)])
partitions = st.tuples(values, values)
table_files = st.lists(
    st.builds(
        TableFile,
        path=st.text("abc", min_size=1, max_size=6),
        partition=partitions,
        bytes=st.integers(1, 130 * MB),
        rows=st.integers(1, 10**6),
        sorted=st.sampled_from([False] * 9 + [True]),
        has_deletes_by_value=st.sampled_from([False] * 9 + [True]),
        deleted_bytes=st.sampled_from([0, 0, 0, 99 * MB]),
        reserved_by=st.sampled_from([None] * 9 + ["x"]),
    ),
    max_size=60,
    unique_by=lambda it: it.path,
)
arrival_lists = st.lists(st.builds(Arrival, partition=partitions, rows=st.integers(0, 10**6)), max_size=12)
sizings = st.builds(
    FileSizing,
    max_file_bytes=st.just(120 * MB),
    small_file_bytes=st.sampled_from([0, 10 * MB, 100 * MB, 120 * MB]),
    rows_per_new_file=st.sampled_from([None, 30_000, 120_000]),
)


@given(
    arrival_lists, table_files, sizings, st.sampled_from([7, 1_000, 50_000]), st.sampled_from(FillPolicy),
    st.booleans(), st.randoms(),
)  # fmt: skip
def test_any_plan_keeps_its_promises(
    arrivals: list[Arrival],
    files: list[TableFile],
    sizing: FileSizing,
    width: int,
    policy: FillPolicy,
    exact: bool,
    shuffler: Any,
) -> None:
    """Rows once, files once, none that must not be filled, nothing above the maximum, in any input order."""
    answer = plan_inserts(arrivals, files, sizing, bytes_per_row=width, policy=policy, exact=exact)

    arriving = Counter[Any]()
    for arrival in arrivals:
        arriving[arrival.partition] += arrival.rows
    planned = Counter[Any]()
    for bucket in answer.buckets:
        planned[bucket.partition] += bucket.rows
    assert +planned == +arriving

    by_path = {it.path: it for it in files}
    filled = [it.path for bucket in answer.buckets for it in bucket.inputs]
    assert len(filled) == len(set(filled))
    assert sorted(it.path for it in answer.decisions) == sorted(by_path)
    for bucket in answer.buckets:
        inputs = [by_path[it.path] for it in bucket.inputs]
        assert tuple(it.input for it in inputs) == bucket.inputs
        assert all(it.partition == bucket.partition for it in inputs)
        assert all(it.bytes + it.deleted_bytes < sizing.small_file_bytes for it in inputs)
        assert not any(it.sorted or it.has_deletes_by_value or it.reserved_by for it in inputs)
        assert bucket.input_bytes == sum(it.bytes for it in inputs)
        assert bucket.input_rows == sum(it.rows for it in inputs)
        assert bucket.max_rows is not None
        assert bucket.rows <= bucket.max_rows
        assert bucket.input_bytes + bucket.max_rows * width <= sizing.max_file_bytes * 33 // 32
        if bucket.fills or not bucket.inputs:
            assert bucket.input_bytes + bucket.rows * width <= sizing.max_file_bytes
        if exact:
            assert bucket.rows
            assert bucket.rows >= bucket.min_rows
        if not bucket.inputs:
            assert bucket.rows <= answer.rows_per_new_file

    shuffler.shuffle(arrivals)
    shuffler.shuffle(files)
    again = plan_inserts(arrivals, files, sizing, bytes_per_row=width, policy=policy, exact=exact)
    assert again == answer


def test_a_plan_says_why_each_file_was_or_was_not_filled() -> None:
    files = [file(size) for size in (40, 80, 90, 130)] + [file(50, "sorted", sorted=True)]
    made = plan(450_000, files, sizing=PUBLISHED, policy=ALWAYS)
    why = {it.path: (it.verdict, it.reason) for it in made.decisions}
    assert why["40MB"] == (FillVerdict.FILLED, "80,000 rows join")
    assert why["130MB"] == (FillVerdict.KEPT, "at or above the small limit of 100,000,000 bytes")
    assert why["sorted"] == (FillVerdict.KEPT, "carries a sort order")
    assert [len(it.inputs) for it in made.buckets] == [1, 1, 1, 0, 0, 0]
