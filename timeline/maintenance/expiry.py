"""Expire snapshots, and delete the files that only they reach once their grace period has passed (R7)."""

from __future__ import annotations

from datetime import timedelta

from timeline import properties
from timeline.changes.changes import ExpireSnapshots
from timeline.errors import UnsupportedTableError
from timeline.retention.deletions import Deletions
from timeline.retention.policy import SAFE_DISTANCE, Expiry, snapshots_to_expire
from timeline.table import AlreadyCommitted, Table
from timeline.versions.head import Head


def expire_snapshots(
    table: Table,
    *,
    max_snapshot_age: timedelta | None = None,
    min_snapshots_to_keep: int | None = None,
    max_snapshots: int | None = None,
    grace: timedelta | None = None,
    dry_run: bool = False,
) -> Deletions:
    """Remove the snapshots that the policy no longer keeps from the metadata, and delete the files of those
    that were removed long enough ago; old version files too.

    The policy is the table's, except for the arguments given. A snapshot leaves the metadata once 100 later
    versions exist. Its files are deleted once 100 versions and the grace period have passed since, both by
    the table's own time: so a call mostly deletes what earlier commits expired. Branches and tags pin.
    Writers may go on. With `dry_run` nothing changes, and the report says what a call would expire and delete
    now. In a catalog versions are commits of main, of any engine.

    Safe to call from any process at any time, and again after a crash: it continues where it stopped. Raises
    as `Table.commit` does; UnsupportedTableError in a catalog where no file may be deleted, and for a table
    of another engine without a policy of this sink, where no argument is given.
    """
    policy = {
        properties.MAX_SNAPSHOT_AGE_MS: _milliseconds("max_snapshot_age", max_snapshot_age),
        properties.MIN_SNAPSHOTS_TO_KEEP: _at_least_one("min_snapshots_to_keep", min_snapshots_to_keep),
        properties.MAX_SNAPSHOTS: _at_least_one("max_snapshots", max_snapshots),
    }
    given = {key: str(value) for key, value in policy.items() if value is not None}
    grace_ms = _milliseconds("grace", grace)
    if not dry_run:
        table.ensure_store_is_safe()  # which finds out whether a catalog removes snapshots
    head = table.refresh()
    check_files_may_go(head)
    if not (given or head.version.states_policy):
        raise UnsupportedTableError(
            "another engine has made the table, and it states no retention of this sink, so nothing of it"
            " expires unasked: say max_snapshot_age, min_snapshots_to_keep or max_snapshots, or give the sink"
            f" a Retention: {head.metadata.location}",
            location=head.metadata.location,
        )
    if dry_run:
        expired = len(_plan_expiry(head, given, head.number).snapshot_ids)
        deleted = table.delete_expired(grace_ms=grace_ms, dry_run=True)
        kept = _explain_kept(head, given, len(head.metadata.snapshots) - expired)
        return deleted + Deletions(expired_snapshots=expired, dry_run=True, kept=kept)
    done = Deletions()
    # Several versions where one cannot hold all; what its own versions make due waits for the next call.
    while _plan_expiry(table.head, given, head.number).snapshot_ids:
        committed = table.commit([ExpireSnapshots(given)])
        if isinstance(committed, AlreadyCommitted) or not committed.expired_snapshots:
            break  # one that had to be sent again to a catalog expires nothing
        done += Deletions(committed.deleted.files, committed.expired_snapshots)
    kept = _explain_kept(table.head, given, len(table.head.metadata.snapshots))
    return done + table.delete_expired(grace_ms=grace_ms) + Deletions(kept=kept)


def check_files_may_go(head: Head) -> None:
    """Raise UnsupportedTableError where no file of the table may be deleted."""
    if why := head.version.keeps_files:
        raise UnsupportedTableError(
            f"nothing of the table is expired or deleted by this sink: {why}; nothing was changed. Leave it"
            f" to the catalog, or allow it there: {head.metadata.location}",
            location=head.metadata.location,
        )


def _plan_expiry(head: Head, given: dict[str, str], number: int) -> Expiry:
    """Return what a version after `number` may expire of the head's snapshots."""
    metadata = head.metadata
    return snapshots_to_expire(
        metadata.snapshots,
        metadata.refs,
        {**head.properties, **given},
        number + 1,
        metadata.last_updated_ms,
    )


def _explain_kept(head: Head, given: dict[str, str], count: int) -> str:
    """Say how many snapshots stay, and what lets one expire."""
    policy = {**head.properties, **given}
    hours = properties.number(policy, properties.MAX_SNAPSHOT_AGE_MS) / 3_600_000
    least = properties.number(policy, properties.MIN_SNAPSHOTS_TO_KEEP)
    most = properties.number(policy, properties.MAX_SNAPSHOTS)
    kept = "1 snapshot stays" if count == 1 else f"{count:,} snapshots stay"
    return (
        f"{kept}: one expires once {SAFE_DISTANCE} later versions exist, if it is older than"
        f" {hours:,g} hours and not among the last {least:,}, or if there are more than {most:,};"
        " tags and branches keep theirs"
    )


def _milliseconds(name: str, value: timedelta | None) -> int | None:
    if value is None:
        return None
    if value < timedelta(0):
        raise ValueError(f"{name} must not be negative: {value}")
    return value // timedelta(milliseconds=1)


def _at_least_one(name: str, value: int | None) -> int | None:
    if value is not None and type(value) is not int:
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if value is not None and value < 1:
        raise ValueError(f"{name} must be at least 1, since the newest snapshot is the table: {value}")
    return value
