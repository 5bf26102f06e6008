"""The range of event times comes from the bounds of data files, where the table is partitioned by time."""

from __future__ import annotations

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform, MonthTransform
from pyiceberg.types import DateType, NestedField, PrimitiveType, StringType, TimestampType, TimestamptzType

from streaming_sink.ingest.publishing import event_time_of
from streaming_sink.tasks.results import WrittenFile


def written(kind: PrimitiveType, low: int | None, high: int | None) -> WrittenFile:
    bounds = [{} if value is None else {2: to_bytes(kind, value)} for value in (low, high)]
    return WrittenFile("f", (), 0, 1, 1, {}, {}, {}, {}, bounds[0], bounds[1], ())  # type: ignore[arg-type]


def spec(*fields: tuple[int, object]) -> PartitionSpec:
    return PartitionSpec(
        *(
            PartitionField(source, 1000 + at, transform, f"p{at}")  # type: ignore[arg-type]
            for at, (source, transform) in enumerate(fields)
        )
    )


@pytest.mark.parametrize(
    ("kind", "unit"), [(TimestampType(), 1000), (TimestamptzType(), 1000), (DateType(), 1 / 86_400_000)]
)
def test_the_range_is_over_all_files_in_milliseconds(kind: PrimitiveType, unit: float) -> None:
    schema = Schema(NestedField(1, "name", StringType()), NestedField(2, "at", kind))
    day = 86_400_000
    files = [
        written(kind, round(3 * day * unit), round(9 * day * unit)),
        written(kind, round(-2 * day * unit), round(4 * day * unit)),
        written(kind, None, None),
    ]
    by_time = spec((1, IdentityTransform()), (2, DayTransform()))
    assert event_time_of(schema, by_time, files) == (-2 * day, 9 * day)
    assert event_time_of(schema, by_time, files[2:]) == ()
    assert event_time_of(schema, spec((1, IdentityTransform())), files) == ()
    assert event_time_of(schema, spec((2, MonthTransform())), files[:1]) == (3 * day, 9 * day)
    assert event_time_of(Schema(schema.fields[0]), by_time, files) == (), "the column was dropped"
