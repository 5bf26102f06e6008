"""Mirrors on real catalogs: other engines read a table at a location by its name, and forks stay."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_httpfs
import duckdb_extension_iceberg
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from streaming_sink import CatalogTable, FileSizing, IcebergSink, MirrorReport, PathTable, drop, mirror
from streaming_sink.commands.cli import main
from streaming_sink.errors import MirrorForkedError, UnsupportedTableError
from tests.readers import judges
from tests.servers import binaries, databases
from tests.servers.hive_metastore import hive_2, hive_3
from tests.servers.launch import BUCKET, Server
from tests.servers.proxy import Fault, Proxy, Request
from tests.servers.rest_catalog import RestCatalog, rest_catalog
from tests.servers.sql import Sql
from tests.spark.children import Child
from tests.tiers import IN_SOAK, only_in_soak
from timeline import names
from timeline.changes.changes import SetProperties
from timeline.features import required_features
from timeline.retention.mirrored import list_mirror_notes
from timeline.stores import open_store

pytestmark = [pytest.mark.servers, pytest.mark.slow]

_names = itertools.count()
_COMMITTING = """
import sys
from streaming_sink import CatalogTable, PathTable, mirror
from timeline.changes.changes import SetProperties
location, name, *given = sys.argv[1:]
table = PathTable(location, mirror=CatalogTable(name, dict(it.split("=", 1) for it in given)))
opened = table.open()
print("STARTED", flush=True)
for number in range(10_000):
    opened.commit([SetProperties({"by": sys.argv[0], "number": str(number)})])
    print("COMMITTED", mirror(table).version, flush=True)
"""


@dataclass(frozen=True)
class Served:
    """A catalog, by its properties."""

    properties: dict[str, str]

    def read(self, name: str) -> Any:
        """Return a table as pyiceberg's own catalog has it."""
        return load_catalog(**{"name": "lake", **self.properties}).load_table(name)

    def version(self, name: str) -> int | None:
        """Return the version that the catalog names; None for what is no version file."""
        return names.version_number(self.read(name).metadata_location)

    def ids(self, name: str) -> list[int]:
        return sorted(self.read(name).scan().to_arrow()["id"].to_pylist())


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    """A REST catalog that registers metadata over a table that is there."""
    with contextlib.ExitStack() as stack:
        with binaries.or_skip():
            made = stack.enter_context(rest_catalog(tmp_path_factory.mktemp("lake"), registers_over=True))
        yield made


@pytest.fixture(scope="module")
def sql(rest: RestCatalog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sql]:
    """Spark SQL on it."""
    with (tmp_path_factory.mktemp("sql") / "errors").open("w") as errors:
        running = Sql(rest.uri, errors)
        running.says("STARTED")
        yield running
        running.kill()


_KINDS = ["rest", "sql", *(pytest.param(it, marks=only_in_soak) for it in ("hive 2.3.10", "hive 3.1.3"))]


@pytest.fixture(scope="module", params=_KINDS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Each kind of catalog."""
    if request.param == "rest":
        yield Served(request.getfixturevalue("rest").properties)
    elif request.param == "sql":
        with databases.sqlite(tmp_path_factory.mktemp("sqlite")) as database:
            yield Served(database.properties)
    else:
        started = hive_2 if "2" in request.param.split(".")[0] else hive_3
        with contextlib.ExitStack() as stack:
            with binaries.or_skip():
                made = stack.enter_context(started(tmp_path_factory.mktemp("hive")))
            yield Served(made.properties)


class Case:
    """A table of its own at a location, with a mirror that the sink keeps."""

    def __init__(
        self, properties: dict[str, str], spark: SparkSession, location: str, **options: Any
    ) -> None:
        self.spark = spark
        self.name = f"db.t{next(_names)}"
        self.target = CatalogTable(self.name, properties, create_namespace=True)
        self.table = PathTable(location, mirror=self.target, **options)
        self.reports: list[Any] = []
        self.sink = self.new_sink()

    def new_sink(self) -> IcebergSink:
        sizing = FileSizing(max_file_bytes="64KiB", small_file_bytes="48KiB", fill="never")
        return IcebergSink(self.table, app_id="app", sizing=sizing, on_report=self.reports.append)

    def land(self, number: int) -> Any:
        """Land ten rows: batch 3 has the ids 30 to 39."""
        rows = self.spark.range(number * 10, number * 10 + 10).selectExpr("id", "'ours' by")
        return self.sink(rows, number)

    def mirrored(self) -> list[MirrorReport]:
        return [it for it in self.reports if isinstance(it, MirrorReport)]


@pytest.fixture
def case(served: Served, spark: SparkSession, tmp_path: Path) -> Case:
    return Case(served.properties, spark, str(tmp_path / "events"))


@pytest.mark.spark
def test_after_each_batch_the_catalog_names_its_version(case: Case, served: Served) -> None:
    for number in range(3):
        report = case.land(number)
        case.sink.finish()
        last = case.mirrored()[-1]
        assert (last.outcome, last.mirror) == ("mirrored", case.target.mirror_name)
        assert served.version(case.name) == last.version
        assert last.version is not None
        assert last.version >= report.version
        assert served.ids(case.name) == list(range(number * 10 + 10))
    reported = case.land(3).maintenance
    assert [it.kind for it in reported] == [], "finish has returned those before"
    case.sink.finish()
    notes = list_mirror_notes(open_store(case.table.location))
    assert [note.version for note in notes] == [served.version(case.name)]


@pytest.mark.spark
def test_batches_do_not_wait_for_a_mirror_and_do_not_fail_for_it(
    case: Case, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.land(0)
    case.sink.finish()
    at, goes_on = served.version(case.name), threading.Event()

    def block(*_: Any) -> Any:
        goes_on.wait(60)
        raise OSError("it does not answer")

    with monkeypatch.context() as patched:
        patched.setattr("timeline.catalogs.mirrors.mirroring._PATIENCE_SECONDS", 0.0)
        patched.setattr("timeline.catalogs.mirrors.mirroring.Mirror._move_to", block)
        assert [case.land(number).outcome for number in (1, 2, 3)] == ["committed"] * 3
        assert served.version(case.name) == at
        goes_on.set()
        case.sink.finish()
    assert {it.outcome for it in case.mirrored()[1:]} == {"unknown"}
    case.land(4)
    case.sink.finish()
    assert case.mirrored()[-1].outcome == "mirrored"
    assert served.ids(case.name) == list(range(50))


@pytest.mark.spark
def test_a_write_through_the_catalog_is_a_fork_that_stays(
    case: Case, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    case.land(0)
    case.sink.finish()
    theirs = served.read(case.name)
    theirs.append(pa.table({"id": [1000], "by": ["theirs"]}))
    forked = served.read(case.name).metadata_location
    assert case.land(1).outcome == "committed"
    case.sink.finish()
    last = case.mirrored()[-1]
    assert last.outcome == "forked"
    assert forked.rpartition("/")[2] in last.why
    with pytest.raises(MirrorForkedError):
        mirror(case.table)
    assert served.read(case.name).metadata_location == forked
    assert served.ids(case.name) == [*range(10), 1000]
    assert main(["status", case.table.location]) == 0
    assert "a fork, which is left as it is" in capsys.readouterr().out
    assert main(["doctor", case.table.location]) == 1
    assert "WARNING mirror-forked" in capsys.readouterr().out
    load_catalog(**{"name": "lake", **served.properties}).drop_table(case.name)
    case.land(2)
    case.sink.finish()
    assert served.ids(case.name) == list(range(30))
    main(["doctor", case.table.location])
    assert "mirror-forked" not in capsys.readouterr().out


@pytest.mark.spark
def test_a_mirror_and_a_sink_with_one_target_leave_the_sinks_table(
    case: Case, served: Served, tmp_path: Path
) -> None:
    other = IcebergSink(case.target, app_id="other", sizing=FileSizing(fill="never"))
    other(case.spark.range(500, 510).selectExpr("id", "'theirs' by"), 0)
    assert case.land(0).outcome == "committed"
    case.sink.finish()
    assert case.mirrored()[-1].outcome == "forked"
    other(case.spark.range(510, 520).selectExpr("id", "'theirs' by"), 1)
    assert served.ids(case.name) == list(range(500, 520))
    second = Case(served.properties, case.spark, str(tmp_path / "second"))
    second.land(0)
    second.sink.finish()
    with pytest.raises(UnsupportedTableError, match="is a mirror, for reading"):
        IcebergSink(second.target, app_id="other")(case.spark.range(1).selectExpr("id", "'theirs' by"), 0)
    assert served.ids(second.name) == list(range(10))


@pytest.mark.spark
def test_a_table_that_is_dropped_takes_its_mirror_along(case: Case, served: Served) -> None:
    case.land(0)
    case.sink.finish()
    drop(case.table)
    assert not load_catalog(**{"name": "lake", **served.properties}).table_exists(case.name)
    case.sink = case.new_sink()
    case.land(1)
    case.sink.finish()
    assert served.ids(case.name) == list(range(10, 20))


def test_processes_that_are_killed_leave_a_mirror_that_the_next_call_brings_up(
    served: Served, tmp_path: Path
) -> None:
    """Two of them commit and mirror at once, and are killed, several times."""
    if served.properties["type"] == "hive":
        pytest.skip("a lock of the dead is ended after 330 s; its commits are killed elsewhere")
    from tests.unit.timeline.world import SCHEMA
    from timeline.table import Table

    location, name = str(tmp_path / "events"), f"db.t{next(_names)}"
    table = PathTable(location, mirror=CatalogTable(name, served.properties, create_namespace=True))
    Table.create(open_store(location), SCHEMA)
    mirror(table)
    given = [f"{key}={value}" for key, value in served.properties.items()]
    for _ in range(5 if IN_SOAK else 2):
        with (tmp_path / "errors").open("a") as errors:
            children = [Child(_COMMITTING, [location, name, *given], errors) for _ in range(2)]
            for child in children:
                child.says("STARTED")
                child.says("COMMITTED")
            time.sleep(1.0)
            for child in children:
                child.kill()
        done = mirror(table)
        assert served.version(name) == done.version == table.open().head.number
        assert [it.version for it in list_mirror_notes(open_store(location))] == [done.version]
    assert not (tmp_path / "errors").read_text()


# REST ---------------------------------------------------------------------------------------------


def _duck(uri: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for package, name in (
        (duckdb_extension_httpfs, "httpfs"),
        (duckdb_extension_avro, "avro"),
        (duckdb_extension_iceberg, "iceberg"),
    ):
        connection.load_extension(str(judges._extension(package, name)))
    connection.execute(f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{uri}', AUTHORIZATION_TYPE 'none')")
    return connection


@pytest.mark.spark
@pytest.mark.jar
def test_pyiceberg_duckdb_and_spark_read_a_mirror_in_a_rest_catalog(
    rest: RestCatalog, sql: Sql, spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(rest.properties, spark, str(tmp_path / "events"))
    for number in range(3):
        case.land(number)
        case.sink.finish()
        found = list(range(number * 10 + 10))
        assert Served(rest.properties).ids(case.name) == found
        assert sorted(row[0] for row in sql.run(f"SELECT id FROM lake.{case.name}")) == found
        with contextlib.closing(_duck(rest.uri)) as duck:
            rows = duck.execute(f"SELECT id FROM lake.{case.name} ORDER BY id").fetchall()
        assert [row[0] for row in rows] == found


def test_a_server_that_registers_nothing_over_a_table_is_refused(tmp_path: Path) -> None:
    """As Iceberg's own, of which nothing is left there."""
    from tests.unit.timeline.world import SCHEMA
    from timeline.table import Table

    with contextlib.ExitStack() as stack:
        with binaries.or_skip():
            served = stack.enter_context(rest_catalog(tmp_path))
        location = str(tmp_path / "events")
        table = PathTable(location, mirror=CatalogTable("db.t", served.properties, create_namespace=True))
        opened = Table.create(open_store(location), SCHEMA)
        for _ in range(3):
            opened.commit([SetProperties({"a": "b"})])
            with pytest.raises(UnsupportedTableError, match="registered over what is there"):
                mirror(table)
        catalog = load_catalog(**{"name": "lake", **served.properties})
        assert catalog.list_tables("db") == []
        assert list_mirror_notes(open_store(location)) == []
        assert required_features(opened.refresh().properties) == {}
        # A process that was killed in its first call has left one there.
        catalog.register_table("db.t", opened.head.version.place)
        opened.commit([SetProperties({"a": "b"})])
        with pytest.raises(UnsupportedTableError, match="registered over what is there"):
            mirror(table)


_FAULTS = [Fault.RESET_BEFORE, Fault.RESET_AFTER, Fault.ERROR_BEFORE, Fault.ERROR_AFTER]


@pytest.mark.parametrize("fault", _FAULTS)
@pytest.mark.parametrize("which", ["POST", pytest.param("GET", marks=only_in_soak)])
def test_answers_of_a_rest_catalog_that_are_lost_are_looked_up(
    rest: RestCatalog, tmp_path: Path, fault: Fault, which: str
) -> None:
    from tests.unit.timeline.world import SCHEMA
    from timeline.table import Table

    location, name = str(tmp_path / "events"), f"db.t{next(_names)}"
    opened = Table.create(open_store(location), SCHEMA)
    with Proxy(rest.uri).running() as proxy:
        properties = {"type": "rest", "uri": proxy.endpoint}
        table = PathTable(location, mirror=CatalogTable(name, properties, create_namespace=True))
        for _ in range(3):
            left = iter([fault])

            def spoil(request: Request, left: Iterator[Fault] = left) -> Fault | None:
                is_meant = request.method == which and "namespaces/db/" in request.path
                return next(left, None) if is_meant else None

            opened.commit([SetProperties({"a": "b"})])
            proxy.fault = spoil
            done = mirror(table)
            proxy.fault = None
            assert next(left, None) is None, "it was met"
            assert Served(rest.properties).version(name) == done.version == opened.refresh().number


# Glue ---------------------------------------------------------------------------------------------


@only_in_soak
@pytest.mark.spark
def test_a_table_in_an_object_store_has_a_mirror_in_glue(s3: Server, spark: SparkSession) -> None:
    pytest.importorskip("boto3", reason="pip install boto3")
    properties = {
        "type": "glue",
        "warehouse": f"s3://{BUCKET}/glue mirrors",
        "glue.endpoint": s3.endpoint,
        "client.region": "us-east-1",
        "client.access-key-id": s3.options["access_key_id"],
        "client.secret-access-key": s3.options["secret_access_key"],
        "s3.endpoint": s3.endpoint,
    }
    location = f"s3://{BUCKET}/mirrored/t{next(_names)}"
    case = Case(properties, spark, location, storage_options=s3.options)
    served = Served(properties)
    for number in range(3):
        case.land(number)
        case.sink.finish()
        assert case.mirrored()[-1].outcome == "mirrored", case.mirrored()[-1].why
        assert served.ids(case.name) == list(range(number * 10 + 10))
    served.read(case.name).append(pa.table({"id": [1000], "by": ["theirs"]}))
    case.land(3)
    case.sink.finish()
    assert case.mirrored()[-1].outcome == "forked"
    assert served.ids(case.name) == [*range(30), 1000]
    assert sys.modules["boto3"]
