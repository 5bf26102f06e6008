"""The bounds of the amortized policy, over simulated streams of thousands of batches to one partition."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planners import FileSizing
from planners.inserts import plan_inserts
from planners.model import Arrival, Bucket, InsertPlan, TableFile
from planners.sizing import SMALL_FILES_AT_MOST, FillPolicy

MIB = 1024**2
WIDTH = 46
SIZING = FileSizing(max_file_bytes="16MiB", small_file_bytes="13MiB")


@dataclass
class Partition:
    """A partition and its writer: what it holds, and every byte that was ever written to it."""

    sizing: FileSizing = SIZING
    policy: FillPolicy = FillPolicy.AMORTIZED
    width: int = WIDTH
    small: list[TableFile] = field(default_factory=list)
    written: int = 0
    ingested: int = 0
    in_full_files: int = 0
    files_made: int = 0
    merging_batches: int = 0
    batches: int = 0
    most_small: int = 0
    smallest_new: int = 2**60
    largest: int = 0

    def batch(self, actual: int, foreseen: int | None = None) -> None:
        """Take a batch, planned from the exact rows or from a forecast, as the writer would."""
        exact = foreseen is None
        expected = actual if foreseen is None else foreseen
        plan = plan_inserts(
            [Arrival((), expected)] if expected else [],
            self.small,
            self.sizing,
            bytes_per_row=self.width,
            policy=self.policy,
            exact=exact,
        )
        self.settle(actual, self.write(plan, actual))

    def settle(self, actual: int, merges: int) -> None:
        """Count what a batch of so many rows has left."""
        self.batches += 1
        self.merging_batches += merges > 0
        self.ingested += actual * self.width
        full = [file for file in self.small if file.bytes >= self.sizing.small_file_bytes]
        self.in_full_files += sum(file.bytes for file in full)
        self.largest = max([self.largest, *(file.bytes for file in self.small)])
        self.small = [file for file in self.small if file.bytes < self.sizing.small_file_bytes]
        self.most_small = max(self.most_small, len(self.small))

    def write(self, plan: InsertPlan, rows: int) -> int:
        merges = 0
        for bucket in plan.buckets:
            last = bucket is plan.buckets[-1]
            cut = bucket.max_rows if last and bucket.max_rows is not None else bucket.rows
            taken = min(rows, cut)
            rows -= taken
            if taken:
                merges += self.write_bucket(bucket, taken)
        while rows:
            taken = min(rows, plan.rows_per_new_file)
            self.smallest_new = min(self.smallest_new, taken * self.width)
            self.add(taken * self.width, taken)
            rows -= taken
        return merges

    def write_bucket(self, bucket: Bucket, rows: int) -> bool:
        merge = bool(bucket.inputs) and rows >= bucket.min_rows
        self.smallest_new = min(self.smallest_new, rows * self.width)
        if merge:
            self.written += rows * self.width
            filled = {file.path for file in bucket.inputs}
            self.small = [file for file in self.small if file.path not in filled]
        self.add(rows * self.width + merge * bucket.input_bytes, rows)
        return merge

    def add(self, size: int, rows: int) -> None:
        self.files_made += 1
        self.small.append(TableFile(f"{self.files_made:09d}", (), size, rows))
        self.written += size

    @property
    def written_per_byte(self) -> float:
        return self.written / self.ingested

    @property
    def bound(self) -> float:
        """The formula of the module's docstring, from the smallest new file of this stream."""
        largest, limit = self.sizing.max_file_bytes, self.sizing.small_file_bytes
        least = self.smallest_new
        return 3 + math.log2(max(1, limit / least)) * max(1, 2 * largest / least) ** (1 / 6)


def run(arrivals: Sequence[int], foreseen: Callable[[int], int] | None = None, **made: object) -> Partition:
    partition = Partition(**made)  # type: ignore[arg-type]
    for at, rows in enumerate(arrivals):
        partition.batch(rows, foreseen(at) if foreseen else None)
    return partition


def rows_of(mebibytes: float) -> int:
    return int(mebibytes * MIB / WIDTH)


def mixed(seed: int, batches: int = 1_200) -> dict[str, list[int]]:
    """Arrivals in rows; a full file has some 365,000."""
    dice = random.Random(seed)
    return {
        "equal": [rows_of(2.2)] * batches,
        "random": [dice.randint(1, 400_000) for _ in range(batches)],
        "log-normal": [1 + int(dice.lognormvariate(9, 2)) for _ in range(batches)],
        "tiny": [dice.randint(1, 2_000) for _ in range(batches)],
        "bursty": [dice.choice([1, 1, 1, 10, 100, 1_000_000]) for _ in range(batches)],
        "large": [dice.randint(200_000, 2_000_000) for _ in range(batches)],
    }


FORECASTS: dict[str, Callable[[list[int]], Callable[[int], int] | None]] = {
    "counted": lambda arrivals: None,
    "as the batch before": lambda arrivals: lambda at: arrivals[at - 1] if at else 1,
    "unrelated": lambda arrivals: lambda at: arrivals[(at * 7 + 3) % len(arrivals)],
    "always tiny": lambda arrivals: lambda at: 1,
    "always huge": lambda arrivals: lambda at: 1_000_000,
    "never foreseen": lambda arrivals: lambda at: 0,
    "in turn": lambda arrivals: lambda at: (1, 1_000_000, 350_000)[at % 3],
}


@pytest.mark.parametrize("forecast", FORECASTS)
@pytest.mark.parametrize("kind", mixed(0, 1))
def test_at_most_eight_small_files_and_bytes_within_the_bound(kind: str, forecast: str) -> None:
    """However wrong the forecast is."""
    arrivals = mixed(1)[kind]
    partition = run(arrivals, FORECASTS[forecast](arrivals))
    assert partition.most_small <= SMALL_FILES_AT_MOST
    assert partition.written_per_byte <= partition.bound
    assert partition.largest <= SIZING.max_file_bytes * 33 // 32


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(st.integers(1, 50), st.integers(1, 400_000), st.just(1_000_000)), min_size=1, max_size=8
    ),
    st.lists(st.one_of(st.just(0), st.integers(1, 400_000), st.just(1_000_000)), max_size=5),
    st.integers(1, 15),
)
def test_any_repeating_stream_keeps_the_bounds(pattern: list[int], foreseen: list[int], limit: int) -> None:
    """Any small limit of up to 15/16 of the maximum, counted or with any forecast."""
    sizing = FileSizing(max_file_bytes="16MiB", small_file_bytes=f"{limit}MiB")
    arrivals = pattern * (240 // len(pattern))
    partition = run(arrivals, (lambda at: foreseen[at % len(foreseen)]) if foreseen else None, sizing=sizing)
    assert partition.most_small <= SMALL_FILES_AT_MOST
    assert partition.written_per_byte <= partition.bound


@pytest.mark.parametrize("forecast", ["counted", "as the batch before"])
def test_sixty_equal_arrivals_of_which_seven_fill_a_file(forecast: str) -> None:
    """90 % in full files at 3 bytes written per byte, and the median batch merges nothing."""
    arrivals = [rows_of(2.2)] * 60
    partition = run(arrivals, FORECASTS[forecast](arrivals))
    assert partition.in_full_files >= 0.9 * partition.ingested
    assert partition.written_per_byte <= 3
    assert partition.merging_batches * 6 <= partition.batches


@pytest.mark.parametrize("forecast", ["counted", "as the batch before"])
@pytest.mark.parametrize("fill_a_file", [5, 5.5, 6, 6.5, 7, 7.5, 8])
def test_where_five_to_eight_arrivals_fill_a_file_two_bytes_are_written_per_byte(
    fill_a_file: float, forecast: str
) -> None:
    arrivals = [int(SIZING.max_file_bytes / fill_a_file / WIDTH)] * 3_000
    partition = run(arrivals, FORECASTS[forecast](arrivals))
    assert partition.written_per_byte <= 2
    assert partition.in_full_files >= 0.99 * partition.ingested
    assert partition.merging_batches * 2 < partition.batches


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_noisy_arrivals_around_a_seventh_of_a_file_cost_less_than_three(seed: int) -> None:
    dice = random.Random(seed)
    arrivals = [rows_of(dice.uniform(1.7, 2.7)) for _ in range(300)]
    partition = run(arrivals, FORECASTS["as the batch before"](arrivals))
    assert partition.written_per_byte <= 3
    assert partition.most_small <= SMALL_FILES_AT_MOST
    assert partition.in_full_files >= 0.9 * partition.ingested


@pytest.mark.parametrize("foreseen", [None, lambda at: 100])
def test_ten_thousand_tiny_arrivals(foreseen: Callable[[int], int] | None) -> None:
    """10 KB a batch under the default sizes: 11 bytes per byte at most, and eight files."""
    partition = run([100] * 10_000, foreseen, sizing=FileSizing(), width=102)
    assert partition.most_small <= SMALL_FILES_AT_MOST
    assert partition.written_per_byte <= 11 <= partition.bound


@pytest.mark.parametrize("arrivals_per_file", [9, 36, 120, 330, 792, 1_716, 3_432])
def test_equal_arrivals_cost_what_the_binomial_schedule_says(arrivals_per_file: int) -> None:
    rows = SIZING.small_file_bytes // arrivals_per_file // WIDTH
    partition = run([rows] * (3 * arrivals_per_file))
    rewrites = next(t for t in range(99) if math.comb(t + 7, 7) >= SIZING.small_file_bytes / (rows * WIDTH))
    assert partition.written_per_byte <= 2 + rewrites
    assert partition.most_small <= SMALL_FILES_AT_MOST


@pytest.mark.parametrize("foreseen", [None, lambda at: 5_000])
def test_a_partition_that_comes_with_hundreds_of_small_files_gets_down_to_eight(
    foreseen: Callable[[int], int] | None,
) -> None:
    dice = random.Random(3)
    small = [TableFile(f"old{at}", (), dice.randint(1_000, 4 * MIB), 9) for at in range(300)]
    total = sum(file.bytes for file in small)
    partition = run([5_000] * (total // SIZING.small_file_bytes + 2), foreseen, small=small)
    assert len(partition.small) <= SMALL_FILES_AT_MOST


def test_always_writes_far_more_than_amortized_for_the_same_stream() -> None:
    """The price of Hudi's rule, and that the simulation sees it."""
    arrivals = [rows_of(0.2)] * 600
    assert run(arrivals, policy=FillPolicy.ALWAYS).written_per_byte > 30
    assert run(arrivals).written_per_byte < 6


def test_never_leaves_every_small_file() -> None:
    partition = run([rows_of(0.2)] * 600, policy=FillPolicy.NEVER)
    assert (len(partition.small), partition.written_per_byte) == (600, 1)
