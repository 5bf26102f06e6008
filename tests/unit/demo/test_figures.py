"""How the demo prints numbers."""

from __future__ import annotations

import pytest

from demo.figures import bytes_text, table_text


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
