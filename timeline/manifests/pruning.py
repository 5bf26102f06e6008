"""Which manifests may hold files of some partitions, by the bounds that a manifest list has of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import ManifestFile, PartitionFieldSummary
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import PrimitiveType, UnknownType

Partition = tuple[int, tuple[Any, ...]]
"""A partition spec, and the values of its fields."""


class PartitionPruning:
    """The partition specs of a table, by which bounds are read.

    What a list states of a manifest is what every engine plans scans by: a file whose partition lies outside
    of it would be read by none.
    """

    def __init__(self, specs: Iterable[PartitionSpec], schema: Schema) -> None:
        specs = tuple(specs)
        self._kinds = {spec.spec_id: _kinds(spec, schema) for spec in specs}
        self.partitioned = frozenset(spec.spec_id for spec in specs if _is_partitioned(spec))
        """The specs whose deletes apply in their own partition alone, be it one of nulls."""

    def near(
        self, manifests: Iterable[ManifestFile], partitions: Collection[Partition]
    ) -> Iterator[ManifestFile]:
        """Yield the manifests that may hold a file of one of these partitions, in their order."""
        values: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for spec_id, of_fields in partitions:
            values[spec_id].append(of_fields)
        for manifest in manifests:
            if wanted := values.get(manifest.partition_spec_id):
                fields = self._fields(manifest)
                if fields is None or any(all(map(_is_within, it, *fields)) for it in wanted):
                    yield manifest

    def with_values(
        self, manifests: Iterable[ManifestFile], values: Mapping[int, Sequence[Collection[Any] | None]]
    ) -> Iterator[ManifestFile]:
        """Yield the manifests that may hold a file which has, of each field of its spec, one of these values;
        None for any. None of a spec that has no values here.
        """
        for manifest in manifests:
            if (wanted := values.get(manifest.partition_spec_id)) is not None:
                fields = self._fields(manifest)
                if fields is None or all(map(_has_one_within, wanted, *fields)):
                    yield manifest

    def _fields(
        self, manifest: ManifestFile
    ) -> tuple[Sequence[_Range], Sequence[PartitionFieldSummary]] | None:
        """Return the range of each partition field, and what the list says of it; None for unknown ones."""
        kinds = self._kinds.get(manifest.partition_spec_id)
        summaries = manifest.partitions
        if kinds is None or summaries is None or len(summaries) != len(kinds):
            return None
        each = zip(kinds, summaries, strict=True)
        return [_range(kind, it.lower_bound, it.upper_bound) for kind, it in each], summaries


_Range = tuple[Any, Any] | None


def _is_partitioned(spec: PartitionSpec) -> bool:
    return not all(isinstance(field.transform, VoidTransform) for field in spec.fields)


def _kinds(spec: PartitionSpec, schema: Schema) -> list[PrimitiveType | None]:
    """Return the types of a spec's values; None for one that is computed from a column that another engine
    has dropped.
    """
    kinds = (field.field_type for field in spec.partition_type(schema).fields)
    return [it if isinstance(it, PrimitiveType) and not isinstance(it, UnknownType) else None for it in kinds]


@lru_cache(maxsize=20_000)
def _range(kind: PrimitiveType | None, lower: bytes | None, upper: bytes | None) -> _Range:
    """Return the least and the greatest value; None where there are none, or they are not known."""
    if kind is None or lower is None or upper is None:
        return None
    try:
        return from_bytes(kind, lower), from_bytes(kind, upper)
    except Exception:  # noqa: BLE001 - bounds of another engine: unreadable ones exclude nothing
        return None


def _has_one_within(values: Collection[Any] | None, bounds: _Range, summary: PartitionFieldSummary) -> bool:
    return values is None or any(_is_within(value, bounds, summary) for value in values)


def _is_within(value: Any, bounds: _Range, summary: PartitionFieldSummary) -> bool:
    if value is None:
        return bool(summary.contains_null)
    if bounds is None or value != value:
        return True
    try:
        return bool(bounds[0] <= value <= bounds[1])
    except TypeError:
        return True
