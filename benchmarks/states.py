"""The state of a table over time, from its snapshots alone: what a stream and its clustering made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.conversions import from_bytes
from pyiceberg.table import StaticTable

from planners.clustering.overlap import depth, extents
from planners.clustering.sort_fields import SortField
from planners.model import ColumnBounds, TableFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table.snapshots import Snapshot


@dataclass(frozen=True)
class State:
    """The table as the next batch found it."""

    batch: int
    """How many batches had landed."""
    files: int
    bytes: int
    depth: int
    """The most files that a search for one value of the column has to open, by their bounds."""
    ingested_bytes: int
    """What the batches brought, as they wrote it."""
    rewritten_bytes: int
    """What fills and clustering wrote again."""

    @property
    def rewritten_per_byte(self) -> float:
        return self.rewritten_bytes / self.ingested_bytes


def states_of(location: Path | str, column: str) -> list[State]:
    """Return the state after each batch whose snapshots the table still has, oldest first."""
    table = StaticTable.from_metadata(str(location))
    files = _Files(table, column)
    history = sorted(table.snapshots(), key=lambda snapshot: snapshot.sequence_number or 0)
    states: list[State] = []
    ingested = rewritten = batch = 0
    for snapshot, after in zip(history, [*history[1:], None], strict=True):
        if _is_append(snapshot):
            batch, ingested = batch + 1, ingested + _added_bytes(snapshot)
        else:
            rewritten += _added_bytes(snapshot)
        if after is None or _is_append(after):
            live = list(files.of(snapshot))
            deep = depth(extents(live, [SortField(column)], curve=False))
            states.append(State(batch, len(live), sum(it.bytes for it in live), deep, ingested, rewritten))
    return states


def _is_append(snapshot: Snapshot) -> bool:
    assert snapshot.summary is not None
    return snapshot.summary.operation.value == "append"


def _added_bytes(snapshot: Snapshot) -> int:
    assert snapshot.summary is not None
    return int(snapshot.summary.additional_properties.get("added-files-size", 0))


class _Files:
    """The live files of a table's snapshots. Reads each manifest once."""

    def __init__(self, table: StaticTable, column: str) -> None:
        self._table = table
        self._column = table.schema().find_field(column)
        self._known: dict[str, list[TableFile]] = {}

    def of(self, snapshot: Snapshot) -> Iterator[TableFile]:
        for manifest in snapshot.manifests(self._table.io):
            if manifest.manifest_path not in self._known:
                self._known[manifest.manifest_path] = self._read(manifest)
            yield from self._known[manifest.manifest_path]

    def _read(self, manifest: ManifestFile) -> list[TableFile]:
        entries = manifest.fetch_manifest_entry(self._table.io, discard_deleted=True)
        return [self._file(entry.data_file) for entry in entries]

    def _file(self, file: DataFile) -> TableFile:
        bounds = (self._bound(file.lower_bounds), self._bound(file.upper_bounds))
        known = ColumnBounds(self._column.name, *bounds)
        return TableFile(file.file_path, (), file.file_size_in_bytes, file.record_count, bounds=(known,))

    def _bound(self, bounds: dict[int, bytes] | None) -> Any:
        found = (bounds or {}).get(self._column.field_id)
        return None if found is None else from_bytes(self._column.field_type, found)
