"""`replay`: repairs quarantined rows and writes them into their table, exactly once (R16, R24).

A replay is a batch of an application of its own, whose commit to the table names the marks of its rows, as
that of any batch names its quarantined rows. The order is the rule::

    deliver  what the table's commits have named: the marks of the replays up to number n - 1 are complete
    number   n follows the last replay that this very head of the table has committed
    read     the quarantined rows without a mark
    commit   as batch n: of two replays that have read the same rows, one has this number

A process that is killed after its commit has named its marks, and the next replay delivers them first.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace as replaced

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.checks.quarantine_table import check_has_no_deletes, open_quarantine
from streaming_sink.checks.row_checks import REPLAY_APP
from streaming_sink.options.table_options import SinkOptions, TableOptions, sink_options
from streaming_sink.options.values.contract import SchemaContract
from streaming_sink.options.values.tables import AnyTable
from streaming_sink.replaying.rebuilding import (
    Fix,
    assigned,
    check_columns,
    chosen,
    fixed,
    rebuilt,
    row_fields,
)
from streaming_sink.reports.batch_report import BatchReport
from streaming_sink.sink import IcebergSink
from streaming_sink.spark.caller import OUTSIDE, identify, mint_run_id
from streaming_sink.spark.jobs import map_in_arrow, parallelism
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.tasks.files.read_task import ReadTask
from timeline.errors import (
    CheckpointRegressionError,
    CommitConflictError,
    FencedError,
    SchemaMismatchError,
)
from timeline.outbox import deliver_all
from timeline.table import Table

_LOG = logging.getLogger("streaming_sink")
_USUAL = TableOptions(contract=SchemaContract(mismatch="quarantine"))


def replay(
    spark: SparkSession,
    table: AnyTable,
    *,
    where: str | None = None,
    fix: Fix | None = None,
    set: Mapping[str, str] | None = None,  # noqa: A002 - as in SQL
    options: TableOptions | None = None,
) -> list[BatchReport]:
    """Write quarantined rows of a table into it, each exactly once, and return the report of each commit; []
    where no row waits. A row is marked in the quarantine as replayed by the commit that writes it: no call
    takes it again, not one at the same time, nor one after a crash.

    `where` chooses rows by an SQL condition over the quarantine's columns and the row's own. `set` maps
    columns to SQL expressions over the row. `fix` is given the rows of one schema as a DataFrame, and returns
    those to write: a row that it leaves out stays in the quarantine; it must keep the column
    `__streaming_sink_row_id`. `options` say how they land, and where the quarantine is; without, every row
    that fits the table is written, and one that does not is quarantined again, as a new row. With
    expectations so is one that fails again.

    Rows of one schema are one commit. Arguments are checked before the first is written; where the sink
    refuses the rows of a schema, those of the schemas before it are in the table.

    Raises TableNotFoundError where there is no table or no quarantine; ValueError or TypeError for `where`,
    `set`, `fix`, options and a session that cannot be used; CommitConflictError where another replay has
    committed since this one began (call again); and as `IcebergSink`.
    """
    _check_session(spark)
    chosen_options = sink_options(table, {}, _USUAL if options is None else options)
    location = chosen_options.location
    main = chosen_options.table.open()
    second = open_quarantine(chosen_options.quarantine)
    deliver_all(main, lambda address: chosen_options.table.beside(address).open())
    app_id = f"{REPLAY_APP}{second.head.metadata.table_uuid}"
    last = main.head.transaction(app_id)
    number = 0 if last is None else last.batch + 1
    second.refresh()
    own_options = replaced(chosen_options, app_id=app_id, replayed_from=second.log.address)
    frames = _frames(spark, main, second, where, set or {}, fix)
    reports: list[BatchReport] = []
    try:
        for rows in frames:
            # A number that no commit has used is used again: one that is left out would be another replay's.
            reports.append(_land(own_options, rows, number))
            number += reports[-1].outcome == "committed"
    except Exception:
        done = sum(report.rows for report in reports)
        if done:
            _LOG.warning("%s: %d rows of other schemas were replayed before this error", location, done)
        raise
    return [report for report in reports if report.outcome == "committed"]


def _check_session(spark: SparkSession) -> None:
    """Raise ValueError where rows would be read wrongly, or be a query's batches to the table (R16)."""
    if spark.conf.get("spark.sql.legacy.timeParserPolicy") == "LEGACY":
        raise ValueError(
            "with spark.sql.legacy.timeParserPolicy=LEGACY Spark reads other dates and times than those that"
            ' were quarantined; set it to "CORRECTED" for the replay'
        )
    if identify(spark, "replay", mint_run_id()).query_id != OUTSIDE:
        raise ValueError(
            "a replay is no batch of a streaming query; call it outside of the function of foreachBatch, also"
            " while the query runs"
        )


def _frames(
    spark: SparkSession,
    main: Table,
    second: Table,
    where: str | None,
    values: Mapping[str, str],
    fix: Fix | None,
) -> list[DataFrame]:
    """Return the rows to write, a DataFrame for each schema."""
    waiting = waiting_rows(spark, second, str(main.head.metadata.table_uuid))
    table = main.head.schema.as_struct()
    schemas = sorted(row[0] for row in waiting.select("schema").distinct().collect())
    parsed = [rebuilt(waiting, schema, table) for schema in schemas]
    kinds = {field.name: field.dataType for rows in parsed for field in row_fields(rows)}
    if parsed:
        check_columns(values, {*kinds, *(field.name for field in table.fields)})
    frames = []
    for rows in parsed:
        frame = assigned(chosen(rows, where, kinds), values, kinds, table)
        frames.append(frame if fix is None else fixed(frame, fix, values))
    return frames


def _land(options: SinkOptions, rows: DataFrame, number: int) -> BatchReport:
    """Land one batch as a sink of its own: a sink refuses a second DataFrame under one number (R16)."""
    sink, cause = IcebergSink.of(options), None
    try:
        sink(rows, number)
        report = sink.reports[-1]
        if report.outcome != "skipped":
            return report
    except (CheckpointRegressionError, FencedError) as later:
        cause = later
    except SchemaMismatchError as refusal:
        raise refusal from None  # which says it all; where a task found it, Spark's report of that is long
    finally:
        sink.finish()
    raise CommitConflictError(
        "another replay of this quarantine committed while this one ran; call it again: it takes the rows"
        f" that still wait, and no row twice: {options.location}",
        location=options.location,
    ) from cause


_MARK = "replayed_row_id"
_TYPES: dict[str, spark.DataType] = {"batch": spark.LongType(), "quarantined_at": spark.TimestampType()}
_BROADCAST_ROWS = 1_000_000
"""Spark does not know how many rows a file has, and would send the marks of any number to every task."""


def waiting_rows(session: SparkSession, quarantine: Table, table_uuid: str) -> DataFrame:
    """Return the rows of the quarantine's known head that are for one table and were not replayed, in the
    quarantine's columns.

    ValueError where another writer has deleted rows of the quarantine: which ones is not read.
    """
    check_has_no_deletes(quarantine.head)
    rows = _read(session, quarantine)
    marks = (
        _read(session, quarantine, _MARK)
        .where(sf.col(_MARK).isNotNull())
        .select(sf.col(_MARK).alias("_mark"))
    )
    if sum(file.rows for file in quarantine.head.live_files()) > _BROADCAST_ROWS:
        marks = marks.hint("merge")
    own = rows.where((sf.col("table_uuid") == table_uuid) & sf.col(_MARK).isNull())
    return own.join(marks, own["row_id"] == marks["_mark"], "left_anti").drop(_MARK)


def _read(session: SparkSession, table: Table, *columns: str) -> DataFrame:
    schema = arrow_schema(table.head.schema)
    if columns:
        schema = pa.schema([schema.field(name) for name in columns])
    paths = [file.location for file in table.head.live_files()]
    numbers = session.range(0, len(paths), 1, max(1, min(len(paths), 4 * parallelism(session))))
    fields = [
        spark.StructField(field.name, _TYPES.get(field.name, spark.StringType()), field.nullable)
        for field in schema
    ]
    return map_in_arrow(numbers, ReadTask(table.store, paths, schema), spark.StructType(fields))
