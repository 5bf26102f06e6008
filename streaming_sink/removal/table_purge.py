"""The purge of one table: rewrite, expire, clean, in steps that may stop and begin again at any time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from pyiceberg.table.snapshots import Operation, Snapshot

from streaming_sink.removal.leftovers import Leftover, LeftoverKind, Leftovers, SeenFiles, find_leftovers
from streaming_sink.removal.matching import RowMatcher
from streaming_sink.removal.report import PurgedTable, StillThere
from streaming_sink.removal.rewriting import files_to_rewrite, find_fixed, rewrite, stale_manifests
from streaming_sink.removal.until import OLDER, orphaned_until_ms, until
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.keys.scanning import KeyColumns
from timeline import properties
from timeline.changes.changes import ExpireSnapshots
from timeline.changes.follow_changes import ReleaseFollowed
from timeline.changes.purge_changes import AppendNothing
from timeline.errors import CorruptTableError, MissingMetadataError, UnsupportedTableError
from timeline.maintenance.expiry import check_files_may_go, expire_snapshots
from timeline.maintenance.orphans import LEAST_AGE, remove_orphan_files
from timeline.outbox import OpenTable
from timeline.retention.deletions import DeletedKind, Deletions
from timeline.retention.policy import commit_of, cut_off, lineage, number_of
from timeline.table import Committed, Table
from timeline.versions.followed import followed_tags

_FILES_A_VERSION = 16
_TRIES = 20
"""How often a purge looks again where other writers change the same files."""
_PINNED = (LeftoverKind.REF, LeftoverKind.STAGED)
WAITS = (LeftoverKind.HISTORY, LeftoverKind.BOUNDS, LeftoverKind.EXPIRED)
"""What leaves by itself once versions and time have passed."""


@dataclass
class TablePurge:
    """The purge of one table. Every step finds what is left from the table itself, so a purge that was killed
    is continued by the next one.
    """

    table: Table
    role: str
    matcher: RowMatcher
    own_key: KeyColumns | None
    open_table: OpenTable
    undelivered: Callable[[], Collection[str]]
    """The locations of files that an outbox names for this table."""
    _seen: SeenFiles = field(default_factory=SeenFiles)
    _found: Counter[LeftoverKind] | None = None
    _references: dict[str, Leftover] = field(default_factory=dict)
    """Files by reference with rows of the keys: their owners have them, also once the table forgets them."""
    _deleted_rows: int = 0
    _rewritten: int = 0
    _delete_files: int = 0
    _versions: list[int] = field(default_factory=list)
    _ended: tuple[int, int] | None = None
    _deletions: Deletions = field(default_factory=Deletions)
    _runs: int = 0
    _problems: dict[str, str] = field(default_factory=dict)

    def look(self) -> Leftovers:
        """Return what is left at the newest head."""
        self.table.refresh()
        where = (self.table, self.role, self.matcher, self.own_key)
        left = self.table.on_head(lambda _: find_leftovers(*where, self.undelivered(), self._seen))
        self._references |= {each.path: each for each in left.of(LeftoverKind.REFERENCE)}
        if self._found is None:
            self._found = _counted(left)
            self._ended = _time_travel(left, planned=True)
        return left

    def check_rows_can_leave(self) -> None:
        """Raise UnsupportedTableError where a catalog keeps what a purge removes, or does not take what a
        purge commits.
        """
        if not self.table.head.version.is_shared:
            return
        self.table.ensure_store_is_safe()  # which finds out what the catalog does
        head = self.table.refresh()
        check_files_may_go(head)
        if self.table.log.draft.keeps_one_snapshot:
            raise UnsupportedTableError(
                "the catalog has not shown that it keeps two snapshots of one commit, as a purge makes them;"
                " nothing was changed. Delete the rows by a sink with Delete, or by another engine, and have"
                f" that engine rewrite the data files and expire its snapshots: {head.metadata.location}",
                location=head.metadata.location,
            )

    def check_nothing_pins(self, left: Leftovers) -> None:
        """Raise ValueError where a tag, a branch or a staged snapshot keeps rows of the keys: a person has to
        say that it is not needed.
        """
        if pinned := left.of(*_PINNED):
            names_of = sorted({name for each in pinned for name in each.holders})
            raise ValueError(
                f"rows of these keys are kept by {', '.join(names_of)}, and nothing was changed. Drop a tag"
                " or a branch (`streaming-sink drop-tag`, `drop-branch`); publish or discard a work item that"
                " is staged (`streaming-sink ingest`), or drop its tag, wap-…, if there is no zone any more;"
                " for a snapshot beside main: expire_snapshots with its id. Then purge again:"
                f" {self.table.store.location} has {pinned[0].path}"
            )

    def rewrite(self) -> Leftovers:
        """Delete the live rows of the keys, and rewrite the files that hold deleted ones; then let the head
        and its newest change of rows have none of these files. Return what is left then.

        Raises ValueError as `check_nothing_pins`, and as `Table.commit`.
        """
        lost = 0
        while lost < _TRIES:
            left = self.look()
            self.check_nothing_pins(left)
            self._problems |= find_fixed(left)
            files = [it for it in files_to_rewrite(left) if it not in self._problems]
            stale = [it for it in stale_manifests(left) if it not in self._problems]
            if not files and not stale:
                break
            starts = range(0, max(len(files), 1), _FILES_A_VERSION)
            made = [self._rewrite(left, files[start : start + _FILES_A_VERSION], stale) for start in starts]
            if any(made):
                self.table.commit([AppendNothing()])
            else:
                lost += 1
        left = self.look()
        newest = _newest_change(self.table)
        if newest and any(each.newest >= newest for each in left.of(*OLDER)):
            self.table.commit([AppendNothing()])
            left = self.look()
        return left

    def _rewrite(self, left: Leftovers, files: Sequence[str], stale: Sequence[str]) -> bool:
        """Rewrite some files as one version; False where other writers were first, so that none was made: in
        a process that slept past the grace period, its files may have been deleted since, too.
        """
        head = self.table.head
        try:
            done = rewrite(left, files, stale, self.matcher, self.own_key)
        except (DataFileError, FileNotFoundError, MissingMetadataError) as missing:
            if self.table.refresh() is not head:
                return False
            raise CorruptTableError(
                "a file that the newest version needs cannot be read; nothing was changed. Restore it from a"
                f" copy, see what `streaming-sink doctor` says, and purge again: {missing}",
                location=self.table.store.location,
                version=head.number,
            ) from missing
        if done.problems and (newest := self.table.refresh()) is not head:
            there = {each.location for each in newest.live_files()}
            done = replace(done, problems={it: why for it, why in done.problems.items() if it in there})
        self._problems |= done.problems or {}
        self._deleted_rows += done.deleted_rows
        self._rewritten += done.files
        self._delete_files += done.delete_files
        if done.version is not None:
            self._versions.append(done.version)
        return done.version is not None or bool(done.problems)

    def clean(self, left: Leftovers) -> None:
        """Expire the snapshots that have files with rows of the keys, and delete what may leave now: files of
        expired snapshots, orphans, runs of the key index.
        """
        if (span := _time_travel(left)) is not None:
            self._ended = span if self._ended is None else (self._ended[0], max(self._ended[1], span[1]))
        reaching = {each.snapshot_id for each in _reaching(left)}
        tags = followed_tags(self.table.head.metadata.refs)
        if held := tuple(tag for tag, snapshot_id in tags.items() if snapshot_id in reaching):
            self.table.commit([ReleaseFollowed(held)])
        age = _expiry_age(left)
        if age is not None:
            self._deletions += expire_snapshots(self.table, max_snapshot_age=age, min_snapshots_to_keep=1)
        elif left.of(LeftoverKind.EXPIRED, LeftoverKind.BOUNDS):
            self._deletions += self.table.delete_expired()
        orphans = [each for each in left.of(LeftoverKind.ORPHAN, LeftoverKind.BOUNDS) if not each.newest]
        due = [due for each in orphans if (due := orphaned_until_ms(each)) is not None]
        due_ms = min(due, default=math.inf)
        if self.table.head.metadata.last_updated_ms < due_ms <= self.table.log.environment.now_ms():
            self.pass_time(left)  # the time of a table without writers does not pass
        if due_ms <= self.table.head.metadata.last_updated_ms:
            try:
                self._deletions += remove_orphan_files(
                    self.table, older_than=LEAST_AGE, open_table=self.open_table
                )
            except (UnsupportedTableError, CorruptTableError) as stopped:  # a shared folder, a damaged note
                self._problems[self.table.store.location] = str(stopped)
        runs = [each.path for each in left.of(LeftoverKind.INDEX)]
        self.table.store.delete(runs)
        self._runs += len(runs)

    def pass_time(self, left: Leftovers) -> None:
        """Make a version that only expires: time and versions pass in the table where no other writer makes
        them.
        """
        policy, age = {}, _expiry_age(left)
        if age is not None:
            policy[properties.MIN_SNAPSHOTS_TO_KEEP] = "1"
            policy[properties.MAX_SNAPSHOT_AGE_MS] = str(age // timedelta(milliseconds=1))
        committed = self.table.commit([ExpireSnapshots(policy)])
        assert isinstance(committed, Committed)  # it has no transaction
        self._deletions += Deletions(committed.deleted.files, committed.expired_snapshots)

    def report(self) -> PurgedTable:
        """Return what was found and done until now, and what is left."""
        left = self.look()
        elsewhere = self._references.values()
        return PurgedTable(
            location=self.table.store.location,
            role=self.role,
            found={kind.value: rows for kind, rows in (self._found or {}).items()},
            deleted_rows=self._deleted_rows,
            rewritten_files=self._rewritten,
            delete_files=self._delete_files,
            versions=tuple(self._versions),
            ends_time_travel=self._ended,
            expired_snapshots=self._deletions.expired_snapshots,
            deleted_files=sum(file.kind is not DeletedKind.VERSION for file in self._deletions.files),
            deleted_runs=self._runs,
            problems=tuple(f"{path}: {why}" for path, why in self._problems.items()),
            left=tuple(
                StillThere(kind=it.kind, path=it.path, rows=it.rows, until=until(it, left))
                for it in (*(it for it in left.found if it.kind is not LeftoverKind.REFERENCE), *elsewhere)
            ),
        )


def _counted(left: Leftovers) -> Counter[LeftoverKind]:
    counted = Counter[LeftoverKind]()
    for each in left.found:
        counted[each.kind] += each.rows
    return counted


def _history(table: Table) -> list[Snapshot]:
    """Return the snapshots of main that are in the metadata, and those that a tag has kept of its older ones,
    oldest first.
    """
    metadata = table.head.metadata
    main = lineage(metadata.current_snapshot_id, metadata.snapshots)
    return [*cut_off(metadata.snapshots, main), *main[::-1]]


def _newest_change(table: Table) -> int:
    """Return the sequence number of main's newest snapshot that changed rows, which never expires."""
    changing = [
        each.sequence_number or 0
        for each in _history(table)
        if each.summary is not None and each.summary.operation != Operation.REPLACE
    ]
    return max(changing, default=0)


def _reaching(left: Leftovers, *, planned: bool = False) -> list[Snapshot]:
    """Return the snapshots that have to expire: all up to the newest version that has a file with rows of the
    keys, but the current one; with `planned` as it is once the live files are rewritten.
    """
    history, current = _history(left.table), left.table.head.metadata.current_snapshot_id
    newest = max((each.newest for each in left.of(*OLDER)), default=0)
    if planned and left.of(LeftoverKind.LIVE, LeftoverKind.DELETED):
        return history
    commits = {commit_of(it) for it in history if (it.sequence_number or 0) <= newest}
    return [it for it in history if commit_of(it) in commits and it.snapshot_id != current]


def _time_travel(left: Leftovers, *, planned: bool = False) -> tuple[int, int] | None:
    """Return the first and the last version of the snapshots that have to expire."""
    reaching = _reaching(left, planned=planned)
    versions = [number_of(each) for each in reaching]
    return (min(versions), max(versions)) if versions else None


def _expiry_age(left: Leftovers) -> timedelta | None:
    """Return the age beyond which snapshots expire, so that all go that have a file with rows of the keys;
    None where there is none.
    """
    times = [each.timestamp_ms for each in _reaching(left)]
    if not times:
        return None
    age_ms = left.table.head.metadata.last_updated_ms - max(times)
    return timedelta(milliseconds=max(age_ms - 1, 0))
