"""A catalog with defects to switch on, each as a server has it that was tried, or as one might have it."""

from __future__ import annotations

from pathlib import Path
from threading import Lock, local
from typing import Any

from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.exceptions import BadRequestError, CommitFailedException, ForbiddenError, ServerError
from pyiceberg.table import CommitTableResponse
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from sqlalchemy import update
from sqlalchemy.orm import Session

from timeline.catalogs.clients.sql import SqlMetastore
from timeline.clock import SYSTEM
from timeline.stores import LocalStore

_ONE_BY_ONE = Lock()
_acknowledged: set[Any] = set()


class FaultyCatalog(SqlMetastore):
    """A catalog in sqlite that keeps what a real one keeps, but for its defects."""

    def __init__(self, folder: Path, *defects: Any) -> None:
        self.defects = set(defects)
        self._staged = local()
        super().__init__(
            "test",
            LocalStore,
            SYSTEM,
            uri=f"sqlite:///{folder}/catalog.db",
            warehouse=f"file://{folder}/lake",
        )

    def create_table(self, *given: Any, **named: Any) -> Any:
        if "forbids tables" in self.defects:
            raise ForbiddenError("no right to create tables")
        return super().create_table(*given, **named)

    def commit_table(
        self, table: Any, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        kept = tuple(it for it in requirements if type(it) not in self.defects and not self._is_null(it))
        if "refuses all" in self.defects:
            raise CommitFailedException("no")
        if "removes no snapshots" in self.defects and isinstance(updates[0], RemoveSnapshotsUpdate):
            raise ServerError("500")
        refs = {it.ref_name for it in updates if isinstance(it, SetSnapshotRefUpdate)}
        if "refuses tags" in self.defects and refs - {"main"}:
            raise BadRequestError("tags are not supported")
        if "acknowledges one that it does not write" in self.defects:
            with _ONE_BY_ONE:
                if table.name() in _acknowledged:
                    raise CommitFailedException("another was first")
                _acknowledged.add(table.name())
            return CommitTableResponse.model_construct(metadata=table.metadata, metadata_location="nowhere")
        try:
            return super().commit_table(table, kept, updates)
        except CommitFailedException:
            empty, staged = self._staged.it
            if "the last writer wins" in self.defects or (empty and "the last wins on empty" in self.defects):
                return self._overwrite(staged)
            raise

    def _is_null(self, requirement: TableRequirement) -> bool:
        null = isinstance(requirement, AssertRefSnapshotId) and requirement.snapshot_id is None
        return null and "passes over an empty main" in self.defects

    def _overwrite(self, staged: Any) -> CommitTableResponse:
        with Session(self.engine) as session:
            chosen = update(IcebergTables).where(IcebergTables.table_name == staged.name()[-1])
            session.execute(chosen.values(metadata_location=staged.metadata_location))
            session.commit()
        return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)

    def _update_and_stage_table(self, current: Any, name: Any, requirements: Any, updates: Any) -> Any:
        last = current.metadata.last_sequence_number
        if "takes numbers twice" in self.defects:
            updates = tuple(_renumbered(it, last) for it in updates)
        staged = super()._update_and_stage_table(current, name, requirements, updates)
        staged.metadata = self._spoiled(
            staged.metadata, {it.snapshot_id for it in current.metadata.snapshots}
        )
        self._staged.it = (current.metadata.current_snapshot_id is None, staged)
        return staged

    def _spoiled(self, metadata: TableMetadata, before: set[int]) -> TableMetadata:
        snapshots = metadata.snapshots
        if "keeps one snapshot of a commit" in self.defects:
            snapshots = [
                it for it in snapshots
                if it.snapshot_id in before or it.snapshot_id == metadata.current_snapshot_id
            ]  # fmt: skip
        if "keeps the current snapshot only" in self.defects:
            snapshots = [it for it in snapshots if it.snapshot_id == metadata.current_snapshot_id]
        if "forgets parents" in self.defects:
            snapshots = [it.model_copy(update={"parent_snapshot_id": None}) for it in snapshots]
        return metadata.model_copy(update={"snapshots": snapshots})


def _renumbered(change: TableUpdate, last: int) -> TableUpdate:
    if not isinstance(change, AddSnapshotUpdate) or (change.snapshot.sequence_number or 0) > last:
        return change
    return AddSnapshotUpdate(snapshot=change.snapshot.model_copy(update={"sequence_number": last + 1}))
