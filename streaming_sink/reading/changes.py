"""`changes`: the change feed of a table, as a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from planners.values import whole_number
from streaming_sink.options.values.tables import AnyTable, as_table
from streaming_sink.reading.pieces import changed_pieces
from streaming_sink.spark.jobs import map_in_arrow, parallelism
from streaming_sink.table.arrow_types import arrow_schema, needs_field_ids
from streaming_sink.table.conversions import spark_type
from streaming_sink.table.sql_names import quoted
from streaming_sink.tasks.batches import RESERVED_PREFIX
from streaming_sink.tasks.files.change_task import ChangedRows, ChangeTask
from streaming_sink.tasks.files.delete_files import read_deletes_in
from timeline.table import Table
from timeline.versions.keys import key_of

CHANGE_TYPE = "_change_type"
_OF_THE_COMMIT = (
    spark.StructField(CHANGE_TYPE, spark.StringType()),
    spark.StructField("_commit_version", spark.LongType()),
    spark.StructField("_commit_snapshot_id", spark.LongType()),
    spark.StructField("_commit_timestamp", spark.TimestampType()),
)


def changes(
    session: SparkSession,
    table: AnyTable,
    from_version: int,
    to_version: int | None = None,
) -> DataFrame:
    """Return the rows that a table got and lost in the versions from `from_version` to
    `to_version`, both included; to the newest one by default.

    Versions of other engines are among them: of a catalog's table the number is a sequence number. Of a
    snapshot that rewrites files (copy-on-write) the rows that are equal before and after are left out, each
    as often as it is on both sides.

    The columns are the table's present ones, and `_change_type`, `_commit_version`, `_commit_snapshot_id` and
    `_commit_timestamp`. The type is INSERT or DELETE; of a table with a key UPDATE_BEFORE and UPDATE_AFTER
    where one version has deleted and added a row of the same key. Fills, foldings and clusterings change no
    row. Nothing is read before the DataFrame is used; it is of the table as it is now, and it can be read as
    long as its snapshots are kept, and for the grace period after that.

    TypeError or ValueError for what is no version, and where the first versions have expired, or another
    engine deleted rows by their values; TableNotFoundError, StoreUnavailableError as for every reader.
    """
    opened = as_table(table).open()
    head = opened.head
    last = head.number if to_version is None else whole_number("to_version", to_version)
    whole_number("from_version", from_version)
    if not 1 <= from_version <= last <= head.number:
        raise ValueError(
            f"from_version and to_version must be versions of the table, 1 to {head.number}, the first no"
            f" later than the last: from_version={from_version}, to_version={to_version}"
        )
    named_in = partial(read_deletes_in, opened.store)
    return changes_of(session, opened, changed_pieces(head, from_version, last, named_in))


def changes_of(session: SparkSession, table: Table, changed: Sequence[ChangedRows]) -> DataFrame:
    """Return the rows of what versions of a table have changed. As `changes`; no row is read twice."""
    head = table.head
    rewriting = {it.snapshot_id for it in changed if it.whole and not it.added}
    rewriting &= {it.snapshot_id for it in changed if it.added}
    rows = _rows_of(session, table, [it for it in changed if it.snapshot_id not in rewriting])
    if rewriting:
        both = _rows_of(session, table, [it for it in changed if it.snapshot_id in rewriting])
        rows = rows.unionByName(_without_equals(both))
    key = key_of(head.properties)
    if key is None:
        return rows
    names = [head.schema.find_column_name(each) or "" for each in key.column_ids]
    return _with_updates(rows, names)


def _rows_of(session: SparkSession, table: Table, changed: Sequence[ChangedRows]) -> DataFrame:
    head = table.head
    fields = [spark.StructField(field.name, spark_type(field.field_type)) for field in head.schema.fields]
    numbers = session.range(0, len(changed), 1, max(1, min(len(changed), 4 * parallelism(session))))
    task = ChangeTask(table.store, changed, arrow_schema(head.schema), needs_ids=needs_field_ids(head))
    return map_in_arrow(numbers, task, spark.StructType([*fields, *_OF_THE_COMMIT]))


def _without_equals(rows: DataFrame) -> DataFrame:
    """Return the changes of snapshots without rows that one has both deleted and added: of equal rows, as
    many of each kind as there are of the other.
    """
    own = [each for each in rows.schema.fields if each.name not in {it.name for it in _OF_THE_COMMIT}]
    equal = [sf.col("_commit_snapshot_id"), *(_comparable(each) for each in own)]
    kind, number = sf.col(CHANGE_TYPE), RESERVED_PREFIX + "number"
    of_equals = Window.partitionBy(*equal)
    pairs = sf.least(*(sf.count(sf.when(kind == each, 1)).over(of_equals) for each in ("INSERT", "DELETE")))
    numbered = sf.row_number().over(Window.partitionBy(*equal, kind).orderBy(sf.lit(0)))
    return rows.withColumn(number, numbered - pairs).where(sf.col(number) > 0).drop(number)


def _comparable(field: spark.StructField) -> Column:
    """Return a column's value in a form that Spark compares: it compares no maps."""
    column = sf.col(quoted(field.name))
    return sf.to_json(sf.struct(column)) if "map<" in field.dataType.simpleString() else column


def _with_updates(rows: DataFrame, key: list[str]) -> DataFrame:
    """Return the changes with those of a key that one version has both deleted and added as updates."""
    columns = [sf.col(quoted(name)) for name in key]
    of_key = Window.partitionBy("_commit_version", *columns)
    kinds = sf.size(sf.collect_set(CHANGE_TYPE).over(of_key))
    whole = sf.lit(True)
    for column in columns:
        whole = whole & column.isNotNull()  # a row without a key changes no other
    kind = sf.col(CHANGE_TYPE)
    update = sf.when(kind == "DELETE", "UPDATE_BEFORE").otherwise("UPDATE_AFTER")
    return rows.withColumn(CHANGE_TYPE, sf.when((kinds == 2) & whole, update).otherwise(kind))
