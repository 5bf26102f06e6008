"""The kind of change that evolves a table's partitioning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyiceberg.partitioning import PartitionSpec

from timeline import properties
from timeline.changes.changes import Beside, Change, Over
from timeline.drafts.draft import Draft
from timeline.errors import SchemaMismatchError
from timeline.versions.head import Head
from timeline.versions.partitioning import (
    Repartitioned,
    describe_spec,
    evolve_spec,
    last_partition_id,
    partitions_alike,
    repartitioned_by,
)


@dataclass(frozen=True)
class SetPartitioning(Change):
    """Make the spec of the `wanted` fields the table's default; see `evolve_spec`. Files of other specs stay
    as they are, and files that are being written under one of them still land.

    Left out where the default spec partitions alike. An application may return to a spec that the table has
    had only where it has made the present one itself: so of two writers that ask for different ones the later
    one wins, the other is refused from then on, and they never take turns. SchemaMismatchError for that, and
    as `evolve_spec`.
    """

    over: ClassVar[Over] = Over(
        schema="names checked",
        specs="refused",
        when=(
            "where the table has had the spec, and another application has made the present one; else "
            "assigned anew"
        ),
    )
    precedes_files: ClassVar[bool] = True

    wanted: PartitionSpec
    """Its ids mean nothing but those of the source columns; the table assigns its own."""
    app_id: str
    """The application that asks."""

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:  # noqa: ARG002 - as the base
        if partitions_alike(self.wanted, head.spec):
            return "the table is partitioned so already"
        spec = evolve_spec(head.metadata, self.wanted)
        other = repartitioned_by(head.metadata)
        if spec in head.metadata.partition_specs and other not in (None, self.app_id):
            raise SchemaMismatchError(
                f"the table was partitioned by {describe_spec(spec, head.schema)} before, and application"
                f" {other!r} has changed that to {describe_spec(head.spec, head.schema)} since; only that"
                " application may change it back. Give both the same partition_by, or leave it out of this"
                " sink, which then follows the table",
                **head.where,
            )
        return None

    def apply(self, draft: Draft) -> None:
        metadata = draft.metadata
        spec = evolve_spec(metadata, self.wanted)
        specs = metadata.partition_specs
        draft.update_metadata(
            partition_specs=specs if spec in specs else [*specs, spec],
            default_spec_id=spec.spec_id,
            last_partition_id=max(last_partition_id(metadata), *(field.field_id for field in spec.fields)),
        )
        draft.properties[properties.REPARTITIONED] = Repartitioned(spec.spec_id, self.app_id).to_property()
