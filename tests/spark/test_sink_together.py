"""Several writers on one table at once: each one's rows are all there, and no fill is in another's way."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import StaticTable
from pyiceberg.typedef import Record

from streaming_sink import FileSizing, IcebergSink
from streaming_sink.errors import CommitConflictError
from streaming_sink.landing.landing import Landing
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.writing.target import Destination
from tests.spark.streams import ROWS, SMALL, add_files, ids_of, metadata_file, source_ids, start
from timeline.changes.changes import Replace
from timeline.table import Table, open_table

pytestmark = pytest.mark.spark


def test_two_queries_that_make_fill_and_share_one_table_lose_and_double_no_row(spark, tmp_path, location):
    """Both begin before there is a table, in one session, each with a sink of its own."""
    sinks, queries = [], []
    for writer in range(2):
        source = tmp_path / f"source{writer}"
        add_files(source, range(writer * 6, writer * 6 + 6))
        sink = IcebergSink(
            location,
            partition_by=["p"],
            app_id=f"writer-{writer}",
            sizing=replace(SMALL, fill="inline", fill_policy="always"),
        )
        sinks.append(sink)
        queries.append(start(spark, source, sink, str(tmp_path / f"checkpoint{writer}")))
    for query in queries:
        query.awaitTermination()
    assert ids_of(location) == source_ids(12)
    assert sum(report.merged_files for sink in sinks for report in sink.reports) > 0
    assert sorted(report.batch_id for sink in sinks for report in sink.reports) == sorted([*range(6)] * 2)


@pytest.fixture
def crowded(spark, location):
    """A sink that has landed one batch, and fills its file with the next one."""
    sink = IcebergSink(location, app_id="app", sizing=replace(SMALL, fill="inline", fill_policy="always"))
    sink(spark.range(ROWS), 0)
    return sink


def _before_commit(sink, monkeypatch, act):
    """Let somebody else commit once, after the sink's next batch was written and before it is committed."""
    real, done = Landing._commit, []

    def commit(self, *arguments):
        if not done:
            done.append(True)
            act()
        return real(self, *arguments)

    monkeypatch.setattr(Landing, "_commit", commit)


def _rewrite_all(location):
    """Replace all live files by one, as a clustering does."""
    table = open_table(location)
    rows = StaticTable.from_metadata(metadata_file(location)).scan().to_arrow()
    path = f"{location}/data/rewritten.parquet"
    pq.write_table(rows.cast(arrow_schema(table.head.schema)), path)
    one = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows.num_rows,
        file_size_in_bytes=os.path.getsize(path),
        sort_order_id=0,
    )
    one.spec_id = table.head.spec.spec_id
    table.commit([Replace(frozenset(file.location for file in table.head.live_files()), (one,))])


def test_a_fill_whose_file_was_replaced_meanwhile_keeps_its_append(spark, location, crowded, monkeypatch):
    _before_commit(crowded, monkeypatch, lambda: _rewrite_all(location))
    crowded(spark.range(ROWS, 2 * ROWS), 1)
    report = crowded.reports[-1]
    assert (report.outcome, report.dropped_fills, report.merged_files) == ("committed", 1, 1)
    assert "a fill was dropped" in report.why
    assert report.attempts == 2
    assert ids_of(location) == source_ids(2)
    crowded(spark.range(2 * ROWS, 3 * ROWS), 2)
    assert ids_of(location) == source_ids(3)


def test_a_fill_whose_file_stays_is_kept_over_anothers_append(spark, location, crowded, monkeypatch):
    other = IcebergSink(location, app_id="other", sizing=FileSizing(fill="never"))
    _before_commit(crowded, monkeypatch, lambda: other(spark.range(ROWS, 2 * ROWS), 0))
    crowded(spark.range(2 * ROWS, 3 * ROWS), 1)
    report = crowded.reports[-1]
    assert (report.dropped_fills, report.merged_files, report.filled_files, report.attempts) == (0, 1, 1, 2)
    assert ids_of(location) == source_ids(3)


def test_a_batch_whose_commit_no_longer_fits_is_planned_and_written_again(
    spark, location, crowded, monkeypatch
):
    real, calls = Table.commit, []

    def refuses_twice(self, *arguments, **named):
        calls.append(True)
        if len(calls) < 3:
            raise CommitConflictError("the table has moved on")
        return real(self, *arguments, **named)

    monkeypatch.setattr(Table, "commit", refuses_twice)
    crowded(spark.range(ROWS, 2 * ROWS), 1)
    assert len(calls) == 3
    assert ids_of(location) == source_ids(2)


def test_a_commit_that_never_fits_fails_the_batch_and_the_next_try_lands_it(
    spark, location, crowded, monkeypatch
):
    def refuses(self, *arguments, **named):
        raise CommitConflictError("the table has moved on")

    with monkeypatch.context() as patch:
        patch.setattr(Table, "commit", refuses)
        with pytest.raises(CommitConflictError):
            crowded(spark.range(ROWS, 2 * ROWS), 1)
    assert ids_of(location) == source_ids(1)
    crowded(spark.range(ROWS, 2 * ROWS), 1)
    assert ids_of(location) == source_ids(2)


def test_a_first_batch_takes_the_table_that_another_sink_made_meanwhile(spark, location, monkeypatch):
    sink = IcebergSink(location, app_id="app", partition_by=["p"])
    other = IcebergSink(location, app_id="other", partition_by=["p"])
    rows = spark.range(10).selectExpr("id", "id % 2 AS p")
    real, done = Destination.create, []

    def create(self, *arguments):
        if not done:
            done.append(True)
            other(rows, 0)
        return real(self, *arguments)

    monkeypatch.setattr(Destination, "create", create)
    sink(spark.range(10, 20).selectExpr("id", "id % 2 AS p"), 0)
    assert ids_of(location) == Counter(range(20))


def test_a_first_batch_is_written_again_where_the_other_sink_made_another_table(spark, location, monkeypatch):
    """The other's table is not partitioned, so files written by partition do not fit it."""
    sink = IcebergSink(location, app_id="app")
    other = IcebergSink(location, app_id="other", partition_by=["p"])
    real, done = Destination.create, []

    def create(self, *arguments):
        if not done:
            done.append(True)
            other(spark.range(10).selectExpr("id % 2 AS p", "id"), 0)
        return real(self, *arguments)

    monkeypatch.setattr(Destination, "create", create)
    sink(spark.range(10, 20).selectExpr("id", "id % 2 AS p"), 0)
    assert ids_of(location) == Counter(range(20))
    assert sink.reports[-1].new_files == 2
