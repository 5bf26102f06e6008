"""What the demo found out: plain values, which the screen and the report show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from demo.stream import Run


@dataclass(frozen=True)
class Extent:
    """One file of the table, and the aircraft in it, by the place of their numbers among all numbers.

    A file that may hold every aircraft is 0.0 to 1.0.
    """

    low: float
    high: float
    rows: int

    def holds(self, position: float) -> bool:
        return self.low <= position <= self.high


@dataclass(frozen=True)
class Survey:
    """A table as DuckDB sees it. Query times are medians in milliseconds, by the query's name."""

    rows: int
    file_bytes: tuple[int, ...]
    query_milliseconds: Mapping[str, float]
    answers: Mapping[str, list[tuple[object, ...]]]
    extents: tuple[Extent, ...]
    """Of its files, by the bounds in their footers."""

    @property
    def mean_file_bytes(self) -> float:
        return sum(self.file_bytes) / len(self.file_bytes)

    def found(self, position: float) -> tuple[int, int]:
        """Return the number of files that may hold the aircraft at `position`, and of the rows in them."""
        rows = [extent.rows for extent in self.extents if extent.holds(position)]
        return len(rows), sum(rows)


@dataclass(frozen=True)
class Column:
    """One table of the comparison: by which sink, and what is known of it."""

    name: str
    survey: Survey
    written_bytes: int
    """Of all data files that were ever written for it, those that merges have replaced included."""
    run: Run | None
    """Of its stream; None for a table that was made from another."""


@dataclass(frozen=True)
class Results:
    """Everything that the last screen and the report show."""

    rows: int
    batches: int
    peer: Column
    ours: Column
    clustered: Column
    peer_is: str
    """What the peer is, as a sentence."""
    position: float
    """Of the aircraft that is searched for, among all aircraft by their numbers."""
    cluster_seconds: float

    @property
    def columns(self) -> tuple[Column, Column, Column]:
        return self.peer, self.ours, self.clustered
