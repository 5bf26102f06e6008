"""The name mapping is extended and never written anew: files without field ids keep their columns."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType

from timeline.changes.schema_changes import extend_name_mapping
from timeline.properties import name_mapping


def schema(*fields: tuple[int, str, Any]) -> Schema:
    return Schema(*(NestedField(number, name, kind, required=False) for number, name, kind in fields))


def names(mapping: str) -> dict[int, list[str]]:
    return {it["field-id"]: it["names"] for it in json.loads(mapping)}


def test_a_renamed_column_keeps_its_old_name_and_gets_the_new_one() -> None:
    before = name_mapping(schema((1, "id", LongType()), (2, "a", StringType())))
    after = schema((1, "id", LongType()), (2, "b", StringType()), (3, "c", StringType()))
    assert names(extend_name_mapping(before, after)) == {1: ["id"], 2: ["a", "b"], 3: ["c"]}


def test_a_name_of_the_past_is_not_given_to_a_new_column() -> None:
    """The files that have it hold the renamed column."""
    before = '[{"field-id": 1, "names": ["a", "b"]}]'
    after = schema((1, "b", StringType()), (2, "a", StringType()), (3, "c", StringType()))
    assert names(extend_name_mapping(before, after)) == {1: ["a", "b"], 3: ["c"]}


def test_a_dropped_column_keeps_its_entry_and_nested_fields_are_extended() -> None:
    inner = StructType(NestedField(3, "x", LongType(), required=False))
    before = name_mapping(schema((1, "gone", LongType()), (2, "s", inner)))
    grown = StructType(*inner.fields, NestedField(4, "y", LongType(), required=False))
    merged = json.loads(extend_name_mapping(before, schema((2, "s", grown))))
    assert [it["field-id"] for it in merged] == [1, 2]
    assert [(it["field-id"], it["names"]) for it in merged[1]["fields"]] == [(3, ["x"]), (4, ["y"])]


def test_what_cannot_be_read_stays_as_it_is() -> None:
    for damaged in ("", "[", '{"a": 1}'):
        assert extend_name_mapping(damaged, schema((1, "id", LongType()))) == damaged


def test_entries_of_other_engines_without_an_id_stay() -> None:
    merged = json.loads(extend_name_mapping('[{"names": ["x"]}]', schema((1, "id", LongType()))))
    assert merged == [{"names": ["x"]}, {"field-id": 1, "names": ["id"]}]


@st.composite
def growing(draw: st.DrawFn) -> list[Schema]:
    """Return schemas of which each has more fields than the one before, nested ones too."""
    free = iter(range(1, 1000))

    def fields(depth: int, least: int) -> list[NestedField]:
        count = draw(st.integers(least, 3))
        return [NestedField(next(free), f"f{place}", kind(depth), required=False) for place in range(count)]

    def kind(depth: int) -> Any:
        shape = draw(st.sampled_from(["long", "struct", "list"] if depth < 2 else ["long"]))
        if shape == "long":
            return LongType()
        element = StructType(*fields(depth + 1, 1))
        return element if shape == "struct" else ListType(next(free), element, element_required=False)

    all_fields, schemas = fields(0, 1), list[Schema]()
    for _ in range(draw(st.integers(1, 3))):
        schemas.append(Schema(*all_fields))
        start = len(all_fields)
        more = [NestedField(next(free), f"f{start + place}", kind(0), required=False) for place in range(2)]
        all_fields = [*all_fields, *more]
    return schemas


@given(growing())
def test_where_schemas_only_grow_it_is_the_mapping_of_the_last_one(schemas: list[Schema]) -> None:
    """So tables of version files get the bytes that they always had."""
    mapping = name_mapping(schemas[0])
    for each in schemas:
        mapping = extend_name_mapping(mapping, each)
    assert mapping == name_mapping(schemas[-1])
