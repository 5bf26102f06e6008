"""Names of columns in Spark's SQL."""

from __future__ import annotations


def folded(name: str) -> str:
    """Return the same text for names that Spark takes for one, where it does not distinguish cases: it
    compares character by character, as Java's `equalsIgnoreCase`, which also takes `\u017f` for `s`.
    """
    return "".join(_folded(each) for each in name)


def _folded(character: str) -> str:
    upper = character.upper()
    return (upper if len(upper) == 1 else character).lower()[0]


def cannot_be_passed(name: str) -> bool:
    """Return whether PySpark cannot pass a column of that name to Python workers."""
    return name == "*" or "." in name or "`" in name


def quoted(name: str) -> str:
    """Return a column's name so that Spark takes each of its characters as a part of the name."""
    return "`" + name.replace("`", "``") + "`"
