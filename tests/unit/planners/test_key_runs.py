"""Upkeep of a key index as a plan: tiers, dead runs, and a life of commits whose runs stay few."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners.key_runs import (
    BUILD_ROWS,
    FIRST_TIER_ROWS,
    KeyRun,
    KeyRunMerge,
    KeyRunPlan,
    plan_key_runs,
)

MI = 1024 * 1024
GRACE = 1000


def run(name: str, *files: tuple[str, int], at: int = 0) -> KeyRun:
    return KeyRun(name, at, files)


def plan(runs: list[KeyRun], files: list[tuple[str, int]], now: int = 10 * GRACE) -> KeyRunPlan:
    return plan_key_runs(runs, files, now_ms=now, grace_ms=GRACE)


def test_files_without_a_run_get_one_together_up_to_a_size() -> None:
    files = [("a", 6 * MI), ("b", 2 * MI), ("c", 1), ("d", 3 * BUILD_ROWS), ("e", 5)]
    assert plan([run("r", ("e", 5))], files).builds == (
        (("a", 6 * MI), ("b", 2 * MI)),
        (("c", 1),),
        (("d", 3 * BUILD_ROWS),),
    )


def test_a_file_of_another_length_is_not_the_one_that_a_run_covers() -> None:
    assert plan([run("r", ("a", 5))], [("a", 6)]).builds == ((("a", 6),),)


def test_eight_runs_of_a_tier_are_merged_and_seven_are_not() -> None:
    runs = [run(f"r{number}", (f"f{number}", 100)) for number in range(8)]
    files = [file for each in runs for file in each.files]
    assert plan(runs[:7], files[:7]).merges == ()
    (merge,) = plan(runs, files).merges
    assert merge.runs == tuple(each.path for each in runs)
    assert merge.files == tuple(files)


def test_a_merge_that_completes_a_larger_tier_takes_that_too() -> None:
    small = [run(f"s{number}", (f"s{number}", FIRST_TIER_ROWS - 1)) for number in range(8)]
    large = [run(f"l{number}", (f"l{number}", FIRST_TIER_ROWS)) for number in range(7)]
    files = [file for each in small + large for file in each.files]
    (merge,) = plan(small + large, files).merges
    assert set(merge.runs) == {each.path for each in small + large}


def test_runs_of_different_tiers_are_not_merged() -> None:
    runs = [run(f"r{number}", (f"f{number}", FIRST_TIER_ROWS * 8 ** (number % 4))) for number in range(16)]
    assert plan(runs, [file for each in runs for file in each.files]).merges == ()


def test_a_backlog_of_builds_is_merged_in_parts_of_eight_and_large_runs_stay() -> None:
    runs = [run(f"r{number:03}", (f"f{number}", 8 * MI)) for number in range(100)]
    runs += [run(f"x{number:03}", (f"x{number}", 32 * MI)) for number in range(20)]
    merges = plan(runs, [file for each in runs for file in each.files]).merges
    assert [len(merge.runs) for merge in merges] == [8] * 12


def test_a_run_that_is_mostly_dead_is_rewritten_whatever_its_size() -> None:
    runs = [run("r", ("a", 49 * MI), ("dead", 50 * MI)), run("s", ("b", 50), ("dead", 50))]
    reason = "51,380,224 of 103,809,024 rows are looked up in it"
    assert plan(runs, [("a", 49 * MI), ("b", 50)]).merges == (KeyRunMerge(("r",), (("a", 49 * MI),), reason),)


def test_a_file_that_two_runs_cover_is_kept_in_the_larger_one_alone() -> None:
    runs = [run(f"r{number}", ("both", 10), (f"f{number}", 20)) for number in range(8)]
    runs.append(run("large", ("both", 10), ("x", 300 * 1024)))
    (merge,) = plan(runs, [("both", 10), ("x", 300 * 1024), *((f"f{n}", 20) for n in range(8))]).merges
    assert merge.files == tuple((f"f{number}", 20) for number in range(8))


@pytest.mark.parametrize(
    ("old_at", "new_at", "deleted"), [(0, 9000, True), (0, 9001, False), (9001, 0, False)]
)
def test_a_replaced_run_is_deleted_after_the_grace_of_both(old_at: int, new_at: int, deleted: bool) -> None:
    runs = [run("old", ("a", 1), at=old_at), run("new", ("a", 1), ("b", 1), at=new_at)]
    assert plan(runs, [("a", 1), ("b", 1)], now=10_000).deletes == (("old",) if deleted else ())


def test_a_run_of_dead_files_alone_is_deleted_after_the_grace() -> None:
    assert plan([run("r", ("dead", 1), at=9001)], [], now=10_000).deletes == ()
    assert plan([run("r", ("dead", 1), at=9000)], [], now=10_000).deletes == ("r",)


FILES = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 300_000)), unique_by=lambda it: it[0])


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), max_size=20), FILES, st.integers(0, 3000))
def test_every_live_file_keeps_a_run_or_gets_one(
    covered: list[list[str]], files: list[tuple[str, int]], now: int
) -> None:
    sizes = {**dict.fromkeys("abcdefgh", 1), **dict(files)}
    runs = [
        run(f"r{number}", *((name, sizes[name]) for name in names), at=number * 100)
        for number, names in enumerate(covered)
    ]
    planned = plan(runs, files, now)
    known = {each.path: each for each in runs}
    after = [*planned.builds, *(merge.files for merge in planned.merges)]
    after += [known[path].files for path in known.keys() - set(planned.deletes)]
    assert set(files) <= {file for each in after for file in each}
    built = [file for group in planned.builds for file in group]
    assert len(built) == len(set(built))
    for merge in planned.merges:
        assert set(merge.files) <= {file for path in merge.runs for file in known[path].files} & set(files)
    merged = [path for merge in planned.merges for path in merge.runs]
    assert len(merged) == len(set(merged))


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_keeps_few_runs_and_writes_each_row_a_few_times(seed: int) -> None:
    """2,000 batches of 50,000 rows; now and then the files of forty batches are folded into one."""
    chance = random.Random(seed)
    runs: list[KeyRun] = []
    files: list[tuple[str, int]] = []
    written = most = 0
    for batch in range(2000):
        files.append((f"f{batch}", 50_000))
        if batch % 40 == 39 and chance.random() < 0.5:
            files[-40:] = [(f"folded{batch}", 40 * 50_000)]
        planned = plan(runs, files, now=batch * GRACE)
        made = [*planned.builds, *(merge.files for merge in planned.merges)]
        runs = [each for each in runs if each.path not in planned.deletes]
        runs += [KeyRun(f"{batch:05}-{number}", batch * GRACE, group) for number, group in enumerate(made)]
        written += sum(rows for group in made for _, rows in group)
        after = plan(runs, files, now=batch * GRACE)
        used = [each for each in runs if set(each.files) & set(files)]
        most = max(most, len(used))
        assert after.builds == ()
    assert written <= 6 * 2000 * 50_000
    assert most <= 8 * 4 + 100 // 32 + 8
