"""The conflict table of the protocol, from what each kind of change says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from textwrap import fill

import timeline.changes as room
from timeline.changes.changes import Change

_COLUMNS = ("append", "fill, clustering", "deletes added", "schema", "partition spec", "others", "note")


def conflict_table() -> str:
    """Return the table as Markdown, a row for each kind, and the conditions below it. Kinds that fit every
    head are one row.
    """
    kinds = sorted(_kinds(Change), key=lambda kind: kind.__name__)
    free = [kind for kind in kinds if set(kind.over[:-1]) == {"ok"} and not kind.over.when]
    rows: list[str] = []
    notes: list[str] = []
    for kind in kinds:
        if kind not in free:
            notes += [f"({len(notes) + 1}) {kind.over.when}"] if kind.over.when else []
            note = f"({len(notes)})" if kind.over.when else ""
            rows.append(f"| `{kind.__name__}` | {' | '.join(kind.over[:-1])} | {note} |")
    rows.append(f"| the others | {' | '.join(['ok'] * (len(_COLUMNS) - 1))} | |")
    heading = f"| mine, over theirs | {' | '.join(_COLUMNS)} |"
    others = ", ".join(f"`{kind.__name__}`" for kind in free)
    below = fill(f"{'; '.join(notes)}. The others are {others}.", 120)
    return "\n".join([heading, f"|{' --- |' * (len(_COLUMNS) + 1)}", *rows, "", below])


def _kinds(base: type[Change]) -> Iterator[type[Change]]:
    """Yield the kinds of change of this room; a test may have others."""
    for module in iter_modules(room.__path__, f"{room.__name__}."):
        import_module(module.name)
    for kind in base.__subclasses__():
        if kind.__module__.startswith(f"{room.__name__}."):
            if not kind.__name__.startswith("_"):  # what kinds have in common
                yield kind
            yield from _kinds(kind)
