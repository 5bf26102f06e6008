"""Set a table back to an earlier version, and name versions by tags and branches."""

from __future__ import annotations

import logging

from streaming_sink.options.values.tables import AnyTable, as_table
from timeline import refs
from timeline.refs import RolledBack

_LOG = logging.getLogger("streaming_sink")
_NAMED = 5


def rollback(table: AnyTable, to_version: int) -> RolledBack:
    """Give the table the content that it had in a version, by a new version: time travel to those in between
    stays, and another rollback takes this one back.

    What came after `to_version` leaves, whichever stream has written it, also what is committed during the
    call. Streams go on without it: batches that were committed are not written again, so what is to come back
    has to be read by a stream with a new `app_id`. In a table with a key, deletes since then stay remembered
    for as long as the table remembers them: a change that is older than one of them does not land.

    ValueError for a version that is not in the history; else as a batch raises.
    """
    done = refs.roll_back(as_table(table).open(), to_version)
    shown = ", ".join(map(str, done.left[:_NAMED])) + ("" if len(done.left) <= _NAMED else ", …")
    _LOG.warning(
        "the table has the content of version %d again, by version %d: %d snapshots left it (%s). Their"
        " batches are not written again: %s",
        done.to_version,
        done.version,
        len(done.left),
        shown,
        as_table(table).location,
    )
    return done


def tag(table: AnyTable, name: str, version: int | None = None) -> int:
    """Let a tag keep what the table is in a version (default: now), and return its snapshot: it does not
    expire while the tag is there. Readers read it by its name.

    ValueError for a version that is not in the history, CommitConflictError for a name that is taken.
    """
    return refs.set_tag(as_table(table).open(), name, version)


def branch(table: AnyTable, name: str, version: int | None = None) -> int:
    """Begin a branch at what the table is in a version (default: now), and return its snapshot. This sink
    writes to main alone; in a catalog other engines may write to a branch. Raises as `tag`.
    """
    return refs.set_branch(as_table(table).open(), name, version)
