"""Snapshot expiry and orphan removal, safe beside running streams; and the end of a table, after which no
writer of it goes on in what is made in its place.
"""

from __future__ import annotations

from datetime import timedelta

from streaming_sink.durations import Duration, duration
from streaming_sink.options.values.tables import AnyTable, as_table
from timeline.maintenance import expiry, orphans
from timeline.retention.deletions import Deletions


def expire_snapshots(
    table: AnyTable,
    *,
    max_snapshot_age: Duration | None = None,
    min_snapshots_to_keep: int | None = None,
    max_snapshots: int | None = None,
    deletion_grace: Duration | None = None,
    dry_run: bool = False,
) -> Deletions:
    """Expire snapshots by the table's policy, overridden by the arguments given here, and delete old version
    files and the files of snapshots whose grace period is over. Print the report to see each file and why.

    A sink does this by itself; a call helps after the policy became stricter, and `dry_run=True` lists what a
    call would delete. No snapshot expires before 100 later versions exist, and no file is deleted before 100
    more and the grace period; in a catalog these are commits of any engine, and a table that another engine
    has made needs one of the arguments. TypeError or ValueError for what is no number or span of time,
    TableNotFoundError if there is no table, UnsupportedTableError where nothing may expire, else the errors
    of a batch.
    """
    return expiry.expire_snapshots(
        as_table(table).open(),
        max_snapshot_age=_given("max_snapshot_age", max_snapshot_age),
        min_snapshots_to_keep=min_snapshots_to_keep,
        max_snapshots=max_snapshots,
        grace=_given("deletion_grace", deletion_grace),
        dry_run=dry_run,
    )


def remove_orphan_files(
    table: AnyTable,
    *,
    older_than: Duration = "3 days",
    dry_run: bool = False,
) -> Deletions:
    """Delete files of this sink that no snapshot reaches: of failed batches, lost races and crashes.

    Safe beside running writers: a version raises the table's garbage cutoff first, and a batch whose files
    are older is written again. It lists the whole table, so a sink never does it by itself: call it once a
    day or a week. `dry_run=True` lists what a call would delete. Where other tables deliver into this one, as
    into a quarantine, they must be there, and are opened with the table's `storage_options`; else
    TableNotFoundError says what to do. ValueError for less than 24 hours.
    """
    place = as_table(table)
    return orphans.remove_orphan_files(
        place.open(),
        older_than=duration("older_than", older_than),
        dry_run=dry_run,
        open_table=lambda main: place.beside(main).open(),
    )


def _given(name: str, value: Duration | None) -> timedelta | None:
    return None if value is None else duration(name, value)


def drop(table: AnyTable) -> int:
    """Drop a table, and return the last version that it had.

    At a location a version says so: readers see no row from then on, writers raise TableDroppedError, and a
    table that is made there again has the numbers above it, so that no writer of the dropped one, however
    late, adds to it. In a catalog the table is dropped through the catalog, without purge, and its writers
    stop as if another engine had dropped it.

    What waits for second tables is delivered, and these stay. No file is deleted: `remove_orphan_files` of a
    table that is made there again does so, or you delete all but `metadata/v*.metadata.json`, once nothing
    reads them. A stream that is started again makes a new, empty table, so stop it first.

    TableNotFoundError where there is no table; else as a batch raises. A call that failed is completed by the
    next one.
    """
    return as_table(table).drop()
