"""The schema contract: what each choice does about each difference, and what its refusals say."""

from __future__ import annotations

import pytest
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql import types as spark

from streaming_sink import IcebergSink, SchemaContract
from streaming_sink.table.fitting import fit_batch, without_ignored
from streaming_sink.table.schema import iceberg_schema
from timeline.errors import SchemaMismatchError
from timeline.versions.evolution import describe_evolution, merge_schemas

STRICT, EVOLVING = SchemaContract.strict(), SchemaContract.evolving()


INT, LONG, TEXT = spark.IntegerType(), spark.LongType(), spark.StringType()


def of(*fields: tuple[str, spark.DataType]) -> spark.StructType:
    return spark.StructType([spark.StructField(name, kind) for name, kind in fields])


TABLE = iceberg_schema(
    of(
        ("id", INT),
        ("place", of(("lat", spark.FloatType()))),
        ("tags", spark.ArrayType(of(("k", INT)))),
        ("prices", spark.MapType(TEXT, spark.DecimalType(9, 2))),
    )
)


def evolved(batch: spark.StructType, contract: SchemaContract, table: Schema = TABLE) -> str:
    """Return how the table evolves for the batch; "" where it stays as it is."""
    wanted = fit_batch(table, batch, contract).wanted
    if wanted is None:
        return ""
    merged = merge_schemas(table, wanted, table.highest_field_id)
    assert fit_batch(merged, batch, contract).wanted is None, "after one merge the batch fits"
    return describe_evolution(table, merged)


def test_an_evolving_table_grows_at_every_depth() -> None:
    batch = of(
        ("id", LONG),
        ("place", of(("lon", spark.DoubleType()), ("lat", spark.DoubleType()))),
        ("tags", spark.ArrayType(of(("k", LONG), ("v", TEXT)))),
        ("prices", spark.MapType(TEXT, spark.DecimalType(12, 2))),
        ("extra", of(("a", INT))),
    )
    said = evolved(batch, EVOLVING)
    for part in (
        "id widened from int to long",
        "place.lat widened from float to double",
        "place.lon added as double",
        "tags.element.k widened from int to long",
        "tags.element.v added as string",
        "prices.value widened from decimal(9, 2) to decimal(12, 2)",
        "extra added as struct<",
    ):
        assert part in said
    assert "extra.a" not in said, "a new struct is named once"


def test_a_narrower_or_missing_column_changes_nothing() -> None:
    wide = iceberg_schema(of(("id", LONG), ("note", TEXT)))
    assert evolved(of(("id", INT)), EVOLVING, wide) == ""
    assert evolved(of(("id", INT)), STRICT, wide) == ""


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (of(("id", INT), ("note", TEXT)), r"a column that the table lacks; drop it .*evolving\(\)\): note"),
        (of(("place", of(("lon", INT)))), r"the table lacks; .*: place.lon"),
        (of(("tags", spark.ArrayType(of(("v", INT))))), r"the table lacks; .*: tags.element.v"),
        (of(("id", LONG)), r"widen the table's.*: id is bigint in the batch and int in the table"),
        (of(("id", TEXT)), r"cast the column: id is string in the batch and int in the table"),
    ],
)
def test_a_strict_contract_refuses_and_says_what_to_do(batch: spark.StructType, message: str) -> None:
    with pytest.raises(SchemaMismatchError, match=message):
        fit_batch(TABLE, batch, STRICT)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (of(("id", TEXT)), r"cast the column: id is string"),
        (of(("ID", INT)), r"in another case; rename it: ID \(table: id\)"),
        (of(("id", INT), ("new", spark.DayTimeIntervalType())), r"Iceberg has no type .*: new"),
        (
            of(("prices", spark.MapType(LONG, spark.DecimalType(9, 2)))),
            r"cast the column: prices.key is bigint",
        ),
        (of(("place", TEXT)), r"cast the column: place is string"),
        (of(("id", INT), ("empty", of())), r"no struct without fields; drop the column.*: empty"),
        (of(("tags", spark.ArrayType(of(("e", of()))))), r"no struct without fields.*: tags\.element\.e"),
    ],
)
def test_an_evolving_contract_still_refuses_what_no_reader_could_tell(
    batch: spark.StructType, message: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=message):
        fit_batch(TABLE, batch, EVOLVING)


def test_the_key_of_a_map_never_widens() -> None:
    table = iceberg_schema(of(("m", spark.MapType(INT, TEXT))))
    with pytest.raises(SchemaMismatchError, match=r"cast the key of a map: m.key is bigint"):
        fit_batch(table, of(("m", spark.MapType(LONG, TEXT))), EVOLVING)


def test_a_field_of_the_key_of_a_map_is_never_left_out() -> None:
    """Without the field, two keys of one map could be equal."""
    table = iceberg_schema(of(("m", spark.MapType(of(("a", INT)), TEXT))))
    batch = of(("m", spark.MapType(of(("a", INT), ("b", INT)), TEXT)))
    for contract in (STRICT, EVOLVING, SchemaContract(new_fields="ignore")):
        with pytest.raises(SchemaMismatchError, match=r"cast the key of a map: m.key is struct<a:int,b:int>"):
            fit_batch(table, batch, contract)


def test_ignored_columns_are_left_out_and_the_rest_evolves() -> None:
    contract = SchemaContract(
        new_columns="ignore",
        columns={"note": SchemaContract(new_columns="add"), "place": SchemaContract(new_fields="add")},
    )
    batch = of(("id", INT), ("debug", TEXT), ("note", TEXT), ("place", of(("lon", INT))))
    assert evolved(batch, contract) == "place.lon added as int, note added as string"


def test_a_field_that_its_own_contract_ignores_is_not_in_a_new_column_or_table_either() -> None:
    ignored = SchemaContract(new_columns="ignore", new_fields="ignore")
    contract = SchemaContract(
        new_columns="add",
        columns=dict.fromkeys(("debug", "user.ssn", "users.element.ssn", "by_id.value.ssn"), ignored),
    )
    user = of(("name", TEXT), ("ssn", TEXT))
    batch = of(
        ("id", INT),
        ("debug", TEXT),
        ("user", user),
        ("users", spark.ArrayType(user)),
        ("by_id", spark.MapType(INT, user)),
    )
    made = iceberg_schema(without_ignored(batch, contract))
    assert fit_batch(made, batch, contract).wanted is None
    wanted = fit_batch(iceberg_schema(of(("id", INT))), batch, contract).wanted
    for names in ([field.name for field in made.fields], ["id", *(field.name for field in wanted.fields)]):
        assert names == ["id", "user", "users", "by_id"]
    assert "ssn" not in str(made)
    assert "ssn" not in str(wanted)


def test_a_column_of_nulls_alone_is_not_added_yet() -> None:
    assert evolved(of(("id", INT), ("later", spark.NullType())), EVOLVING) == ""


def test_a_missing_column_can_be_refused() -> None:
    with pytest.raises(SchemaMismatchError, match=r'missing_columns="refuse".*: place'):
        fit_batch(TABLE, of(("id", INT)), SchemaContract(missing_columns="refuse"))


def test_a_required_column_that_the_batch_lacks_becomes_optional_or_is_refused() -> None:
    table = Schema(
        iceberg.NestedField(1, "id", iceberg.IntegerType(), required=True),
        iceberg.NestedField(2, "x", iceberg.IntegerType()),
    )
    assert evolved(of(("x", INT)), EVOLVING, table) == "id became optional"
    with pytest.raises(SchemaMismatchError, match=r"requires a column that the batch lacks: id; add it"):
        fit_batch(table, of(("x", INT)), STRICT)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (
            {"new_columns": "adds"},
            ValueError,
            r"new_columns must be one of add, ignore, rescue, refuse, not 'adds'; did you mean 'add'",
        ),
        ({"widening": True}, ValueError, r"widening must be one of widen, rescue, refuse, not True"),
        ({"columns": ["a"]}, TypeError, r"columns must map names of columns to contracts"),
        ({"columns": {"a": "ignore"}}, TypeError, r"the contract of column 'a' must be a SchemaContract"),
        (
            {"columns": {"a": SchemaContract(columns={"b": EVOLVING})}},
            TypeError,
            r"without columns of its own",
        ),
    ],
)
def test_a_contract_of_impossible_values_is_refused(
    given: dict, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        SchemaContract(**given)


def test_the_sink_takes_a_contract_and_nothing_else() -> None:
    assert IcebergSink("/tmp/t").options.contract == STRICT
    with pytest.raises(TypeError, match=r"contract must be a SchemaContract, such as"):
        IcebergSink("/tmp/t", contract="evolving")
