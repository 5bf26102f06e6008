"""A clustering plan survives its Avro file, whoever wrote it; what is no plan is told so."""

from __future__ import annotations

import copy
import io
import random
from typing import Any

import fastavro
import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form
from hypothesis import given, settings
from hypothesis import strategies as st

from planners.clustering.plan import ClusteringPlan
from timeline.plans.clustering import CLUSTERING
from timeline.plans.plan_file import UnreadablePlanError

SCHEMA, encode, decode = CLUSTERING.schema.avro, CLUSTERING.schema.encode, CLUSTERING.schema.decode
PLAN_ID = "01JXVG7T00ABCDEFGHJKMNPQRS"

_text = st.text(max_size=8)
_texts = st.lists(_text, max_size=3)
_count = st.integers(0, 2**60)
_strategy = st.fixed_dictionaries({"name": _text, "parameters": st.dictionaries(_text, _text, max_size=2)})
_group = st.fixed_dictionaries(
    {
        "inputs": _texts,
        "partition": _texts,
        "bytes": _count,
        "rows": _count,
        "output_files": _count,
        "sort_by": _texts,
        "strategy": _strategy,
        "remainder": st.booleans(),
        "level": _count,
        "files_saved": _count,
        "reasons": _texts,
    }
)
_left_out = st.fixed_dictionaries({"path": _text, "partition": _texts, "bytes": _count, "reason": _text})
plans = st.fixed_dictionaries(
    {
        "planned_at": _count,
        "target_file_bytes": _count,
        "selected_by": st.lists(_strategy, max_size=2),
        "groups": st.lists(_group, max_size=3),
        "left_out": st.lists(_left_out, max_size=3),
    }
)


def a_plan() -> dict[str, Any]:
    strategy = {"name": "sort", "parameters": {"direction": "asc"}}
    group = {
        "inputs": ["s3://lake/data/a.parquet", "s3://lake/data/b.parquet"],
        "partition": ["0"],
        "bytes": 200,
        "rows": 20,
        "output_files": 1,
        "sort_by": ["id asc"],
        "strategy": strategy,
        "remainder": True,
        "level": 1,
        "files_saved": 1,
        "reasons": ["two small files"],
    }
    left_out = {"path": "s3://lake/data/c.parquet", "partition": ["1"], "bytes": 9, "reason": "alone"}
    return {
        "planned_at": 7,
        "target_file_bytes": 1 << 30,
        "selected_by": [{"name": "by_size", "parameters": {}}],
        "groups": [group],
        "left_out": [left_out],
    }


@given(plans)
@settings(max_examples=60, deadline=None)
def test_a_plan_is_what_it_was_before_it_was_saved(plan: dict[str, Any]) -> None:
    saved = ClusteringPlan.from_dict(plan)
    assert decode(PLAN_ID, encode(PLAN_ID, 3, saved.to_dict())) == plan
    assert ClusteringPlan.from_dict(decode(PLAN_ID, encode(PLAN_ID, 3, saved.to_dict()))) == saved


def records(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return [found for each in schema for found in records(each)]
    if not isinstance(schema, dict):
        return []
    inner = [found for value in schema.values() for found in records(value)]
    return ([schema] if schema.get("type") == "record" else []) + inner


def test_every_record_and_field_of_the_schema_is_documented_and_carries_what_it_does_not_know() -> None:
    found = records(SCHEMA)
    assert [record["name"] for record in found] == ["ClusteringPlan", "Plan", "Strategy", "Group", "LeftOut"]
    for record in found:
        assert record["doc"].endswith(".")
        assert all(field["doc"].endswith(".") for field in record["fields"])
        assert record["fields"][-1]["name"] == "extra"


def test_the_names_and_types_of_the_schema_are_those_of_the_files_that_exist() -> None:
    digest = fingerprint(to_parsing_canonical_form(SCHEMA), "SHA-256")
    assert SCHEMA["namespace"] == "streaming_sink.timeline"
    assert digest == "8f9d8f8e2c57f2f96f9364a3a7efd202d6226d7823e3c1670e0bfff45fd2a5ef"


def test_the_schema_knows_every_field_that_the_planner_saves() -> None:
    by_name = {record["name"]: {field["name"] for field in record["fields"]} for record in records(SCHEMA)}
    saved = ClusteringPlan.from_dict(a_plan()).to_dict()
    assert saved.keys() | {"extra"} == by_name["Plan"]
    assert saved["groups"][0].keys() | {"extra"} == by_name["Group"]
    assert saved["groups"][0]["strategy"].keys() | {"extra"} == by_name["Strategy"]
    assert saved["left_out"][0].keys() | {"extra"} == by_name["LeftOut"]


def with_new_fields() -> dict[str, Any]:
    plan = a_plan()
    plan["ranges"] = {"cuts": [1, 2], "sampled": True}
    plan["extra"] = "a field of this very name"
    plan["groups"][0]["deadline"] = 12
    plan["groups"][0]["strategy"]["engine"] = None
    plan["selected_by"][0]["filter"] = "p = 0"
    plan["left_out"][0]["until"] = [1.5]
    return plan


def test_fields_that_the_schema_does_not_know_are_written_and_read() -> None:
    plan = with_new_fields()
    assert decode(PLAN_ID, encode(PLAN_ID, 3, plan)) == plan


def test_fields_of_a_newer_schema_survive_an_older_version_that_writes_the_plan_again() -> None:
    newer = copy.deepcopy(SCHEMA)
    for record in records(newer):
        record["fields"].append({"name": "urgency", "type": "long", "default": 0})
    strategy = {"name": "sort", "parameters": {}, "extra": {}, "urgency": 4}
    plan = a_plan()
    plan["groups"][0] |= {"strategy": strategy, "extra": {}, "urgency": 2}
    plan |= {"selected_by": [strategy], "left_out": [], "extra": {}, "urgency": 1}
    whole = {"schema_version": 2, "plan_id": PLAN_ID, "table_version": 3, "plan": plan, "extra": {}}
    file = io.BytesIO()
    fastavro.writer(file, fastavro.parse_schema(newer), [whole])
    read = decode(PLAN_ID, file.getvalue())
    again = decode(PLAN_ID, encode(PLAN_ID, 3, read))
    assert again == read
    assert again["urgency"] == 1
    assert again["groups"][0]["urgency"] == 2
    assert again["groups"][0]["strategy"]["urgency"] == again["selected_by"][0]["urgency"] == 4
    assert ClusteringPlan.from_dict(again).groups[0].rows == 20


def test_a_plan_without_the_files_it_left_out_is_a_plan() -> None:
    plan = a_plan()
    del plan["left_out"]
    assert decode(PLAN_ID, encode(PLAN_ID, 3, plan)) == {**plan, "left_out": []}


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ({"groups": None}, "an array is expected, not None"),
        ({"groups": [None]}, "a Group is expected, not None"),
        ({"groups": [{}]}, "a Group lacks inputs, partition, bytes"),
        ({"planned_at": "noon"}, "planned_at is 'noon'"),
        ({"target_file_bytes": True}, "target_file_bytes is True"),
        ({"selected_by": [{"name": "a", "parameters": {"b": 1}}]}, "parameters is 1"),
    ],
)
def test_a_plan_that_lacks_a_field_or_has_another_type_is_refused(broken: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=f"the plan does not fit its schema: .*{told}"):
        encode(PLAN_ID, 3, a_plan() | broken)


def test_the_same_plan_makes_the_same_bytes() -> None:
    assert encode(PLAN_ID, 3, a_plan()) == encode(PLAN_ID, 3, a_plan())


def test_a_plan_of_another_id_is_not_this_plan() -> None:
    with pytest.raises(UnreadablePlanError, match=PLAN_ID):
        decode("01JXVG7T00ABCDEFGHJKMNPQRT", encode(PLAN_ID, 3, a_plan()))


def test_damaged_bytes_are_told_or_are_still_a_plan_and_never_another_error() -> None:
    whole, random_bits = encode(PLAN_ID, 3, a_plan()), random.Random(5)
    damaged = [whole[:length] for length in range(0, len(whole), 7)]
    for position in range(0, len(whole), 2):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << random_bits.randrange(8)
        damaged.append(bytes(flipped))
    told = 0
    for data in [b"", b"{}", b"Obj\x01", *damaged]:
        try:
            ClusteringPlan.from_dict(decode(PLAN_ID, data))
        except UnreadablePlanError:
            told += 1
    assert told > len(damaged) // 4
