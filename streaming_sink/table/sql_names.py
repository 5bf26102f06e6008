"""Names of columns in Spark's SQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Return a column's name so that Spark takes each of its characters as a part of the name."""
    return "`" + name.replace("`", "``") + "`"
