"""Partition fields as people write them."""

from __future__ import annotations

import re

import pytest
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema

from streaming_sink.table.spec import partition_spec, partition_terms
from timeline.errors import SchemaMismatchError

SCHEMA = Schema(
    iceberg.NestedField(1, "event_time", iceberg.TimestamptzType(), required=False),
    iceberg.NestedField(2, "id", iceberg.LongType(), required=False),
    iceberg.NestedField(3, "name", iceberg.StringType(), required=False),
    iceberg.NestedField(
        4,
        "place",
        iceberg.StructType(iceberg.NestedField(5, "city", iceberg.StringType(), required=False)),
        required=False,
    ),
    iceberg.NestedField(6, "tags", iceberg.ListType(7, iceberg.StringType(), False), required=False),
    iceberg.NestedField(8, "price", iceberg.DoubleType(), required=False),
    iceberg.NestedField(9, "id_bucket", iceberg.LongType(), required=False),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name", "name identity 3"),
        ("identity(name)", "name identity 3"),
        ("day(event_time)", "event_time_day day 1"),
        (" Days( event_time ) ", "event_time_day day 1"),
        ("date(event_time)", "event_time_day day 1"),
        ("hours(event_time)", "event_time_hour hour 1"),
        ("months(event_time)", "event_time_month month 1"),
        ("year(event_time)", "event_time_year year 1"),
        ("bucket(16, name)", "name_bucket bucket[16] 3"),
        ("bucket(name, 16)", "name_bucket bucket[16] 3"),
        ("truncate(4, name)", "name_trunc truncate[4] 3"),
        ("place.city", "place.city identity 5"),
        ("bucket(4, place.city)", "place.city_bucket bucket[4] 5"),
    ],
)
def test_a_field_is_named_and_made_as_iceberg_does(text, expected):
    [field] = partition_spec([text], SCHEMA).fields
    assert f"{field.name} {field.transform} {field.source_id}" == expected
    assert field.field_id == 1000


def test_fields_keep_their_order_and_count_from_1000():
    fields = partition_spec(["day(event_time)", "name"], SCHEMA).fields
    assert [(field.field_id, field.name) for field in fields] == [(1000, "event_time_day"), (1001, "name")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dya(event_time)", r"unknown partition transform; did you mean day\?"),
        ("bucket(name)", r"takes a positive number"),
        ("bucket(0, name)", "takes a positive number"),
        ("day(event_time, id)", "takes one column"),
        ("day(event_time))", "a column or a transform of one"),
        ("bucket(4, (id)", "a column or a transform of one"),
    ],
)
def test_text_that_spells_no_transform_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        partition_spec([text], SCHEMA)


@pytest.mark.parametrize("text", ["foo(t)", "day(t", "day(t))", "t)", "", " "])
def test_the_transforms_that_there_are_are_named(text):
    known = r"\(known: identity, year, month, day, hour, bucket, truncate\)"
    with pytest.raises(ValueError, match=f"{known}.*{re.escape(text)}"):
        partition_terms([text])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("day(event_tme)", r"lacks; did you mean event_time\?"),
        ("Name", r"did you mean name\?"),
        ("day(id)", "day does not take a column of type long"),
        ("bucket(4, price)", "bucket does not take a column of type double"),
        ("tags.element", "inside a list or a map"),
        ("place", "identity does not take a column of type struct"),
    ],
)
def test_a_column_that_does_not_fit_is_refused(text, message):
    with pytest.raises(SchemaMismatchError, match=message):
        partition_spec([text], SCHEMA)


def test_a_column_with_a_parenthesis_is_spelled_as_an_identity():
    schema = Schema(iceberg.NestedField(1, "day(t", iceberg.LongType(), required=False))
    assert [field.name for field in partition_spec(["identity(day(t)"], schema).fields] == ["day(t"]


def test_two_fields_of_one_name_are_refused():
    with pytest.raises(ValueError, match="come to the same name, name_bucket"):
        partition_spec(["bucket(4, name)", "bucket(8, name)"], SCHEMA)


@pytest.mark.parametrize("columns", [["2024", "_2024"], ["x-y", "x_x2Dy"]], ids=str)
def test_two_fields_that_manifests_spell_alike_are_refused(columns):
    """One reader took one for the other, and lost rows in silence; others could not read the table."""
    schema = Schema(*(iceberg.NestedField(i + 1, name, iceberg.LongType()) for i, name in enumerate(columns)))
    with pytest.raises(ValueError, match=f"the same name in manifests, {columns[1]}; rename a column"):
        partition_spec(columns, schema)
    assert len(partition_spec(columns[:1], schema).fields) == 1


def test_a_field_named_as_another_column_is_refused():
    with pytest.raises(ValueError, match="named as a column of the table, rename that: id_bucket"):
        partition_spec(["bucket(4, id)"], SCHEMA)


def test_a_field_of_a_name_beyond_ascii_gets_a_name_that_avro_takes():
    schema = Schema(iceberg.NestedField(1, "Ünï", iceberg.StringType(), required=False))
    assert [field.name for field in partition_spec(["Ünï", "truncate(2, Ünï)"], schema).fields] == [
        "_xDCn_xEF",
        "_xDCn_xEF_trunc",
    ]


@pytest.mark.parametrize("text", ["bucket(2147483648, id)", "truncate(99999999999, name)"])
def test_a_width_that_readers_cannot_parse_is_refused(text):
    with pytest.raises(ValueError, match="below 2"):
        partition_spec([text], SCHEMA)
