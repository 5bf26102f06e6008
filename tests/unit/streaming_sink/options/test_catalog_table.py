"""A table in a catalog as a value: what it takes, and what a sink refuses to do there yet."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from streaming_sink import (
    Append,
    BulkInsert,
    CatalogTable,
    Checks,
    IcebergSink,
    PathTable,
    Upsert,
    history,
)
from streaming_sink.errors import StoreUnavailableError
from streaming_sink.ingest import BufferZone
from timeline.catalogs.clients import settings
from timeline.catalogs.clients.settings import settings_of
from timeline.catalogs.state_files import MOST_KEY_BYTES
from timeline.outbox import delivery_app
from timeline.properties import TRANSACTION_PREFIX

REST = {"type": "rest", "uri": "http://127.0.0.1:9"}


@pytest.mark.parametrize("table", ["events", "", "db.", ".events", (), ("db",), ("db", ""), 7, None])
def test_a_table_needs_a_name_with_its_namespace(table: Any) -> None:
    with pytest.raises(ValueError, match="a name with its namespace"):
        CatalogTable(table, "lake")


@pytest.mark.parametrize("catalog", ["", " ", {}, None, 7])
def test_a_catalog_is_a_name_or_properties(catalog: Any) -> None:
    with pytest.raises(TypeError, match="the name of a catalog, or its properties"):
        CatalogTable("db.events", catalog)


def test_a_name_with_a_dot_in_a_part_is_a_tuple() -> None:
    assert CatalogTable(("db", "odd.name"), "lake").location == "lake:db.odd.name"
    assert CatalogTable("a.b.c", REST).table == ("a", "b", "c")
    assert CatalogTable("a.b", REST).location == "http://127.0.0.1:9:a.b"
    assert CatalogTable("a.b", {"uri": "https://me:hush@lake/x/"}).location == "https://lake/x:a.b"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"uri": "http://lake", "warehouse": "dev"}, "http://lake (warehouse=dev):db.t"),
        ({"uri": "http://lake/", "prefix": "x"}, "http://lake (prefix=x):db.t"),
        ({"uri": "http://lake", "token": "hush"}, "http://lake:db.t"),
        ({"type": "sql", "uri": "sqlite:////l.db", "name": "a"}, "sqlite:////l.db (name=a):db.t"),
        ({"type": "sql", "uri": "postgresql://me:hush@lake/d"}, "postgresql://lake/d (name=default):db.t"),
        ({"type": "glue", "client.region": "eu-west-1"}, "glue (client.region=eu-west-1):db.t"),
        (
            {"type": "glue", "glue.region": "eu-west-1", "glue.id": "7"},
            "glue (glue.region=eu-west-1, glue.id=7):db.t",
        ),
        ({"type": "hive", "uri": "thrift://metastore:9083"}, "thrift://metastore:9083:db.t"),
    ],
)
def test_mirrors_in_two_catalogs_have_two_names(given: dict[str, str], name: str) -> None:
    assert CatalogTable("db.t", given).mirror_name == name
    parts = CatalogTable(("a.b", "c"), given), CatalogTable(("a", "b.c"), given)
    assert parts[0].mirror_name != parts[1].mirror_name


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("sqlite:////srv/lake/catalog.db", "sqlite:////srv/lake/catalog.db"),
        ("postgresql+psycopg://me:hush@lake:5432/db?sslmode=require", "postgresql+psycopg://lake:5432/db"),
        ("postgresql://lake/db?user=me&password=hush", "postgresql://lake/db"),
        ("postgresql://lake/db?password=hush@hush", "postgresql://..."),
        ("postgresql://me:hush/hush@lake/db", "postgresql://..."),
        ("postgresql://me:hush?hush@lake/db", "postgresql://..."),
        ("postgresql://me:hush@hush@lake/db", "postgresql://..."),
        ("hush", "..."),
    ],
)
def test_no_report_calls_a_table_by_an_address_with_a_password(uri: str, shown: str) -> None:
    table = CatalogTable("a.b", {"type": "sql", "uri": uri})
    assert table.location == f"{shown}:a.b"
    assert "hush" not in f"{table!r} {table} {table.to_dict()} {settings_or_refusal(table)}"


def settings_or_refusal(table: CatalogTable) -> str:
    try:
        return repr(settings_of(table.catalog))
    except ValueError as refused:
        return "".join(traceback.format_exception(refused))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"uri": "sqlite://"}, "is in memory"),
        ({"uri": "sqlite:///:memory:"}, "is in memory"),
        ({"uri": "sqlite:////a.db", "warehouse": "lake"}, "must be an absolute path or a URL"),
        ({"uri": "sqlite:////a.db", "warehouse": "file:lake"}, "must be an absolute path or a URL"),
        ({"uri": "postgresql+nope://me:hush@lake/db"}, "none that SQLAlchemy can read"),
        ({"uri": "postgresql+pg8000://me:hush@lake/db"}, "driver .* is not installed: pg8000"),
        ({"uri": "postgresql://me:hush@lake:port/db"}, "none that SQLAlchemy can read"),
    ],
)
def test_a_catalog_in_sql_that_is_of_no_use_fails_when_the_sink_is_made(
    given: dict[str, str], said: str
) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        IcebergSink(CatalogTable("db.events", {"type": "sql", **given}))
    assert "hush" not in "".join(traceback.format_exception(refused.value))


def test_a_catalog_that_does_not_know_where_tables_go_is_refused(tmp_path: Path) -> None:
    named = {"type": "sql", "name": "test", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    table = CatalogTable("db.events", named, create_namespace=True)
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    with pytest.raises(ValueError, match=r'does not know where new tables go.* give it its "warehouse"'):
        table.create(schema, UNPARTITIONED_PARTITION_SPEC, {})


def test_an_extra_that_is_not_installed_is_named_when_the_sink_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"pip install 'streaming-sink\[sql\]'"):
        IcebergSink(CatalogTable("db.events", {"type": "sql", "uri": "sqlite:////a.db"}))
    with pytest.raises(ValueError, match=r"pip install 'streaming-sink\[glue\]'"):
        IcebergSink(CatalogTable("db.events", {"type": "glue"}))
    with pytest.raises(ValueError, match=r"pip install 'streaming-sink\[hive\]'"):
        IcebergSink(CatalogTable("db.events", HIVE))


def test_a_table_in_hive_is_named_as_hive_has_it_and_its_metastore_has_one_address() -> None:
    IcebergSink(CatalogTable("db.events", HIVE))
    IcebergSink(CatalogTable("db.events", {"uri": "thrift://metastore:9083/"}))
    assert CatalogTable("db.events", HIVE).location == "thrift://metastore:9083:db.events"
    with pytest.raises(ValueError, match="named by its database and its name"):
        IcebergSink(CatalogTable("a.db.events", HIVE))
    with pytest.raises(ValueError, match=r"lower case alone: name it 'db\.events'"):
        IcebergSink(CatalogTable("db.Events", HIVE))
    for wrong in ("thrift://metastore", "thrift://a:9083,thrift://b:9083", "thrift://me:hush@lake:9083"):
        with pytest.raises(ValueError, match="one host and its port") as refused:
            IcebergSink(CatalogTable("db.events", {**HIVE, "uri": wrong}))
        assert "hush" not in str(refused.value)
    with pytest.raises(ValueError, match=r"kerberos-authentication .*is not offered"):
        IcebergSink(CatalogTable("db.events", {**HIVE, "hive.kerberos-authentication": "true"}))


def test_a_mirror_in_glue_says_its_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timeline.catalogs.clients.settings.find_spec", lambda _: True)
    for stated in ({"glue.region": "eu-west-1"}, {"client.region": "eu-west-1"}):
        PathTable("/lake/t", mirror=CatalogTable("db.events", {"type": "glue", **stated})).check()
    with pytest.raises(ValueError, match=r'state it in the catalog.s properties, such as "glue\.region"'):
        PathTable("/lake/t", mirror=CatalogTable("db.events", {"type": "glue"})).check()


def test_a_table_in_glue_has_a_database_and_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "find_spec", lambda _: True)
    IcebergSink(CatalogTable("db.events", {"type": "glue"}))
    assert CatalogTable("db.events", {"type": "glue"}).location == "glue:db.events"
    with pytest.raises(ValueError, match="named by its database and its name"):
        IcebergSink(CatalogTable("a.db.events", {"type": "glue"}))
    with pytest.raises(ValueError, match="must be an absolute path or a URL"):
        IcebergSink(CatalogTable("db.events", {"type": "glue", "warehouse": "lake"}))


def test_a_catalog_that_is_not_configured_fails_when_the_sink_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(
        ValueError, match=r"no catalog is configured under the name 'nope'.*PYICEBERG_CATALOG__"
    ):
        IcebergSink(CatalogTable("db.events", "nope"))
    for wrong in (
        {"warehouse": "x"},
        {"type": "rest"},
        {"type": "sql", "uri": "mysql://me:hush@lake/db"},
        {"uri": "mysql://me:hush@lake/db"},
        {"type": "rest", "uri": "postgresql://me:hush@lake/db"},
        {"type": "sql", "uri": "https://me:hush@lake"},
        {"type": "in-memory"},
        {"type": "sql", "uri": "thrift://lake:9083"},
        {"type": "hive", "uri": "https://me:hush@lake"},
        {"type": "glue", "uri": "https://me:hush@lake"},
        {"type": "bogus", "uri": "http://lake"},
        {"py-catalog-impl": "some.Catalog", "uri": "http://lake"},
    ):
        with pytest.raises(ValueError, match="must be a REST catalog") as refused:
            IcebergSink(CatalogTable("db.events", wrong))
        assert "hush" not in str(refused.value)
    for shown in ("https://me:hush@lake", "https://lake?token=hush"):
        with pytest.raises(ValueError, match='give them as "credential"') as refused:
            IcebergSink(CatalogTable("db.events", {"uri": shown}))
        assert "hush" not in str(refused.value)
    IcebergSink(CatalogTable("db.events", {"type": "REST", "uri": "http://lake", "name": "x"}))
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "http://127.0.0.1:9")
    assert repr(IcebergSink(CatalogTable("db.events", "lake"))) == "IcebergSink('lake:db.events')"


HIVE = {"type": "hive", "uri": "thrift://metastore:9083"}
QUARANTINING = {"id > 0": "quarantine"}


def test_the_name_of_an_application_is_at_most_150_bytes_there() -> None:
    table, checks = CatalogTable("db.events", REST), Checks(QUARANTINING)
    assert IcebergSink(table, app_id="a" * 150).options.app_id == "a" * 150
    with pytest.raises(ValueError, match=r"app_id has at most 150 bytes.*it has 152"):
        IcebergSink(table, app_id="ä" * 76)
    IcebergSink(table, app_id="a" * 137, checks=checks)
    assert len(f"{TRANSACTION_PREFIX}{delivery_app(str(uuid4()), 'a' * 137)}") == MOST_KEY_BYTES
    with pytest.raises(ValueError, match=r"app_id has at most 137 bytes.*with a quarantine"):
        IcebergSink(table, app_id="a" * 138, checks=checks)


def test_a_quarantine_is_a_table_of_the_same_catalog() -> None:
    table = CatalogTable("db.events", REST)
    sinks = {
        name: IcebergSink(table, checks=Checks(QUARANTINING, quarantine=name)).options.quarantine
        for name in (None, "db.bad", "other.db.bad", f"{table.location}_bad", "catalog:db.odd%2Ename")
    }
    assert {name: each.table for name, each in sinks.items() if isinstance(each, CatalogTable)} == {
        None: ("db", "events__quarantine"),
        "db.bad": ("db", "bad"),
        "other.db.bad": ("other", "db", "bad"),
        f"{table.location}_bad": ("db", "events_bad"),
        "catalog:db.odd%2Ename": ("db", "odd.name"),
    }
    assert {it.catalog["uri"] for it in sinks.values()} == {REST["uri"]}  # type: ignore[union-attr, index]
    for elsewhere in (
        "/lake/bad",
        "s3://lake/bad",
        "bad",
        "file:///lake/bad",
        "lake:db.bad",
        "db.",
        "http://x:1:a.b",
    ):
        with pytest.raises(ValueError, match="second tables in the same catalog"):
            IcebergSink(table, checks=Checks(QUARANTINING, quarantine=elsewhere))
    with pytest.raises(ValueError, match="quarantine must be a table of its own"):
        IcebergSink(table, checks=Checks(QUARANTINING, quarantine="db.events"))
    with pytest.raises(TypeError, match="quarantine must be the location of a table"):
        IcebergSink("/lake/events", checks=Checks(QUARANTINING, quarantine=table))  # type: ignore[arg-type]


def test_a_change_log_is_a_table_of_the_same_catalog_apart_from_the_others() -> None:
    table = CatalogTable("db.events", REST)

    def sink(log: str, **given: Any) -> IcebergSink:
        return IcebergSink(table, Upsert(key=["id"], changelog_table=log), **given)

    assert sink("db.log").options.change_log == CatalogTable("db.log", REST)
    with pytest.raises(ValueError, match="second tables in the same catalog"):
        sink("/lake/log")
    with pytest.raises(ValueError, match="changelog_table must be a table of its own, not the sink's table"):
        sink("db.events")
    with pytest.raises(ValueError, match="changelog_table must be a table of its own, not its quarantine"):
        sink("db.bad", checks=Checks(QUARANTINING, quarantine="db.bad"))


@pytest.mark.parametrize("write", [Append(), BulkInsert()])
def test_appends_are_taken_and_the_sink_pickles(write: Any) -> None:
    sink = IcebergSink(CatalogTable("db.events", REST), write, checks=Checks({"id > 0": "drop"}))
    assert pickle.loads(pickle.dumps(sink)).options == sink.options


def test_what_takes_a_location_alone_says_so() -> None:
    table = CatalogTable("db.events", REST)
    with pytest.raises(ValueError, match="not offered for a table in a catalog yet"):
        BufferZone(table)  # type: ignore[arg-type]


def test_a_server_that_is_away_is_told_from_a_table_that_is_absent() -> None:
    with pytest.raises(StoreUnavailableError, match="does not answer"):
        history(CatalogTable("db.events", REST))


def test_a_dict_of_one_by_properties_needs_them_again() -> None:
    table = CatalogTable("db.events", REST)
    assert CatalogTable.from_dict(table.to_dict(), catalog=REST) == table
    with pytest.raises(TypeError, match="catalog"):
        CatalogTable.from_dict(table.to_dict())
    assert PathTable("/a") != table
