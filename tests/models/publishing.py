"""Publishing: create-if-absent, settle, confirm (R1, R2, R3, R16), while retention deletes below the head.

A version is the string of the commits that made it, one letter each: `.az` is version 3, whose parent is
`.a`. Its length is its number, and `head.startswith(version)` says that it is in the head's lineage. A stale
writer's fork is a string that the head does not start with.

Writers `a` and `z` carry the same batch, as two runs of one query that overlap, or rows of their own. Others
(`o`) commit in one step. A create without an answer takes effect at any later moment, any number of times, or
never; that covers stalls, lost replies, timeouts, and clients that send again behind our back. Everything
below the highest version may be deleted at any moment, in any order: the most that any retention may do
(R19), and what sweeping a stale file does. What a writer does between two requests is no step of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

_NAMES = "az"
_At = Literal["load", "sent", "settle", "confirm", "judge", "done", "failed"]


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
    promised: str
    """The newest version that somebody was told is committed; those told before are in its lineage."""

    @property
    def head(self) -> str:
        return max(self.slots, key=len)


@dataclass(frozen=True, kw_only=True)
class Publishing:
    """The rules that writers keep; each may be taken away."""

    confirms: bool = True
    """R1: nothing is acknowledged on the create's success alone."""
    confirms_by_listing: bool = True
    """R1: by the listed head, even where the version that it built upon is still in place."""
    unknown_is_not_failed: bool = True
    """R3: after a create without an answer its files stay, and the slot is asked."""
    unanswered_is_judged_by_listing: bool = True
    """R3: others' bytes in the slot are no loss while a create of ours is without an answer."""
    forgotten_is_not_lost: bool = True
    """R1: a commit too old for the head to remember is judged by its batch or its files."""
    sweeps_only_its_own: bool = True
    """R1: a lost commit's number is deleted only where it was seen to hold our bytes."""
    tells_on_listed_heads_only: bool = True
    """R4: a winner that only settling brought may be built upon; only a listed head tells
    that the batch is in, or that another run is ahead.
    """
    checks_the_batch: bool = True
    """R16: on every attempt."""

    numbers: int = 4
    remembered: int = 2
    """How many commits back the head knows ids (R1): 100 in life."""
    own_batches: bool = False
    """Each writer has rows of its own, and no transaction: so no check keeps it from writing them twice. With
    one it would do less: where a fork has its batch, it starts over.
    """
    patient: bool = False
    """A loss is never the end of a commit: there is no deadline."""
    oldest_first: bool = False
    """Retention deletes the lowest version only. Even so the version built upon may be a late create's."""

    def initial(self) -> State:
        slots = (".",) + ("",) * (self.numbers - 1)
        return State(slots, frozenset(), (Writer("load"),) * len(_NAMES), "")

    def violation(self, state: State) -> str | None:
        head = state.head
        if not head.startswith(state.promised):
            return f"{state.promised} was told to be committed, and the head {head} does not descend from it"
        for name, writer in zip(_NAMES, state.writers, strict=True):
            if writer.at == "failed" and name in head:
                return f"the files of {name} were deleted, and the head {head} refers to them"
            if sum(map(head.count, name if self.own_batches else _NAMES)) > 1:
                return f"the head {head} holds a batch of {name} twice"
        return None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        head = state.head
        old = [version for version in state.slots if version and version != head]
        for version in old[:1] if self.oldest_first else old:
            yield f"retention deletes {_file(version)}", _put(state, len(version), "")
        if len(head) < self.numbers:
            yield f"others commit {_file(head + 'o')}", _put(state, len(head) + 1, head + "o")
        for version in sorted(state.late):
            if not state.slots[len(version) - 1]:
                yield f"store applies a late create of {_file(version)}", _put(state, len(version), version)
        for name, writer in zip(_NAMES, state.writers, strict=True):
            if writer.at == "load":
                yield self._attempt(state, name, head, f"{name} lists and reads {_file(head)}", listed=True)
            elif writer.at == "sent":
                yield from self._answers(state, name, writer.version)
            elif writer.at == "settle":
                yield from self._settle(state, name, writer.version)
            elif writer.at == "confirm":
                yield from self._confirm(state, name, writer.version)
            elif writer.at == "judge":
                yield from self._judge(state, name, writer.version)

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
        """GET the slot: ours, nobody's, or another's; a loss then, unless a create of ours is unanswered."""
        found = state.slots[len(version) - 1]
        read = f"{name} reads v{len(version)} and finds {found or 'nothing'}"
        if found == version:
            yield read, _moved(state, name, "confirm", version)
        elif not found:
            yield f"{read}: sends again", _moved(state, name, "sent", version)
        elif version in state.late and self.unanswered_is_judged_by_listing:
            yield f"{read}: asks a listing", _moved(state, name, "judge", version)
        else:
            yield self._attempt(state, name, found, read, listed=False)
            yield f"{read}: starts over", _moved(state, name, "load")
            yield from self._give_up(state, name, read)

    def _confirm(self, state: State, name: str, version: str) -> Iterator[tuple[str, State]]:
        """The slot holds ours; whether that was in time, a listing tells."""
        base = version[:-1]
        if not self.confirms:
            yield f"{name} acknowledges {version}", _promised(state, name, version)
        elif not self.confirms_by_listing and base in state.slots:
            step = f"{name} finds {_file(base)} in place: acknowledges {version}"
            yield step, _promised(state, name, version)
        else:
            yield from self._judge(state, name, version)

    def _judge(self, state: State, name: str, version: str) -> Iterator[tuple[str, State]]:
        """LIST and read the head: ours, a descendant, or neither, and then ours is lost, now and later."""
        head = state.head
        listed = f"{name} lists and reads {_file(head)}"
        if self._is_in(head, name, version):
            yield f"{listed}: acknowledges {version}", _promised(state, name, version)
            return
        if not self.sweeps_only_its_own:
            listed, state = f"{listed}, deletes v{len(version)}", _put(state, len(version), "")
        yield self._attempt(state, name, head, listed, listed=False)
        yield from self._give_up(state, name, listed)

    def _give_up(self, state: State, name: str, step: str) -> Iterator[tuple[str, State]]:
        if not self.patient:
            yield f"{step}: gives up and deletes its data files", _moved(state, name, "failed")

    def _is_in(self, head: str, name: str, version: str) -> bool:
        """Judge by the commit ids that the head remembers, and beyond them by what it holds.

        Some of what is lost here, the code calls unknown.
        """
        if len(head) - len(version) < self.remembered:
            return head.startswith(version)
        return name in head and self.forgotten_is_not_lost

    def _attempt(self, state: State, name: str, base: str, step: str, *, listed: bool) -> tuple[str, State]:
        """Build on `base`, unless what it says of our batch forbids it; the create is on its way."""
        said = 0 if self.own_batches else 1 + max(map(base.find, _NAMES))
        if said and self.checks_the_batch:
            if listed or not self.tells_on_listed_heads_only:
                return self._told(state, name, base[:said], step)
            return f"{step}: its batch may be in", _moved(state, name, "load")
        if len(base) == self.numbers:
            return f"{step}: the model ends", _moved(state, name, "done")
        sent = _moved(state, name, "sent", base + name)
        return f"{step}: sends {_file(base + name)}", sent

    def _told(self, state: State, name: str, version: str, step: str) -> tuple[str, State]:
        """Skip the batch, which is in `version`, or refuse it, since another run is ahead there."""
        told = _promised(state, name, version)
        if version.endswith(name):
            return f"{step}: its batch is in", told
        return f"{step}: another run is ahead; deletes its data files", _moved(told, name, "failed")


def _put(state: State, number: int, version: str) -> State:
    slots = (*state.slots[: number - 1], version, *state.slots[number:])
    return State(slots, state.late, state.writers, state.promised)


def _moved(state: State, name: str, at: _At, version: str = "") -> State:
    moved = Writer(at, version)
    writers = tuple(moved if n == name else w for n, w in zip(_NAMES, state.writers, strict=True))
    return State(state.slots, state.late, writers, state.promised)


def _promised(state: State, name: str, version: str) -> State:
    newest = state.promised if state.promised.startswith(version) else version
    return _moved(state, name, "done")._replace(promised=newest)


def _file(version: str) -> str:
    return f"v{len(version)}={version}"
