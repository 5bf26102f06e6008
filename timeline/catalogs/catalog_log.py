"""The commit log in a catalog: a commit is updates under requirements, of which the one on main decides.

::

    send      commit_table; a clean success is ours
    look      after anything else: the newest metadata has our snapshots, or main has left the base   (R29)

No answer decides by its code. "Refused" may be the answer to this very commit, which a proxy has sent
twice; after no answer the commit may have landed, or may land later, for as long as the requirements hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as LoadedTable
from pyiceberg.table.metadata import TableMetadata

from timeline import properties
from timeline.catalogs.answers import is_refusal, unclear
from timeline.catalogs.catalog_draft import CatalogDraft
from timeline.catalogs.catalog_version import CatalogVersion
from timeline.catalogs.loaded import is_older, may_name, no_io, read_loaded
from timeline.catalogs.memory import check_memory
from timeline.catalogs.state_files import StateFiles
from timeline.catalogs.updates import CatalogCommit, catalog_commit, may_pass, without_expiry
from timeline.clock import Environment
from timeline.commit.attempts import Candidate
from timeline.commit.log import Judge, Lost, Standing, StateUnknown, Won
from timeline.errors import (
    CommitStateUnknownError,
    CorruptTableError,
    MissingMetadataError,
    StoreUnavailableError,
    TimelineError,
    UnsupportedTableError,
)
from timeline.manifests.manifests import ManifestFiles
from timeline.names import OUTBOX_FOLDER, TOMBSTONE_FOLDER
from timeline.retention.deletions import Deletions
from timeline.retention.policy import commit_of
from timeline.slots.retrying import StillUnknownError, until_known
from timeline.stores.base import Store
from timeline.versions.head import Head
from timeline.versions.listing import read_head
from timeline.versions.outbox import catalog_address
from timeline.versions.staged import OWN_WAP_ID
from timeline.versions.version_file import Version, stated_by

_REFUSED_ENOUGH = 3
"""A commit that is refused so often, for longer than a cache may show the past, on a table that does not
change, will be refused again. In less time a cache may show the table as it was before the commit that won.
"""


@dataclass(frozen=True)
class CatalogLog:
    """The `CommitLog` of one table that a catalog has. No version files, and so no probe of the store."""

    catalog: Catalog
    identifier: tuple[str, ...]
    store: Store
    manifest_files: ManifestFiles
    environment: Environment
    accepts: bool = False
    """Whether the table is taken as it is, though what it remembers may be of other rows."""
    keeps_files: str = ""
    """Why the catalog has no client delete files; "" where it does not say so."""

    needs_probe = False
    tombstone_folder = TOMBSTONE_FOLDER
    outbox_folder = OUTBOX_FOLDER
    wap_id_key = OWN_WAP_ID
    stale_seconds = 5.0

    @property
    def draft(self) -> type[CatalogDraft]:
        return CatalogDraft

    @cached_property
    def state_files(self) -> StateFiles:
        return StateFiles(self.manifest_files, self.environment)

    @property
    def name(self) -> str:
        """How errors call the table."""
        return ".".join(self.identifier)

    @property
    def address(self) -> str:
        return catalog_address(self.identifier)

    def maintains(self, head: Head) -> bool:
        """Return whether the newest commit of main has expired what was due."""
        return head.snapshot is not None and properties.MAINTAINED in stated_by(head.snapshot)

    def find_ban(self) -> str:
        """Return why snapshots and files of the table stay, as far as the catalog has said or shown."""
        return self.keeps_files

    def check_writable(self, head: Head) -> None:
        """Raise TableReplacedError or CorruptTableError for memory that is not of the table's rows (R30)."""
        if not self.accepts:
            check_memory(head)

    def newest(self, *, base: Head | None = None) -> Head | None:
        """Return the newest head, as the catalog has it. Others may expire a snapshot between a load and the
        read of its list, and a cache may show it after that: MissingMetadataError where it stays so.
        """
        missing_at: float | None = None

        def look() -> Head | None:
            nonlocal missing_at
            sent_at = self.environment.monotonic()
            try:
                loaded = self.catalog.load_table(self.identifier)
                return self._head(loaded.metadata, loaded.metadata_location)
            except NoSuchTableError:
                return None
            except MissingMetadataError as failure:
                if missing_at is not None and sent_at - missing_at >= self.stale_seconds:
                    raise
                missing_at = missing_at or self.environment.monotonic()
                raise StillUnknownError from failure
            except unclear() as failure:
                raise StoreUnavailableError(
                    f"the catalog does not answer, or not in a way that can be read: {self.name}: {failure}",
                    location=self.store.location,
                ) from failure

        return until_known(self.environment, math.inf)(look)

    def newer(self, known: Head) -> Head | None:
        """Return the newest head; the known one where the answer is older, which a cache may give."""
        head = self.newest()
        if head is None or head.metadata.table_uuid != known.metadata.table_uuid:
            return head
        before, now = known.version, head.version
        unchanged = (before.identity, before.keeps_files) == (now.identity, now.keeps_files)
        return known if unchanged or is_older(head, known) else head

    def head_after(self, base: Head | None, winner: Version) -> Head:
        """Return a winner with its manifests: no property says what it added, since others would keep it."""
        return read_head(self.manifest_files, winner)

    def publish(self, candidate: Candidate, judge: Judge, give_up_at: float) -> Won | Lost | StateUnknown:
        """Commit the candidate, and find out what became of it. While the requirements may still hold it is
        sent again: they let it land only once.
        """
        assert candidate.base is not None
        base = candidate.base
        commit = catalog_commit(*self.state_files.store(base, candidate.head))
        in_doubt, refused, refused_at = False, 0, math.inf

        def send() -> Won | Lost:
            nonlocal commit, in_doubt, refused, refused_at
            try:
                return Won(candidate, self._send(candidate, commit))
            except Exception as failure:  # noqa: BLE001 - of as many kinds as there are catalogs and proxies
                cause = failure
                in_doubt = in_doubt or not is_refusal(failure)
                commit = without_expiry(commit)  # others may have tagged what was to expire
            asked_at = self.environment.monotonic()
            refused_at = min(refused_at, asked_at)
            try:
                head = self.newest()
                if head is None:
                    self._raise_dropped(candidate)
                if self._has_landed(head, candidate, judge):
                    return Won(candidate, head)
            except (StoreUnavailableError, MissingMetadataError) as failure:
                raise StillUnknownError from failure
            except (CorruptTableError, UnsupportedTableError) as failure:
                if not (in_doubt or may_name(self.catalog, self.identifier, candidate.head.version)):
                    raise
                raise self._unknown(candidate, failure) from failure
            if head.number != base.number or not may_pass(commit, head.metadata):
                # No sequence number is taken twice, beside main neither. Under one, main or a schema may be
                # set back: what was refused may have landed since, and what was not answered may land yet.
                doubtful = in_doubt or head.number == base.number
                return Lost(head.version, is_newest=True, doubtful=doubtful, may_land=in_doubt)
            if in_doubt:
                raise StillUnknownError from cause
            refused += 1
            if refused >= _REFUSED_ENOUGH and asked_at - refused_at >= self.stale_seconds:
                raise StoreUnavailableError(
                    "the catalog refuses a commit, and the table has not changed since it was built; nothing"
                    f" of it is live: {self.name}: {type(cause).__name__}: {cause}",
                    location=self.store.location,
                    version=candidate.head.number,
                ) from cause
            raise StillUnknownError from cause

        try:
            return until_known(self.environment, give_up_at)(send)
        except StillUnknownError as failure:
            return StateUnknown(self._unknown(candidate, failure.__cause__))
        except CommitStateUnknownError as error:
            return StateUnknown(error)

    def find_landed(
        self, doubtful: Sequence[Candidate], base: Head | None, judge: Judge, give_up_at: float
    ) -> Won | Head | StateUnknown:
        """Look in the newest head for candidates that others' changes of the table have kept in doubt. A head
        of the number that one was built on decides only if a cache shows it no more.
        """
        began = self.environment.monotonic()

        def look() -> Won | Head:
            asked_at = self.environment.monotonic()
            try:
                head = self.newest()
                if head is None:
                    self._raise_dropped(doubtful[-1])
                landed = (each for each in doubtful if self._has_landed(head, each, judge))
                ours = next(landed, None)
            except (StoreUnavailableError, MissingMetadataError) as failure:
                raise StillUnknownError from failure
            if ours is not None:
                return Won(ours, head)
            bases = {each.base.number for each in doubtful if each.base is not None}
            if head.number in bases and asked_at - began < self.stale_seconds:
                raise StillUnknownError("the table may be shown as it was before the commit")
            return head

        try:
            return until_known(self.environment, give_up_at)(look)
        except (StillUnknownError, CorruptTableError, UnsupportedTableError) as failure:
            return StateUnknown(self._unknown(doubtful[-1], failure.__cause__ or failure))
        except CommitStateUnknownError as error:
            return StateUnknown(error)

    def tidy(self, head: Head, seen: object = None) -> object:
        """Nothing: there is no hint."""
        return None

    def delete_old(self, head: Head, seen: object = None, *, dry_run: bool = False) -> Deletions:
        """Nothing: the catalog's metadata files are its own."""
        return Deletions(dry_run=dry_run)

    def _send(self, candidate: Candidate, commit: CatalogCommit) -> Head:
        assert candidate.base is not None
        base = candidate.base
        table = LoadedTable(self.identifier, base.metadata, base.version.identity, no_io(), self.catalog)
        answer = self.catalog.commit_table(table, commit.requirements, commit.updates)
        try:
            return self._head(answer.metadata, answer.metadata_location)
        except TimelineError:
            return candidate.head  # it is committed, though what came after it cannot be read

    def _has_landed(self, head: Head, candidate: Candidate, judge: Judge) -> bool:
        """Return whether the commit has become part of the table, also where main was set back since.

        StillUnknownError where the head may be older than the one that the candidate was built on, as from
        a cache; CommitStateUnknownError where nothing shows it.
        """
        assert candidate.base is not None
        if head.metadata.table_uuid != candidate.base.metadata.table_uuid:
            self._raise_dropped(candidate)
        if is_older(head, candidate.base):
            raise StillUnknownError
        # Not by its snapshots' ids: all attempts of a commit add the snapshot of its new rows under one id.
        ours, known = candidate.head.version.commit_id, head.metadata.snapshots
        if any(commit_of(snapshot) == ours for snapshot in known):
            return True
        since = range(candidate.base.number + 1, head.number + 1)
        if {snapshot.sequence_number for snapshot in known}.issuperset(since):
            return False  # every snapshot since is there, and none is ours
        verdict = judge(head, candidate)  # some have expired
        if verdict is Standing.UNKNOWN:
            raise self._unknown(candidate, None)
        return verdict is Standing.COMMITTED

    def _head(self, metadata: TableMetadata, place: str) -> Head:
        head = read_loaded(metadata, place, self.state_files, self.name)
        assert isinstance(head.version, CatalogVersion)
        return replace(head, version=replace(head.version, keeps_by_catalog=self.find_ban()))

    def _raise_dropped(self, candidate: Candidate) -> NoReturn:
        raise CommitStateUnknownError(
            "the table was dropped while a commit to it was sent: if the commit was there before that, its"
            " rows were dropped with the table. Nothing was deleted. Restart the query if a table that is"
            f" there now is the one that you mean: {self.name}",
            location=self.store.location,
            version=candidate.head.number,
        )

    def _unknown(self, candidate: Candidate, cause: BaseException | None) -> CommitStateUnknownError:
        return CommitStateUnknownError(
            "it is not known whether a commit is in the catalog. Nothing was deleted. Restart the query on"
            f" its checkpoint: it finds out, and neither loses nor doubles a row: {self.name}: {cause}",
            location=self.store.location,
            version=candidate.head.number,
        )
