"""The quarantine of a stream, before five readers that we did not write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import functions as sf

from streaming_sink import Checks, IcebergSink
from tests.readers import judges

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.jar]


def test_every_reader_sees_the_same_quarantined_rows(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "table")
    sink = IcebergSink(location, app_id="app", checks=Checks({"id % 10 <> 3": "quarantine"}))
    for number in range(3):
        rows = spark.range(100 * number, 100 * number + 100)
        sink(rows.select("id", sf.lit("t").alias("topic"), sf.array("id").alias("l")), number)
    expected = StaticTable.from_metadata(location + "__quarantine").scan().to_arrow()
    ids = sorted(int(row.split('"id":')[1].split(",")[0]) for row in expected["row"].to_pylist())
    assert ids == list(range(3, 300, 10))
    assert set(expected["source"].to_pylist()) == {'{"topic":"t"}'}
    judges.assert_all_readers_agree(location + "__quarantine", expected)
