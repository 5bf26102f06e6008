"""The partition of a file by its footer: right to the microsecond, looked up once for times of an hour."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink.tasks.ingest import layouts
from streaming_sink.tasks.ingest.layouts import Layouts, split_rows
from streaming_sink.tasks.job import PartitionSource

_DAY = dt.datetime(2026, 11, 23)  # noqa: DTZ001
_MICROSECOND = dt.timedelta(microseconds=1)
_HOUR = dt.timedelta(hours=1)


def _keys(times: Sequence[Sequence[dt.datetime]], transform: str, zone: str | None = None) -> list[object]:
    """The partition of each file of such times, by its footer."""
    schema = pa.schema(
        [pa.field("at", pa.timestamp("us", zone and "UTC"), metadata={"PARQUET:field_id": "1"})]
    )
    known, found = Layouts(schema, (PartitionSource("at", ("at",), transform),)), []
    for file in times:
        written = io.BytesIO()
        values = pa.array(file, pa.timestamp("us")).cast(pa.int64()).cast(pa.timestamp("us", zone))
        pq.write_table(pa.table({"at": values}), written)
        footer = pq.ParquetFile(written)
        found.append(known.of(footer, {}).key(footer))
    return found


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Kolkata"])
@pytest.mark.parametrize("begin", [_DAY, dt.datetime(1969, 12, 31, 5), dt.datetime(1960, 2, 29)])  # noqa: DTZ001
def test_the_ends_of_hours_and_days_are_where_they_are(zone: str | None, begin: dt.datetime) -> None:
    end = begin + _HOUR
    files = [[begin, end - _MICROSECOND], [begin, end], [begin - _MICROSECOND, begin], [end - _MICROSECOND]]
    hour = round((begin - dt.datetime(1970, 1, 1)) / _HOUR)  # noqa: DTZ001
    assert _keys(files, "hour", zone) == [(hour,), None, None, (hour,)]
    half = [[begin + _HOUR / 2], [begin + _HOUR / 2 - _MICROSECOND, begin + _HOUR / 2]]
    assert _keys(half, "hour", zone) == [(hour,)] * 2


def test_other_transforms_see_the_times_themselves() -> None:
    files = [[_DAY + number * _MICROSECOND] for number in range(40)]
    assert len(set(_keys(files, "bucket[1000]"))) > 30
    assert len(set(_keys(files, "identity"))) == 40


def test_a_column_that_is_partitioned_by_its_times_too_is_not_looked_up_by_the_hour() -> None:
    schema = pa.schema([pa.field("at", pa.timestamp("us"), metadata={"PARQUET:field_id": "1"})])
    by = tuple(PartitionSource(it, ("at",), it) for it in ("day", "identity"))
    known, found = Layouts(schema, by), []
    for number in range(3):
        written = io.BytesIO()
        pq.write_table(pa.table({"at": pa.array([number], pa.timestamp("us"))}), written)
        footer = pq.ParquetFile(written)
        found.append(known.of(footer, {}).key(footer))
    assert found == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("by", [["x"], ["x", "p"]])
def test_rows_of_a_field_whose_column_was_dropped_are_counted(by: list[str]) -> None:
    """A batch of no column would have no rows."""
    of = {"x": PartitionSource("x", (), "void"), "p": PartitionSource("p", ("p",), "identity")}
    fields = [pa.field(name, pa.int64(), metadata={"PARQUET:field_id": "1"}) for name in ("p", "q")]
    partition_by, schema = [of[name] for name in by], pa.schema(fields)
    rows, wanted = pa.table({"p": [3, 3], "q": [4, 5]}), ((None,) if by == ["x"] else (None, 3))
    assert [(key, part.num_rows) for key, part in split_rows(rows, schema, partition_by)] == [(wanted, 2)]
    written = io.BytesIO()
    pq.write_table(rows, written)
    footer = pq.ParquetFile(written)
    assert Layouts(schema, tuple(partition_by)).of(footer, {}).key(footer) == wanted


def test_files_of_the_same_hours_have_their_partition_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, split_rows = list[object](), layouts.split_rows

    def noted(*given: object) -> object:
        looked.append(given)
        return split_rows(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(layouts, "split_rows", noted)
    files = [
        [_DAY + number * _MICROSECOND, _DAY + 20 * _HOUR + number * _MICROSECOND] for number in range(50)
    ]
    assert len(set(_keys(files, "day"))) == 1
    assert len(looked) == 1
