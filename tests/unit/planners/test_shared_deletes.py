"""Shared delete files: who shares one, which runs are merged, and the bounds over streams."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import count

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planners import FileSizing
from planners.fills import plan_fills
from planners.folds import DELETE_FILES_AT_MOST, DELETE_FILES_AT_REST, PASSES_AT_REST, PlannedDeleteMerge
from planners.model import PositionDeletes, TableFile
from planners.shared_deletes import (
    DELETE_FILES_A_BATCH,
    OWN_POSITIONS,
    RUNS_BESIDE_PLANS,
    SHARED_RUNS_AT_MOST,
    PlannedRunMerge,
    own_from,
    share_delete_files,
)

WIDTH = 1024
SIZING = FileSizing(max_file_bytes="16MiB", small_file_bytes="13MiB")
FULL = 16 * 1024


def paths(count: int) -> list[str]:
    return [f"{number:06}" for number in range(count)]


# -------------------------------------------------------------------------------------- who shares one


def test_few_data_files_have_a_delete_file_each() -> None:
    assert share_delete_files(dict.fromkeys(paths(DELETE_FILES_A_BATCH))) == [
        (path,) for path in paths(DELETE_FILES_A_BATCH)
    ]


def test_ten_thousand_data_files_share_as_many_as_few_have() -> None:
    groups = share_delete_files(dict.fromkeys(reversed(paths(10_000))))
    assert len(groups) == DELETE_FILES_A_BATCH
    assert [path for group in groups for path in group] == paths(10_000), "neighbours by path share one"
    assert {len(group) for group in groups} == {78, 79}


@given(
    st.lists(st.integers(0, 5), max_size=200),
    st.integers(1, 20),
)
def test_groups_are_of_one_partition_and_no_more_than_said(of: list[int], at_most: int) -> None:
    data_files = dict(zip(paths(len(of)), of, strict=True))
    groups = share_delete_files(data_files, at_most)
    assert sorted(path for group in groups for path in group) == sorted(data_files)
    assert len(groups) <= max(at_most + len(set(of)), 0)
    assert len(groups) == len(of) or len(of) > at_most
    for partition in set(of):
        mine = [group for group in groups if data_files[group[0]] == partition]
        assert all(data_files[path] == partition for group in mine for path in group)
        assert [path for group in mine for path in group] == sorted(
            path for path in data_files if data_files[path] == partition
        )


def test_a_data_file_has_its_own_delete_file_from_a_kibi_of_positions_or_a_quarter_of_the_share() -> None:
    assert [own_from(rows, 0.2) for rows in (1, 100, 10_000, 1_000_000)] == [1, 5, 500, OWN_POSITIONS]


# ------------------------------------------------------------------------------------ which are merged


def shared(path: str, runs: list[int], rows: int = 1, **told: object) -> TableFile:
    """A full file to which a shared delete file of each of these runs may apply."""
    deletes = tuple(PositionDeletes(f"run-{run}", rows * 100 ** max(0, run - 1), run) for run in runs)
    made = TableFile(path, (), FULL * WIDTH, FULL, deletes=deletes)
    return replace(made, **told)  # type: ignore[arg-type]


def test_four_runs_stay_and_of_five_the_smallest_are_merged() -> None:
    assert plan_fills([shared("a", [0, 1, 2, 3])], SIZING).is_empty
    known = {"a": [0, 1], "b": [2, 3, 4], "c": [0, 4]}
    files = [shared(path, runs, partition=("x",)) for path, runs in known.items()]
    plan = plan_fills(files, SIZING)
    [merge] = plan.run_merges
    assert [it.path for it in merge.deletes] == ["run-0", "run-1"], "then four are left"
    assert (merge.into, merge.reason) == (1, "5 runs of shared delete files, more than 4")


def test_so_many_runs_are_merged_that_four_are_left() -> None:
    """One more than the best repaid ones, where these are too few."""
    [merge] = plan_fills([shared("a", [0, 1, 2, 3, 4, 5])], SIZING).run_merges
    assert [it.path for it in merge.deletes] == ["run-0", "run-1", "run-2"]


def test_a_run_is_what_one_commit_added_however_many_files() -> None:
    pairs = [PositionDeletes(f"{run}-{at}", 1, run) for run in range(5) for at in range(3)]
    files = [replace(shared(f"f{at}", []), deletes=tuple(pairs[at::3])) for at in range(3)]
    [merge] = plan_fills(files, SIZING).run_merges
    assert (len(merge.deletes), merge.into, merge.runs) == (15, 3, 5)
    assert plan_fills(list(reversed(files)), SIZING).run_merges == (merge,)


def test_runs_of_other_partitions_and_specs_are_apart() -> None:
    files = [
        shared("a", [0, 1, 2], partition=("x",)),
        shared("b", [3, 4, 5], partition=("y",)),
        shared("c", [6, 7, 8], partition=("x",), spec_id=1),
    ]
    assert plan_fills(files, SIZING).is_empty


def test_at_rest_one_run_stays() -> None:
    assert plan_fills([shared("a", [0])], SIZING, at_rest=True).is_empty
    [merge] = plan_fills([shared("a", [0, 1, 2])], SIZING, at_rest=True).run_merges
    assert [it.path for it in merge.deletes] == ["run-0", "run-1", "run-2"]
    assert merge.reason == "3 runs of shared delete files, more than 1"
    read = shared("a", [0, 1, 2], reserved_by="a plan")
    assert plan_fills([read], SIZING, at_rest=True).is_empty, "a plan has read them"


def test_runs_that_a_plan_has_read_are_not_merged() -> None:
    files = [shared("a", [0, 1, 2, 3, 4]), shared("b", [0], reserved_by="a plan")]
    assert plan_fills(files, SIZING).is_empty
    assert plan_fills([files[0], replace(files[1], deletes=())], SIZING).run_merges


def test_runs_are_merged_in_the_end_though_a_plan_is_pending_all_the_time() -> None:
    """The clusterer plans again as soon as a plan has ended, and each batch adds a run."""
    runs, merges, most = {0: 1}, 0, 0
    for batch in range(1, 200):
        runs[batch] = 1
        deletes = tuple(PositionDeletes(f"run-{run}", rows, run) for run, rows in runs.items())
        file = replace(shared("a", []), deletes=deletes, reserved_by=f"plan {batch}")
        for merge in plan_fills([file], SIZING).run_merges:
            merges += 1
            merged = [it.run for it in merge.deletes if it.run is not None]
            runs[batch] = sum(runs.pop(run) for run in merged)
        most = max(most, len(runs))
    assert most == RUNS_BESIDE_PLANS
    assert merges <= 200 / (RUNS_BESIDE_PLANS - SHARED_RUNS_AT_MOST)


def test_a_data_file_keeps_three_of_its_own_beside_shared_ones() -> None:
    own = tuple(PositionDeletes(f"own-{at}", 10, None) for at in range(4))
    few = replace(shared("a", [0]), deletes=own)
    assert plan_fills([few], SIZING).is_empty
    crowded = replace(few, deletes=(*own, PositionDeletes("run-0", 1, 0)))
    [merge] = plan_fills([crowded], SIZING).delete_merges
    assert {it.run for it in merge.deletes} == {None}


def test_only_the_rows_that_it_alone_loses_make_a_file_worn() -> None:
    """How many rows a shared delete file deletes of which data file is not in the metadata."""
    assert plan_fills([shared("a", [3, 4], rows=FULL)], SIZING).is_empty


# ------------------------------------------------------------------------------------------ streams


@dataclass
class Table:
    """Full files of a partition from which a stream deletes, and what the passes beside it do."""

    files: dict[str, TableFile]
    held: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    """Delete file → how many positions of which data files it holds."""
    numbers: count[int] = field(default_factory=count)
    deleted: int = 0
    positions: int = 0
    fewest: int = 2**60
    made: int = 0
    alone: int = 0
    folded: int = 0
    most_at_once: int = 0

    def batch(self, dice: random.Random, files: int, most: int) -> None:
        live = [path for path, file in self.files.items() if self.left(path) > most]
        gone = {path: dice.randint(1, most) for path in dice.sample(live, min(files, len(live)))}
        groups = share_delete_files(dict.fromkeys(gone), 8)
        assert len(groups) <= 9
        run = next(self.numbers)
        for group in groups:
            self.add(run, {path: gone[path] for path in group})
        self.deleted += sum(gone.values())
        if groups and len(groups) < len(gone):
            self.fewest = min(self.fewest, sum(gone.values()))

    def add(self, run: int, rows_of: dict[str, int]) -> None:
        """A new delete file: it may apply to the data files in its range, of those that are there."""
        name = f"d{next(self.numbers)}"
        self.held[name] = rows_of
        rows = sum(rows_of.values())
        self.positions += rows
        self.made += 1
        new = PositionDeletes(name, rows, None if len(rows_of) == 1 else run)
        for path, file in self.files.items():
            if min(rows_of) <= path <= max(rows_of):
                self.files[path] = self.told(replace(file, deletes=(*file.deletes, new)))

    def told(self, file: TableFile) -> TableFile:
        own = sum(it.rows for it in file.deletes if it.run is None)
        return replace(file, rows=FULL - own, deleted_rows=own)

    def left(self, path: str) -> int:
        return FULL - sum(self.held[it.path].get(path, 0) for it in self.files[path].deletes)

    def run_pass(self, *, at_rest: bool = False) -> None:
        plan = plan_fills(self.files.values(), SIZING, at_rest=at_rest)
        rewritten = {it.path for fill in plan.fills for it in fill.inputs}
        for merge in plan.delete_merges:
            self.merge(merge.deletes, merge.file.path)
        for runs in plan.run_merges:
            self.merge_runs(runs, rewritten)
        for path in rewritten:
            del self.files[path]
            self.folded += 1
            self.files[f"{next(self.numbers):06}-new"] = TableFile(f"{path}+", (), FULL * WIDTH, FULL)
        for path in list(self.files):
            self.files[path] = replace(self.files[path], path=path)
        found = [file.deletes for file in self.files.values()]
        self.most_at_once = max(self.most_at_once, max(len(it) for it in found))
        assert max(len(it) for it in found) <= DELETE_FILES_AT_MOST
        assert max(len({each.run for each in it} - {None}) for it in found) <= SHARED_RUNS_AT_MOST

    def merge(self, deletes: tuple[PositionDeletes, ...], path: str) -> None:
        rows = self.take(deletes)[path]
        self.add(next(self.numbers), {path: rows})

    def merge_runs(self, merge: PlannedRunMerge, rewritten: set[str]) -> None:
        parts = {path: rows for path, rows in self.take(merge.deletes).items() if path in self.files}
        own = {path for path, rows in parts.items() if path not in rewritten and rows >= own_from(FULL, 0.2)}
        run = next(self.numbers)
        for path in own:
            self.alone += parts[path]
            self.add(run, {path: parts.pop(path)})
        for group in share_delete_files(dict.fromkeys(parts), merge.into):
            self.add(run, {path: parts[path] for path in group})

    def take(self, deletes: tuple[PositionDeletes, ...]) -> dict[str, int]:
        names = {it.path for it in deletes}
        found: dict[str, int] = defaultdict(int)
        for name in names:
            for path, rows in self.held.pop(name).items():
                found[path] += rows
        for path, file in self.files.items():
            left = tuple(it for it in file.deletes if it.path not in names)
            self.files[path] = self.told(replace(file, deletes=left))
        return found


@settings(max_examples=40, deadline=None)
@given(
    files=st.integers(2, 60),
    touched=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    most=st.sampled_from([1, 30, 900]),
    seed=st.integers(0, 2**32),
)
@example(files=10, touched=[10, 10, 1, 10], most=30, seed=104279460).via("a merge of runs reaches a ninth")
def test_any_stream_of_deletes_keeps_the_bounds(files: int, touched: list[int], most: int, seed: int) -> None:
    dice = random.Random(seed)
    table = Table({path: TableFile(path, (), FULL * WIDTH, FULL) for path in paths(files)})
    for at in range(80):
        table.batch(dice, touched[at % len(touched)], most)
        table.run_pass()
    if table.fewest < 2**60:
        most_rows = max(2, table.deleted / table.fewest)
        runs = (1 + math.log2(most_rows) * most_rows ** (1 / 4)) * table.deleted
        own = (1 + math.log2(FULL) * FULL ** (1 / 3)) * table.deleted
        assert table.positions <= runs + own
    assert table.alone <= table.deleted, "a position goes to a delete file of its data file once"
    for _ in range(PASSES_AT_REST):
        table.run_pass(at_rest=True)
    assert max(len(file.deletes) for file in table.files.values()) <= DELETE_FILES_AT_REST
    assert not plan_fills(table.files.values(), SIZING, at_rest=True).delete_merges


def test_a_stream_over_many_files_writes_few_delete_files() -> None:
    """Three hundred data files, a row of each in each batch: 300 delete files a batch without sharing."""
    table = Table({path: TableFile(path, (), FULL * WIDTH, FULL) for path in paths(300)})
    dice = random.Random(7)
    for _ in range(60):
        table.batch(dice, 300, 1)
        table.run_pass()
    assert table.deleted == 60 * 300
    assert table.made <= 60 * 2 * 9
    assert table.most_at_once <= SHARED_RUNS_AT_MOST + 1


@pytest.mark.parametrize("kind", [PlannedDeleteMerge, PlannedRunMerge])
def test_a_merge_says_which_partition_it_is_of(kind: type) -> None:
    file = shared("a", [0, 1, 2, 3, 4], partition=("x",), spec_id=3)
    own = replace(file, deletes=tuple(PositionDeletes(f"{at}", 1) for at in range(9)))
    plan = plan_fills([file if kind is PlannedRunMerge else own], SIZING)
    [merge] = [*plan.delete_merges, *plan.run_merges]
    assert isinstance(merge, kind)
    assert merge.partition == (3, ("x",))
