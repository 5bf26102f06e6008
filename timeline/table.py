"""A table: create it, open it, read its head, commit to it. What `streaming_sink` uses of the timeline."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

from timeline import properties
from timeline.changes.change_checks import check_changes
from timeline.changes.changes import Change
from timeline.changes.drop_changes import check_not_dropped, is_dropped, table_vanished
from timeline.changes.intent import Intent
from timeline.clock import SYSTEM, Environment
from timeline.commit import conflicts
from timeline.commit.attempts import Attempts, Candidate
from timeline.commit.creation import publish_first_version
from timeline.commit.log import CommitLog, finds_newer
from timeline.commit.outcomes import AlreadyCommitted, Committed
from timeline.commit.publish import DEADLINE_SECONDS, Unneeded, publish_version
from timeline.commit.standing import judge_standing
from timeline.commit.turns import take_turn
from timeline.commit.version_log import VersionLog
from timeline.drafts.succession import probed_stores, record_probe
from timeline.errors import MissingMetadataError, TableNotFoundError
from timeline.features import check_features_are_known
from timeline.manifests.manifests import ManifestFiles
from timeline.retention.deletions import Deletions
from timeline.retention.garbage import sweep
from timeline.stores import StorageOptions, open_store
from timeline.stores.base import Store
from timeline.stores.probe import check_store
from timeline.versions.head import Head
from timeline.versions.transactions import Transaction
from timeline.versions.work_items import WorkItem

_T = TypeVar("_T")
_LOG = logging.getLogger("streaming_sink.timeline")
_NOTES_AT_ONCE = 2
"""Expiries whose files a commit deletes at most; one comes in every twenty versions."""


@dataclass
class Table:
    """One table. Not safe for concurrent use by threads; any number of processes may have it open."""

    log: CommitLog
    _head: Head
    _unrecorded_probe: str | None = None
    deadline_seconds: float = DEADLINE_SECONDS
    _table_uuid: str = field(init=False)

    def __post_init__(self) -> None:
        self._table_uuid = str(self._head.metadata.table_uuid)
        self._seen_at = self.log.environment.monotonic()

    @classmethod
    def create(
        cls,
        store: Store,
        schema: Schema,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        table_properties: Mapping[str, str] | None = None,
        environment: Environment = SYSTEM,
        *,
        store_is_checked: bool = False,
    ) -> Table:
        """Create the table at the store's location, after one that was dropped too, or open what is there.

        Field ids are assigned afresh. The store is probed before anything is written: UnsafeStoreError if it
        does not keep create-if-absent; `store_is_checked` says that the caller has done so by `check_store`.
        ValueError for a property that belongs to the protocol, and for partition fields whose names manifests
        cannot spell, or spell alike.
        """
        log = VersionLog(store, ManifestFiles(store), environment)
        return cls.create_in(log, schema, spec, sort_order, table_properties, store_is_checked)

    @classmethod
    def create_in(
        cls,
        log: CommitLog,
        schema: Schema,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        table_properties: Mapping[str, str] | None = None,
        store_is_checked: bool = False,
    ) -> Table:
        """Create the table in a commit log, or open the one that is there. As `create`."""
        given = table_properties or {}
        properties.check_properties(given)
        if (head := log.newest()) is not None and not is_dropped(head):
            return cls(log, head)
        if log.needs_probe and not store_is_checked:
            check_store(log.store, log.environment)
        published = publish_first_version(log, schema, spec, sort_order, given, head)
        if isinstance(published, Unneeded):
            return cls.open_in(log)
        table = cls(log, published.head)
        table.tidy(published.seen)
        return table

    @classmethod
    def open(cls, store: Store, environment: Environment = SYSTEM) -> Table:
        """Open the table at the store's location; only reads. TableNotFoundError if there is none (it is a
        TableDroppedError if there was one), CorruptTableError if it cannot be read.
        """
        return cls.open_in(VersionLog(store, ManifestFiles(store), environment))

    @classmethod
    def open_in(cls, log: CommitLog) -> Table:
        """Open the table of a commit log. As `open`."""
        head = log.newest()
        if head is None:
            raise TableNotFoundError(
                f"there is no table of this sink at {log.store.location}: is that how the stream spells it?"
                " Its first batch creates the table",
                location=log.store.location,
            )
        check_not_dropped(head)
        return cls(log, head)

    def ensure_store_is_safe(self) -> None:
        """Check that this process may write: it knows the features that the table requires of writers, and
        the store was probed, through this endpoint and client, or is now; the next commit records it (R18).

        A commit does this by itself. Call it earlier to be refused (UnknownFeatureError, UnsafeStoreError)
        before data files are written.
        """
        check_features_are_known(self._head.properties, self.store.location)
        self.log.check_writable(self._head)
        is_open = self.log.needs_probe and self._unrecorded_probe is None
        if is_open and self.store.signature not in probed_stores(self._head.properties):
            check_store(self.store, self.log.environment)
            self._unrecorded_probe = self.store.signature

    @property
    def store(self) -> Store:
        return self.log.store

    @property
    def head(self) -> Head:
        """The newest head that this process has seen; no request. Good for planning, not for a commit."""
        return self._head

    def refresh(self) -> Head:
        """Return the newest head: one LIST while nothing changed, otherwise the reads of what is new."""
        if (head := self.log.newer(self._head)) is None:
            raise table_vanished(self.log.address, self.store.location)
        if head is not self._head:
            conflicts.check_table_is_the_same(head, self._table_uuid)
            self._move_to(head)
        self._seen_at = self.log.environment.monotonic()
        return self._head

    def on_head(self, look: Callable[[Head], _T]) -> _T:
        """Return what `look` makes of the known head; of a newer one, where files of the known head were
        deleted since.

        They may be, in a process that slept past the grace period, or where another engine deletes without
        one. CorruptTableError where the head is still the newest.
        """
        while True:
            head = self._head
            try:
                return look(head)
            except MissingMetadataError:
                if not finds_newer(self.log, head, self.refresh):
                    raise

    def commit(
        self,
        changes: Sequence[Change],
        *,
        schema_id: int | None = None,
        transaction: Transaction | WorkItem | None = None,
        summary: Mapping[str, str] | None = None,
        open_below_bytes: int = 0,
    ) -> Committed | AlreadyCommitted:
        """Publish one version that applies all changes, rebased over what others commit at the same time.

        `schema_id` is the schema that the files were written under (default: the known head's). Once this
        returns `Committed`, the rows are durable and stay. Replaces whose inputs are no longer live are
        listed in `Committed.dropped`; if nothing else is left to do, that is a CommitConflictError. See
        `publish` for the other errors.

        Without a `transaction` only the files themselves distinguish a second call from the first: a file
        that this process knows to be live is not appended again (CommitConflictError).
        """
        check_changes(changes)
        self.ensure_store_is_safe()
        schema_id = self._head.schema.schema_id if schema_id is None else schema_id
        intent = Intent(
            tuple(changes),
            schema_id,
            self._table_uuid,
            transaction,
            summary or {},
            open_below_bytes,
            self._head.metadata.schema_by_id(schema_id),
        )
        attempts = Attempts(intent, self.log.manifest_files, self.log.environment, self.log.draft)
        # A batch that is skipped for good does not write its manifest first.
        if transaction is None or transaction.check(self._head.properties) is not None:
            attempts.prepare(self._head)
        remembered = conflicts.remember_appended(self.log.manifest_files, intent)
        with take_turn(self.store, self.log.environment) as others_committed, remembered:
            published = publish_version(
                self.log,
                self.refresh() if others_committed or self._head.version.expires_next else self._head,
                lambda head: self._build(attempts, head),
                lambda head, candidate: judge_standing(intent, head, candidate),
                self.deadline_seconds,
                self._seen_at,
            )
        self._seen_at = self.log.environment.monotonic()
        if isinstance(published, Unneeded):
            if published.head is not None:
                self._move_to(published.head)
            assert transaction is not None  # nothing else makes a commit unneeded
            return AlreadyCommitted(self._head.number, transaction.epoch_after_skip(self._head.properties))
        self._unrecorded_probe = None
        self._move_to(published.head)
        return Committed.of(published, self.tidy(published.seen, published.candidate.head))

    def tidy(self, seen: object = None, made: Head | None = None) -> Deletions:
        """Complete what a crash may have cut off after the commit that made a head (default: the known one):
        the hint, and at every twentieth version the deletion of what has expired, and copies of manifests.
        Best effort; what fails is logged and tried again. `seen`, what the log saw, saves a request.
        """
        try:
            shown = self.log.tidy(self._head, seen)
            if self.log.maintains(made or self._head):
                deleted = self.delete_expired(None if seen is None else shown, at_most=_NOTES_AT_ONCE)
                self._head.write_copies()
                return deleted
        except Exception as failure:  # noqa: BLE001 - the commit is acknowledged: no failure here undoes it
            _LOG.warning(
                "version %d is committed; tidying after it failed and is tried again at the next commit: %s",
                self._head.number,
                failure,
            )
        return Deletions()

    def delete_expired(
        self,
        seen: object = None,
        *,
        at_most: int | None = None,
        grace_ms: int | None = None,
        dry_run: bool = False,
    ) -> Deletions:
        """Delete what the log no longer needs (old version files, R19), and the files that only snapshots
        reach which expired before the grace period (R7), of at most so many expiries.

        Raises UnknownFeatureError, StoreUnavailableError or CorruptTableError; what is left is found again.
        """
        if seen is None:  # the known head may be stale, unlike after a commit
            self.refresh()

        def delete_files(head: Head) -> Deletions:
            check_features_are_known({} if dry_run else head.properties, self.store.location)
            return sweep(self.log.manifest_files, head, at_most=at_most, grace_ms=grace_ms, dry_run=dry_run)

        check_features_are_known({} if dry_run else self._head.properties, self.store.location)
        versions = self.log.delete_old(self._head, seen, dry_run=dry_run)
        return versions + self.on_head(delete_files)

    def _build(self, attempts: Attempts, head: Head | None) -> Candidate | None:
        if head is None:
            raise table_vanished(self.log.address, self.store.location)
        self.log.check_writable(head)
        probe = self._unrecorded_probe and record_probe(head.properties, self._unrecorded_probe)
        return attempts.build(head, probe)

    def _move_to(self, head: Head) -> None:
        if head is not self._head:
            self._head = head
            self.log.manifest_files.keep_only(head.manifests)


def open_table(
    location: str, storage_options: StorageOptions | None = None, environment: Environment = SYSTEM
) -> Table:
    """Open the table at a location, as `Table.open`. ValueError where `open_store` refuses an argument."""
    return Table.open(open_store(location, storage_options), environment)


__all__ = ["AlreadyCommitted", "Committed", "Table", "open_table"]
