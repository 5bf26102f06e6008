"""The schema contract's table: for each choice and difference, which values may not fit, and what then."""

from __future__ import annotations

import pytest
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql import types as spark

from streaming_sink import SchemaContract
from streaming_sink.table.fitting import Misfit, fit_batch, new_schema
from streaming_sink.table.longs import with_longs
from streaming_sink.table.rescue import RESCUED
from streaming_sink.table.schema import iceberg_schema
from streaming_sink.tasks.rows.failures import UNPARSED
from timeline.errors import SchemaMismatchError
from timeline.versions.evolution import merge_schemas

INT, LONG, TEXT = spark.IntegerType(), spark.LongType(), spark.StringType()


def of(*fields: tuple[str, spark.DataType]) -> spark.StructType:
    return spark.StructType([spark.StructField(name, kind) for name, kind in fields])


TABLE = iceberg_schema(
    of(("id", INT), ("place", of(("lat", spark.FloatType()))), ("tags", spark.ArrayType(of(("k", INT)))))
)
RESCUING = SchemaContract(new_columns="rescue", new_fields="rescue", widening="rescue", mismatch="rescue")


@pytest.mark.parametrize(
    ("batch", "path", "into"),
    [
        (of(("note", TEXT)), ("note",), None),
        (of(("place", of(("lon", TEXT)))), ("place", "lon"), None),
        (of(("tags", spark.ArrayType(of(("v", TEXT))))), ("tags", "element", "v"), None),
        (of(("id", LONG)), ("id",), iceberg.IntegerType()),
        (of(("id", TEXT)), ("id",), iceberg.IntegerType()),
        (of(("tags", spark.ArrayType(of(("k", TEXT))))), ("tags", "element", "k"), iceberg.IntegerType()),
        (of(("place", TEXT)), ("place",), TABLE.find_field("place").field_type),
        (of(("ID", INT)), ("ID",), None),
    ],
)
def test_what_is_rescued_adds_one_column_and_nothing_else(
    batch: spark.StructType, path: tuple[str, ...], into: iceberg.IcebergType | None
) -> None:
    fit = fit_batch(TABLE, batch, RESCUING)
    assert [(where, each.action, each.into) for where, each in fit.misfits.items()] == [
        (path, "rescue", into)
    ]
    assert fit.wanted is not None
    assert [field.name for field in fit.wanted.fields] == [RESCUED]
    merged = merge_schemas(TABLE, fit.wanted, TABLE.highest_field_id)
    assert fit_batch(merged, batch, RESCUING).wanted is None, "the column is added once"


@pytest.mark.parametrize(
    ("contract", "batch", "action"),
    [
        (SchemaContract(mismatch="drop"), of(("id", TEXT)), "drop"),
        (SchemaContract(mismatch="quarantine"), of(("id", TEXT)), "quarantine"),
        (SchemaContract(mismatch="quarantine"), of(("ID", INT)), "quarantine"),
        (
            SchemaContract(new_columns="add", mismatch="quarantine"),
            of(("span", spark.DayTimeIntervalType())),
            "quarantine",
        ),
        (SchemaContract(columns={"id": SchemaContract(mismatch="drop")}), of(("id", TEXT)), "drop"),
    ],
)
def test_rows_that_fail_change_no_schema(
    contract: SchemaContract, batch: spark.StructType, action: str
) -> None:
    fit = fit_batch(TABLE, batch, contract)
    assert fit.wanted is None
    assert [each.action for each in fit.misfits.values()] == [action]


@pytest.mark.parametrize(
    "batch", [of(("id", INT)), of(("id", spark.ShortType())), of(("id", INT), ("none", spark.NullType()))]
)
def test_a_batch_that_fits_has_no_misfits_and_no_column_of_rescued_values(batch: spark.StructType) -> None:
    fit = fit_batch(TABLE, batch, RESCUING)
    assert (fit.wanted, dict(fit.misfits)) == (None, {})


def test_widening_and_mismatch_are_apart() -> None:
    contract = SchemaContract(mismatch="rescue")
    with pytest.raises(SchemaMismatchError, match=r"widen the table's.*: id is bigint"):
        fit_batch(TABLE, of(("id", LONG)), contract)
    evolving = SchemaContract(new_columns="add", widening="widen", mismatch="rescue")
    assert fit_batch(TABLE, of(("id", LONG)), evolving).misfits == {}


def test_a_required_column_is_never_rescued() -> None:
    table = Schema(iceberg.NestedField(1, "id", iceberg.IntegerType(), required=True))
    with pytest.raises(SchemaMismatchError, match=r"the column would be null: id is string .* and int"):
        fit_batch(table, of(("id", TEXT)), RESCUING)
    dropping = SchemaContract(mismatch="drop")
    misfit = Misfit("drop", TEXT, iceberg.IntegerType())
    assert fit_batch(table, of(("id", TEXT)), dropping).misfits == {("id",): misfit}
    with pytest.raises(SchemaMismatchError, match=r"requires a column that the batch lacks: id"):
        fit_batch(table, of(("note", TEXT)), RESCUING)


def test_the_key_of_a_map_takes_the_whole_map_along() -> None:
    table = iceberg_schema(of(("m", spark.MapType(INT, TEXT))))
    fit = fit_batch(table, of(("m", spark.MapType(LONG, TEXT))), RESCUING)
    assert list(fit.misfits) == [("m",)]


def test_a_column_of_the_name_that_is_not_the_sinks_is_refused() -> None:
    foreign = iceberg_schema(of(("id", INT), ("_rescued", TEXT)))
    with pytest.raises(SchemaMismatchError, match=r"a column _rescued that is not the sink's.*rename"):
        fit_batch(foreign, of(("id", TEXT)), RESCUING)
    assert fit_batch(foreign, of(("id", INT), ("_rescued", TEXT))).misfits == {}, "nothing is rescued"
    with pytest.raises(SchemaMismatchError, match=r"rename the batch's column: _Rescued"):
        fit_batch(TABLE, of(("id", TEXT), ("_Rescued", TEXT)), RESCUING)


def test_a_table_that_rescues_does_not_miss_the_column_and_takes_none_from_a_batch() -> None:
    wanted = fit_batch(TABLE, of(("id", TEXT)), RESCUING).wanted
    assert wanted is not None
    table = merge_schemas(TABLE, wanted, TABLE.highest_field_id)
    strict = SchemaContract(missing_columns="refuse")
    whole = of(
        ("id", INT), ("place", of(("lat", spark.FloatType()))), ("tags", spark.ArrayType(of(("k", INT))))
    )
    assert fit_batch(table, whole, strict).wanted is None
    with pytest.raises(SchemaMismatchError, match=r"the sink writes the column _rescued itself"):
        fit_batch(table, of(("id", INT), ("_rescued", TEXT)))


def test_texts_that_did_not_parse_are_no_column() -> None:
    batch = of(("id", INT), (UNPARSED, of(("value", TEXT))))
    assert [field.name for field in new_schema(batch, RESCUING).fields] == ["id", RESCUED]
    assert [field.name for field in new_schema(batch, SchemaContract(mismatch="drop")).fields] == ["id"]
    fit = fit_batch(TABLE, batch, SchemaContract(mismatch="drop"))
    assert [each.action for each in fit.misfits.values()] == ["drop"]


def _with_longs(batch: spark.StructType, *paths: tuple[str, ...]) -> spark.StructType:
    return spark.StructType(
        [
            spark.StructField(field.name, field.dataType, metadata=dict(with_longs(field.name, paths) or {}))
            for field in batch.fields
        ]
    )


@pytest.mark.parametrize(
    ("batch", "path"),
    [
        (of(("id", TEXT)), ("id",)),
        (of(("tags", spark.ArrayType(of(("k", TEXT))))), ("tags", "element", "k")),
    ],
)
@pytest.mark.parametrize("action", ["rescue", "quarantine", "drop"])
def test_text_that_holds_longs_widens_an_int_once_and_nothing_else(
    batch: spark.StructType, path: tuple[str, ...], action: str
) -> None:
    contract, marked = SchemaContract(widening="widen", mismatch=action), _with_longs(batch, path)
    fit = fit_batch(TABLE, marked, contract)
    assert fit.wanted is not None
    wider = merge_schemas(TABLE, fit.wanted, TABLE.highest_field_id)
    assert wider.find_field(".".join(path)).field_type == iceberg.LongType()
    settled = fit_batch(wider, marked, contract)
    assert settled.wanted is None
    assert settled.misfits[path] == Misfit(action, TEXT, iceberg.LongType())
    for unmarked, keeping in (
        (batch, contract),
        (marked, SchemaContract(widening="rescue", mismatch=action)),
    ):
        assert fit_batch(TABLE, unmarked, keeping).misfits[path].into == iceberg.IntegerType()
        other = fit_batch(TABLE, unmarked, keeping).wanted
        assert other is None or [field.name for field in other.fields] == [RESCUED]
    with pytest.raises(SchemaMismatchError, match="cast the column"):
        fit_batch(TABLE, marked, SchemaContract(widening="widen"))


def test_text_is_rescued_where_it_may_be_invalid_and_the_column_may_be_null() -> None:
    fields = (
        iceberg.NestedField(1, "must", iceberg.StringType(), required=True),
        iceberg.NestedField(2, "may", iceberg.StringType(), required=False),
        iceberg.NestedField(3, "kept", iceberg.StringType(), required=False),
    )
    batch = of(("must", TEXT), ("may", TEXT), ("kept", TEXT))
    contract = SchemaContract(mismatch="rescue", columns={"kept": SchemaContract()})
    fit = fit_batch(Schema(*fields), batch, contract, checks_text=True)
    assert {path: misfit.action for path, misfit in fit.misfits.items()} == {
        ("may",): "rescue",
        ("kept",): "refuse",
    }
    assert fit_batch(Schema(*fields), batch, contract).misfits == {}
    assert new_schema(batch, contract, checks_text=True).column_names == ["must", "may", "kept", RESCUED]


@pytest.mark.parametrize("action", ["quarantine", "drop", "refuse"])
def test_text_is_checked_where_a_column_apart_decides_otherwise(action: str) -> None:
    text = iceberg.StringType()
    table = Schema(iceberg.NestedField(1, "own", text), iceberg.NestedField(2, "other", text, required=True))
    batch = of(("own", TEXT), ("other", TEXT))
    own = {"own": SchemaContract(mismatch="drop")}
    misfits = fit_batch(table, batch, SchemaContract(mismatch=action, columns=own), checks_text=True).misfits
    found = {path[0]: misfit.action for path, misfit in misfits.items()}
    assert found == ({} if action == "drop" else {"own": "drop", "other": action})
    assert "_rescued" not in new_schema(batch, SchemaContract(columns=own), checks_text=True).column_names
