"""Tables whose partitioning has changed under the sink, before five readers that we did not write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyiceberg.types as it
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.transforms import BucketTransform, IdentityTransform

from streaming_sink import CatalogTable, FileSizing, IcebergSink, SchemaContract, Upsert
from streaming_sink.clustering import schedule_and_execute
from streaming_sink.table.table_keys import table_key
from tests.readers import judges
from tests.readers.equality import counts_equal
from tests.tiers import only_in_soak
from timeline.changes.key_changes import DeclareKey
from timeline.table import open_table
from timeline.versions.keys import Looked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.jar]

STEPS: list[list[str]] = [
    [],
    ["region"],
    ["region", "day(seen)"],
    ["region", "hour(seen)"],
    ["bucket(8, id)", "region"],
    ["bucket(16, id)", "truncate(1, region)"],
    ["truncate(2, region)"],
    ["region"],
]
"""The partitioning of each batch: none, a field more, another transform, a field less, one from before."""
_BATCHES = 2
_START = datetime(2026, 1, 1, 22, tzinfo=timezone.utc)
_SCHEMA = pa.schema({"id": pa.int64(), "region": pa.string(), "seen": pa.timestamp("us", "UTC")})


def _rows(first: int, count: int = 12) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "region": None if number % 11 == 7 else f"r{number % 3}",
            "seen": _START + timedelta(minutes=37 * (number % 12)),
        }
        for number in range(first, first + count)
    ]


def _batch(number: int) -> pa.Table:
    return pa.Table.from_pylist(_rows(12 * number), schema=_SCHEMA)


def _expected(batches: int) -> pa.Table:
    return pa.concat_tables(_batch(number) for number in range(batches))


_LAID_OUT = ("filled", "clustered", "never filled")


@pytest.fixture(scope="module")
def land(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return what lands each table once, in whichever order tests ask for them."""
    return cache(lambda how: _land(spark, str(tmp_path_factory.mktemp("repartitioned") / "table"), how))


@pytest.fixture(params=_LAID_OUT)
def landed(request: pytest.FixtureRequest, land: Callable[[str], str]) -> str:
    """Return the location of a table that has had all partitionings, with batches under each."""
    return land(request.param)


def _land(spark: SparkSession, location: str, how: str) -> str:
    number = 0
    for step in STEPS:
        sink = IcebergSink(
            location,
            app_id="app",
            partition_by=step,
            sizing=FileSizing(
                max_file_bytes="64KiB",
                small_file_bytes="48KiB",
                fill="inline" if how == "filled" else "never",
                fill_policy="always",
            ),
            contract=SchemaContract(partitioning="evolve" if bool(step) else "refuse"),
        )
        for _ in range(_BATCHES):
            sink(spark.createDataFrame(_batch(number)), number)
            number += 1
    if how == "clustered":
        report = schedule_and_execute(
            spark, location, sort_by=["id"], target_file_bytes="64KiB", small_file_bytes="48KiB"
        )
        assert {group.outcome for group in report.groups} == {"committed"}
    files = Counter(file.spec_id for file in open_table(location).head.live_files())
    assert set(files) == set(range(len(STEPS) - 1)), "the last step is the second one again"
    return location


@pytest.mark.parametrize("reader", judges.READERS)
def test_every_reader_sees_every_row_of_every_partitioning(landed: str, reader: str) -> None:
    judges.assert_reader_agrees(reader, landed, _expected(_BATCHES * len(STEPS)))


_SLOW = ("spark", "chdb")
_once_by_the_slow = pytest.mark.parametrize(
    ("landed", "reader"),
    [
        pytest.param(how, each, marks=[only_in_soak] if each in _SLOW and how != "never filled" else [])
        for how in _LAID_OUT
        for each in judges.READERS
    ],
    indirect=["landed"],
)
"""Every table before every reader; those that take seconds have in every run the one whose files are all as
their batches left them.
"""


@_once_by_the_slow
def test_every_reader_finds_rows_by_columns_that_partition_some_files(landed: str, reader: str) -> None:
    """A reader that takes the values of one spec for those of another leaves files out."""
    rows = _expected(_BATCHES * len(STEPS)).to_pylist()
    asked = [
        *(("region", it.StringType(), region) for region in ("r0", "r1", "r2")),
        *(("id", it.LongType(), number) for number in (0, 13, 30, 50, 70, 90, 100, 130, 150, 170, 191)),
        *(("seen", it.TimestamptzType(), _START + timedelta(minutes=37 * place)) for place in (0, 5, 11)),
    ]
    wanted = [sum(row[name] == value for row in rows) for name, _, value in asked]
    assert min(wanted) > 0
    assert counts_equal(reader, landed, asked) == wanted


@_once_by_the_slow
def test_time_travel_before_the_change_shows_the_rows_of_then(landed: str, reader: str) -> None:
    appended = [
        it for it in judges.snapshots(landed) if it.summary and it.summary.operation.value == "append"
    ]
    for batch in (1, 3, 7, 13):  # the last of a partitioning
        snapshot = appended[batch].snapshot_id
        judges.assert_reader_agrees(reader, landed, _expected(batch + 1), snapshot_id=snapshot)


def test_the_metadata_of_each_version_shows_the_partitioning_of_then(landed: str) -> None:
    seen = []
    for version in range(1, open_table(landed).head.number + 1):
        table = StaticTable.from_metadata(f"{landed}/metadata/v{version}.metadata.json")
        fields = [f"{it.transform} {it.source_id}" for it in table.spec().fields]
        if not seen or seen[-1] != fields:
            seen.append(fields)
    assert len(seen) == len(STEPS)
    assert (seen[0], seen[1], seen[-1]) == ([], ["identity 2"], ["identity 2"])


def test_the_metadata_tables_of_iceberg_show_the_fields_of_all_specs_in_one_struct(landed: str) -> None:
    """Of two fields of one name Iceberg's library makes no struct."""
    judges.assert_metadata_tables_agree(landed)
    shown = judges.metadata_table(landed, "files").schema.field("partition").type
    specs = open_table(landed).head.metadata.partition_specs
    assert {field.name for field in shown} == {field.name for spec in specs for field in spec.fields}


# ------------------------------------------------------------- columns that another engine has dropped


@pytest.mark.parametrize("version", [1, 2])
def test_the_partitions_of_a_dropped_column_are_read_after_every_kind_of_write(
    version: int, spark: SparkSession, tmp_path: Path
) -> None:
    """A table of Iceberg's version 1 keeps a field without a transform in the column's place, and its values
    are missing, though no value of the column was.
    """
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/lake.db", "warehouse": f"file://{tmp_path}"}
    theirs = load_catalog("lake", **catalog)
    theirs.create_namespace("db")
    region = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    fields = [
        it.NestedField(1, "id", it.LongType()),
        it.NestedField(2, "region", it.StringType(), required=True),
    ]
    old = theirs.create_table(
        "db.t", Schema(*fields), partition_spec=region, properties={"format-version": str(version)}
    )
    rows = pa.schema([pa.field("id", pa.int64()), pa.field("region", pa.string(), nullable=False)])
    for first in range(0, 8, 2):
        old.append(pa.table({"id": [first, first + 1], "region": ["a", "b"]}, rows))
    with old.update_spec() as spec:
        spec.remove_field("region")
        spec.add_field("id", BucketTransform(2), "id_bucket")
    with old.update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("region")
    if version == 1:
        with old.transaction() as upgrade:
            upgrade.upgrade_table_version(2)
    assert len(theirs.load_table("db.t").spec().fields) == 3 - version

    table = CatalogTable("db.t", {**catalog, "name": "lake"})
    report = schedule_and_execute(spark, table, strategy="bin_pack")
    assert {group.outcome for group in report.groups} == {"committed"}
    opened = table.open()
    key = table_key(Upsert(key=["id"]), opened.head.schema)
    opened.commit([DeclareKey(key, Looked.at(opened.head))])
    sink = IcebergSink(table, Upsert(key=["id"]), app_id="app")
    for number in range(2):
        sink(spark.createDataFrame([(0,), (1,), (20 + number,)], "id long"), number)
    sink.finish()
    now = theirs.load_table("db.t")
    listed = [it for snapshot in now.metadata.snapshots for it in snapshot.manifests(now.io)]
    for content in (ManifestContent.DATA, ManifestContent.DELETES):  # also of deletes that were folded since
        of_old = [it for it in listed if it.content == content and not it.partition_spec_id]
        entries = [entry for it in of_old for entry in it.fetch_manifest_entry(now.io)]
        assert {entry.data_file.partition[0] for entry in entries} == {"a", "b"}
    judges.assert_all_readers_agree(
        now.metadata_location.removeprefix("file://"), pa.table({"id": [*range(8), 20, 21]})
    )
