"""Writers of one machine stand in line, instead of losing races to each other's commits (R15).

A courtesy that nothing depends on: create-if-absent alone decides who has a version. Eight writers on one
disk commit nearly twice as many versions a minute so, for a third of the processor time, and none starves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from timeline.clock import Environment
from timeline.stores.base import Store

LONGEST_WAIT = 1.0
"""Seconds after which a writer goes out of turn: whoever has the turn may be standing still."""
_LOOK_AGAIN = 0.003


@contextmanager
def our_turn(store: Store, environment: Environment) -> Iterator[bool]:
    """Wait for the writer whose turn it is, if any; yield whether there was one: then the head has moved."""
    out_of_turn_at = environment.monotonic() + LONGEST_WAIT
    others = False
    while (turn := store.take_turn()) is None and environment.monotonic() < out_of_turn_at:
        others = True
        environment.sleep(_LOOK_AGAIN * environment.random.uniform(0.5, 1.0))
    with turn or nullcontext():
        yield others
