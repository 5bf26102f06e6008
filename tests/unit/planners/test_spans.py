"""Spans of time as people read them."""

from __future__ import annotations

import pytest

from planners.printing import span_text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 s"),
        (250, "250 ms"),
        (1_999, "1 s"),
        (90_000, "1 min 30 s"),
        (300_000, "5 min"),
        (3_600_000, "1 h"),
        (187_500_000, "2 d 4 h"),
    ],
)
def test_a_span_has_its_two_largest_units(milliseconds: int, text: str) -> None:
    assert span_text(milliseconds) == text
