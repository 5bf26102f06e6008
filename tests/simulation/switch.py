"""A switch: one rule of the code, broken for as long as a schedule runs.

It rewrites a few words of one function. The words must be there, so a switch that no longer fits the code
fails instead of passing unseen.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest import mock


@dataclass(frozen=True)
class Switch:
    """One rule, switched off: the words of one function that stand for it, and what stands there instead."""

    rule: str
    what: str
    """What the code does wrong with the switch thrown."""
    owner: ModuleType | type
    function: str
    words: str
    instead: str
    stormy: bool = False
    """Only a fork at just the wrong moment shows it: run stormy schedules."""
    two_tables: bool = False
    """Only an outbox shows it: run schedules of two tables."""
    keyed: bool = False
    """Only changes by key show it: run schedules of a table with a key."""
    indexed: bool = False
    """Only a key index shows it: run schedules of a table with a key whose streams look it up in one."""
    planned: bool = False
    """Only plans of clustering show it: run schedules whose clusterers take what the planner plans."""
    buffered: bool = False
    """Only buffered ingestion shows it: run schedules of a buffer zone."""
    audited: bool = False
    """Only audits show it: run schedules of a buffer zone whose items are staged."""
    catalog: bool = False
    """Only a table in a catalog shows it: run schedules of one."""
    keyed_catalog: bool = False
    """Only changes by key beside other engines show it: run schedules of a table with a key in a catalog."""
    mirrored: bool = False
    """Only a mirror shows it: run schedules of a table that has one."""
    named: bool = False
    """Only names that are removed show it: run schedules of a table whose snapshots get names, also in a
    catalog.
    """
    partitioned: bool = False
    """Only columns of partitions that another engine drops show it: run schedules of a table in a catalog
    that has them.
    """
    rare: bool = False
    """It takes more schedules than CI has time for."""

    @contextmanager
    def thrown(self) -> Iterator[None]:
        original = self.owner.__dict__[self.function]
        if isinstance(original, property):
            assert original.fget is not None
            rewritten: Any = property(_rewritten(original.fget, self.words, self.instead))
        else:
            rewritten = _rewritten(original, self.words, self.instead)
        with ExitStack() as stack:
            for place in (self.owner, *_importers()):
                if place.__dict__.get(self.function) is original:
                    stack.enter_context(mock.patch.object(place, self.function, rewritten))
            yield


def _importers() -> list[ModuleType]:
    """The modules that may have imported a function by its name."""
    ours = ("timeline.", "streaming_sink.", "tests.simulation.")
    return [module for name, module in list(sys.modules.items()) if name.startswith(ours)]


def _rewritten(function: Callable[..., Any], words: str, instead: str) -> Any:
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(words) == 1, f"{function.__qualname__} says {source.count(words)} times: {words}"
    code = f"from __future__ import annotations\n{source.replace(words, instead)}"
    defined: dict[str, Any] = {}
    exec(compile(code, "<switch>", "exec"), function.__globals__, defined)
    rewritten = defined[function.__name__]
    return rewritten.fget if isinstance(rewritten, property) else rewritten
