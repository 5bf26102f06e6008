"""A commit log on pyiceberg's catalogs: commits are updates under requirements. It proves the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.io import load_file_io
from pyiceberg.table import Table as CatalogTable
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.update import ValidatableTableRequirement
from sqlalchemy.exc import SQLAlchemyError

from timeline import properties
from timeline.clock import Environment
from timeline.commit.attempts import Candidate
from timeline.commit.descent import descends
from timeline.commit.log import Judge, Lost, StateUnknown, Won
from timeline.commit.updates import catalog_commit
from timeline.errors import CommitStateUnknownError, CorruptTableError, StoreUnavailableError
from timeline.manifests.manifests import ManifestFiles
from timeline.retention.deletions import Deletions
from timeline.slots.retrying import StillUnknownError, until_known
from timeline.stores.base import Store
from timeline.versions.head import Head
from timeline.versions.listing import read_head
from timeline.versions.version_file import Version

_REFUSALS = (CommitFailedException, TableAlreadyExistsError, NoSuchTableError, ValueError, KeyError)
"""pyiceberg raises the plain ones too, for conflicts of sequence numbers and of properties."""

_UNCLEAR = (CommitStateUnknownException, OSError, RESTError, SQLAlchemyError)
"""After these the commit may have landed, or may yet land."""


class AssertCommit(ValidatableTableRequirement):
    """The newest commit by this protocol is the base, also where that commit moved no ref.

    No server has such a requirement, and a commit that sets properties alone is guarded by none: a log for
    servers must let each commit move main. pyiceberg's SQL catalog checks requirements in the client, and so
    checks this one too.
    """

    type: Literal["assert-commit"] = "assert-commit"
    commit_id: str

    def validate(self, base_metadata: TableMetadata | None) -> None:
        stated = None if base_metadata is None else base_metadata.properties.get(properties.COMMIT_ID)
        if stated != self.commit_id:
            raise CommitFailedException(f"the newest commit is {stated} and not {self.commit_id}")


@dataclass(frozen=True)
class CatalogLog:
    """The `CommitLog` of one table in a catalog. There is no hint, and no version file to delete."""

    catalog: Catalog
    identifier: tuple[str, ...]
    store: Store
    manifest_files: ManifestFiles
    environment: Environment

    needs_probe = False

    def newest(self, *, base: Head | None = None) -> Head | None:
        try:
            loaded = self.catalog.load_table(self.identifier)
        except NoSuchTableError:
            return None
        except _UNCLEAR as failure:
            raise StoreUnavailableError(f"the catalog does not answer: {failure}") from failure
        return self._head(loaded.metadata, loaded.metadata_location)

    def newer(self, known: Head) -> Head | None:
        head = self.newest()
        if head is None or head.version.identity == known.version.identity:
            return known if head is not None else None
        if head.metadata.table_uuid == known.metadata.table_uuid and head.number < known.number:
            raise CorruptTableError(f"commit {known.number} has vanished from the catalog")
        return head

    def head_after(self, base: Head | None, winner: Version) -> Head:
        # Another engine's commit keeps our properties: what they state that it added is not to be trusted.
        return read_head(self.manifest_files, winner)

    def publish(self, candidate: Candidate, judge: Judge, give_up_at: float) -> Won | Lost | StateUnknown:
        """Commit, and after any answer but a clean success look for the commit in the table.

        While the table is still at the base the commit may yet be applied, so it is sent again: the
        requirements let it apply only once. After the table has moved on without it, it never will be.
        """
        base = candidate.base

        def send() -> Won | Lost:
            try:
                response = self._send(candidate)
            except _REFUSALS:
                refused = True
            except _UNCLEAR:
                refused = False
            else:
                return Won(candidate, self._head(response.metadata, response.metadata_location))
            try:
                head = self.newest()
            except StoreUnavailableError as failure:
                raise StillUnknownError from failure
            if head is None:
                raise StillUnknownError
            if descends(head, candidate, judge, self.store.location):
                return Won(candidate, head)
            if refused or base is None or head.version.commit_id != base.version.commit_id:
                return Lost(head.version)
            raise StillUnknownError

        try:
            return until_known(self.environment, give_up_at)(send)
        except StillUnknownError:
            return self._unknown(candidate)
        except CommitStateUnknownError as error:
            return StateUnknown(error)

    def find_landed(
        self, doubtful: Sequence[Candidate], base: Head | None, judge: Judge, give_up_at: float
    ) -> Won | Head | StateUnknown:
        raise AssertionError("a catalog leaves no loss in doubt")

    def tidy(self, head: Head, seen: object = None) -> object:
        return None

    def delete_old(self, head: Head, seen: object = None, *, dry_run: bool = False) -> Deletions:
        return Deletions(dry_run=dry_run)

    def _send(self, candidate: Candidate) -> Any:
        base = None if candidate.base is None else candidate.base.metadata
        after = candidate.head.metadata
        requirements, updates = catalog_commit(base, after)
        guards = () if base is None else (AssertCommit(commit_id=base.properties[properties.COMMIT_ID]),)
        location = "" if candidate.base is None else candidate.base.version.identity
        table = CatalogTable(self.identifier, base or after, location, load_file_io(), self.catalog)
        return self.catalog.commit_table(table, (*requirements, *guards), updates)

    def _head(self, metadata: TableMetadata, metadata_location: str) -> Head:
        assert isinstance(metadata, TableMetadataV2)
        number = int(metadata.properties[properties.VERSION])
        return read_head(self.manifest_files, Version(number, metadata, metadata_location))

    def _unknown(self, candidate: Candidate) -> StateUnknown:
        number = candidate.head.number
        return StateUnknown(
            CommitStateUnknownError(
                f"it is not known whether commit {number} is in the catalog. Nothing was deleted",
                location=self.store.location,
                version=number,
            )
        )
