"""Partitions chosen by a text: values as the table's folders spell them, and what is not there."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from itertools import count

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import BooleanType, DateType, LongType, NestedField, StringType, TimestampType

from planners.model import TablePartition
from streaming_sink import Clustering, clustering
from streaming_sink.clustering.passes import run_pass
from streaming_sink.clustering.where import partitions_where
from streaming_sink.commands.cli import CANNOT, DONE, main
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.partition_names import speller
from streaming_sink.table.spec import partition_spec
from timeline.changes.changes import Append
from timeline.changes.schema_changes import SetPartitioning
from timeline.clock import SYSTEM
from timeline.plans.claims import Watch
from timeline.plans.reservations import Reservations
from timeline.stores import LocalStore
from timeline.table import Table, open_table

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "city", StringType()),
    NestedField(3, "day", DateType()),
    NestedField(4, "at", TimestampType()),
    NestedField(5, "ok", BooleanType()),
)
NEW_YEAR = (date(2026, 1, 1) - date(1970, 1, 1)).days
_numbers = count()


def _table(location, partition_by, partitions):
    spec = partition_spec(partition_by, SCHEMA)
    table = Table.create(LocalStore(location), SCHEMA, spec, store_is_checked=True)
    files = [_file(table, partition, 0) for partition in partitions]
    table.commit([Append(tuple(files))] if files else [])
    return table.head


def _file(table, partition, spec_id):
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=table.store.uri(f"data/{next(_numbers)}.parquet"),
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=1,
        file_size_in_bytes=1,
    )
    file.spec_id = spec_id
    return file


def _chosen(head, text):
    chosen = partitions_where(head, text)
    partitions = [TablePartition(file.spec_id, file.partition) for file in head.live_files()]
    return [partition.values for partition in partitions if chosen.holds(partition)]


@pytest.mark.parametrize(
    ("partition_by", "partitions", "text"),
    [
        ("id", [(1,), (11,)], "id=1"),
        ("bucket(16, id)", [(3,), (4,)], "id_bucket=3"),
        ("city", [("eu",), ("EU",)], "city=eu"),
        ("city", [("a, b",), ("a",)], "city=a%2C b"),
        ("city", [("a=b",), ("a",)], "city=a=b"),
        ("city", [(None,), ("eu",)], "city=null"),
        ("truncate(2, city)", [("eu",), ("us",)], "city_trunc=eu"),
        ("day", [(NEW_YEAR,), (NEW_YEAR + 1,)], "day=2026-01-01"),
        ("day(at)", [(NEW_YEAR,), (NEW_YEAR + 1,)], "at_day=2026-01-01"),
        ("month(at)", [(672,), (673,)], "at_month=2026-01"),
        ("year(at)", [(56,), (57,)], "at_year=2026"),
        ("hour(at)", [(NEW_YEAR * 24 + 7,), (0,)], "at_hour=2026-01-01-07"),
        ("ok", [(True,), (False,)], "ok=true"),
    ],
)
def test_a_value_is_spelled_as_its_folder_is(location, partition_by, partitions, text):
    assert _chosen(_table(location, [partition_by], partitions), text) == partitions[:1]


def test_values_of_one_field_are_alternatives_and_each_field_must_match(location):
    both = [(city, number) for city in ("eu", "us", "ap") for number in (1, 2)]
    head = _table(location, ["city", "id"], both)
    assert _chosen(head, "city=eu, city=us, id=2") == [("eu", 2), ("us", 2)]
    assert _chosen(head, "id=1") == [("eu", 1), ("us", 1), ("ap", 1)]


def test_partitions_of_all_specs_are_chosen_by_the_names_of_their_own_fields(location):
    _table(location, ["city"], [("eu",), ("us",)])
    table = open_table(location)
    table.commit([SetPartitioning(partition_spec(["id", "city"], SCHEMA), "app")])
    table.commit([Append((_file(table, (7, "eu"), 1), _file(table, (8, "ap"), 1)))])
    head = table.head
    assert set(_chosen(head, "city=eu")) == {("eu",), (7, "eu")}
    assert _chosen(head, "id=7") == [(7, "eu")]
    assert _chosen(head, "city=ap") == [(8, "ap")]
    with pytest.raises(ValueError, match=r"there are 4, such as city=eu, city=us, id=7/city=eu"):
        partitions_where(head, "id=9")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("city", "a filter is NAME=VALUE, several between commas: 'city'"),
        ("", "a filter is NAME=VALUE"),
        ("town=eu", "unknown partition field 'town'; known are: city, id"),
        ("ctiy=eu", "unknown partition field 'ctiy'; did you mean 'city'?"),
        ("day=2026-01-01", "unknown partition field 'day'"),
        (
            "city=af",
            "the filter city=af matches no partition; there are 2, such as city=eu/id=1, city=us/id=2",
        ),
        ("city=eu,id=2", "the filter city=eu,id=2 matches no partition; there are 2"),
    ],
)
def test_a_filter_that_cannot_be_or_matches_nothing_says_what_there_is(location, capsys, text, said):
    _table(location, ["city", "id"], [("us", 2), ("eu", 1)])
    assert main(["cluster", location, "--where", text, "--dry-run"]) == CANNOT
    assert said in capsys.readouterr().err


def test_no_partition_of_an_empty_table_matches(location):
    with pytest.raises(ValueError, match=r"the filter city=eu matches no partition$"):
        partitions_where(_table(location, ["city"], []), "city=eu")


def test_a_stream_whose_partitions_are_to_come_has_nothing_to_do_yet(location, caplog):
    """Its filter may be of a day that has not begun; all that a typing error could be is refused before."""
    _table(location, ["city"], [("us",), ("us",)])
    table = open_table(location)
    asked = Clustering(where="city=eu", sort_by=["id"])
    (report,) = run_pass(asked, None, table, Reservations(table.store), Watch(SYSTEM))
    assert report.outcome == "nothing"
    assert "the filter city=eu matches no partition; there are 1, such as city=us" in report.why
    assert caplog.messages == []


@pytest.mark.parametrize("text", ["", "city", "city=eu,"])
def test_a_filter_that_does_not_parse_is_told_where_it_is_given(text):
    with pytest.raises(ValueError, match="a filter is NAME=VALUE"):
        Clustering(where=text)


def test_a_filter_of_a_stream_names_fields_of_any_spec_of_its_table(location):
    asked, schema = Clustering(where="city=eu", sort_by=["id"]).settings, arrow_schema(SCHEMA)
    head, by_id = _table(location, ["city"], []), partition_spec(["id"], SCHEMA)
    asked.check_table(schema, by_id, head)
    with pytest.raises(ValueError, match="unknown partition field 'city'; known are: id"):
        asked.check_table(schema, by_id, None)


def test_only_the_chosen_partitions_are_planned_and_still_only_their_small_files(location, capsys):
    _table(location, ["city"], [("us",), ("us",), ("eu",), ("eu",)])
    assert main(["cluster", location, "--sort-by", "id", "--where", "city=eu", "--dry-run"]) == DONE
    out = capsys.readouterr().out
    assert "selected by: by_size(), selected_partitions(filter=city=eu)" in out
    assert "1 group, 2 files -> 1" in out
    assert "2 files: its partition does not match city=eu" in out
    assert clustering.plan(location, sort_by=["id"], where="city=eu").explain() == out.removesuffix("\n")
    with pytest.raises(ValueError, match="the filter city=af matches no partition"):
        clustering.schedule(location, where="city=af")
    with pytest.raises(TypeError, match="where must be a filter of partitions, such as"):
        clustering.plan(location, where=["city=eu"])


def test_a_filter_of_ones_own_that_matches_nothing_says_so_in_the_plan(location):
    from planners import SelectedPartitions

    _table(location, ["city"], [("us",), ("eu",)])
    nowhere = SelectedPartitions(lambda partition: partition == ("af",), "city is af")
    said = "2 files: the filter city is af matches no partition at all"
    assert said in clustering.plan(location, select=nowhere).explain()


def test_a_plan_spells_its_partitions_as_the_filter_does(location):
    files = [(NEW_YEAR, "eu"), (NEW_YEAR, "eu"), (NEW_YEAR + 1, None), (NEW_YEAR + 1, None), (None, "us")]
    head = _table(location, ["day", "city"], files)
    plan = clustering.plan(location, sort_by=["id"], max_groups=1)
    (group,) = plan.groups
    assert group.partition == ("day=2026-01-01", "city=eu")
    assert _chosen(head, ",".join(group.partition)) == files[:2]
    left_out = {it.partition for it in plan.left_out}
    assert left_out == {("day=2026-01-02", "city=null"), ("day=null", "city=us")}
    assert "day=2026-01-01/city=eu" in plan.explain()
    assert "day=2026-01-02/city=null" in plan.explain()


@pytest.mark.parametrize("value", ["a+b", "a, b", " both ends ", "100%", "%2F", "a=b", "ü/ß", ""])
def test_what_is_shown_of_a_partition_can_be_given_as_a_filter(location, capsys, value):
    head = _table(location, ["city"], [(value,), (value,), ("other",)])
    group = next(it for it in clustering.plan(location, sort_by=["id"]).groups if len(it.inputs) == 2)
    assert _chosen(head, ",".join(group.partition)) == [(value,), (value,)]
    assert main(["partitions", location]) == DONE
    assert group.partition[0] in capsys.readouterr().out
    with pytest.raises(ValueError, match="matches no partition") as refused:
        partitions_where(head, "city=nowhere")
    assert group.partition[0] in str(refused.value)


def test_partitions_by_a_column_that_another_engine_has_dropped_are_planned_by_their_values(location):
    head = _table(location, ["city"], [("eu",), ("eu",)])
    without = replace(head, version=replace(head.version, metadata=_without_cities(head.metadata)))
    assert speller(without)(TablePartition(0, ("eu",))) == ("city=eu",)
    assert speller(without)(TablePartition(0, (None,))) == ("city=null",)


def _without_cities(metadata):
    fields = [field for field in metadata.schema().fields if field.name != "city"]
    schema = metadata.schema().model_copy(update={"fields": tuple(fields)})
    return metadata.model_copy(update={"schemas": [schema]})
