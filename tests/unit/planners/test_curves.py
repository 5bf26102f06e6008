"""Keys along space-filling curves, and the ranks that they are made from."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planners.clustering.curves import (
    Ranks,
    bits_for,
    hilbert,
    quantile_boundaries,
    ranks,
    spread,
    zorder,
)

Curve = Callable[[Sequence[Ranks], int], Ranks]

GRIDS = [(1, 6), (2, 1), (2, 5), (3, 3), (4, 2), (5, 2), (6, 1)]


def grid(columns: int, bits: int) -> list[Ranks]:
    """Every cell once."""
    return list(np.indices((2**bits,) * columns).reshape(columns, -1).astype(np.uint64))


@pytest.mark.parametrize("curve", [zorder, hilbert])
@pytest.mark.parametrize(("columns", "bits"), GRIDS)
def test_a_curve_visits_every_cell_once(curve: Curve, columns: int, bits: int) -> None:
    keys = curve(grid(columns, bits), bits)
    assert sorted(keys.tolist()) == list(range(2 ** (columns * bits)))


@pytest.mark.parametrize(("columns", "bits"), GRIDS)
def test_hilbert_s_next_cell_is_one_step_away(columns: int, bits: int) -> None:
    cells = np.stack(grid(columns, bits)).astype(np.int64)
    walk = cells[:, np.argsort(hilbert(grid(columns, bits), bits))]
    assert (np.abs(np.diff(walk, axis=1)).sum(axis=0) == 1).all()


@settings(deadline=None)
@given(st.integers(1, 5).flatmap(lambda n: st.lists(st.integers(0, 2**12 - 1), min_size=n, max_size=n)))
def test_z_order_interleaves_the_bits_the_first_column_first(row: list[int]) -> None:
    bits = "".join("".join(column) for column in zip(*(f"{value:012b}" for value in row), strict=True))
    (key,) = zorder([np.array([value], dtype=np.uint64) for value in row], 12)
    assert int(key) == int(bits, 2)


def test_one_column_keeps_its_order_along_both_curves() -> None:
    values = np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64)
    assert zorder([values], 64).tolist() == hilbert([values], 64).tolist() == values.tolist()


def test_all_64_bits_of_a_key_are_used() -> None:
    most = np.array([2**32 - 1], dtype=np.uint64)
    assert zorder([most, most], 32).tolist() == [2**64 - 1]


@pytest.mark.parametrize("curve", [zorder, hilbert])
def test_a_curve_leaves_its_columns_as_they_were(curve: Curve) -> None:
    columns = grid(2, 3)
    curve(columns, 3)
    assert [column.tolist() for column in columns] == [column.tolist() for column in grid(2, 3)]


@pytest.mark.parametrize("curve", [zorder, hilbert])
@pytest.mark.parametrize(
    ("columns", "bits", "message"),
    [
        ([], 4, "at least one column"),
        ([np.zeros(1, dtype=np.uint64)] * 3, 22, "3 columns of 22 bits do not fit .* 1 to 21 bits"),
        ([np.zeros(1, dtype=np.uint64)], 0, "1 to 64 bits"),
        ([np.zeros(1, dtype=np.int64)], 4, "column 0 has int64"),
        ([np.array([16], dtype=np.uint64)], 4, "rank 16, which needs more than 4 bits"),
    ],
)
def test_columns_that_make_no_key_are_refused(
    curve: Curve, columns: Sequence[Ranks], bits: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        curve(columns, bits)


def test_bits_hold_the_ranks_of_all_boundaries_and_of_nulls() -> None:
    assert [bits_for(2, boundaries) for boundaries in (0, 1, 2, 6, 7, 1_023)] == [1, 2, 2, 3, 4, 11]
    with pytest.raises(ValueError, match="7 columns of 11 bits"):
        bits_for(7, 1_023)


# ------------------------------------------------------------------------------------- ranks

column = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40),
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=40),
    st.lists(st.text(max_size=12), min_size=1, max_size=40),
    st.lists(st.binary(max_size=12), min_size=1, max_size=40),
)


def array(values: Sequence[Any]) -> Any:
    """Strings and binary values stay objects: numpy's own string types drop zeros at the end."""
    return np.array(values, dtype=object if isinstance(values[0], str | bytes) else None)


@settings(deadline=None)
@given(column, st.integers(1, 20))
def test_ranks_keep_the_order_of_any_type(values: list[Any], buckets: int) -> None:
    boundaries = quantile_boundaries(array(values), buckets)
    found = ranks(array(sorted(values)), boundaries)
    assert (np.diff(found.astype(np.int64)) >= 0).all()
    assert len(boundaries) < buckets
    assert found.max() <= len(boundaries)


@settings(deadline=None)
@given(column, st.data())
def test_nulls_come_before_or_after_all_values(values: list[Any], data: st.DataObject) -> None:
    nulls = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))))
    boundaries = quantile_boundaries(array(values), 8)
    plain = ranks(array(values), boundaries)
    first = ranks(array(values), boundaries, nulls=nulls)
    last = ranks(array(values), boundaries, nulls=nulls, nulls_first=False)
    assert (first == np.where(nulls, 0, plain + np.uint64(1))).all()
    assert (last == np.where(nulls, len(boundaries) + 1, plain)).all()
    assert int(max(first.max(), last.max())) < 2 ** bits_for(1, len(boundaries))


def test_quantiles_give_a_skewed_column_equal_buckets() -> None:
    dice = np.random.default_rng(1)
    values = dice.pareto(0.5, 100_000)
    counts = np.bincount(ranks(values, quantile_boundaries(values[:5_000], 16)).astype(np.int64))
    assert len(counts) == 16
    assert counts.max() < 2 * counts.min()


def test_a_value_that_fills_half_the_sample_is_one_boundary() -> None:
    assert quantile_boundaries([5] * 50 + list(range(100, 150)), 4).tolist() == [5, 100, 125]


def test_nan_ranks_after_all_numbers() -> None:
    values = np.array([1.0, np.nan, np.inf, -np.inf, np.nan])
    found = ranks(values, quantile_boundaries(values, 5))
    assert found[1] == found[4] == found.max()
    assert found[2] < found[1]


def test_an_empty_sample_has_no_boundaries_and_one_rank() -> None:
    assert ranks([3.0, 1.0], quantile_boundaries(np.array([]), 8)).tolist() == [0, 0]
    with pytest.raises(ValueError, match="buckets must be at least 1"):
        quantile_boundaries([1], 0)


@settings(deadline=None)
@given(st.integers(0, 5_000), st.integers(13, 32))
def test_spread_ranks_keep_their_order_and_fill_the_bits(boundaries: int, bits: int) -> None:
    found = spread(np.arange(boundaries + 2, dtype=np.uint64), boundaries, bits)
    assert (np.diff(found.astype(np.int64)) > 0).all()
    assert 2**bits // 2 <= int(found[-1]) + 1 <= 2**bits


def test_rows_beyond_one_block_have_the_same_keys() -> None:
    columns = [np.tile(column, 20) for column in grid(2, 5)]
    for curve in (zorder, hilbert):
        assert (curve(columns, 5) == np.tile(curve(grid(2, 5), 5), 20)).all()


def test_the_other_planners_do_without_numpy() -> None:
    code = "import sys, planners; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------------------------- locality


def files_opened(keys: Ranks, columns: Sequence[Any], asked: int, files: int = 64) -> float:
    """Return how many files a range of 1 % of one column opens on average, if `keys` sorted the rows."""
    order = np.argsort(keys, kind="stable")
    parts = np.array_split(columns[asked][order], files)
    lows, highs = (np.array([f(part) for part in parts]) for f in (np.min, np.max))
    starts = np.quantile(columns[asked], np.arange(0.005, 0.985, 0.02))
    ends = np.quantile(columns[asked], np.arange(0.015, 0.995, 0.02))
    return float(
        np.mean([((lows <= end) & (highs >= start)).sum() for start, end in zip(starts, ends, strict=True)])
    )


def keys_of(curve: Curve, columns: Sequence[Any]) -> Ranks:
    """Normalise as an executor does: sample, rank, spread."""
    bounds = [quantile_boundaries(column[:4_000], 1_024) for column in columns]
    ranked = [ranks(column, found) for column, found in zip(columns, bounds, strict=True)]
    return curve([spread(found, len(cuts), 16) for found, cuts in zip(ranked, bounds, strict=True)], 16)


@pytest.mark.parametrize("curve", [zorder, hilbert])
def test_a_range_of_either_column_opens_less_than_a_third_of_the_files(curve: Curve) -> None:
    """A linear sort opens two for the first column, and all 64 for the second; one column is skewed."""
    dice = np.random.default_rng(7)
    columns = [dice.integers(0, 10**9, 60_000), dice.pareto(0.7, 60_000)]
    linear = ranks(columns[0], quantile_boundaries(columns[0][:4_000], 1_024))
    assert files_opened(linear, columns, 0) < 3
    assert files_opened(linear, columns, 1) == 64
    keys = keys_of(curve, columns)
    assert files_opened(keys, columns, 0) <= 20
    assert files_opened(keys, columns, 1) <= 20


@pytest.mark.parametrize("curve", [zorder, hilbert])
def test_a_column_of_few_values_has_its_say_beside_one_of_many(curve: Curve) -> None:
    dice = np.random.default_rng(7)
    columns = [dice.integers(0, 10**9, 60_000), dice.integers(0, 8, 60_000)]
    assert files_opened(keys_of(curve, columns), columns, 1) <= 20


def test_hilbert_s_files_are_smaller_boxes_than_z_order_s() -> None:
    """Cut where they do not fit the grid, stretches of z-order fall apart into far cells."""
    cells = grid(2, 7)
    areas = []
    for curve in (zorder, hilbert):
        order = np.argsort(curve(cells, 7))
        parts = [np.array_split(column[order], 50) for column in cells]
        areas.append(
            sum(
                float(np.ptp(xs.astype(np.int64)) + 1) * float(np.ptp(ys.astype(np.int64)) + 1)
                for xs, ys in zip(*parts, strict=True)
            )
        )
    assert areas[1] < 0.8 * areas[0]
