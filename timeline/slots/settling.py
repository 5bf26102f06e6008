"""Create a file that decides something, and settle what the create did: the slot decides, not the answer (R2,
R3).

A slot is a name at which writers create a file if it is absent. An answer may be lost, and "exists" may be
said of this writer's own create. So the same bytes go to the same name until the slot shows what it holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenacity import Retrying

from timeline.clock import Environment
from timeline.errors import StoreUnavailableError
from timeline.slots.retrying import StillUnknownError, until_known
from timeline.stores.base import Created, Exists, Store, Stored

_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SlotContent:
    """What a slot holds after a create of it."""

    stored: Stored
    """Its bytes; their identity is not known where the create was answered with a clean success."""
    is_own: bool
    """Whether these are the bytes of this create, also where another writer has written the same."""
    was_refused: bool
    """Whether the store said "exists" at the first create: none of this writer's went without an answer."""


def settle_slot(store: Store, path: str, data: bytes, until: Retrying) -> SlotContent:
    """Create a file unless it is there, and return what the slot holds.

    Raises StillUnknownError where the slot shows nothing by the deadline of `until`: the file may appear
    later, and creating it again is right. Raises as `Store.create` where the first create has stored nothing
    for certain.
    """
    creates = 0

    def create() -> SlotContent:
        nonlocal creates
        creates += 1
        try:
            outcome = store.create(path, data)
        except StoreUnavailableError as refusal:
            if creates == 1:
                raise
            raise StillUnknownError from refusal
        if isinstance(outcome, Created):
            return SlotContent(Stored(data, ""), is_own=True, was_refused=False)
        try:
            stored = store.read(path)
        except (FileNotFoundError, StoreUnavailableError) as failure:
            raise StillUnknownError from failure
        refused = creates == 1 and isinstance(outcome, Exists)
        return SlotContent(stored, is_own=stored.data == data, was_refused=refused)

    return until(create)


def create_settled(store: Store, path: str, data: bytes, environment: Environment) -> SlotContent:
    """Create a file unless it is there, and return what the slot holds; a few seconds are waited for that.

    StoreUnavailableError where it is not known by then: do the same again, which finds out.
    """
    try:
        until = until_known(environment, environment.monotonic() + _PATIENCE_SECONDS)
        return settle_slot(store, path, data, until)
    except StillUnknownError as failure:
        raise StoreUnavailableError(
            f"whether a file was written is not known; try again, which finds out: {store.uri(path)}:"
            f" {failure.__cause__ or 'the store gave no clear answer'}",
            location=store.location,
        ) from failure
