"""A file that makes its work item fail never takes the others of the item with it, whatever it raises."""

from __future__ import annotations

import struct
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import StaticTable

from streaming_sink import IcebergSink, SchemaContract, ingest
from streaming_sink.ingest.running import plan_waiting
from streaming_sink.ingest.worker import Worker
from streaming_sink.landing import landing as landing_module
from streaming_sink.tasks.results import WrittenFile
from streaming_sink.tasks.row_groups.compact import BINARY, Field, decode_struct, encode_struct
from tests.sinks import flat_zone
from tests.spark.source_files import rows_from, rows_in, write_parquet
from tests.spark.streams import head_of, metadata_file
from timeline.errors import SchemaMismatchError, StoreUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
FAR = 300_000_000_000_000_000  # microseconds: the year 11,476


def zone_at(folder: Path, **given: Any) -> ingest.BufferZone:
    return flat_zone(str(folder / "zone"), table=str(folder / "table"), **given)


def land_one(spark: SparkSession, zone: ingest.BufferZone) -> ingest.Landed:
    """Land all that waits by one item, at the first try."""
    assert plan_waiting(zone, flush=True) == 1
    landed = Worker(zone).land_next(spark)
    assert landed is not None
    return landed


def names(landed: ingest.Landed) -> dict[str, str]:
    return {Path(path).name: reason for path, reason in landed.rejected.items()}


def test_a_decimal_that_no_table_has_rejects_its_file_alone(spark: SparkSession, tmp_path: Path) -> None:
    drop = tmp_path / "drop"
    drop.mkdir()
    for number in range(5):
        kind = pa.decimal256(40, 0) if number in (0, 3) else pa.decimal128(38, 0)
        pq.write_table(pa.table({"d": pa.array([Decimal(number)], kind)}), drop / f"{number}.parquet")
    nested = pa.array([[{"d": Decimal(7)}]], pa.list_(pa.struct([("d", pa.decimal256(40, 0))])))
    pq.write_table(pa.table({"d": nested}), drop / "5.parquet")
    zone = zone_at(tmp_path)
    zone.push(f"{drop}/")
    landed = land_one(spark, zone)
    assert names(landed).keys() == {"0.parquet", "3.parquet", "5.parquet"}
    assert "a decimal of 40 digits" in names(landed)["3.parquet"]
    assert landed.rows == 3


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.date32()])
def test_a_time_that_no_partition_can_have_rejects_its_file_alone(
    spark: SparkSession, tmp_path: Path, kind: pa.DataType
) -> None:
    drop, storage = tmp_path / "drop", pa.int32() if kind == pa.date32() else pa.int64()
    drop.mkdir()
    for number in range(4):
        far = 3_000_000 if kind == pa.date32() else FAR
        times = pa.array([0, far if number == 2 else 1], storage).cast(kind)
        pq.write_table(pa.table({"t": times}), drop / f"{number}.parquet")
    zone = zone_at(tmp_path, partition_by=["day(t)"])
    zone.push(f"{drop}/")
    landed = land_one(spark, zone)
    assert list(names(landed)) == ["2.parquet"]
    assert "too far out for the partition transform day" in names(landed)["2.parquet"]
    assert landed.rows == 6


def test_a_failure_that_nobody_foresaw_is_its_files_wherever_it_is_raised(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the driver, between the last task and the commit: no task can say which file it is."""

    def data_file(file: WrittenFile, *given: Any) -> DataFile:
        if file.partition[0] in (103, 104):
            raise OverflowError("nobody foresaw this")
        return plain(file, *given)

    plain = landing_module.data_file
    monkeypatch.setattr(landing_module, "data_file", data_file)
    drop = tmp_path / "drop"
    for number in range(9):
        write_parquet(drop / f"{number}.parquet", rows_from(100 + number, 1))
    zone = zone_at(tmp_path, partition_by=["id"])
    zone.push(f"{drop}/")
    landed = land_one(spark, zone)
    assert names(landed) == dict.fromkeys(["3.parquet", "4.parquet"], "OverflowError: nobody foresaw this")
    good = [number for number in range(9) if number not in (3, 4)]
    assert rows_in(str(tmp_path / "table")) == sorted(row for n in good for row in rows_from(100 + n, 1))
    head = head_of(str(tmp_path / "table"))
    assert len(head.metadata.snapshots) == 1
    data = {path.name for path in (tmp_path / "table" / "data").rglob("*.parquet")}
    # The files of the first try stay, as of any commit that fails for an unknown reason.
    assert len(data - {Path(file.location).name for file in head.live_files()}) == 9


def test_no_file_is_at_fault_where_all_fail_or_the_store_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    error: Exception = OverflowError("of all files")

    def fail(*given: Any) -> DataFile:
        calls.append(1)
        raise error

    drop = tmp_path / "drop"
    for number in range(4):
        write_parquet(drop / f"{number}.parquet", rows_from(number, 1))
    zone = zone_at(tmp_path)
    zone.push(f"{drop}/")
    plan_waiting(zone, flush=True)
    with monkeypatch.context() as patched:
        patched.setattr(landing_module, "data_file", fail)
        with pytest.raises(OverflowError, match="of all files"):
            Worker(zone).land_next(spark)
        assert len(calls) == 1 + 6
        error = StoreUnavailableError("it is away")
        calls.clear()
        with pytest.raises(StoreUnavailableError):
            Worker(zone).land_next(spark)
        assert len(calls) == 1
    landed = Worker(zone).land_next(spark)
    assert landed is not None
    assert (landed.rejected, landed.rows) == ({}, 4)


def test_a_row_of_changes_that_fits_no_partition_rejects_its_file_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The rows of such items go through a shuffle: the task that fails knows of no file."""
    drop = tmp_path / "drop"
    drop.mkdir()
    for number in range(6):
        times = pa.array([FAR if number == 4 else number], pa.timestamp("us"))
        rows = pa.table({"id": [number], "v": [1], "t": times})
        pq.write_table(rows, drop / f"{number}.parquet")
    zone = zone_at(tmp_path, partition_by=["day(t)"], by_key={"key": ["id"], "sequence_by": "v"})
    zone.push(f"{drop}/")
    landed = land_one(spark, zone)
    assert list(names(landed)) == ["4.parquet"]
    assert "too far out for the partition transform day" in names(landed)["4.parquet"]
    assert (landed.files_in, landed.rows) == (5, 5)


def test_a_row_of_a_stream_that_fits_no_partition_is_for_the_contract(
    spark: SparkSession, location: str
) -> None:
    """The commit failed with `OverflowError: date value out of range`, whatever the contract said."""
    rows = spark.sql(f"SELECT id, timestamp_micros(id * {FAR}) AS t FROM range(3)")
    with pytest.raises(SchemaMismatchError, match="too far out for the partition transform day"):
        IcebergSink(location, app_id="a", partition_by=["day(t)"])(rows, 0)
    contract = SchemaContract(mismatch="quarantine")
    sink = IcebergSink(location, app_id="a", partition_by=["day(t)"], contract=contract)
    sink(rows, 0)
    report = sink.reports[-1]
    assert (report.rows, report.quarantined) == (1, 2)


def test_text_files_land_in_the_tables_types_and_folders_are_columns_like_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    drop, day = tmp_path / "drop", date(2026, 11, 23)
    drop.mkdir()
    pq.write_table(pa.table({"id": [0], "d": [day], "zz": ["a"]}), drop / "0.parquet")
    zone = zone_at(tmp_path, sources=[str(drop)])
    zone.push(f"{drop}/")
    land_one(spark, zone)
    (drop / "1.json").write_text('{"id": 1, "d": "2026-11-23", "zz": "b"}\n')
    (drop / "2.csv").write_text("id,d,zz\n2,2026-11-23,c\n")
    (drop / "zz=d").mkdir()
    (drop / "zz=d" / "3.json").write_text('{"id": 3, "d": "2026-11-23"}\n')
    (drop / "other=1").mkdir()
    pq.write_table(pa.table({"id": [4], "d": [day]}), drop / "other=1" / "4.parquet")
    pq.write_table(pa.table({"id": [4], "d": [day], "other": [1]}), drop / "5.parquet")
    (drop / "6.csv").write_text('id,d,zz\n6,2026-11-23,"x\n7,2026-11-23,y\n')
    zone.push(f"{drop}/")
    told = names(land_one(spark, zone))
    assert told.keys() == {"4.parquet", "5.parquet", "6.csv"}
    assert told["4.parquet"] == told["5.parquet"]
    assert "the row that begins in line 2" in told["6.csv"]
    path = metadata_file(str(tmp_path / "table"))
    assert path is not None
    rows = StaticTable.from_metadata(path).scan().to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": number, "d": day, "zz": zz} for number, zz in enumerate("abcd")]


def test_files_as_spark_writes_them_by_default_land_as_instants(spark: SparkSession, tmp_path: Path) -> None:
    """Spark writes a TIMESTAMP as INT96, and reads it as an instant; pyarrow reads it without a zone."""
    drop = tmp_path / "drop"
    times = ("2024-01-01 23:30:00-05:00", "9999-01-01 00:00:00Z")
    rows = (f"SELECT {number} AS id, TIMESTAMP'{time}' AS at" for number, time in enumerate(times, 1))
    spark.sql(" UNION ALL ".join(rows)).coalesce(1).write.option("outputTimestampType", "INT96").parquet(
        str(drop / "spark")
    )
    assert pq.ParquetFile(*(drop / "spark").glob("*.parquet")).schema.column(1).physical_type == "INT96"
    other = pa.table({"id": pa.array([3], pa.uint16()), "n": pa.array([2**64 - 1], pa.uint64())})
    pq.write_table(other, drop / "unsigned.parquet")
    zone = zone_at(tmp_path, partition_by=["day(at)"], schema=SchemaContract.evolving())
    for path in (drop / "spark", drop):
        zone.push(f"{path}/")
        assert names(land_one(spark, zone)) == {}
    table = StaticTable.from_metadata(metadata_file(str(tmp_path / "table")) or "")
    assert str(table.schema().find_type("at")) == "timestamptz"
    assert table.scan().to_arrow().sort_by("id").select(["id", "n"]).to_pylist() == [
        {"id": 1, "n": None},
        {"id": 2, "n": None},
        {"id": 3, "n": Decimal(2**64 - 1)},
    ]
    found = table.scan().to_arrow().sort_by("id")["at"].cast(pa.string()).to_pylist()
    assert found == ["2024-01-02 04:30:00.000000Z", "9999-01-01 00:00:00.000000Z", None]


def test_a_column_of_nulls_alone_is_left_out_of_a_table_that_its_file_makes(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "drop").mkdir()
    pq.write_table(pa.table({"id": [1], "nothing": pa.nulls(1)}), tmp_path / "drop" / "a.parquet")
    zone = zone_at(tmp_path)
    zone.push(f"{tmp_path}/drop/")
    assert names(land_one(spark, zone)) == {}
    read = StaticTable.from_metadata(metadata_file(str(tmp_path / "table")) or "").scan().to_arrow()
    assert read.to_pylist() == [{"id": 1}]


def test_a_first_file_that_its_own_types_reject_makes_no_table_for_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its types made the table all the same, and every good file was rejected by them, for good."""
    drop = tmp_path / "drop"
    drop.mkdir()
    far = pa.array([FAR], pa.int64()).cast(pa.timestamp("us"))
    pq.write_table(pa.table({"id": ["a"], "t": far}), drop / "0.parquet")
    pq.write_table(pa.table({"id": [1], "t": pa.array([0], pa.timestamp("us"))}), drop / "1.parquet")
    zone = zone_at(tmp_path, partition_by=["day(t)"])
    zone.push(f"{drop}/")
    landed = land_one(spark, zone)
    assert list(names(landed)) == ["0.parquet"]
    assert landed.rows == 1


def test_a_footer_that_ends_the_worker_rejects_its_file_alone(spark: SparkSession, tmp_path: Path) -> None:
    """pyarrow aborts where statistics are narrower than the values of their column."""
    drop = tmp_path / "drop"
    drop.mkdir()
    for number in range(3):
        write_parquet(drop / f"{number}.parquet", rows_from(100 * number, 1))
    zone = zone_at(tmp_path, partition_by=["id"])
    zone.push(f"{drop}/0.parquet")
    assert land_one(spark, zone).rows == 1
    with_narrow_statistics(drop / "1.parquet")
    zone.push(f"{drop}/1.parquet")
    zone.push(f"{drop}/2.parquet")
    landed = land_one(spark, zone)
    assert (list(names(landed)), landed.rows) == (["1.parquet"], 1)
    assert rows_in(str(tmp_path / "table")) == [*rows_from(0, 1), *rows_from(200, 1)]


def with_narrow_statistics(path: Path) -> None:
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = decode_struct(data[-8 - length : -8])
    for chunk in footer[4].value.items[0][1].value.items:
        chunk[3].value[12].value[6] = Field(BINARY, b"\1")
    narrow = encode_struct(footer)
    path.write_bytes(data[: -8 - length] + narrow + struct.pack("<I", len(narrow)) + b"PAR1")
