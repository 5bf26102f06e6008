"""Wrong options fail when the sink is made, and say what to write instead."""

from __future__ import annotations

import dataclasses
import importlib
import pickle

import pytest

import streaming_sink
from planners import FileSizing
from planners.sizing import FillPolicy
from streaming_sink import Checks, IcebergSink, PathTable, SchemaContract, TableOptions, Upsert
from streaming_sink.ingest import BufferZone
from tests.sinks import flat_options, flat_sink


def test_the_defaults_are_those_of_the_documentation():
    options = IcebergSink("/lake/events").options
    assert options.sizing == FileSizing(max_file_bytes="120MiB", small_file_bytes="100MiB")
    assert options.fill_policy is FillPolicy.AMORTIZED
    assert options.partition_by == ()
    assert not options.bulk


def test_options_are_frozen():
    options = IcebergSink("/lake/events").options
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.app_id = "other"


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("partitionBy", "'partition_by'"),
        ("fill_polcy", r"FileSizing\(fill_policy=…\)"),
        ("sequence_By", r"Upsert\(sequence_by=…\)"),
        ("delete_where", r"Upsert\(delete_where=…\)"),
        ("appid", "'app_id'"),
        ("table_property", "'table_properties'"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name_and_all_that_there_are(given, near):
    with pytest.raises(
        TypeError,
        match=f"no option '{given}'; did you mean {near}.*it has write, partition_by, sizing",
    ):
        IcebergSink("/lake/events", **{given: 1})


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("max_bytes", r"Rules\(max_bytes=…\)"),
        ("max_agee", r"Rules\(max_age=…\)"),
        ("by_reference", r"SourceFolders\(by_reference=…\)"),
        ("conditions", r"Audit\(conditions=…\)"),
        ("clustering", r"TableOptions\(clustering=…\)"),
        ("key", r"Upsert\(key=…\)"),
    ],
)
def test_an_unknown_option_of_a_zone_is_refused_with_the_value_that_has_it(tmp_path, given, near):
    with pytest.raises(TypeError, match=f"BufferZone has no option '{given}'; did you mean {near}"):
        BufferZone(tmp_path / "zone", tmp_path / "t", **{given: 1})


def test_an_unknown_option_near_nothing_is_refused_with_all_that_there_are():
    with pytest.raises(TypeError, match="no option 'zzz'; it has write, partition_by, sizing"):
        IcebergSink("/lake/events", zzz=1)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        (
            {"partition_by": "day"},
            TypeError,
            r"must be a list of transforms such as \[\"day\(event_time\)\"\], not 'day'",
        ),
        ({"partition_by": [1]}, TypeError, "must be a list of transforms"),
        ({"partition_by": ["dya(t)"]}, ValueError, r"unknown partition transform; did you mean day\?"),
        ({"partition_by": ["foo(t)"]}, ValueError, r"unknown partition transform .*: foo\(t\)"),
        ({"partition_by": ["day(t"]}, ValueError, r"a column or a transform of one.*: 'day\(t'"),
        ({"partition_by": ["t)"]}, ValueError, r"a column or a transform of one.*: 't\)'"),
        ({"partition_by": ["day()"]}, ValueError, r"a column or a transform of one.*: 'day\(\)'"),
        ({"partition_by": ["day( )"]}, ValueError, r"names no column.*: 'day\( \)'"),
        ({"partition_by": ["bucket(0,id)"]}, ValueError, r"takes a positive number.*: bucket\(0,id\)"),
        ({"partition_by": ["bucket(16,)"]}, ValueError, r"names no column.*: 'bucket\(16,\)'"),
        ({"partition_by": ["day(t, id)"]}, ValueError, r"takes one column.*: day\(t, id\)"),
        ({"partition_by": [""]}, ValueError, "names no column.*: ''"),
        ({"partition_by": ["t", "t"]}, ValueError, "two partition fields come to the same name, t;"),
        (
            {"evolve_partitioning": True},
            ValueError,
            'partitioning="evolve" needs partition_by, the',
        ),
        ({"sizing": "120MiB"}, TypeError, "sizing must be a FileSizing"),
        (
            {"fill_policy": "amortised"},
            ValueError,
            "amortized, always, not 'amortised'; did you mean 'amortized'",
        ),
        ({"fill": "besides"}, ValueError, "beside, inline, never, not 'besides'; did you mean 'beside'"),
        (
            {"write": "upsert"},
            TypeError,
            r"write must be a write, such as Append\(\) or Upsert.*not 'upsert'",
        ),
        ({"options": {}}, TypeError, r"options must be TableOptions, not \{\}"),
        (
            {"options": TableOptions(), "partition_by": ["day"]},
            ValueError,
            "put partition_by in it, as in",
        ),
        ({"app_id": " "}, ValueError, "app_id must be a name that is not empty, or left out; it is ' '"),
        ({"app_id": 7}, ValueError, "app_id must be a name"),
        ({"takeover_from": "", "app_id": "a"}, ValueError, "takeover_from must be a name"),
        ({"takeover_from": "old-query"}, ValueError, "takeover_from needs app_id.*app_id='old-query'"),
        ({"table_properties": ["a"]}, TypeError, "must be a dict of text to text"),
        ({"expectations": ["a > 0"]}, TypeError, "expectations must map SQL conditions to actions"),
        (
            {"expectations": {"": "drop"}},
            TypeError,
            "must be an SQL condition such as \"price >= 0\", not ''",
        ),
        (
            {"expectations": {"a > 0": "quarantin"}},
            ValueError,
            "quarantine, refuse, drop, not 'quarantin'; did you mean 'quarantine'[?]: a > 0",
        ),
        (
            {"max_quarantined": 5},
            ValueError,
            "at_most says how .* neither an expectation nor the .* quarantines any; leave it",
        ),
        (
            {"expectations": {"a > 0": "drop"}, "quarantine": "/lake/q"},
            ValueError,
            "neither an expectation nor the schema contract quarantines any",
        ),
        ({"expectations": {"a > 0": "quarantine"}, "quarantine": 5}, TypeError, "a table of its own, not 5"),
        (
            {"expectations": {"a > 0": "quarantine"}, "quarantine": "/lake/events/"},
            ValueError,
            "not the sink's table, and neither folder inside of the other",
        ),
        (
            {"expectations": {"a > 0": "quarantine"}, "quarantine": "/lake/events/bad"},
            ValueError,
            "neither folder inside of the other",
        ),
        (
            {"expectations": {"a > 0": "quarantine"}, "quarantine": "file:///lake/events/bad"},
            ValueError,
            "neither folder inside of the other",
        ),
        (
            {"expectations": {"a > 0": "quarantine"}, "max_quarantined": 1.5},
            ValueError,
            "a share from 0.0 to 1.0 as a float, not 1.5",
        ),
        (
            {"expectations": {"a > 0": "quarantine"}, "max_quarantined": True},
            TypeError,
            "an int.*a float.*not True",
        ),
        *(
            ({"fold_above": share}, ValueError, f"fold_above must be a share.*it is {share!r}")
            for share in (0, -0.1, 1.01, True, "a half", float("nan"), None)
        ),
        ({"table_properties": {"a": 1}}, TypeError, "must map text to text; 'a' maps to 1"),
        (
            {"table_properties": {"gc.enabled": "true"}},
            ValueError,
            "gc.enabled belongs to the commit protocol",
        ),
        ({"table_properties": {"streaming-sink.txn.a": "1"}}, ValueError, "belongs to the commit protocol"),
        (
            {"table_properties": {"history.expire.max-snapshot-age-ms": "1 day"}},
            ValueError,
            "history.expire.max-snapshot-age-ms must be a whole number, not '1 day'",
        ),
        (
            {"table_properties": {"streaming-sink.tombstone-ttl-ms": "-1"}},
            ValueError,
            "tombstone-ttl-ms says for how long deleted keys are remembered, and cannot be negative: -1",
        ),
        ({"table_properties": {"write.parquet.compression-codec": "zipp"}}, ValueError, "zipp"),
        ({"table_properties": {"uuid": "a"}}, ValueError, "uuid is reserved by Iceberg.*leave it out"),
        ({"table_properties": {"format-version": "3"}}, ValueError, "can only be '2', and is '3'.*version 2"),
        ({"table_properties": {"write.format.default": "orc"}}, ValueError, "can only be 'parquet'.*'orc'"),
        ({"table_properties": {"write.data.path": "s3://a/b"}}, ValueError, "cannot be set.*its location"),
        ({"storage_options": "key"}, TypeError, "storage_options must be a dict, or a callable"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_what_to_write(options, error, said):
    with pytest.raises(error, match=said):
        flat_sink("/lake/events", **options)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"changelog_table": "/lake/t/log"}, ValueError, "neither folder inside of the other"),
        ({"changelog_table": "/lake/t"}, ValueError, "a table of its own, not the sink's table"),
        (
            {"changelog_table": "/q", "expectations": {"a > 0": "quarantine"}, "quarantine": "/q"},
            ValueError,
            "nor of its quarantine",
        ),
        ({"changelog_table": "/lake/t__quarantine"}, ValueError, "nor of its quarantine"),
        ({"changelog_table": 5}, TypeError, "changelog_table must be the location of a table"),
    ],
)
def test_a_change_log_that_cannot_be_is_refused(options, error, said):
    with pytest.raises(error, match=said):
        flat_sink("/lake/t", key=["id"], **options)


def test_properties_that_say_what_the_sink_does_anyway_are_taken():
    said = {"write.format.default": "PARQUET", "write.object-storage.enabled": "false"}
    given = {**said, "format-version": "2"}
    assert IcebergSink("/lake/events", table_properties=given).options.table_properties == said


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        (
            {"small_file_bytes": "130MiB"},
            "small_file_bytes must not exceed max_file_bytes.*'120MiB'.*'130MiB'",
        ),
        ({"small_file_bytes": -1}, "must not be negative; give 0 to turn filling off"),
        ({"max_file_bytes": 0, "small_file_bytes": 0}, "max_file_bytes must be above 0"),
        ({"max_file_bytes": "lots"}, "not a size in bytes: 'lots'; give bytes as an integer"),
        ({"rows_per_new_file": 0}, "rows_per_new_file must be an integer above 0"),
    ],
)
def test_impossible_sizes_are_refused_with_both_values(sizes, said):
    with pytest.raises(ValueError, match=said):
        FileSizing(**sizes)


@pytest.mark.parametrize("location", ["", "  ", None, 7])
def test_a_location_that_is_none_is_refused(location):
    with pytest.raises(ValueError, match="location must be a path or a URL such as s3://lake/events"):
        IcebergSink(location)


def test_a_location_in_memory_is_refused_because_workers_are_other_processes():
    with pytest.raises(ValueError, match=r"memory://.*other"):
        IcebergSink("memory://events")


def test_an_unknown_scheme_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match=r"unknown scheme; supported are .*s3://"):
        IcebergSink("hdfs://lake/events")


def test_one_option_belongs_to_the_tables_creator_though_its_name_is_ours():
    options = flat_options(
        "/lake/events", {"table_properties": {"streaming-sink.history.max-snapshots": "500"}}
    )
    assert options.table_properties == {"streaming-sink.history.max-snapshots": "500"}


def test_no_repr_shows_storage_options():
    sink = IcebergSink(
        PathTable("s3://lake/events", {"access_key_id": "someone", "secret_access_key": "hush"})
    )
    for shown in (sink, sink.options, pickle.loads(pickle.dumps(sink)).options):
        assert "hush" not in repr(shown)
        assert "someone" not in repr(shown)
    assert pickle.loads(pickle.dumps(sink)).options == sink.options


def test_every_public_name_is_itself_however_often_and_in_whatever_order_it_is_asked_for():
    """A module of the same name would take its place once it is imported."""
    for _ in range(2):
        for name in streaming_sink.__all__:
            assert callable(getattr(streaming_sink, name)), name
    for name in streaming_sink.__all__:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"streaming_sink.{name}")


@pytest.mark.parametrize(
    "contract",
    [
        SchemaContract(mismatch="quarantine"),
        SchemaContract(columns={"n": SchemaContract(mismatch="quarantine")}),
    ],
)
def test_a_contract_that_quarantines_takes_the_options_of_a_quarantine(contract: SchemaContract) -> None:
    options = IcebergSink(
        "/lake/events", contract=contract, checks=Checks(at_most=0.5, quarantine="/lake/bad")
    ).options
    assert (options.quarantine.location, options.checks.at_most) == ("/lake/bad", 0.5)


@pytest.mark.parametrize("key", [["id", "ID"], ["__streaming_sink_x"], ["a\0"]])
def test_a_key_that_no_table_has_is_refused_when_it_is_named(key: list[str]) -> None:
    with pytest.raises(ValueError, match="of the key"):
        Upsert(key=key)
