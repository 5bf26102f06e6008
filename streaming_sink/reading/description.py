"""The description of a table: schema, partition spec, properties, size, and its files by size."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from planners import FileSizing
from streaming_sink.reading.files import PartitionDetails, sum_partitions
from streaming_sink.reading.mirrors import MirrorDetails, list_mirrors
from timeline.manifests.packed import PackedFiles
from timeline.versions.head import Head
from timeline.versions.partitioning import describe_spec

_SCATTER = 16
"""A file that is cut at the maximum comes out up to a sixteenth above or below it."""
_PARTITIONS = 5


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of the schema. A nested one's type names its fields with their ids."""

    id: int
    name: str
    type: str
    required: bool


@dataclass(frozen=True, kw_only=True)
class PartitionFieldDetails:
    """A field of the partition spec."""

    id: int
    name: str
    transform: str
    source: str
    """The column that it is computed from."""


@dataclass(frozen=True, kw_only=True)
class SpecDetails:
    """A partition spec of the table, and the live data files that were written under it."""

    spec_id: int
    is_current: bool
    partition_by: str
    """As the sink's option spells it: "region, day(at)", or "nothing"."""
    files: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class SizeClass:
    """The files of at least so many bytes and below so many; None for no bound."""

    name: str
    """"small", "below_max", "full" or "above_max"."""
    at_least_bytes: int
    below_bytes: int | None
    files: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Description:
    """One version of a table."""

    location: str
    table_uuid: str
    format_version: int
    version: int
    updated_ms: int
    """When that version was committed, in milliseconds since the epoch."""
    metadata: str
    """The newest metadata file, as other engines are given it."""
    mirrors: tuple[MirrorDetails, ...]
    """The tables of catalogs that name one."""
    snapshots: int
    """Those that are kept."""
    snapshot_id: int | None
    """The current one; None while the table has had no rows."""
    rows: int
    """Of the data files; deleted rows count."""
    bytes: int
    files: int
    delete_files: int
    columns: tuple[Column, ...]
    partition_by: tuple[PartitionFieldDetails, ...]
    """The fields of the current partition spec."""
    specs: tuple[SpecDetails, ...]
    """All partition specs, oldest first."""
    size_classes: tuple[SizeClass, ...]
    small_partitions: tuple[PartitionDetails, ...]
    """The five partitions with most small files, if they have any."""
    properties: Mapping[str, str]


def describe(head: Head, sizing: FileSizing, on_read: Callable[[], object] = lambda: None) -> Description:
    """Return what a head holds, with its files classed by the sizes of a sink.

    Reads all manifests of data files, or their copies: some 2 µs of processor time a file. `on_read` is
    called after each.
    """
    metadata, sizes = head.metadata, array("q")

    def files() -> Iterator[PackedFiles]:
        for columns in head.columns():
            sizes.extend(columns.bytes)
            yield columns
            on_read()

    partitions = sum_partitions(head, files(), sizing.small_file_bytes)
    return Description(
        location=metadata.location,
        table_uuid=str(metadata.table_uuid),
        format_version=metadata.format_version,
        version=head.number,
        updated_ms=metadata.last_updated_ms,
        metadata=head.version.place,
        mirrors=list_mirrors(head),
        snapshots=len(metadata.snapshots),
        snapshot_id=metadata.current_snapshot_id,
        rows=sum(it.rows for it in partitions),
        bytes=sum(sizes),
        files=len(sizes),
        delete_files=sum(1 for _ in head.delete_files()),
        columns=tuple(
            Column(id=it.field_id, name=it.name, type=str(it.field_type), required=it.required)
            for it in head.schema.fields
        ),
        partition_by=tuple(
            PartitionFieldDetails(
                id=it.field_id,
                name=it.name,
                transform=str(it.transform),
                source=head.schema.find_column_name(it.source_id) or f"column {it.source_id}",
            )
            for it in head.spec.fields
        ),
        specs=tuple(_specs(head, partitions)),
        size_classes=size_classes(sizes, sizing),
        small_partitions=tuple(it for it in partitions[:_PARTITIONS] if it.small_files),
        properties=dict(sorted(head.properties.items())),
    )


def _specs(head: Head, partitions: Iterable[PartitionDetails]) -> Iterator[SpecDetails]:
    by_spec: dict[int, list[PartitionDetails]] = defaultdict(list)
    for partition in partitions:
        by_spec[partition.spec_id].append(partition)
    for spec in head.metadata.partition_specs:
        own = by_spec[spec.spec_id]
        yield SpecDetails(
            spec_id=spec.spec_id,
            is_current=spec.spec_id == head.spec.spec_id,
            partition_by=describe_spec(spec, head.schema),
            files=sum(it.files for it in own),
            bytes=sum(it.bytes for it in own),
        )


def size_classes(sizes: Iterable[int], sizing: FileSizing) -> tuple[SizeClass, ...]:
    """Return four classes that hold each size once: small files, those below the maximum, full ones (within a
    sixteenth of the maximum), and those above.
    """
    small, largest = sizing.small_file_bytes, sizing.max_file_bytes
    scatter = largest // _SCATTER
    starts = (0, small, max(small, largest - scatter), largest + scatter + 1)
    ends = (*starts[1:], None)
    sizes = sorted(sizes)
    classes = []
    for name, start, end in zip(("small", "below_max", "full", "above_max"), starts, ends, strict=True):
        within = sizes[bisect_left(sizes, start) : len(sizes) if end is None else bisect_left(sizes, end)]
        classes.append(
            SizeClass(name=name, at_least_bytes=start, below_bytes=end, files=len(within), bytes=sum(within))
        )
    return tuple(classes)
