"""Tables of a catalog in SQL, on sqlite and PostgreSQL: a sink beside pyiceberg, and races of processes."""

from __future__ import annotations

import contextlib
import itertools
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from benchmarks.catalog_servers import Served
from benchmarks.catalog_writers import let_write
from streaming_sink import CatalogTable, FileSizing, IcebergSink, history
from streaming_sink.errors import StoreUnavailableError
from tests.servers import binaries, databases
from tests.servers.byte_proxy import ByteProxy
from tests.servers.databases import SqlDatabase
from tests.servers.proxy import Fault
from tests.tiers import IN_SOAK, only_in_soak

pytestmark = [pytest.mark.servers, pytest.mark.slow]

KEPT = 100
"""Previous metadata files of a table that a sink has made."""
_names = itertools.count()
_DATABASES = {"sqlite": databases.sqlite, "postgresql": databases.postgresql}


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=only_in_soak)])
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SqlDatabase]:
    with contextlib.ExitStack() as stack:
        started = _DATABASES[request.param](tmp_path_factory.mktemp(request.param))
        try:
            made = stack.enter_context(started)
        except binaries.ServerUnavailableError as absent:
            pytest.skip(str(absent))  # no registry of Python's has it
        yield made


class Case:
    """A table of its own, which a sink writes to and pyiceberg changes."""

    def __init__(self, database: SqlDatabase, spark: SparkSession) -> None:
        self.database, self.spark = database, spark
        self.name = f"db.t{next(_names)}"
        self.table = CatalogTable(self.name, database.properties, create_namespace=True)

    def sink(self, **sizing: Any) -> IcebergSink:
        """Return a sink as a process that starts anew has it."""
        sizes = FileSizing(max_file_bytes="64KiB", small_file_bytes="48KiB", **{"fill": "never", **sizing})
        return IcebergSink(self.table, app_id="app", sizing=sizes)

    def land(self, number: int, sink: IcebergSink) -> Any:
        """Land ten rows: batch 3 has the ids 30 to 39."""
        return sink(self.spark.range(number * 10, number * 10 + 10).selectExpr("id", "'ours' by"), number)

    @contextlib.contextmanager
    def theirs(self) -> Iterator[Any]:
        """The table as pyiceberg has it, through its own catalog."""
        with SqlCatalog(**self.database.properties) as catalog:
            yield catalog.load_table(self.name)
            catalog.engine.dispose()

    def ids(self) -> list[int]:
        with self.theirs() as table:
            return sorted(table.scan().to_arrow()["id"].to_pylist())


@pytest.fixture
def case(database: SqlDatabase, spark: SparkSession) -> Case:
    return Case(database, spark)


@pytest.mark.spark
@pytest.mark.usefixtures("no_room")
def test_a_stream_beside_pyiceberg_keeps_the_rows_of_both(case: Case) -> None:
    sink = case.sink(fill="beside")
    for number in range(4):
        assert case.land(number, sink).outcome == "committed"
    with case.theirs() as table:
        table.append(pa.table({"id": [1000], "by": ["theirs"]}))
        table.delete("id < 5")
    for number in range(4, 12):
        case.land(number, sink)
    sink.finish()
    assert case.land(11, case.sink()).outcome == "skipped"
    assert case.ids() == [*range(5, 120), 1000]
    reports = history(case.table)
    assert {report.batch_id for report in reports if report.batch_id is not None} == set(range(12))
    assert {report.table for report in reports} == {case.table.location}
    with case.theirs() as table:
        assert len(list(table.scan().plan_files())) < 12
        times = [entry.timestamp_ms for entry in table.metadata.snapshot_log]
        assert times == sorted(times)


def test_of_racing_processes_no_acknowledged_commit_is_lost_and_no_metadata_piles_up(
    database: SqlDatabase,
) -> None:
    wrote = let_write(Served("SQL", database.properties), "raced", 4, 8.0 if IN_SOAK else 3.0, seen=False)
    assert wrote.missing == 0
    assert sum(wrote.commits) > (20 if IN_SOAK else 8)
    assert (wrote.attempts or 0) > sum(wrote.commits) + 4, "no race was lost, so nothing was tried"
    folder = Path(database.warehouse, "db", "raced", "metadata")
    assert len(list(folder.glob("*.metadata.json"))) <= KEPT + 10


@pytest.mark.spark
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    ("said", "fault"),
    [
        pytest.param((b"SELECT",), Fault.RESET_BEFORE),
        pytest.param((b"SELECT",), Fault.RESET_AFTER, marks=only_in_soak),
        pytest.param((b"UPDATE iceberg_tables",), Fault.RESET_BEFORE, marks=only_in_soak),
        pytest.param((b"UPDATE iceberg_tables",), Fault.RESET_AFTER),
        pytest.param((b"UPDATE iceberg_tables", b"COMMIT"), Fault.RESET_BEFORE),
        pytest.param((b"UPDATE iceberg_tables", b"COMMIT"), Fault.RESET_AFTER),
    ],
)
def test_a_connection_that_is_dropped_loses_and_doubles_nothing(
    database: SqlDatabase, spark: SparkSession, said: tuple[bytes, ...], fault: Fault
) -> None:
    port = database.uri.rpartition(":")[2].partition("/")[0]
    with ByteProxy(f"tcp://127.0.0.1:{port}").running() as proxy:
        assert isinstance(proxy, ByteProxy)
        beyond = replace(database, uri=database.uri.replace(f":{port}/", f":{proxy.port}/"))
        case = Case(database, spark)
        case.table = CatalogTable(case.name, beyond.properties, create_namespace=True)
        sink = case.sink()
        case.land(0, sink)
        proxy.spoil_once(*said, fault=fault)
        assert case.land(1, sink).outcome == "committed"
        assert proxy.spoiled, "no connection was dropped"
        case.land(2, sink)
        assert case.land(2, case.sink()).outcome == "skipped"
        assert case.ids() == list(range(30))


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_database_that_does_not_let_one_in_is_told_without_the_password(database: SqlDatabase) -> None:
    port = database.uri.rpartition(":")[2].partition("/")[0]
    for wrong, said in ((f":{port}/", "password authentication failed"), (":9/", "refused")):
        uri = database.uri.replace(databases.PASSWORD, "not-hush").replace(f":{port}/", wrong)
        with pytest.raises(StoreUnavailableError, match=said) as refused:
            history(CatalogTable("db.t", {**database.properties, "uri": uri}))
        assert "not-hush" not in "".join(traceback.format_exception(refused.value))
