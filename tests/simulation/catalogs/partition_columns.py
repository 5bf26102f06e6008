"""Another engine partitions a table by columns of its own, widens these and drops them."""

from __future__ import annotations

from typing import Any

from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.update import AddPartitionSpecUpdate, RemoveSchemasUpdate, SetDefaultSpecUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField

from tests.simulation.catalogs.engines import Engine
from tests.simulation.naming import NAMED_IN_A_CATALOG

PARTITION_COLUMNS = 5_800_000
"""From this seed on, up to those of names in a catalog, columns that files are partitioned by are dropped."""
KINDS = (
    "partition_by_a_column", "partition_by_a_column", "drop_a_column", "drop_a_column", "drop_a_column",
    "widen_a_column", "append", "compact", "rewrite_manifests",
)  # fmt: skip
_PREFIX = "part"


def has_partition_columns(seed: int) -> bool:
    """Return whether another engine partitions by columns of its own in a schedule."""
    return PARTITION_COLUMNS <= seed < NAMED_IN_A_CATALOG


class ColumnEngine(Engine):
    """An engine that has columns to partition by, of which the values are those of `p`."""

    def partition_by_a_column(self) -> None:
        """ALTER TABLE ADD COLUMN, and ADD PARTITION FIELD of it in the place of others."""
        metadata = self.metadata
        column, name = metadata.last_column_id + 1, f"{_PREFIX}{self.sim.number()}"
        self._set_schema(
            (*metadata.schema().fields, NestedField(column, name, IntegerType(), required=False))
        )
        last, by_p = metadata.last_partition_id or 999, metadata.specs()[0].fields[0]
        own = PartitionField(column, last + 1, IdentityTransform(), name)
        spec = PartitionSpec(by_p, own, spec_id=max(metadata.specs()) + 1)
        self.sim.meet("theirs: partitioned by a column")
        self._send([AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=-1)])

    def widen_a_column(self) -> None:
        """ALTER COLUMN TYPE of a column that files are partitioned by."""
        fields = self.metadata.schema().fields
        narrow = [
            it for it in fields if it.name.startswith(_PREFIX) and isinstance(it.field_type, IntegerType)
        ]
        if narrow:
            chosen = self.sim.random.choice(narrow)
            wide = NestedField(chosen.field_id, chosen.name, LongType(), required=False)
            self.sim.meet("theirs: column of partitions widened")
            self._set_schema(tuple(wide if it is chosen else it for it in fields))

    def drop_a_column(self) -> None:
        """DROP PARTITION FIELD, and DROP COLUMN; in a third of cases the schemas that had it go as well."""
        fields = self.metadata.schema().fields
        own = [it for it in fields if it.name.startswith(_PREFIX)]
        if not own:
            return
        chosen = self.sim.random.choice(own)
        if chosen.field_id in {it.source_id for it in self.metadata.spec().fields}:
            self._send([SetDefaultSpecUpdate(spec_id=0)])
        self.sim.meet("theirs: column of partitions dropped")
        self._set_schema(tuple(it for it in fields if it is not chosen))
        if self.sim.random.random() < 1 / 3:
            others = {it.schema_id for it in self.metadata.schemas} - {self.metadata.current_schema_id}
            newest = max(others, default=0)
            if newest < self.metadata.current_schema_id or self.sim.random.random() < 0.5:
                gone = others - {newest}
                self.sim.meet("theirs: schemas removed")
            else:
                gone = others if self.sim.random.random() < 0.5 else {newest}
                self.sim.meet("theirs: the newest schema removed, whose id is given again")
            self._send([RemoveSchemasUpdate(schema_ids=sorted(gone))])

    def drop_or_rename_column(self) -> None:
        """Those of partitions have their own way to go."""

    def fast_forward(self) -> None:
        """As the base, which may list files of any spec again, where it has the types of all."""
        if all(self._schema_of(it) is not None for it in self.metadata.specs()):
            super().fast_forward()

    def _live(self) -> list[ManifestEntry]:
        """Return what this engine can rewrite: it has the types of these files' partitions."""
        return [it for it in super()._live() if self._schema_of(it.data_file.spec_id) is not None]

    def _has_to_stay(self, manifest: ManifestFile) -> bool:
        return self._schema_of(manifest.partition_spec_id) is None

    def _schema_of(self, spec_id: int) -> Any:
        """As the base: the newest one that has the spec's columns, or None."""
        sources = {it.source_id for it in self.metadata.specs()[spec_id].fields}
        newest = sorted(self.metadata.schemas, key=lambda it: it.schema_id, reverse=True)
        return next((it for it in newest if sources <= it.field_ids), None)
