"""The bounds of clustering, over simulated streams of thousands of commits whose every row is there."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planners import All, ClusteringPolicy
from planners.clustering.curves import hilbert
from planners.clustering.plan import ClusteringGroup
from planners.clustering.planner import plan_clustering
from planners.model import ColumnBounds, TableFile

TARGET, SMALL, FAN = 64, 40, 4


def policy(**options: Any) -> ClusteringPolicy:
    """Files of 64 rows, of a byte each, in groups of four files, unless said otherwise."""
    sizes = {"target_file_bytes": TARGET, "small_file_bytes": SMALL, "max_group_bytes": FAN * TARGET}
    return ClusteringPolicy(**{"select": All(), **sizes, **options})


POLICY, BIN_PACK = policy(sort_by=["key"]), policy()

BoundsOf = Callable[[list[int]], tuple[ColumnBounds, ...]]

BOUNDS: dict[str, BoundsOf] = {
    "exact": lambda keys: (ColumnBounds("key", min(keys), max(keys)),),
    "coarse": lambda keys: (ColumnBounds("key", min(keys) // 20_000, max(keys) // 20_000 + 1),),
    "all alike": lambda keys: (ColumnBounds("key", 0, 1),),
    "unknown": lambda keys: (),
}

KEYS: dict[str, Callable[[random.Random, int], int]] = {
    "even": lambda dice, at: dice.randrange(100_000),
    "skewed": lambda dice, at: int(100_000 * dice.random() ** 9),
    "a few": lambda dice, at: dice.randrange(3),
    "one": lambda dice, at: 7,
    "rising": lambda dice, at: at * 40 + dice.randrange(400),
}


@dataclass
class Table:
    """One partition: each file with the keys of all its rows, a byte each, and every byte ever written."""

    policy: ClusteringPolicy = POLICY
    bounds_of: BoundsOf = BOUNDS["exact"]
    shrink: float = 1.0
    """The bytes that a row of a clustered file takes."""
    files: dict[str, tuple[TableFile, list[int]]] = field(default_factory=dict)
    made: int = 0
    ingested: int = 0
    new: int = 0
    """The bytes that came since the last pass."""
    rewritten: int = 0
    passes: int = 0
    least_new: int = 2**60
    """The fewest bytes that a pass has found new; without an order, the bytes of the smallest new file."""
    most_small: int = 0

    def add(self, keys: list[int], group: ClusteringGroup | None = None) -> None:
        self.made += 1
        size = max(1, round(len(keys) * (self.shrink if group else 1)))
        file = TableFile(
            f"{self.made:09d}",
            (),
            size,
            len(keys),
            bounds=self.bounds_of(keys),
            clustered_by=group.order if group else None,
            level=group.level if group else 0,
            committed_at=self.made,
        )
        self.files[file.path] = (file, keys)

    def commit(self, keys: list[int]) -> None:
        self.ingested += len(keys)
        self.new += len(keys)
        if not self.policy.sort_by:
            self.least_new = min(self.least_new, len(keys))
        self.add(keys)

    def cluster(self) -> int:
        """Run one pass, and return the bytes it read."""
        live = [file for file, _ in self.files.values()]
        self.least_new = min(self.least_new, self.new or 2**60)
        self.new = 0
        plan = plan_clustering(live, self.made, self.policy)
        for group in plan.groups:
            keys = [key for path in group.inputs for key in self.files.pop(path)[1]]
            if group.sort_by:
                keys.sort()
            self.rewritten += group.bytes
            for part in cut(keys, group):
                self.add(part, group)
        self.passes += bool(plan.groups)
        small = sum(file.bytes < self.policy.small_file_bytes for file, _ in self.files.values())
        self.most_small = max(self.most_small, small)
        return plan.bytes

    def settle(self, most: int = 40) -> int:
        """Run passes until one finds nothing to do, and return how many did something."""
        for count in range(most):
            if not self.cluster():
                return count
        raise AssertionError("clustering never comes to an end")

    @property
    def full_files(self) -> int:
        return sum(file.bytes >= self.policy.small_file_bytes for file, _ in self.files.values())

    @property
    def written_per_byte(self) -> float:
        return self.rewritten / self.ingested

    @property
    def bound_per_byte(self) -> float:
        """The formula of the planner's docstring."""
        fan = self.policy.max_group_bytes // self.policy.target_file_bytes
        return 3 + self.doublings + math.log(max(1, self.full_files), fan) + 2

    @property
    def doublings(self) -> float:
        return math.log2(max(1, self.policy.small_file_bytes / self.least_new))

    @property
    def depth(self) -> int:
        """The most files that hold rows on both sides of one key."""
        events = sorted(
            event
            for _, keys in self.files.values()
            if min(keys) < max(keys)
            for event in ((min(keys), 1), (max(keys), -1))
        )
        reached = most = 0
        for _, change in events:
            reached += change
            most = max(most, reached)
        return most


def cut(keys: list[int], group: ClusteringGroup) -> Iterator[list[int]]:
    """What an executor makes of a group: files of equal size, or full ones and a last small one."""
    if group.remainder:
        for start in range(0, len(keys), TARGET):
            yield keys[start : start + TARGET]
        return
    for at in range(group.output_files):
        yield keys[len(keys) * at // group.output_files : len(keys) * (at + 1) // group.output_files]


def stream(table: Table, kind: str, commits: int, every: int = 4, rows: int = 6, seed: int = 1) -> Table:
    dice = random.Random(seed)
    for at in range(commits):
        table.commit([KEYS[kind](dice, at) for _ in range(dice.randint(1, 2 * rows))])
        if at % every == every - 1:
            table.cluster()
    return table


def check_bounds(table: Table) -> None:
    assert table.written_per_byte <= table.bound_per_byte
    assert table.most_small <= max(table.policy.overlap_at_least - 1, table.doublings + 2)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("kind", KEYS)
def test_rewriting_and_small_files_are_bounded_and_passes_come_to_an_end(kind: str, bound: str) -> None:
    """Whatever the keys, and however little the bounds tell of them."""
    table = stream(Table(bounds_of=BOUNDS[bound]), kind, commits=500)
    check_bounds(table)
    levels = math.ceil(math.log(table.full_files, FAN)) + 2
    assert table.settle() <= levels * 4
    assert max(file.level for file, _ in table.files.values()) <= levels
    assert sum(file.rows for file, _ in table.files.values()) == table.ingested


@pytest.mark.parametrize("kind", ["even", "skewed", "rising"])
def test_a_search_opens_few_of_hundreds_of_files(kind: str) -> None:
    """Fewer than four files a level, where there were hundreds over each other."""
    table = stream(Table(), kind, commits=2_500, every=8, rows=6)
    check_bounds(table)
    table.settle()
    levels = math.ceil(math.log(table.full_files, FAN)) + 1
    assert table.full_files > 200
    assert table.depth <= (POLICY.overlap_at_least - 1) * levels + table.most_small


def test_rising_keys_are_never_sorted_twice() -> None:
    """Files that do not overlap are left alone: one rewriting to sort, one to make full files."""
    assert stream(Table(), "rising", commits=500).written_per_byte <= 2


@pytest.mark.parametrize(("joined", "written"), [(POLICY, 5), (BIN_PACK, 3.5)], ids=["sorted", "joined"])
def test_thousands_of_tiny_commits_are_joined_by_doubling(joined: ClusteringPolicy, written: float) -> None:
    """One row a commit and a pass for each: what took 40 commits to fill a file is not rewritten 40 times."""
    table = stream(Table(joined), "rising", commits=2_000, every=1, rows=1)
    check_bounds(table)
    assert table.written_per_byte <= written
    assert table.full_files >= 25


def test_files_that_come_out_smaller_than_planned_still_come_to_an_end() -> None:
    """Sorted rows compress better, so that a file planned as full is small again."""
    table = stream(Table(shrink=0.4), "even", commits=400)
    assert table.settle() <= 8
    assert table.written_per_byte <= table.bound_per_byte


def test_along_a_curve_too_passes_come_to_an_end_and_a_search_opens_few_files() -> None:
    """Keys are places on a Hilbert curve through 64 x 64 cells; files know their bounds in x and y."""
    cells = np.indices((64, 64)).reshape(2, -1)
    walk = cells[:, np.argsort(hilbert(list(cells.astype(np.uint64)), 6))].tolist()

    def box(keys: list[int]) -> tuple[ColumnBounds, ...]:
        x, y = ([column[key] for key in keys] for column in walk)
        return ColumnBounds("x", min(x), max(x)), ColumnBounds("y", min(y), max(y))

    table = Table(policy(sort_by=["x", "y"], strategy="hilbert"), box)
    dice = random.Random(5)
    for at in range(1_500):
        table.commit([dice.randrange(64 * 64) for _ in range(dice.randint(1, 16))])
        if at % 8 == 7:
            table.cluster()
    check_bounds(table)
    table.settle()
    boxes = [file.bounds for file, _ in table.files.values()]
    opened = sum(x.lower <= 20 <= x.upper and y.lower <= 40 <= y.upper for x, y in boxes)
    assert len(boxes) > 150
    assert opened <= len(boxes) // 4


def test_plans_of_one_group_come_to_the_same_end_group_by_group() -> None:
    table = stream(Table(policy(sort_by=["key"], max_groups=1)), "even", commits=300, every=1_000)
    passes = table.settle(most=200)
    assert passes > 10
    assert table.depth <= 12
    assert table.written_per_byte <= table.bound_per_byte
    assert len(table.files) - table.full_files <= 3


def test_a_changed_order_rewrites_every_file_once() -> None:
    table = stream(Table(), "even", commits=300)
    table.settle()
    live = sum(file.bytes for file, _ in table.files.values())
    table.policy = policy(sort_by=["key desc"])
    before = table.rewritten
    table.cluster()
    assert table.rewritten - before == live


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=90), min_size=1, max_size=60),
    st.integers(1, 5),
    st.sampled_from(list(BOUNDS)),
    st.builds(
        policy,
        sort_by=st.sampled_from([[], ["key"]]),
        small_file_bytes=st.sampled_from([20, 40, 60]),
        max_group_bytes=st.sampled_from([2 * TARGET, 5 * TARGET]),
        overlap_at_least=st.integers(2, 6),
    ),
)
@example(commits=[[0] * 12, [0], [0, 0], [0] * 8], every=3, bound="exact", asked=policy(overlap_at_least=2))
def test_any_stream_keeps_the_bounds(
    commits: list[list[int]], every: int, bound: str, asked: ClusteringPolicy
) -> None:
    table = Table(asked, BOUNDS[bound])
    for at, keys in enumerate(commits):
        table.commit(keys)
        if at % every == 0:
            table.cluster()
    check_bounds(table)
    table.settle()
    assert not table.cluster()
