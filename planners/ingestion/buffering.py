"""Buffering: which of the files that wait in a buffer zone become a work item, and when.

Producers announce files in any order, some of them twice. They wait, in groups, until a rule is met: the
files of a group together reach an amount, or the oldest has waited long enough. Then all that wait in the
group become work items, in the order in which they came.

The state is a function of what was received and planned, in any order: no clock, no store. Several
processes may each hold one. Their plans go into one log, and each applies the plans of the others: a file
that any of them has planned is planned by none of them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from planners.printing import span_text
from planners.sizing import parse_bytes, size_text

MOST_AMOUNTS = 10
"""A work item takes at most so many times the amounts of its rule: a backlog lands in few commits, and a
worker that dies loses no more than that.
"""


class FileKey(NamedTuple):
    """One version of one source file."""

    path: str
    identity: str
    """Changes whenever the file is replaced by other bytes: an ETag, or size and time on a disk."""


@dataclass(frozen=True, slots=True)
class BufferedFile:
    """A source file as its producer announced it."""

    path: str
    """Absolute."""
    identity: str
    bytes: int
    arrived_ms: int
    """When the producer announced it, by the producer's clock."""
    format: str = "parquet"
    partition: str = ""
    """What the producer says of its partition, such as "day=2026-11-23"; "" where it says nothing."""

    @property
    def key(self) -> FileKey:
        return FileKey(self.path, self.identity)


@dataclass(frozen=True, slots=True, init=False)
class PlanningRules:
    """When files that wait become a work item: together they have so many bytes, or are so many, or the
    oldest of them has waited so long. `per_partition` waits for each partition apart, by what the producers
    say of their files.

    ValueError for an amount or a time that is not above 0.
    """

    max_bytes: int
    max_files: int
    max_age_ms: int
    per_partition: bool

    def __init__(
        self,
        *,
        max_bytes: int | str = "1GiB",
        max_files: int = 10_000,
        max_age_ms: int = 5 * 60 * 1000,
        per_partition: bool = False,
    ) -> None:
        amounts = {"max_bytes": parse_bytes(max_bytes), "max_files": max_files, "max_age_ms": max_age_ms}
        for name, value in amounts.items():
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be a whole number of 1 or more, not {value!r}")
            object.__setattr__(self, name, value)
        if not isinstance(per_partition, bool):
            raise TypeError(f"per_partition must be True or False, not {per_partition!r}")
        object.__setattr__(self, "per_partition", per_partition)


@dataclass(frozen=True, slots=True)
class PlannedItem:
    """The files of one work item, and why it was planned now."""

    number: int
    files: tuple[BufferedFile, ...]
    why: str

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass
class _Group:
    files: dict[FileKey, BufferedFile] = field(default_factory=dict)
    bytes: int = 0
    _oldest_ms: int | None = None

    @property
    def oldest_ms(self) -> int:
        if self._oldest_ms is None:
            self._oldest_ms = min(file.arrived_ms for file in self.files.values())
        return self._oldest_ms

    def add(self, file: BufferedFile) -> None:
        if not self.files:
            self._oldest_ms = file.arrived_ms
        elif self._oldest_ms is not None:
            self._oldest_ms = min(self._oldest_ms, file.arrived_ms)
        self.files[file.key] = file
        self.bytes += file.bytes

    def remove(self, key: FileKey) -> None:
        self.bytes -= self.files.pop(key).bytes
        self._oldest_ms = None


@dataclass
class Buffer:
    """The files that wait, as one process knows them."""

    rules: PlanningRules
    is_planned: Callable[[FileKey], bool]
    """Whether a plan has a version of a file already; asked once for each file that is received."""
    _groups: dict[str, _Group] = field(default_factory=dict)
    _group_of: dict[FileKey, str] = field(default_factory=dict)

    @property
    def waiting(self) -> Mapping[str, tuple[int, int, int]]:
        """Files, bytes and the oldest arrival in milliseconds that wait, by group."""
        return {
            name: (len(it.files), it.bytes, it.oldest_ms) for name, it in self._groups.items() if it.files
        }

    def waits(self, key: FileKey) -> bool:
        return key in self._group_of

    def receive(self, files: Iterable[BufferedFile]) -> None:
        """Let files wait that neither wait nor are planned yet."""
        for file in files:
            key = file.key
            if key in self._group_of or self.is_planned(key):
                continue
            name = file.partition if self.rules.per_partition else ""
            self._group_of[key] = name
            self._groups.setdefault(name, _Group()).add(file)

    def forget(self, keys: Iterable[FileKey]) -> None:
        """Stop waiting with files that a plan has, this process's or another's."""
        for key in keys:
            if (name := self._group_of.pop(key, None)) is not None:
                self._groups[name].remove(key)

    def deadline_ms(self) -> int | None:
        """Return when the time of the next group is up; None where nothing waits."""
        oldest = min((each.oldest_ms for each in self._groups.values() if each.files), default=None)
        return None if oldest is None else oldest + self.rules.max_age_ms

    def due(self, now_ms: int, first: int, *, flush: bool = False) -> tuple[PlannedItem, ...]:
        """Return the work items that are due, numbered from `first` on, the oldest group first; () where none
        is. `flush`: all that waits is due. Changes nothing: `forget` the files once the plan is recorded.
        """
        items: list[PlannedItem] = []
        waiting = [(group.oldest_ms, name, group) for name, group in self._groups.items() if group.files]
        for _, name, group in sorted(waiting, key=lambda each: each[:2]):
            why = self._why(group, now_ms, flush)
            if why is not None:
                named = f"{name}: {why}" if name else why
                for files in self._cut(group):
                    items.append(PlannedItem(first + len(items), files, named))
        return tuple(items)

    def _why(self, group: _Group, now_ms: int, flush: bool) -> str | None:
        rules, waited_ms = self.rules, now_ms - group.oldest_ms
        if group.bytes >= rules.max_bytes:
            return f"{size_text(group.bytes)} wait, and {size_text(rules.max_bytes)} are enough"
        if len(group.files) >= rules.max_files:
            return f"{len(group.files):,} files wait, and {rules.max_files:,} are enough"
        if waited_ms >= rules.max_age_ms:
            return f"a file has waited {span_text(waited_ms)}, and {span_text(rules.max_age_ms)} are enough"
        return "nothing more is to come" if flush else None

    def _cut(self, group: _Group) -> list[tuple[BufferedFile, ...]]:
        """Cut the files of a group, oldest first, into parts of at most `MOST_AMOUNTS` of a rule's amounts; a
        larger file is a part of its own.
        """
        most_bytes, most_files = MOST_AMOUNTS * self.rules.max_bytes, MOST_AMOUNTS * self.rules.max_files
        cut: list[list[BufferedFile]] = [[]]
        reached = 0
        for file in sorted(
            group.files.values(), key=lambda file: (file.arrived_ms, file.path, file.identity)
        ):
            weight = max(file.bytes * most_files, most_bytes)
            if cut[-1] and reached + weight > most_bytes * most_files:
                cut.append([])
                reached = 0
            cut[-1].append(file)
            reached += weight
        return [tuple(each) for each in cut]
