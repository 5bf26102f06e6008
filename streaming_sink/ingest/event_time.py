"""The range of the event times of new rows, from the bounds that their data files have anyway."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import TimeTransform
from pyiceberg.types import DateType, PrimitiveType

from streaming_sink.tasks.results import WrittenFile

_DAY_MS = 24 * 60 * 60 * 1000


def event_time_of(schema: Schema, spec: PartitionSpec, files: Iterable[WrittenFile]) -> tuple[int, ...]:
    """Return the earliest and the latest event time in milliseconds: of the column by whose year, month, day
    or hour the table is partitioned. () where there is none, or where no file has bounds of it.
    """
    column = next((it.source_id for it in spec.fields if isinstance(it.transform, TimeTransform)), None)
    if column is None:
        return ()
    kind = schema.find_field(column).field_type
    assert isinstance(kind, PrimitiveType)
    bounds = [
        _to_ms(kind, bytes(each[column]))
        for file in files
        for each in (file.lower_bounds, file.upper_bounds)
        if column in each
    ]
    return (min(bounds), max(bounds)) if bounds else ()


def _to_ms(kind: PrimitiveType, bound: bytes) -> int:
    value = int(from_bytes(kind, bound))
    return value * _DAY_MS if isinstance(kind, DateType) else value // 1000
