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
from timeline.clock import SYSTEM, Environment
from timeline.commit import conflicts
from timeline.commit.attempts import Attempts, Candidate
from timeline.commit.changes import (
    Append,
    Change,
    Dropped,
    Intent,
    Replace,
    SetProperties,
    check_changes,
)
from timeline.commit.creation import first_version, new_metadata
from timeline.commit.publish import DEADLINE_SECONDS, Published, Standing, Unneeded, publish
from timeline.commit.standing import judge_standing
from timeline.commit.turns import our_turn
from timeline.errors import (
    CorruptTableError,
    MissingMetadataError,
    TableNotFoundError,
)
from timeline.features import check_features_are_known
from timeline.names import version_number, version_path
from timeline.retention.deletions import Deletion, Deletions, Kind
from timeline.retention.garbage import sweep
from timeline.retention.policy import MAINTAIN_EVERY, versions_to_delete
from timeline.stores import StorageOptions, open_store
from timeline.stores.base import Store
from timeline.stores.probe import probe
from timeline.versions.head import Head
from timeline.versions.manifests import ManifestFiles
from timeline.versions.transactions import Transaction, check_transaction, epoch_after_skip
from timeline.versions.version_log import Listing, VersionLog

_T = TypeVar("_T")
_LOG = logging.getLogger("streaming_sink.timeline")
_VERSIONS_AT_ONCE = 200
_NOTES_AT_ONCE = 2
"""Expiries whose files one commit deletes at most. One comes in every twenty versions: a backlog shrinks."""
_PROBED_KEPT = 8


def check_store(store: Store, environment: Environment = SYSTEM) -> None:
    """Probe the store by racing it (R18). UnsafeStoreError if it would lose acknowledged rows; leaves nothing
    behind.
    """
    probe(store, f"{environment.random.getrandbits(80):020x}")


@dataclass(frozen=True)
class Committed:
    """What a commit did. All of it is durable and acknowledged."""

    version: int
    """The version that carries the commit."""
    attempts: int
    epoch: int | None
    appended_snapshot_id: int | None
    replaced_snapshot_id: int | None
    dropped: tuple[Dropped, ...]
    """The replaces that were left out because their inputs were no longer live; the appends are in."""
    expired_snapshots: int
    history_cut: bool
    """The bound on the number of snapshots removed some that are younger than the promised age."""
    deleted: Deletions
    """The files that went after this commit: of snapshots that had expired long before, and old versions."""


@dataclass(frozen=True)
class AlreadyCommitted:
    """The batch was committed before; nothing was written."""

    version: int
    """A version whose lineage holds the batch."""
    epoch: int | None = None
    """What the run's next commit is to name: its own epoch, if it has one."""


@dataclass
class Table:
    """One table through one store. Not safe for concurrent use by threads; any number of processes may have
    it open.
    """

    log: VersionLog
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
        """Create the table at the store's location, or open the one that is there, whoever created it.

        Field ids are assigned afresh. The store is probed before anything is written: UnsafeStoreError if it
        does not keep create-if-absent; `store_is_checked` says that the caller has done so by `check_store`.
        ValueError for a property that belongs to the protocol, and for partition fields whose names manifests
        cannot spell, or spell alike.
        """
        properties.check_properties(table_properties or {})
        manifest_files = ManifestFiles(store)
        log = VersionLog(store, manifest_files, environment)
        if log.latest() is not None:
            return cls.open(store, environment)
        if not store_is_checked:
            check_store(store, environment)
        metadata = new_metadata(store.location, schema, spec, sort_order, table_properties or {}, environment)

        def build(head: Head | None) -> Candidate | None:
            return (
                first_version(metadata, manifest_files, environment, store.signature)
                if head is None
                else None
            )

        def standing(head: Head, _: Candidate) -> Standing:
            ours = head.metadata.table_uuid == metadata.table_uuid
            return Standing.COMMITTED if ours else Standing.LOST

        published = publish(log, None, build, standing)
        if isinstance(published, Unneeded):
            return cls.open(store, environment)
        table = cls(log, published.head)
        table.tidy(published.listing)
        return table

    @classmethod
    def open(cls, store: Store, environment: Environment = SYSTEM) -> Table:
        """Open the table at the store's location; only reads. TableNotFoundError if there is none,
        CorruptTableError if it cannot be read.
        """
        log = VersionLog(store, ManifestFiles(store), environment)
        head = log.newest()
        if head is None:
            raise TableNotFoundError(
                f"there is no table of this sink at {store.location}: is that how the stream spells it? Its"
                " first batch makes the table"
            )
        return cls(log, head)

    def ensure_store_is_safe(self) -> None:
        """Check that this process may write: it knows the features that the table requires of writers, and
        the store was probed, through this endpoint and client, or is now; the next commit records it (R18).

        A commit does this by itself. Call it earlier to be refused (UnknownFeatureError, UnsafeStoreError)
        before data files are written.
        """
        check_features_are_known(self._head.properties, self.store.location)
        if self._unrecorded_probe is None and self.store.signature not in _probed_stores(self._head):
            check_store(self.store, self.log.environment)
            self._unrecorded_probe = self.store.signature

    @property
    def store(self) -> Store:
        return self.log.store

    @property
    def head(self) -> Head:
        """The newest head that this process has seen; no request. Good for planning: a commit checks against
        the real one.
        """
        return self._head

    def refresh(self) -> Head:
        """Return the real head: one LIST while nothing changed, and otherwise the reads of what is new."""
        listing = self.log.list()
        if 0 < listing.highest < self._head.number:
            raise CorruptTableError(
                f"version {self._head.number} of the table has vanished, and {listing.highest} is highest: "
                f"something deleted it. Nothing was changed; restore it from a copy: {self.store.location}"
            )
        known = self._head.version
        made_again = listing.highest == known.number and listing.versions[known.number].identity not in (
            known.identity,
            "",
        )
        if listing.highest != known.number or made_again:
            head = self.log.newest(listing, self._head)
            if head is None:
                raise _gone(self.store)
            conflicts.check_table_is_the_same(head, self._table_uuid)
            if made_again and head.number == known.number and head.version.commit_id != known.commit_id:
                raise CorruptTableError(
                    f"version {known.number} of the table was deleted, and another writer has made it again:"
                    " what the old one added is lost. Nothing was changed; find what deletes versions, and"
                    f" see what `doctor` says: {self.store.location}"
                )
            self._move_to(head)
        self._seen_at = self.log.environment.monotonic()
        return self._head

    def on_head(self, look: Callable[[Head], _T]) -> _T:
        """Return what `look` makes of the known head; of a newer one, where files of that one have gone
        meanwhile.

        They may have, for a process that slept past the grace period. CorruptTableError where the head is
        still the newest.
        """
        while True:
            head = self._head
            try:
                return look(head)
            except MissingMetadataError:
                if self.refresh() is head:
                    raise

    def commit(
        self,
        changes: Sequence[Change],
        *,
        schema_id: int | None = None,
        transaction: Transaction | None = None,
        summary: Mapping[str, str] | None = None,
        open_below_bytes: int = 0,
    ) -> Committed | AlreadyCommitted:
        """Publish one version that carries out all changes, rebased over whatever others commit meanwhile.

        `schema_id` is the schema that the files were written under (default: the known head's). Once this
        returns `Committed`, the rows are durable and stay. Replaces whose inputs are gone are dropped and
        told; if nothing else is left to do, that is a CommitConflictError. See `publish` for the other
        errors.

        Without a `transaction` only the files themselves tell a second call from the first: one that this
        process knows to be live is not appended again (CommitConflictError).
        """
        check_changes(changes)
        self.ensure_store_is_safe()
        intent = Intent(
            tuple(changes),
            self._head.schema.schema_id if schema_id is None else schema_id,
            self._table_uuid,
            transaction,
            summary or {},
            open_below_bytes,
        )
        attempts = Attempts(intent, self.log.manifest_files, self.log.environment)
        # What is skipped for good need not write its manifest first.
        if (
            transaction is None
            or check_transaction(self._head.transaction(transaction.app_id), transaction) is not None
        ):
            attempts.prepare(self._head)
        with our_turn(self.store, self.log.environment) as others_committed:
            published = publish(
                self.log,
                self.refresh() if others_committed else self._head,
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
            known = self._head.transaction(transaction.app_id)
            return AlreadyCommitted(self._head.number, epoch_after_skip(known, transaction))
        self._unrecorded_probe = None
        self._move_to(published.head)
        deleted = self.tidy(published.listing, published.candidate.head.number)
        return _committed(published, deleted)

    def tidy(self, listing: Listing | None = None, version: int | None = None) -> Deletions:
        """Complete what a crash may have cut off after the commit of `version` (default: the known head's):
        the hint, and at every twentieth version the deletion of what has expired. Best effort; failures are
        logged, and the next time goes on where this one stopped.

        Without a listing it makes one.
        """
        try:
            listing = listing or self.log.list()
            self.log.write_hint(self._head.number)
            if (self._head.number if version is None else version) % MAINTAIN_EVERY == 0:
                return self.delete_expired(listing, at_most=_NOTES_AT_ONCE)
        except Exception as failure:  # noqa: BLE001 - it is committed, whatever fails here
            _LOG.warning(
                "version %d is committed; tidying after it failed and is tried again at the next commit: %s",
                self._head.number,
                failure,
            )
        return Deletions()

    def delete_expired(
        self,
        listing: Listing,
        *,
        at_most: int | None = None,
        grace_ms: int | None = None,
        dry_run: bool = False,
    ) -> Deletions:
        """Delete old version files (R19), and what only snapshots reached that expired before the grace
        period (R7), of at most so many expiries.

        Raises UnknownFeatureError, StoreUnavailableError or CorruptTableError; what was not deleted is found
        again.
        """
        if not dry_run:
            check_features_are_known(self._head.properties, self.store.location)
        versions = self._delete_old_versions(listing, dry_run)
        files = self.log.manifest_files
        return versions + self.on_head(
            lambda head: sweep(files, head, at_most=at_most, grace_ms=grace_ms, dry_run=dry_run)
        )

    def _build(self, attempts: Attempts, head: Head | None) -> Candidate | None:
        if head is None:
            raise _gone(self.store)
        probed = (
            None
            if self._unrecorded_probe is None
            else ",".join([*_probed_stores(head), self._unrecorded_probe][-_PROBED_KEPT:])
        )
        return attempts.build(head, probed)

    def _move_to(self, head: Head) -> None:
        if head is not self._head:
            self._head = head
            self.log.manifest_files.keep_only(head.manifests)

    def _delete_old_versions(self, listing: Listing, dry_run: bool) -> Deletions:
        metadata = self._head.metadata
        times = {
            version_number(entry.metadata_file) or 0: entry.timestamp_ms for entry in metadata.metadata_log
        }
        times[self._head.number] = metadata.last_updated_ms
        # Of versions after the known head the times are not known here; they are a later commit's to delete.
        known = [number for number in listing.versions if number <= self._head.number]
        old = versions_to_delete(known, times, listing.highest, metadata.last_updated_ms)
        old = old[:_VERSIONS_AT_ONCE]
        why = "newer versions have taken its place for long enough"
        deletions = tuple(
            Deletion(version_path(number), Kind.VERSION, listing.versions[number].size, why) for number in old
        )
        if old and not dry_run:
            # A writer that woke up late may have put the hint back to one of these (R5).
            self.log.write_hint(listing.highest)
            self.log.delete(old)
        return Deletions(deletions, dry_run=dry_run)


def open_table(
    location: str, storage_options: StorageOptions | None = None, environment: Environment = SYSTEM
) -> Table:
    """Open the table at a location; only reads.

    ValueError for a location or an option that `open_store` refuses; otherwise as `Table.open`.
    """
    return Table.open(open_store(location, storage_options), environment)


def _committed(published: Published, deleted: Deletions) -> Committed:
    candidate = published.candidate
    return Committed(
        version=candidate.head.number,
        attempts=published.attempts,
        epoch=candidate.epoch,
        appended_snapshot_id=candidate.appended_snapshot_id,
        replaced_snapshot_id=candidate.replaced_snapshot_id,
        dropped=candidate.dropped,
        expired_snapshots=len(candidate.expiry.snapshot_ids),
        history_cut=candidate.expiry.cut_by_number,
        deleted=deleted,
    )


def _gone(store: Store) -> TableNotFoundError:
    return TableNotFoundError(
        "the table has gone: no version of it is left. Nothing was written; if nobody dropped it, restore"
        f" metadata/ from a copy before a writer starts: {store.location}"
    )


def _probed_stores(head: Head) -> list[str]:
    return [text for text in head.properties.get(properties.PROBED_STORES, "").split(",") if text]


__all__ = ["AlreadyCommitted", "Append", "Committed", "Replace", "SetProperties", "Table", "open_table"]
