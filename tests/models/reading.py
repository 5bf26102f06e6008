"""Reading: list, take the highest, read it (R4, R5), while writers commit, retention deletes, and stale
creates put forks where old versions were.

Versions are strings, as in `publishing`. Others commit in one step, which that model justifies. A stale
writer's create takes effect whenever its number is free, however often: where the number was deleted, what
it leaves is a fork that no commit ever was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class State(NamedTuple):
    slots: tuple[str, ...]
    """What each version file holds, "" where there is none."""
    late: frozenset[str]
    """Creates that may be applied now or ever."""
    listing: tuple[str, ...] = ()
    """What the reader's listing showed, identity for each name, when it is between LIST and GET."""
    aims: int = 0
    """The number that it reads next; 0 before it lists."""
    listed: str = ""
    """The head when its last listing began."""
    pinned: str = ""
    """The version that it read."""

    @property
    def head(self) -> str:
        return max(self.slots, key=len)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The rules of reading and of retention; each may be taken away."""

    reads_what_was_listed: bool = True
    """R4: bytes of another identity than the listing showed are not taken."""
    never_steps_back: bool = True
    """R9: where the highest cannot be read it lists again, and takes no lower number."""
    takes_the_highest: bool = True
    """R5: by the listing, not by a number that it was told before (a hint)."""
    keeps_the_highest: bool = True
    """R19: retention deletes below a listed highest only, however old the highest is."""

    numbers: int = 4

    def initial(self) -> State:
        return State((".",) + ("",) * (self.numbers - 1), frozenset())

    def violation(self, state: State) -> str | None:
        if state.pinned and not state.head.startswith(state.pinned):
            return f"the reader holds {state.pinned}, a fork that the head {state.head} does not descend from"
        if state.pinned and not state.pinned.startswith(state.listed):
            return f"the reader holds {state.pinned}, older than {state.listed} when it began"
        if state.listing and not state.head:
            return "the reader finds no table"
        return None

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        head = state.head
        for version in state.slots:
            if version and (version != head or not self.keeps_the_highest):
                yield f"retention deletes {_file(version)}", _put(state, len(version), "")
        if 0 < len(head) < self.numbers:
            yield f"others commit {_file(head + 'o')}", _put(state, len(head) + 1, head + "o")
            sent = state._replace(late=state.late | {head + "z"})
            yield f"z sends {_file(head + 'z')} and falls asleep", sent
        for version in sorted(state.late):
            if not state.slots[len(version) - 1]:
                yield f"store applies a late create of {_file(version)}", _put(state, len(version), version)
        yield from self._read(state)

    def _read(self, state: State) -> Iterator[tuple[str, State]]:
        """LIST, then GET; what was deleted or replaced in between is listed again."""
        if not state.aims:
            head = state.head
            aims = len(head) if self.takes_the_highest else len(state.pinned) or len(head)
            step = f"reader lists: v{len(head)} is highest" if head else "reader lists: nothing"
            yield step, state._replace(listing=state.slots, aims=aims, listed=head, pinned="")
            return
        found = state.slots[state.aims - 1]
        step = f"reader reads v{state.aims} and finds {found or 'nothing'}"
        again = state._replace(listing=(), aims=0, listed="", pinned="")
        if found and (found == state.listing[state.aims - 1] or not self.reads_what_was_listed):
            yield f"{step}: pins it", again._replace(listed=state.listed, pinned=found)
        elif found or self.never_steps_back or not any(state.listing[: state.aims - 1]):
            yield f"{step}: lists again", again
        else:
            lower = len(max(state.listing[: state.aims - 1], key=len))
            yield f"{step}: steps back to v{lower}", state._replace(aims=lower)


def _put(state: State, number: int, version: str) -> State:
    return state._replace(slots=(*state.slots[: number - 1], version, *state.slots[number:]))


def _file(version: str) -> str:
    return f"v{len(version)}={version}"
