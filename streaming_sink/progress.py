"""How far a command has got, for the person who waits for it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
