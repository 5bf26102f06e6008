"""Set a table back to an earlier version, name versions by tags and branches, and drop such names."""

from __future__ import annotations

import logging

from pyiceberg.table.refs import SnapshotRefType

from planners.values import whole_number
from streaming_sink.options.values.tables import AnyTable, as_table
from streaming_sink.removal.tables import open_seconds, opener_beside
from timeline import refs
from timeline.refs import RolledBack
from timeline.versions.followed import FOLLOWED_TAG_PREFIX, followed_tag

_LOG = logging.getLogger("streaming_sink")
_NAMED = 5


def rollback(table: AnyTable, to_version: int) -> RolledBack:
    """Give the table the content that it had in a version, by a new version: time travel to those in between
    stays, and another rollback takes this one back.

    What came after `to_version` leaves, whichever stream has written it, also what is committed during the
    call. Streams go on without it: batches that were committed are not written again, so what is to come back
    has to be read by a stream with a new `app_id`. In a table with a key, deletes since then stay remembered
    for as long as the table remembers them: a change that is older than one of them does not land.

    TypeError or ValueError for a version that is not in the history; else as a batch raises.
    """
    whole_number("to_version", to_version)
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
    expire while the tag is there. Readers read it by its name. Nothing changes where it has the name already.

    TypeError or ValueError for what is no name, and for a version that is not in the history, and that no
    name keeps or has kept until now; CommitConflictError for a name that another snapshot has.
    """
    _check_name(name, version)
    return refs.set_tag(as_table(table).open(), name, version)


def branch(table: AnyTable, name: str, version: int | None = None) -> int:
    """Begin a branch at what the table is in a version (default: now), and return its snapshot. This sink
    writes to main alone; in a catalog other engines may write to a branch. Raises as `tag`.
    """
    _check_name(name, version)
    return refs.set_branch(as_table(table).open(), name, version)


def _check_name(name: object, version: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"name must be text, not {name!r}")
    if version is not None:
        whole_number("version", version)


def drop_tag(table: AnyTable, name: str) -> int:
    """Drop a tag, of any engine, and return the snapshot that it named. From the next version on that
    expires as any other; the files that it alone had are deleted after that, as those of all that expires. A
    snapshot that another engine has beside main is left to that engine.

    Where a tag holds a work item that is staged (`wap-…`), the item is unstaged: a worker of its buffer zone
    writes it again, and where there is no zone any more, none does. The tag of a change log (`followed-…`) is
    dropped once the log has been dropped.

    ValueError for a tag that the table does not have, with the names that it has, and for that of a change
    log that is there; CommitConflictError where others have moved or removed it since; else as `tag`.
    """
    place = as_table(table)
    opened = place.open()
    seconds = open_seconds(opened, place, (), opener_beside(place))
    for second in seconds if name.startswith(FOLLOWED_TAG_PREFIX) else ():
        if name == followed_tag(str(second.head.metadata.table_uuid)):
            raise ValueError(
                "the tag holds what a change log has followed, which the next changes are read against; it"
                " ends 30 days after the log's last batch. Nothing was changed; drop the log first, if it is"
                f" not needed: {second.log.address}"
            )
    return refs.remove_ref(opened, name, SnapshotRefType.TAG)


def drop_branch(table: AnyTable, name: str) -> int:
    """Drop a branch beside main, and return its newest snapshot. Commits that another engine has made to the
    branch alone are left to its `expire_snapshots`. Raises as `drop_tag`, and ValueError for main.
    """
    return refs.remove_ref(as_table(table).open(), name, SnapshotRefType.BRANCH)
