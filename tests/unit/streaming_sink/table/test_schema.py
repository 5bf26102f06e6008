"""Spark's schemas as Iceberg's, and what a batch may bring to a table."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg import types as iceberg
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import Schema
from pyspark.sql import types as spark

from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.fitting import fit_batch
from streaming_sink.table.schema import check_column_names, iceberg_schema
from timeline.errors import SchemaMismatchError


def _struct(**columns):
    return spark.StructType([spark.StructField(name, kind) for name, kind in columns.items()])


EVERY = _struct(
    flag=spark.BooleanType(),
    byte=spark.ByteType(),
    short=spark.ShortType(),
    int=spark.IntegerType(),
    long=spark.LongType(),
    float=spark.FloatType(),
    double=spark.DoubleType(),
    date=spark.DateType(),
    zoned=spark.TimestampType(),
    plain=spark.TimestampNTZType(),
    text=spark.StringType(),
    char=spark.CharType(3),
    varchar=spark.VarcharType(3),
    bytes=spark.BinaryType(),
    money=spark.DecimalType(12, 3),
    time=spark.TimeType(),
    list=spark.ArrayType(spark.ArrayType(spark.ShortType())),
    map=spark.MapType(spark.StringType(), _struct(x=spark.LongType())),
    struct=_struct(y=spark.ArrayType(_struct(z=spark.DateType()))),
)


def test_every_spark_type_that_iceberg_has_becomes_its_iceberg_type():
    made = iceberg_schema(EVERY)
    assert [f"{field.name}: {field.field_type}" for field in made.fields] == [
        "flag: boolean",
        "byte: int",
        "short: int",
        "int: int",
        "long: long",
        "float: float",
        "double: double",
        "date: date",
        "zoned: timestamptz",
        "plain: timestamp",
        "text: string",
        "char: string",
        "varchar: string",
        "bytes: binary",
        "money: decimal(12, 3)",
        "time: time",
        "list: list<list<int>>",
        "map: map<string, struct<24: x: optional long>>",
        "struct: struct<25: y: optional list<struct<27: z: optional date>>>",
    ]
    fit_batch(made, EVERY)


def test_ids_are_fresh_unique_and_top_level_columns_come_first():
    made = iceberg_schema(EVERY)
    assert [field.field_id for field in made.fields] == list(range(1, 20))
    ids = [field.metadata[b"PARQUET:field_id"] for field in _all_fields(arrow_schema(made))]
    assert len(set(ids)) == len(ids) == made.highest_field_id


def _all_fields(parent):
    fields = (
        list(parent) if isinstance(parent, pa.Schema) else [parent.field(n) for n in range(parent.num_fields)]
    )
    if isinstance(parent, pa.MapType):
        fields = [parent.key_field, parent.item_field]
    for field in fields:
        yield field
        if pa.types.is_nested(field.type):
            yield from _all_fields(field.type)


def test_the_arrow_schema_is_read_back_by_pyiceberg_as_the_same_schema():
    made = iceberg_schema(EVERY)
    assert pyarrow_to_schema(arrow_schema(made)).as_struct() == made.as_struct()


def test_a_column_that_spark_knows_never_to_be_null_is_optional_all_the_same():
    batch = spark.StructType([spark.StructField("a", spark.LongType(), nullable=False)])
    assert not iceberg_schema(batch).fields[0].required


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (spark.NullType(), "void.*drop it, or cast"),
        (spark.VariantType(), "variant.*to_json"),
        (spark.DayTimeIntervalType(), "interval.*cast it to a number"),
        (spark.YearMonthIntervalType(), "interval.*cast it to a number"),
        (spark.CalendarIntervalType(), "interval.*cast it to a number"),
    ],
)
def test_a_type_that_iceberg_lacks_is_refused_by_column_and_type_with_advice(kind, advice):
    batch = _struct(a=spark.ArrayType(_struct(odd=kind)))
    with pytest.raises(SchemaMismatchError, match=advice + r".*: a\.element\.odd"):
        iceberg_schema(batch)


@pytest.mark.parametrize("prefix", ["", "s"])
def test_duplicate_columns_are_refused(prefix):
    batch = spark.StructType([spark.StructField("a", spark.LongType())] * 2)
    if prefix:
        batch = _struct(s=batch)
    with pytest.raises(SchemaMismatchError, match=r"more than once.*'a', 'a'"):
        iceberg_schema(batch)


def test_columns_that_differ_only_in_case_are_refused():
    with pytest.raises(SchemaMismatchError, match=r"differ only in case.*'id', 'ID'"):
        iceberg_schema(_struct(id=spark.LongType(), x=spark.LongType(), ID=spark.LongType()))


def test_a_batch_without_columns_is_refused():
    with pytest.raises(SchemaMismatchError, match=r"no columns"):
        iceberg_schema(_struct())


def _table(**columns):
    return Schema(
        *(
            iceberg.NestedField(n, name, kind, required=False)
            for n, (name, kind) in enumerate(columns.items(), 1)
        )
    )


INT, LONG = iceberg.IntegerType(), iceberg.LongType()


def test_a_nullable_column_may_be_missing_and_columns_may_come_in_any_order():
    fit_batch(_table(a=INT, b=LONG, c=INT), _struct(b=spark.LongType(), a=spark.IntegerType()))


def test_a_required_column_may_not_be_missing():
    table = Schema(
        iceberg.NestedField(1, "a", INT, required=True), iceberg.NestedField(2, "b", INT, required=False)
    )
    with pytest.raises(SchemaMismatchError, match=r"requires a column that the batch lacks: a"):
        fit_batch(table, _struct(b=spark.IntegerType()))


def test_a_new_column_is_refused_with_what_to_do():
    with pytest.raises(
        SchemaMismatchError,
        match=r"the table lacks; drop it.* or let the table grow.*: user_idd \(did you mean user_id\?\)",
    ):
        fit_batch(_table(user_id=INT), _struct(user_id=spark.IntegerType(), user_idd=spark.IntegerType()))


def test_a_column_in_another_case_is_refused_as_such():
    with pytest.raises(SchemaMismatchError, match=r"another case; rename it: ID \(table: id\)"):
        fit_batch(_table(id=INT), _struct(ID=spark.IntegerType()))


@pytest.mark.parametrize(
    ("table", "batch", "fits"),
    [
        (INT, spark.ByteType(), True),
        (INT, spark.LongType(), False),
        (LONG, spark.IntegerType(), True),
        (iceberg.DoubleType(), spark.FloatType(), True),
        (iceberg.FloatType(), spark.DoubleType(), False),
        (iceberg.FloatType(), spark.IntegerType(), False),
        (iceberg.DecimalType(10, 2), spark.DecimalType(8, 2), True),
        (iceberg.DecimalType(10, 2), spark.DecimalType(12, 2), False),
        (iceberg.DecimalType(10, 2), spark.DecimalType(9, 1), True),
        (iceberg.DecimalType(10, 2), spark.DecimalType(10, 1), False),
        (iceberg.DecimalType(10, 2), spark.DecimalType(4, 3), False),
        (iceberg.DecimalType(10, 2), spark.ShortType(), True),
        (iceberg.DecimalType(11, 2), spark.IntegerType(), False),
        (iceberg.DecimalType(12, 2), spark.IntegerType(), True),
        (iceberg.DecimalType(20, 2), spark.LongType(), False),
        (iceberg.DecimalType(21, 2), spark.LongType(), True),
        (iceberg.DecimalType(38, 2), spark.DoubleType(), False),
        (iceberg.DecimalType(38, 2), spark.StringType(), False),
        (iceberg.DateType(), spark.TimestampType(), False),
        (iceberg.TimestampType(), spark.DateType(), False),
        (iceberg.TimestampType(), spark.TimestampType(), False),
        (iceberg.TimestamptzType(), spark.TimestampType(), True),
        (iceberg.UUIDType(), spark.StringType(), True),
        (iceberg.UUIDType(), spark.BinaryType(), False),
        (iceberg.FixedType(4), spark.BinaryType(), True),
        (iceberg.StringType(), spark.VarcharType(4), True),
        (iceberg.StringType(), spark.IntegerType(), False),
        (iceberg.StringType(), _struct(x=spark.StringType()), False),
        (iceberg.ListType(9, LONG, False), spark.ArrayType(spark.IntegerType()), True),
        (iceberg.ListType(9, INT, False), spark.ArrayType(spark.LongType()), False),
        (
            iceberg.MapType(8, iceberg.StringType(), 9, INT, False),
            spark.MapType(spark.StringType(), spark.LongType()),
            False,
        ),
    ],
)
def test_types_may_widen_into_the_tables_and_never_narrow(table, batch, fits):
    if fits:
        fit_batch(_table(c=table), _struct(c=batch))
        return
    with pytest.raises(SchemaMismatchError, match=r"does not take the batch's type as it is.*: c.* is "):
        fit_batch(_table(c=table), _struct(c=batch))


def test_a_type_of_a_later_format_version_is_not_written():
    with pytest.raises(SchemaMismatchError, match=r"cannot write columns of type timestamp_ns"):
        arrow_schema(_table(c=iceberg.TimestampNanoType()))


@pytest.mark.parametrize("name", ["http.status", "a`b"])
def test_a_name_that_pyspark_cannot_hand_to_python_is_refused_with_the_way_out(name):
    with pytest.raises(SchemaMismatchError, match="withColumnRenamed"):
        check_column_names(spark.StructType([spark.StructField(name, spark.LongType())]))


def test_a_column_named_as_the_sinks_own_is_refused():
    with pytest.raises(SchemaMismatchError, match="rename the column: __streaming_sink_fingerprint"):
        check_column_names(_struct(__streaming_sink_fingerprint=spark.LongType()))
    with pytest.raises(SchemaMismatchError, match="rename the column: __Streaming_Sink_failed"):
        check_column_names(_struct(__Streaming_Sink_failed=spark.LongType()))
