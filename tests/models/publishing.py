"""Publishing: create-if-absent, settle, confirm (R1, R2, R3, R16), while retention deletes below the head.

A version is the string of the commits that made it, one letter each: `.az` is version 3, whose parent is
`.a`. Its length is its number, and `head.startswith(version)` says that it is in the head's lineage. A stale
writer's fork is a string that the head does not start with.

Writers `a` and `z` may carry the same batch: two runs of one query that overlap. Others (`o`) commit in one
step. A create without an answer takes effect at any later moment, any number of times, or never; that covers
stalls, lost replies, timeouts, and clients that send again behind our back. Everything below the highest
version may be deleted at any moment, in any order: the most that any retention may do (R19), and what
sweeping a stale file does. What
a writer does between two requests is no step of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

_NAMES = "az"
_At = Literal["load", "sent", "settle", "confirm", "done", "failed"]


class Writer(NamedTuple):
    """Where one writer stands with its one batch."""

    at: _At
    version: str = ""
    """What it tries to publish."""


class State(NamedTuple):
    slots: tuple[str, ...]
    """What each version file holds, "" where there is none."""
    late: frozenset[str]
    """Creates that were given up waiting for: they may be applied now or ever."""
    writers: tuple[Writer, ...]
    promised: frozenset[str]
    """The versions that somebody was told are committed."""

    @property
    def head(self) -> str:
        return max(self.slots, key=len)


@dataclass(frozen=True, kw_only=True)
class Publishing:
    """The rules that writers keep; each may be taken away."""

    confirms: bool = True
    """R1: nothing is acknowledged on the create's success alone."""
    confirms_by_listing: bool = True
    """R1: by the listed head, not by a look whether the version built upon is still there."""
    unknown_is_not_failed: bool = True
    """R3: after a create without an answer its files stay, and the slot is asked."""
    unknown_forbids_deleting: bool = True
    """R3: once any of its creates got no answer, no later loss is definite."""
    forgotten_is_not_lost: bool = True
    """R1: a commit too old for the head to remember is judged by its batch, and its files stay."""
    skips_on_listed_heads_only: bool = True
    """R4: "already committed" is not said of a winner that only settling brought."""
    checks_the_batch: bool = True
    """R16: on every attempt."""

    numbers: int = 4
    remembered: int = 2
    """How many commits back the head knows ids (R1): 100 in life."""
    own_batches: bool = False
    """Each writer has rows of its own; the check is then a look for one's own earlier commits."""

    def initial(self) -> State:
        slots = (".",) + ("",) * (self.numbers - 1)
        return State(slots, frozenset(), (Writer("load"),) * len(_NAMES), frozenset())

    def violation(self, state: State) -> str | None:
        head = state.head
        for version in state.promised:
            if not head.startswith(version):
                return f"{version} was acknowledged, and the head {head} does not descend from it"
        for name, writer in zip(_NAMES, state.writers, strict=True):
            if writer.at == "failed" and name in head:
                return f"the files of {name} were deleted, and the head {head} refers to them"
            if sum(head.count(letter) for letter in self._batch(name)) > 1:
                return f"the head {head} holds a batch of {name} twice"
        return None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        head = state.head
        for version in state.slots:
            if version and version != head:
                yield f"retention deletes {_file(version)}", _put(state, len(version), "")
        if len(head) < self.numbers:
            yield f"others commit {_file(head + 'o')}", _put(state, len(head) + 1, head + "o")
        for version in sorted(state.late):
            if not state.slots[len(version) - 1]:
                yield f"store applies a late create of {_file(version)}", _put(state, len(version), version)
        for name, writer in zip(_NAMES, state.writers, strict=True):
            if writer.at == "load":
                yield self._attempt(state, name, head, f"{name} lists and reads {_file(head)}")
            elif writer.at == "sent":
                yield from self._answers(state, name, writer.version)
            elif writer.at == "settle":
                yield from self._settle(state, name, writer.version)
            elif writer.at == "confirm":
                yield from self._confirm(state, name, writer.version)

    def _answers(self, state: State, name: str, version: str) -> Iterator[tuple[str, State]]:
        """The create is applied and answered, or it is not heard of."""
        if state.slots[len(version) - 1]:
            step = f"{name} is refused: there is a v{len(version)}"
            yield step, _moved(state, name, "settle", version)
        else:
            created = _put(state, len(version), version)
            yield f"{name} creates {_file(version)}", _moved(created, name, "confirm", version)
        step = f"{name} hears nothing of its create of {_file(version)}"
        waiting = state._replace(late=state.late | {version})
        if self.unknown_is_not_failed:
            yield step, _moved(waiting, name, "settle", version)
        else:
            yield f"{step}, and deletes its data files", _moved(waiting, name, "failed")

    def _settle(self, state: State, name: str, version: str) -> Iterator[tuple[str, State]]:
        """GET the slot: ours, nobody's, or another's; then build on what was read, list, or give up."""
        found = state.slots[len(version) - 1]
        read = f"{name} reads v{len(version)} and finds {found or 'nothing'}"
        if found == version:
            yield read, _moved(state, name, "confirm", version)
        elif not found:
            yield f"{read}: sends again", _moved(state, name, "sent", version)
        else:
            yield self._attempt(state, name, found, read, listed=False)
            yield f"{read}: starts over", _moved(state, name, "load")
            if self._loss_is_definite(state, name):
                yield f"{read}: gives up and deletes its data files", _moved(state, name, "failed")

    def _confirm(self, state: State, name: str, version: str) -> Iterator[tuple[str, State]]:
        """LIST and read the head: ours, a descendant, or neither, and then ours was created stale."""
        head, base = state.head, version[:-1]
        listed = f"{name} lists and finds {_file(head)}"
        remembered = len(head) - len(version) < self.remembered
        if not self.confirms:
            yield f"{name} acknowledges {version}", _promised(state, name, version)
        elif not self.confirms_by_listing:
            if state.slots[len(base) - 1] == base:
                step = f"{name} finds {_file(base)} in place and acknowledges {version}"
                yield step, _promised(state, name, version)
            else:
                yield f"{name} misses {_file(base)}: starts over", _moved(state, name, "load")
        elif remembered and head.startswith(version):
            yield f"{listed}: acknowledges {version}", _promised(state, name, version)
        else:
            yield self._attempt(state, name, head, listed)
            if self._loss_is_definite(state, name) and (remembered or not self.forgotten_is_not_lost):
                yield f"{listed}: gives up and deletes its data files", _moved(state, name, "failed")

    def _loss_is_definite(self, state: State, name: str) -> bool:
        unanswered = any(version.endswith(name) for version in state.late)
        return not (unanswered and self.unknown_forbids_deleting)

    def _attempt(
        self, state: State, name: str, base: str, step: str, *, listed: bool = True
    ) -> tuple[str, State]:
        """Build on `base`, unless it has our batch; the create is on its way."""
        ours = [number for number, letter in enumerate(base, 1) if letter in self._batch(name)]
        if ours and self.checks_the_batch:
            if listed or not self.skips_on_listed_heads_only:
                return f"{step}: its batch is in", _promised(state, name, base[: ours[0]])
            return f"{step}: its batch may be in", _moved(state, name, "load")
        if len(base) == self.numbers:
            return f"{step}: the model ends", _moved(state, name, "done")
        sent = _moved(state, name, "sent", base + name)
        return f"{step}: sends {_file(base + name)}", sent

    def _batch(self, name: str) -> str:
        """Return the letters of the commits that carry the batch of `name`."""
        return name if self.own_batches else _NAMES


def _put(state: State, number: int, version: str) -> State:
    slots = (*state.slots[: number - 1], version, *state.slots[number:])
    return State(slots, state.late, state.writers, state.promised)


def _moved(state: State, name: str, at: _At, version: str = "") -> State:
    moved = Writer(at, version)
    writers = tuple(moved if n == name else w for n, w in zip(_NAMES, state.writers, strict=True))
    return State(state.slots, state.late, writers, state.promised)


def _promised(state: State, name: str, version: str) -> State:
    return _moved(state, name, "done")._replace(promised=state.promised | {version})


def _file(version: str) -> str:
    return f"v{len(version)}={version}"
