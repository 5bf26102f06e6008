"""Guards a batch number against a second DataFrame within one run, which would pass for a replay (R16)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from streaming_sink.spark.caller import QueryRun


@dataclass
class _Claim:
    """The DataFrame under which a sink of this process lands a batch; released if that fails."""

    run: QueryRun
    batch_id: int
    batch: object
    sink: object
    landed: bool = False


_claims: dict[tuple[str, str], _Claim] = {}
"""The last one of each application, by the table's location and the application."""
_lock = threading.Lock()


@contextmanager
def claim_batch(location: str, run: QueryRun, batch_id: int, batch: object, sink: object) -> Iterator[bool]:
    """Record that `sink` lands the batch in the block, unless that fails. Yields whether this very DataFrame
    has landed before in this run, under this number and name: then the user's function has tried again.

    ValueError if another DataFrame has landed, or is landing, under them: this one would pass for a replay,
    and its rows would be skipped.
    """
    mine, key = _Claim(run, batch_id, batch, sink), (location, run.app_id)
    with _lock:
        other = _claims.get(key)
        is_this = other is not None and (other.run, other.batch_id) == (run, batch_id)
        again = other is not None and is_this and other.landed and other.batch is batch
        if other is not None and is_this and not again and (other.landed or other.sink is not sink):
            raise batch_claimed_twice(run.app_id, batch_id)
        _claims[key] = mine
        mine.landed = again
    try:
        yield again
    except BaseException:
        with _lock:
            if _claims.get(key) is mine and not again:
                del _claims[key]
        raise
    mine.landed = True


def batch_claimed_twice(app_id: str, batch_id: int) -> ValueError:
    """Return the error for a second DataFrame under the number and name of another one."""
    return ValueError(
        f"batch {batch_id} was given to the table twice by one run under the name {app_id!r}; the second"
        " one is not written. Two DataFrames of one foreachBatch need a sink each, of distinct names: leave"
        " the first sink, whose rows are in the table if it had any, as it is, and name the second,"
        f' IcebergSink(..., app_id="{app_id[:8]}-2"). But if this is another try of the same rows, they'
        " were taken care of: under another name they would be written again"
    )
