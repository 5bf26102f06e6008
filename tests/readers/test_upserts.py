"""Tables of changes by key, before five readers that we did not write."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.readers import judges
from tests.sinks import flat_sink
from tests.spark.changes import KEYED, Judge, as_batch, as_wide_batch, random_changes, wide_changes
from tests.spark.streams import SMALL, head_of
from tests.tiers import only_in_soak

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.jar]

_SCHEMA = pa.schema(
    [("user_id", pa.int64()), ("at", pa.int64()), ("region", pa.string()), ("name", pa.string())]
)
_LONG = _SCHEMA.field("at").type
LAYOUTS = [
    pytest.param({}, id="plain"),
    pytest.param({"partition_by": ["region"]}, id="partitioned by a column that changes"),
    pytest.param({"partition_by": ["bucket(2, user_id)"]}, id="partitioned by the key", marks=only_in_soak),
]


def _expected(judge: Judge, at: pa.DataType = _LONG) -> pa.Table:
    rows = [dict(zip(_SCHEMA.names, row, strict=True)) for row in judge.rows]
    return pa.Table.from_pylist(rows, _SCHEMA.set(1, pa.field("at", at)))


def test_every_reader_sees_the_last_change_by_a_sequence_of_digits(
    spark: SparkSession, tmp_path: Path
) -> None:
    location, judge, rng = str(tmp_path / "t"), Judge(), random.Random(38)
    sink = flat_sink(location, app_id="app", sizing=SMALL, key_index="index", **KEYED)
    for number in range(3):
        changes = wide_changes(rng, 60, 30)
        sink(as_wide_batch(spark, changes), number)
        judge.take(changes)
        sink.finish()
    judges.assert_all_readers_agree(location, _expected(judge, pa.decimal128(38, 0)))


@pytest.mark.parametrize("given", LAYOUTS)
def test_every_reader_sees_the_last_change_of_each_key(
    spark: SparkSession, tmp_path: Path, given: dict[str, Any]
) -> None:
    location, judge, rng = str(tmp_path / "t"), Judge(), random.Random(7)
    sinks = [flat_sink(location, app_id=app, sizing=SMALL, **KEYED, **given) for app in "ab"]
    seen = {}
    for number in range(3):
        for sink in sinks:
            changes = random_changes(rng, 150, 120, number * 50, 120)
            sink(as_batch(spark, changes), number)
            judge.take(changes)
            seen[head_of(location).metadata.current_snapshot_id] = _expected(judge)
    for sink in sinks:
        sink.finish()
    judges.assert_all_readers_agree(location, _expected(judge))
    for snapshot_id, expected in list(seen.items())[::2]:
        judges.assert_all_readers_agree(location, expected, snapshot_id=snapshot_id)
