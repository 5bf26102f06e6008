"""Values of options pickle, compare, print as they are written, and are plain dicts and back."""

from __future__ import annotations

import inspect
import json
import pickle
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import streaming_sink
from planners import All
from streaming_sink import (
    Append,
    BulkInsert,
    CatalogTable,
    Checks,
    Clustering,
    Delete,
    FileSizing,
    IcebergSink,
    PathTable,
    Retention,
    SchemaContract,
    TableOptions,
    Upsert,
    cdc,
    ingest,
)

EVERY: list[Any] = [
    Append(),
    Append(allow_duplicates=True),
    BulkInsert(),
    Upsert(key=["id"], sequence_by="at", delete_where="op = 'D'", except_columns=["op"], partial_update=True),
    Delete(key=["id", "day"], key_scope="partition", key_index="scan"),
    FileSizing(),
    FileSizing(max_file_bytes="16MiB", small_file_bytes=1000, fill="inline", fill_policy="always"),
    FileSizing(fill="never", fold_above=0.5, warn_small_files=0, rows_per_new_file=7),
    SchemaContract.evolving(),
    SchemaContract(partitioning="evolve", columns={"a.b": SchemaContract(mismatch="drop")}),
    Checks(),
    Checks({"price >= 0": "quarantine"}, at_most=0.01, quarantine="/lake/bad"),
    Clustering(),
    Clustering(sort_by=["day desc nulls last", "id"], every_commits=9, run="beside", max_groups=3),
    Retention(max_snapshot_age=timedelta(hours=5), max_snapshots=300),
    PathTable("s3://lake/events"),
    CatalogTable("db.events", "lake"),
    CatalogTable(("db", "odd.name"), "lake", create_namespace=True),
    ingest.Rules(max_bytes="2GiB", max_age="90 minutes", max_waiting=1 << 40, per_partition=True),
    ingest.SourceFolders(["/a", "/b"], by_reference=True),
    ingest.KafkaTopic("kafka://host:9092/topic"),
    ingest.Audit(),
    ingest.Audit(["price >= 0"], "package.module:look", "36 hours"),
    TableOptions(),
    TableOptions(
        write=Upsert(key=["id"]),
        partition_by=["day(at)"],
        sizing=FileSizing(fill="never"),
        contract=SchemaContract(mismatch="quarantine"),
        checks=Checks({"a > 0": "drop"}, at_most=5),
        clustering=Clustering(sort_by=["id"], run="elsewhere"),
        retention=Retention(),
        table_properties={"owner": "us"},
    ),
]


@pytest.mark.parametrize("value", EVERY, ids=repr)
def test_a_value_prints_as_it_is_written_and_is_a_plain_dict_and_back(value: Any) -> None:
    names = vars(streaming_sink) | {name: getattr(streaming_sink, name) for name in streaming_sink.__all__}
    names |= {name: getattr(ingest, name) for name in ("Audit", "Rules", "SourceFolders", "KafkaTopic")}
    assert eval(repr(value), names) == value
    stored = json.loads(json.dumps(value.to_dict()))
    assert type(value).from_dict(stored).to_dict() == value.to_dict()
    assert pickle.loads(pickle.dumps(value)) == value
    assert type(value).from_dict(stored) == value


@pytest.mark.parametrize("value", EVERY, ids=repr)
def test_an_unknown_option_in_a_dict_is_refused_with_the_nearest(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="no option 'zzz'"):
        type(value).from_dict({**value.to_dict(), "zzz": 1})


@pytest.mark.parametrize("kind", [FileSizing, Retention, SchemaContract, PathTable, ingest.Rules])
def test_what_is_no_dict_makes_no_value(kind: Any) -> None:
    for odd in (None, [], 5):
        with pytest.raises(TypeError, match=f"{kind.__name__} is made of a dict"):
            kind.from_dict(odd)
    with pytest.raises(TypeError, match="CatalogTable needs catalog=…, which this dict does not have"):
        CatalogTable.from_dict(CatalogTable("db.t", {"type": "rest", "uri": "http://lake"}).to_dict())
    with pytest.raises(ValueError, match="announcements must be spelled kafka://host:9092/topic"):
        ingest.KafkaTopic("host:9092/topic")
    with pytest.raises(TypeError, match="a write is made of a dict, as to_dict\\(\\) returns one, not 5"):
        TableOptions.from_dict({"write": 5})


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        ("24 hours", timedelta(days=1), "1 day"),
        ("5400 seconds", "1.5 hours", "90 minutes"),
        ("0.25 seconds", timedelta(milliseconds=250), "0.25 seconds"),
        (timedelta(days=40), "960 hours", "40 days"),
    ],
)
def test_spans_of_one_length_are_one_value(one: Any, other: Any, text: str) -> None:
    for kind, name in ((Retention, "deletion_grace"), (ingest.Rules, "max_age")):
        made: Any = kind(**{name: one})
        assert made == kind(**{name: other})
        assert made.to_dict()[name] == text
    assert Retention(deletion_grace="0 hours") == Retention(deletion_grace=timedelta(0))


def test_an_audit_says_its_function_by_name() -> None:
    texts = ["price >= 0"]
    audit = ingest.Audit(texts, json.dumps)
    texts.append("odd")
    assert audit == ingest.Audit(("price >= 0",), json.dumps)
    assert repr(audit) == "Audit(conditions=['price >= 0'], function='json:dumps')"
    assert ingest.Audit.from_dict(audit.to_dict()) == ingest.Audit(["price >= 0"], "json:dumps")


def test_a_list_and_a_tuple_of_columns_are_one_value() -> None:
    columns = ["id"]
    made = Clustering(sort_by=columns)
    columns.append("odd")
    assert made == Clustering(sort_by=("id",))
    assert repr(made) == "Clustering(sort_by=['id'])"
    assert replace(made, every_commits=9) == Clustering(sort_by=["id"], every_commits=9)
    assert replace(made, sort_by=["day"]) == Clustering(sort_by=["day"])
    contracts = {"a": SchemaContract(mismatch="drop")}
    contract = SchemaContract(columns=contracts)
    contracts.clear()
    assert contract.columns == {"a": SchemaContract(mismatch="drop")}
    with pytest.raises(TypeError, match="columns must map names of columns to contracts"):
        SchemaContract(columns={5: SchemaContract()})  # type: ignore[dict-item]


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    makes: list[Any] = [
        lambda: PathTable("s3://key:hush@lake/t"),
        lambda: ingest.KafkaTopic("kafka://me:hush@host:9092/topic"),
        lambda: IcebergSink("s3://key:hush@lake/t"),
    ]
    for make in makes:
        with pytest.raises(ValueError, match="has a password in it") as refused:
            make()
        assert "hush" not in str(refused.value)
    assert PathTable("abfss://container@account.dfs.core.windows.net/t").location


def test_a_delete_has_no_rows_without_a_key_to_insert() -> None:
    with pytest.raises(ValueError, match="leave out null_keys='insert'"):
        Delete(key=["id"], null_keys="insert")


@pytest.mark.parametrize("odd", [0, "", {}, "day(t)"])
def test_a_partitioning_is_a_list(odd: Any) -> None:
    with pytest.raises(TypeError, match="partition_by must be a list of transforms"):
        IcebergSink("/lake/t", partition_by=odd)


def test_a_zone_refuses_what_it_cannot_store(tmp_path: Path) -> None:
    encrypting = Clustering(strategy="encrypt", parameters={"footer_key": "lake"}, keys=dict)
    for name, odd in (("select", Clustering(sort_by=["id"], select=All())), ("keys", encrypting)):
        options = TableOptions(clustering=odd)
        with pytest.raises(ValueError, match=f"a Clustering's {name} is none"):
            ingest.BufferZone(tmp_path / "zone", tmp_path / "t", options=options)
    assert not (tmp_path / "zone").exists()
    with pytest.raises(TypeError, match="pattern must be a pattern of file names"):
        ingest.BufferZone(tmp_path / "other", tmp_path / "t").watch(tmp_path, pattern=5)  # type: ignore[arg-type]


def test_what_may_hold_secrets_is_in_no_repr_and_no_dict() -> None:
    secret = {"secret_access_key": "hush"}
    values: list[Any] = [
        PathTable("s3://lake/t", secret),
        ingest.KafkaTopic("kafka://host/topic", secret),
        Clustering(strategy="encrypt", parameters={"footer_key": "lake"}, keys=dict),
        IcebergSink(PathTable("s3://lake/t", secret)).options,
        CatalogTable("db.t", {"type": "rest", "uri": "http://u:hush@lake", "credential": "a:hush"}),
        IcebergSink(CatalogTable("db.t", {"uri": "http://lake", "token": "hush"}, False, secret)).options,
    ]
    for value in values:
        assert "hush" not in repr(value)
        assert "hush" not in json.dumps(value.to_dict())
        assert "lambda" not in repr(value)
    assert PathTable.from_dict({"location": "s3://lake/t"}, storage_options=secret).storage_options == secret


def test_a_location_may_be_a_path(tmp_path: Path) -> None:
    sink = IcebergSink(
        tmp_path / "t",
        Upsert(key=["id"], changelog_table=tmp_path / "log"),  # type: ignore[arg-type]
        checks=Checks({"id > 0": "quarantine"}, quarantine=tmp_path / "bad"),  # type: ignore[arg-type]
    )
    options = sink.options
    assert (options.location, options.quarantine.location) == (f"{tmp_path}/t", f"{tmp_path}/bad")
    assert options.keys is not None
    assert options.keys.changelog_table == f"{tmp_path}/log"
    assert ingest.BufferZone(tmp_path / "zone", tmp_path / "t").definition.table == f"{tmp_path}/t"


def test_all_of_a_sink_but_its_own_is_one_value() -> None:
    options = TableOptions(write=cdc.upsert(key=["id"]), checks=Checks({"a > 0": "drop"}))
    sink = IcebergSink("/lake/t", options=options, app_id="users")
    one_by_one = IcebergSink("/lake/t", options.write, checks=options.checks, app_id="users")
    assert sink.options == one_by_one.options
    assert TableOptions.from_dict(options.to_dict()) == options


@pytest.mark.parametrize("kind", [IcebergSink, ingest.BufferZone])
def test_a_surface_has_fourteen_parameters_at_most(kind: type[Any]) -> None:
    parameters = inspect.signature(kind).parameters.values()
    assert len([each for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD]) <= 14
