"""A scratch table of a catalog's probe: made, committed to, and dropped again (R33)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table as LoadedTable
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.types import LongType, NestedField

from timeline import names
from timeline.catalogs.answers import new_table, unclear
from timeline.catalogs.clients.store_io import OpenStore
from timeline.clock import Environment
from timeline.drafts.succession import new_snapshot_id
from timeline.errors import StoreUnavailableError, UnsafeCatalogError
from timeline.manifests.manifests import ManifestFiles
from timeline.stores import Store, local_path

_SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
_NO_IO: Any = None
"""A commit reads and writes nothing through pyiceberg's table."""


@dataclass
class Scratch:
    """A table of the probe's own."""

    catalog: Catalog
    identifier: tuple[str, ...]
    environment: Environment
    open_store: OpenStore
    files: list[str] = field(default_factory=list)
    """What the probe and the catalog have written for it, as far as they have said."""
    store: Store | None = None
    manifest_list: str = ""
    newest_ms: int = 0

    def create(self) -> TableMetadataV2:
        with new_table():
            self.catalog.create_table(self.identifier, _SCHEMA, properties={"format-version": "2"})
        metadata = self.load()
        self.store = self.open_store(local_path(metadata.location.rstrip("/")))
        path = names.manifest_list_path(self.environment.new_id(self.environment.now_ms()))
        self.manifest_list = self.store.uri(path)
        with suppress(StoreUnavailableError):  # credentials may be for the table itself alone
            ManifestFiles(self.store).write_list(path, 1, None, 1, ())
            self.files.append(self.manifest_list)
        return metadata

    def load(self) -> TableMetadataV2:
        try:
            loaded = self.catalog.load_table(self.identifier)
        except unclear() as failure:
            raise StoreUnavailableError(f"the catalog does not answer: {failure}") from failure
        logged = (entry.metadata_file for entry in loaded.metadata.metadata_log)
        self.files.extend({loaded.metadata_location, *logged} - set(self.files))
        if not isinstance(loaded.metadata, TableMetadataV2):
            raise UnsafeCatalogError(
                f"the catalog made a table of format version {loaded.metadata.format_version}, not 2 as asked"
                "; nothing was written. Use another catalog, or a table at a location"
            )
        return loaded.metadata

    def snapshot(
        self,
        parent: Snapshot | None,
        number: int | None = None,
        operation: Operation = Operation.APPEND,
    ) -> Snapshot:
        """Return a snapshot without files that follows a parent."""
        after = 0 if parent is None else parent.sequence_number or 0
        self.newest_ms = max(self.environment.now_ms(), self.newest_ms + 1)
        return Snapshot(
            snapshot_id=new_snapshot_id(self.environment),
            parent_snapshot_id=None if parent is None else parent.snapshot_id,
            sequence_number=after + 1 if number is None else number,
            timestamp_ms=self.newest_ms,
            manifest_list=self.manifest_list,
            summary=Summary(operation),
            schema_id=0,
        )

    def send(
        self,
        base: TableMetadataV2,
        requirements: Iterable[TableRequirement],
        *updates: TableUpdate,
        catalog: Catalog | None = None,
    ) -> Exception | None:
        """Commit; return None for a clean success, else what was said."""
        catalog = catalog or self.catalog
        table = LoadedTable(self.identifier, base, "", _NO_IO, catalog)
        try:
            catalog.commit_table(table, tuple(requirements), updates)
        except Exception as failure:  # noqa: BLE001 - of as many kinds as there are catalogs and servers
            return failure
        return None

    def drop(self) -> None:
        """Leave nothing, as far as the catalog and the store let it."""
        with suppress(Exception):
            self.load()
        with suppress(Exception):
            self.catalog.drop_table(self.identifier)
            self._delete_files()

    def _delete_files(self) -> None:
        # What lost commits have written has names that only a listing shows. A location that is not called
        # as this table may have files of others.
        if self.store is not None and self.identifier[-1] in self.store.location.rpartition("/")[2]:
            self.store.delete([it.path for it in self.store.list_below("")])
            return
        for file in self.files:
            folder, _, name = local_path(file).rpartition("/")
            self.open_store(folder).delete([name])


def onto_main(snapshot: Snapshot) -> tuple[TableUpdate, ...]:
    """Return what adds a snapshot, and moves main to it."""
    moved = SetSnapshotRefUpdate(
        ref_name=MAIN_BRANCH,
        type="branch",
        snapshot_id=snapshot.snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    return AddSnapshotUpdate(snapshot=snapshot), moved
