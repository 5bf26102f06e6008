"""The findings of a diagnosis, each with what it means and how to repair it."""

from __future__ import annotations

import textwrap
from bisect import insort
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial

_SHOWN = 3
_WIDTH = 110


class Severity(IntEnum):
    """How much a finding matters. Notes ask for nothing: a table that has only notes is healthy."""

    NOTE = 0
    WARNING = 1
    """No row is at risk, and writers may go on; something else does not work until it is repaired."""
    DAMAGE = 2
    """Rows are lost, hidden or at risk, or the table cannot be read or written."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is not as it should be. docs/troubleshooting.md has a section for each `kind`."""

    kind: str
    severity: Severity
    what: str
    """What was found, with the value."""
    means: str
    """Whether rows are at risk, and whether it is safe to go on."""
    repair: str


note = partial(Finding, severity=Severity.NOTE)
warning = partial(Finding, severity=Severity.WARNING)
damage = partial(Finding, severity=Severity.DAMAGE)


@dataclass(frozen=True)
class Diagnosis:
    """What `doctor` saw of a table: facts as (name, value), and findings, the worst first."""

    location: str
    facts: tuple[tuple[str, str], ...]
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether there is nothing to repair."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    def extended(self, facts: Iterable[tuple[str, str]], findings: Iterable[Finding]) -> Diagnosis:
        """Return the diagnosis with more facts and findings."""
        ordered = sorted((*self.findings, *findings), key=lambda finding: -finding.severity)
        return Diagnosis(self.location, (*self.facts, *facts), tuple(ordered))

    def text(self) -> str:
        """Return the diagnosis for a person to read."""
        facts = [("table", self.location), *self.facts]
        width = max(10, *(len(name) + 1 for name, _ in facts))
        findings = [line for finding in self.findings for line in ["", *_lines(finding)]]
        lines = [f"{name:<{width}}{value}" for name, value in facts]
        return "\n".join([*lines, *findings, "", self._verdict()])

    def _verdict(self) -> str:
        counts = dict.fromkeys(Severity, 0)
        for finding in self.findings:
            counts[finding.severity] += 1
        notes = f"{counts[Severity.NOTE]} note{'' if counts[Severity.NOTE] == 1 else 's'}"
        if self.healthy:
            return f"healthy ({notes})"
        return f"not healthy: {counts[Severity.DAMAGE]} damage, {counts[Severity.WARNING]} warning, {notes}"


@dataclass
class Few:
    """Of very many paths: how many there are, their bytes, and the first of them, in the order of paths."""

    count: int = 0
    bytes: int = 0
    _first: list[str] = field(default_factory=list)

    def add(self, path: str, size: int = 0) -> None:
        """Count a path."""
        self.count += 1
        self.bytes += size
        if len(self._first) < _SHOWN or path < self._first[-1]:
            insort(self._first, path)
            del self._first[_SHOWN:]

    def __str__(self) -> str:
        """Return the first few as text, and how many more there are."""
        shown = ", ".join(self._first)
        return f"{shown} and {self.count - _SHOWN} more" if self.count > _SHOWN else shown


def some(values: Collection[object]) -> str:
    """Return the first few values as text, and how many more there are."""
    shown = ", ".join(str(value) for value in list(values)[:_SHOWN])
    return f"{shown} and {len(values) - _SHOWN} more" if len(values) > _SHOWN else shown


def count(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not one."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _lines(finding: Finding) -> list[str]:
    return [
        *_wrapped(f"{finding.severity.name} {finding.kind}: {finding.what}", "", "  "),
        *_wrapped(finding.means, "  means   ", " " * 10),
        *_wrapped(finding.repair, "  repair  ", " " * 10),
    ]


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
