"""The garbage fence (R6): files that no version refers to are deleted, while writers sleep.

A data file is a letter and a digit: its writer, and the time at which its batch began, which is its id. A
version is a number; a create on a number that is taken loses, which is what `publishing` proves of the whole
protocol. The head is what the last version holds: a cutoff and the live files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple


class Writer(NamedTuple):
    """Where one writer stands with its one batch."""

    at: Literal["begin", "written", "looked", "built", "done"] = "begin"
    file: str = ""
    base: int = 0
    """The version that it builds upon."""
    judged: bool = False
    """Its file was held against a fence before."""


class Cleaner(NamedTuple):
    at: Literal["idle", "built", "fenced", "deleting"] = "idle"
    base: int = 0
    cutoff: int = 0
    doomed: frozenset[str] | None = None
    """The files that it took for garbage."""


class State(NamedTuple):
    now: int
    number: int
    """The head's number."""
    cutoff: int
    """The head's cutoff: files with lower ids may be gone."""
    live: frozenset[str]
    stored: frozenset[str]
    writers: tuple[Writer, ...]
    cleaner: Cleaner


@dataclass(frozen=True, kw_only=True)
class Fence:
    """The rules of writers and cleaner; each may be taken away."""

    commits_a_fence: bool = True
    """The cutoff is a version before anything is deleted; else age alone decides."""
    checks_every_attempt: bool = True
    """A file is held against the head's cutoff on each attempt, not on the first one only."""
    judges_behind_the_fence: bool = True
    """What is garbage is decided on the fence or later, not on an older head."""
    writes_again_under_new_ids: bool = True
    """A refused batch gets new files; else the refused file is tried again once it was looked for."""
    looks_before_commit: bool = False
    """Not a rule but the usual substitute for the fence: the writer checks that its file is there."""

    ends: int = 3
    """How often the clock ticks."""
    names: str = "ab"

    def initial(self) -> State:
        writers = (Writer(),) * len(self.names)
        return State(0, 1, 0, frozenset(), frozenset(), writers, Cleaner())

    def violation(self, state: State) -> str | None:
        if missing := state.live - state.stored:
            return f"version {state.number} refers to {' '.join(sorted(missing))}, which was deleted"
        return None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.now < self.ends:
            yield f"time passes: {state.now + 1}", state._replace(now=state.now + 1)
        for index, writer in enumerate(state.writers):
            for step, after, moved in self._write(state, writer, self.names[index]):
                writers = (*state.writers[:index], moved, *state.writers[index + 1 :])
                yield f"{self.names[index]} {step}", after._replace(writers=writers)
        for step, after, cleaner in self._clean(state, state.cleaner):
            yield f"cleaner {step}", after._replace(cleaner=cleaner)

    def _write(self, state: State, writer: Writer, name: str) -> Iterator[tuple[str, State, Writer]]:
        """Write the file, load the head, create the next version; lost: load again."""
        if writer.at == "begin":
            file = f"{name}{state.now}"
            yield f"writes {file}", state._replace(stored=state.stored | {file}), Writer("written", file)
        elif writer.at == "written":
            behind = _id(writer.file) < state.cutoff and (self.checks_every_attempt or not writer.judged)
            if behind and self.writes_again_under_new_ids:
                yield f"is refused by the fence of v{state.number}", state, Writer()
            elif not behind or writer.file in state.stored:
                at: Literal["looked", "built"] = "looked" if self.looks_before_commit else "built"
                moved = Writer(at, writer.file, state.number, True)
                yield f"loads v{state.number} and builds on it", state, moved
        elif writer.at == "looked":
            if writer.file in state.stored:
                yield f"finds {writer.file} in place", state, writer._replace(at="built")
            else:
                yield f"misses {writer.file}", state, Writer()
        elif writer.at == "built" and writer.base == state.number:
            live = state.live | {writer.file}
            step = f"creates v{state.number + 1} with {writer.file}"
            yield step, state._replace(number=state.number + 1, live=live), Writer("done")
        elif writer.at == "built":
            yield f"loses v{writer.base + 1}", state, writer._replace(at="written", base=0)

    def _clean(self, state: State, cleaner: Cleaner) -> Iterator[tuple[str, State, Cleaner]]:
        """Commit the fence, decide what is garbage, delete it file by file."""
        if cleaner.at == "idle":
            if not self.commits_a_fence:
                doomed = _garbage(state, state.now)
                if doomed:
                    yield f"finds {_names(doomed)} unused", state, Cleaner("deleting", doomed=doomed)
            elif state.now > state.cutoff:
                # A judgement of an older head survives a lost race only where the rule is off.
                doomed = cleaner.doomed or _garbage(state, state.now)
                kept = None if self.judges_behind_the_fence else doomed
                step = f"loads v{state.number} and builds a fence at {state.now}"
                yield step, state, Cleaner("built", state.number, state.now, kept)
        elif cleaner.at == "built" and cleaner.base == state.number:
            after = state._replace(number=state.number + 1, cutoff=cleaner.cutoff)
            step = f"creates v{after.number}, a fence at {after.cutoff}"
            yield step, after, cleaner._replace(at="fenced")
        elif cleaner.at == "built":
            yield f"loses v{cleaner.base + 1}", state, Cleaner(doomed=cleaner.doomed)
        elif cleaner.at == "fenced":
            doomed = cleaner.doomed or _garbage(state, cleaner.cutoff)
            yield f"finds {_names(doomed)} unused", state, Cleaner("deleting", doomed=doomed)
        for file in sorted(cleaner.doomed or ()) if cleaner.at == "deleting" else ():
            left = (cleaner.doomed or frozenset()) - {file}
            then = cleaner._replace(doomed=left) if left else Cleaner()
            yield f"deletes {file}", state._replace(stored=state.stored - {file}), then
        if cleaner.at == "deleting" and not cleaner.doomed:
            yield "has nothing to delete", state, Cleaner()


def _garbage(state: State, cutoff: int) -> frozenset[str]:
    """Return the files below the cutoff that the head does not refer to."""
    return frozenset(file for file in state.stored - state.live if _id(file) < cutoff)


def _id(file: str) -> int:
    return int(file[1:])


def _names(files: frozenset[str]) -> str:
    return " ".join(sorted(files)) or "nothing"
