"""Tables of our sink, with every type and every transform, before five readers that we did not write."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from streaming_sink import FileSizing
from tests.readers import judges
from tests.readers.canonical import canonical
from tests.readers.reference_tables import every_type, rows_of_every_type
from timeline.properties import COPIED_FROM_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.jar]

# Spark has no such types.
_SCHEMA = every_type(without=("a_time", "a_uuid", "a_fixed"))
_COLUMNS = [field.name for field in _SCHEMA.fields]

_LAYOUTS: dict[str, list[str]] = {
    "unpartitioned": [],
    "day": ["day(a_timestamp)"],
    "bucket": ["bucket(2, a_string)"],
    "identity of plain types": ["a_boolean", "an_int", "a_long", "a_string"],
    "identity of dates and numbers": ["a_date", "a_timestamp", "a_timestamptz", "a_decimal18", "a_decimal38"],
    "identity of binary": ["a_binary"],
    "identity of floats": ["a_float", "a_double"],
    "identity of a nested field": ["a_struct.x"],
    "year, month, day": ["year(a_date)", "month(a_timestamp)", "day(a_timestamptz)"],
    "month, day, hour": ["month(a_date)", "day(a_timestamp)", "hour(a_timestamptz)"],
    "day, hour, year": ["day(a_date)", "hour(a_timestamp)", "year(a_timestamptz)"],
    "year, month": ["year(a_timestamp)", "month(a_timestamptz)"],
    "bucket of numbers": ["bucket(3, an_int)", "bucket(3, a_long)", "bucket(3, a_decimal9)"],
    "bucket of wide numbers and text": [
        "bucket(3, a_decimal38)",
        "bucket(3, a_string)",
        "bucket(3, a_binary)",
    ],
    "bucket of times": ["bucket(3, a_date)", "bucket(3, a_timestamp)", "bucket(3, a_timestamptz)"],
    "truncate": ["truncate(10, an_int)", "truncate(128, a_long)", "truncate(2, a_string)"],
    "truncate of decimals and binary": ["truncate(50, a_decimal9)", "truncate(1, a_binary)"],
    "truncate of a wide decimal": ["truncate(7, a_decimal38)"],
}


# Shown by pyiceberg's tables, too, in `test_limits_of_readers.py`.
_REFUSED = {("chdb", "truncate of a wide decimal"): "ClickHouse cannot truncate a decimal of 38 digits"}
# Few enough partitions for later batches to meet the files of earlier ones.
_WITH_HISTORY = ["unpartitioned", "day", "bucket", "identity of a nested field"]
_with_history = pytest.mark.parametrize("landed", _WITH_HISTORY, indirect=True)


@dataclass(frozen=True)
class Landed:
    """A table of ours and the batches that went into it."""

    layout: str
    location: str
    batches: tuple[pa.Table, ...]

    def up_to(self, count: int) -> pa.Table:
        return pa.concat_tables(self.batches[:count])

    def history(self) -> list[tuple[Snapshot, pa.Table]]:
        """Return each snapshot with the rows that it must show: every batch is one append."""
        appends, pairs = 0, []
        for snapshot in judges.snapshots(self.location):
            assert snapshot.summary is not None
            appends += snapshot.summary.operation.value == "append"
            pairs.append((snapshot, self.up_to(appends)))
        return pairs


@pytest.fixture(scope="module", params=_LAYOUTS)
def landed(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Landed:
    """Three batches, each filling the files of the ones before: in every second layout by copies of their row
    groups, in the others by decoding them.
    """
    from streaming_sink import IcebergSink

    folder: Path = tmp_path_factory.mktemp("landed") / "table"
    copies = [*_LAYOUTS].index(request.param) % 2 == 0
    sink = IcebergSink(
        str(folder),
        partition_by=_LAYOUTS[request.param],
        table_properties={COPIED_FROM_BYTES: "1"} if copies else {},
        app_id="readers",
        sizing=FileSizing(fill="inline", fill_policy="always"),
    )
    batches = (rows_of_every_type(_SCHEMA), _varied_rows(seed=1), _varied_rows(seed=2))
    for number, batch in enumerate(batches):
        sink(_frame(spark, batch), number)
    groups = [pq.read_metadata(path).num_row_groups for path in folder.rglob("data/**/*.parquet")]
    if request.param in _WITH_HISTORY:
        assert (max(groups) > 1) == copies
    return Landed(request.param, str(folder), batches)


@pytest.mark.parametrize("reader", judges.READERS)
def test_the_head_holds_all_rows(reader: str, landed: Landed) -> None:
    """Each reader sees the rows of all batches at the head."""
    if (reader, landed.layout) in _REFUSED:
        pytest.skip(_REFUSED[reader, landed.layout])
    judges.assert_reader_agrees(reader, landed.location, landed.up_to(3))


@_with_history
@pytest.mark.parametrize("reader", judges.READERS)
def test_every_snapshot_holds_its_rows(reader: str, landed: Landed) -> None:
    """At every snapshot, appends and replaces alike, each reader sees the batches up to it."""
    history = landed.history()
    assert {snapshot.summary.operation.value for snapshot, _ in history if snapshot.summary} == {
        "append",
        "replace",
    }
    for snapshot, expected in history:
        judges.assert_reader_agrees(reader, landed.location, expected, snapshot_id=snapshot.snapshot_id)


@_with_history
def test_a_stream_over_the_table_brings_each_row_once(landed: Landed) -> None:
    """Spark's `readStream` sees pure appends: each row once, whatever was merged meanwhile."""
    expected = canonical(landed.up_to(3), _SCHEMA, _COLUMNS)
    judges.assert_same_rows(judges.stream_rows(landed.location), expected, "the stream")
    slowly = {"streaming-max-files-per-micro-batch": "1"}
    judges.assert_same_rows(judges.stream_rows(landed.location, options=slowly), expected, "the slow stream")


@_with_history
def test_an_increment_holds_the_rows_appended_since(landed: Landed) -> None:
    """An incremental read after the first batch brings the other two, and no row of a merged file twice."""
    first = judges.snapshots(landed.location)[0].snapshot_id
    expected = canonical(pa.concat_tables(landed.batches[1:]), _SCHEMA, _COLUMNS)
    judges.assert_same_rows(judges.incremental_rows(landed.location, first), expected, "the increment")


@_with_history
def test_metadata_tables_agree(landed: Landed) -> None:
    """Iceberg's metadata tables load, and their totals agree with the summary and with the disk."""
    judges.assert_metadata_tables_agree(landed.location)


def _frame(spark: SparkSession, batch: pa.Table) -> DataFrame:
    # Without a schema Spark takes a timestamp that has no zone for one of the session's zone.
    return spark.createDataFrame(batch, from_arrow_schema(batch.schema, prefer_timestamp_ntz=True))


def _varied_rows(seed: int) -> pa.Table:
    """Return rows in a few partitions of each layout, with nulls in every column."""
    rng = np.random.default_rng(seed)
    drawn = [{name: _draw(rng, name) for name in _COLUMNS} for _ in range(12)]
    return pa.Table.from_pylist(drawn, schema=rows_of_every_type(_SCHEMA).schema)


def _draw(rng: np.random.Generator, name: str) -> Any:
    n = int(rng.integers(-3, 4))
    if n == 0:
        return None
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(hours=n * 9001, microseconds=n)
    values: dict[str, Any] = {
        "a_boolean": n > 0,
        "an_int": n * 7,
        "a_long": n * 2**40,
        "a_float": float("nan") if n == 1 else n / 4,
        "a_double": float("nan") if n == 2 else n / 8,
        "a_decimal9": Decimal(n).scaleb(-2),
        "a_decimal18": Decimal(n).scaleb(-4),
        "a_decimal38": Decimal(n).scaleb(-10) * 10**20,
        "a_date": moment.date(),
        "a_timestamp": moment.replace(tzinfo=None),
        "a_timestamptz": moment,
        "a_string": ("a/b c", "ü%=#?", "", "naïve")[n % 4] * abs(n),
        "a_binary": bytes([n % 256] * abs(n)),
        "a_struct": {"x": n, "y": None, "z": {"w": 0.5}},
        "a_list": [n] * abs(n),
        "a_map": [(str(n), n)],
        "a_list_of_structs": [{"p": moment.replace(tzinfo=None), "q": Decimal(n).scaleb(-3)}],
        "a_map_of_lists": [(n, [None, str(n)])],
    }
    return values[name]
