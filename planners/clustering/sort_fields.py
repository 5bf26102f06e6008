"""Sort columns: the column, its direction and the place of its nulls, as a value and as text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SortField:
    """One column to sort by. Its text, as `str` gives and `parse` reads: "session_id desc nulls last"."""

    column: str
    descending: bool = False
    nulls_first: bool = True

    def __post_init__(self) -> None:
        if not self.column.strip():
            raise ValueError("a sort column needs a name")

    def __str__(self) -> str:
        direction = "desc" if self.descending else "asc"
        return f"{self.column} {direction} nulls {'first' if self.nulls_first else 'last'}"

    @classmethod
    def parse(cls, text: str) -> SortField:
        """Read a column's name, or one with "asc" or "desc" and "nulls first" or "nulls last" behind it.

        Without them the column ascends; nulls come first where it ascends, last where it descends, as in
        Spark. A column whose name itself ends in such words is given as a `SortField`.
        """
        rest, nulls_first = text.strip(), None
        for place in ("first", "last"):
            if rest.lower().endswith(f" nulls {place}"):
                rest, nulls_first = rest[: -len(f" nulls {place}")].rstrip(), place == "first"
        descending = rest.lower().endswith(" desc")
        if descending or rest.lower().endswith(" asc"):
            rest = rest.rpartition(" ")[0].rstrip()
        return cls(rest, descending, not descending if nulls_first is None else nulls_first)
