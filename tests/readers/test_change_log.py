"""The change log and the change feed, before Iceberg's own readers of changes in Spark."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import streaming_sink
from tests.jars import require_iceberg_runtime
from tests.readers import judges, spark_judge
from tests.readers.processes import ReaderError, in_process_of
from tests.sinks import flat_sink
from tests.spark.changes import KEYED, as_batch, random_changes
from tests.spark.streams import SMALL

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.jar]


def test_sparks_stream_reader_follows_the_log_and_stops_at_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    location, log, rng = str(tmp_path / "t"), str(tmp_path / "log"), random.Random(1)
    sink = flat_sink(location, app_id="a", sizing=SMALL, changelog_table=log, **KEYED)
    checkpoint = str(tmp_path / "checkpoint")
    seen: judges.Rows = Counter()
    for number in range(14):  # more than eight small files, so that the log is filled on the way
        sink(as_batch(spark, random_changes(rng, 100, 80, number * 50, 120)), number)
        if number in (1, 6, 13):
            sink.finish()
            seen += judges.stream_rows(log, checkpoint=checkpoint)
            judges.assert_same_rows(seen, judges.rows("pyiceberg", log), "the stream over the log")
    changed = streaming_sink.changes(spark, location, 1).toArrow()
    judges.assert_all_readers_agree(log, changed)
    with pytest.raises(ReaderError, match="overwrite"):
        judges.stream_rows(location)


def test_a_stream_over_the_log_goes_on_after_a_purge_if_it_skips_deletes(
    spark: SparkSession, tmp_path: Path
) -> None:
    location, log, checkpoint = (str(tmp_path / name) for name in ("t", "log", "checkpoint"))
    sink = flat_sink(location, app_id="a", sizing=SMALL, changelog_table=log, **KEYED)
    sink(as_batch(spark, [(key, 1, "a", f"n{key}", "I") for key in range(5)]), 0)
    assert judges.stream_rows(log, checkpoint=checkpoint).total() == 5
    streaming_sink.purge(location, [{"user_id": 2}])
    sink(as_batch(spark, [(3, 2, "a", "later", "U")]), 1)
    sink.finish()
    with pytest.raises(ReaderError, match="delete"):
        judges.stream_rows(log, checkpoint=checkpoint)
    skips = {"streaming-skip-delete-snapshots": "true"}
    seen = judges.stream_rows(log, checkpoint=checkpoint, options=skips)
    assert seen.total() == 2  # the row of 3 before and after
    assert seen < judges.rows("pyiceberg", log)
    assert not [row for row in judges.rows("pyiceberg", log) if "n2" in row]


def test_icebergs_changelog_view_agrees_on_appends_and_refuses_delete_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    location, jar = str(tmp_path / "db" / "t"), str(require_iceberg_runtime())
    sink = flat_sink(location, app_id="a", sizing=SMALL, **KEYED)
    for number in range(10):  # more than eight small files, so that some are filled
        new = [(number * 20 + key, 1, "a", f"n{key}", "I") for key in range(20)]
        sink(as_batch(spark, new), number)
    sink.finish()
    columns = ["user_id", "at", "region", "name", "_change_type", "_commit_snapshot_id"]

    def view() -> pa.Table:
        return in_process_of("spark", spark_judge.changelog_view, jar, str(tmp_path), "db.t", ["user_id"])

    def rows(table: pa.Table) -> Counter[str]:
        return Counter(map(str, table.select(columns).to_pylist()))

    ours = streaming_sink.changes(spark, location, 1).select(*columns).toArrow()
    assert rows(ours) == rows(view())
    sink(as_batch(spark, [(5, 2, "a", "new", "U")]), 10)
    with pytest.raises(ReaderError, match="Delete files are currently not supported in changelog scans"):
        view()
    sink.finish()
