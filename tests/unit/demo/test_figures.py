"""How the demo prints numbers."""

from __future__ import annotations

import pytest

from demo.figures import bytes_text, table_text, ticks, times_text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 KiB"),
        (512 * 1024, "512 KiB"),
        (999 * 1024, "999 KiB"),
        (1000 * 1024, "1.0 MiB"),
        (12_900_000, "12.3 MiB"),
    ],
)
def test_sizes_are_told_in_the_unit_that_fits(size: int, text: str) -> None:
    assert bytes_text(size) == text


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table_text([["", "plain", "ours"], ["files", "51", "1,234"]]).splitlines() == [
        "         plain   ours",
        "  ─────  ─────  ─────",
        "  files     51  1,234",
    ]


@pytest.mark.parametrize(
    ("ratio", "text"), [(0.99, "0.9x"), (5.09, "5.0x"), (9.99, "9.9x"), (10.0, "10x"), (12.9, "12x")]
)
def test_ratios_are_never_rounded_up(ratio: float, text: str) -> None:
    assert times_text(ratio) == text


@pytest.mark.parametrize(
    ("most", "marks"),
    [(1, [0, 1]), (7, [0, 2, 4, 6, 8]), (80, [0, 20, 40, 60, 80]), (2_636, [0, 1_000, 2_000, 3_000])],
)
def test_an_axis_has_few_round_marks_and_ends_above_all_values(most: int, marks: list[int]) -> None:
    assert ticks(most) == marks
