"""The output of a command: text, tables or JSON on stdout; how far it has got; and its exit codes."""

from __future__ import annotations

import io
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Literal

DONE, FINDINGS, CANNOT = 0, 1, 2
"""Exit codes: all is well; there is something to look at; could not look, or was misused."""

_UNBOUNDED = 10_000
"""The width of what is no terminal, so that a row is a line."""


def say(text: str) -> None:
    """Write a line at once, also where it goes to a file or a pipe: what follows may take hours."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def say_json(value: object, *, one_line: bool = False) -> None:
    """Write a value as JSON: dataclasses as objects, with their fields in order. Snapshot ids are text, since
    many parsers round numbers above 2^53.
    """
    say(json.dumps(_plain(value), indent=None if one_line else 2))


def say_either(as_json: bool, value: object, text: str | Callable[[], None]) -> int:
    """Print a value as JSON, or a text in its place, which may print itself; return that all is well."""
    if as_json:
        say_json(value)
    elif isinstance(text, str):
        say(text)
    else:
        text()
    return DONE


_IDS = ("snapshot_id", "rolled_back_to")


def _plain(value: object) -> Any:
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return _plain({field.name: getattr(value, field.name) for field in fields(value)})
    if isinstance(value, Mapping):
        return {
            str(key): str(item) if key in _IDS and item is not None else _plain(item)
            for key, item in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value


def say_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write rows below their columns' names. Numbers are aligned right, and None is a blank.

    On a terminal a table is at most as wide as that, and long cells wrap; elsewhere nothing wraps and nothing
    is coloured.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for position, name in enumerate(columns):
        is_number = any(isinstance(row[position], Figure | int) for row in rows)
        is_id = any(isinstance(row[position], Id) for row in rows)
        justify: Literal["left", "right"] = "right" if is_number else "left"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=is_id)
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    console = Console(file=sys.stdout)
    if console.is_terminal:
        console.print(table)
        return
    buffer = io.StringIO()
    Console(file=buffer, width=_UNBOUNDED, color_system=None).print(table)
    say("\n".join(line.rstrip() for line in buffer.getvalue().rstrip("\n").splitlines()))


def clear() -> None:
    """Clear the screen, if stdout is a terminal."""
    from rich.console import Console

    Console(file=sys.stdout).clear()


class Id(str):
    """A name that is copied in one piece: its cell does not wrap."""

    __slots__ = ()


class Figure(str):
    """A number that is spelled already, as "1.5 MiB": a cell that is aligned right."""

    __slots__ = ()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    return f"{value:,}" if isinstance(value, int | float) else str(value)


_ERASE = "\r\033[K"


@contextmanager
def counting(what: str) -> Iterator[Callable[[], object]]:
    """Yield what to call after each step. Shows how many were done on stderr, where that is a terminal, and
    leaves nothing there.
    """
    numbers, is_seen = itertools.count(1), sys.stderr.isatty()

    def show(text: str) -> None:
        if is_seen:
            sys.stderr.write(f"{_ERASE}{text}")
            sys.stderr.flush()

    try:
        yield lambda: show(f"{what}: {next(numbers):,}")
    finally:
        show("")
