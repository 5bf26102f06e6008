"""What each reader can and cannot read, shown on tables that pyiceberg and pyarrow wrote.

Where these fail because a reader has learned something, take the exception out of `judges.LIMITS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)

from tests.readers import judges
from tests.readers.canonical import canonical
from tests.readers.reference_tables import every_type, rows_of_every_type, write_reference_table

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyiceberg.transforms import Transform

pytestmark = [pytest.mark.spark, pytest.mark.jar]


@pytest.fixture(scope="module")
def with_time(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    return _table(tmp_path_factory.mktemp("with-time"), without=())


@pytest.fixture(scope="module")
def without_time(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    return _table(tmp_path_factory.mktemp("without-time"), without=("a_time",))


@pytest.mark.parametrize("reader", ["pyiceberg", "duckdb", "chdb", "polars"])
def test_every_type_comes_back_equal(reader: str, with_time: tuple[Path, pa.Table]) -> None:
    """An ordinary row, a null row and edge values come back from each reader, but for its limits."""
    location, expected = with_time
    judges.assert_reader_agrees(reader, location, expected)


def test_spark_reads_every_type_but_time(without_time: tuple[Path, pa.Table]) -> None:
    """Spark returns every type that it has equal to what was written."""
    location, expected = without_time
    judges.assert_reader_agrees("spark", location, expected)


def test_spark_refuses_a_table_with_a_time_column(with_time: tuple[Path, pa.Table]) -> None:
    """Spark cannot open such a table at all, whichever columns are asked for."""
    with pytest.raises(Exception, match="does not support time fields"):
        judges.read("spark", with_time[0], ["an_int"])


def test_chdb_cuts_times_to_seconds(with_time: tuple[Path, pa.Table]) -> None:
    """ClickHouse returns a time as whole seconds of the day."""
    assert set(judges.read("chdb", with_time[0], ["a_time"])["a_time"].to_pylist()) == {86399, 0, None}


def test_pyiceberg_reads_a_null_list_of_structs_as_empty(with_time: tuple[Path, pa.Table]) -> None:
    """pyiceberg rebuilds such lists from their offsets and loses which were null; other lists keep it."""
    found = judges.read("pyiceberg", with_time[0], ["a_list", "a_list_of_structs"])
    assert found["a_list"].null_count == 1
    assert found["a_list_of_structs"].null_count == 0


def test_chdb_knows_no_null_struct_list_or_map(with_time: tuple[Path, pa.Table]) -> None:
    """ClickHouse returns nulls there as a struct of nulls and as empty lists and maps."""
    location, expected = with_time
    schema = every_type()
    columns = ["a_struct", "a_list", "a_map"]
    found = canonical(judges.read("chdb", location, columns), schema, columns)
    assert (((None, None, (None,)), (), ())) in found
    assert found != canonical(expected, schema, columns)


@pytest.mark.parametrize("transform", [DayTransform(), HourTransform()], ids=str)
@pytest.mark.parametrize("reader", judges.READERS)
def test_every_transform_reads_equal(reader: str, transform: Transform[Any, Any], tmp_path: Path) -> None:
    """Partitioned by every transform, pyiceberg's own tables come back equal from every reader."""
    # pyiceberg writes a null list of structs as empty.
    schema = every_type(without=("a_time", "a_list_of_structs"))
    transforms = {
        "a_boolean": IdentityTransform(),
        "a_string": TruncateTransform(2),
        "an_int": BucketTransform(4),
        "a_date": YearTransform(),
        "a_timestamp": MonthTransform(),
        "a_timestamptz": transform,
    }
    fields = [
        PartitionField(schema.find_field(name).field_id, 1000 + i, how, f"p{i}")
        for i, (name, how) in enumerate(transforms.items())
    ]
    expected = rows_of_every_type(schema)
    write_reference_table(tmp_path / "table", schema, [expected], PartitionSpec(*fields))
    judges.assert_reader_agrees(reader, tmp_path / "table", expected)


def test_chdb_refuses_a_table_partitioned_by_truncating_a_wide_decimal(tmp_path: Path) -> None:
    """ClickHouse's own truncate knows decimals of up to 18 digits only, and it prunes by it in any query."""
    schema = every_type(without=("a_time", "a_list_of_structs"))
    source = schema.find_field("a_decimal38").field_id
    spec = PartitionSpec(PartitionField(source, 1000, TruncateTransform(7), "truncated"))
    write_reference_table(tmp_path / "table", schema, [rows_of_every_type(schema)], spec)
    with pytest.raises(Exception, match="icebergTruncate"):
        judges.read("chdb", tmp_path / "table", ["an_int"])


def _table(folder: Path, without: tuple[str, ...]) -> tuple[Path, pa.Table]:
    schema = every_type(without)
    expected = rows_of_every_type(schema)
    write_reference_table(folder / "table", schema, [expected.slice(0, 2), expected.slice(2)])
    return folder / "table", expected
