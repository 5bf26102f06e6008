"""Tables of a Hive metastore, 3.1.3 and 2.3.10: the probe, a stream beside pyiceberg, races, lost answers."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.hive import HiveCatalog
from pyspark.sql import SparkSession

from benchmarks.catalog_servers import Served
from benchmarks.catalog_writers import let_write
from streaming_sink import CatalogTable, FileSizing, IcebergSink, history
from tests.servers import binaries
from tests.servers.byte_proxy import ByteProxy
from tests.servers.hive_metastore import HiveMetastore, hive_2, hive_3
from tests.servers.proxy import Fault
from tests.tiers import only_in_soak
from timeline.catalogs import probed_log
from timeline.catalogs.clients import hive_lock
from timeline.catalogs.clients.hive_lock import TableLock
from timeline.catalogs.opening import connect_catalog
from timeline.catalogs.probing.probe import Capabilities, probe_catalog
from timeline.clock import SYSTEM
from timeline.errors import UnsafeCatalogError
from timeline.stores import open_store

pytestmark = [
    pytest.mark.servers,
    pytest.mark.slow,
    only_in_soak,
]

KEPT = 100
"""Previous metadata files of a table that a sink has made."""
_names = itertools.count()
_METASTORES = {"2.3.10": hive_2, "3.1.3": hive_3}
_MOVE = b"alter_table_with_environment_context"


@pytest.fixture(scope="module", params=_METASTORES)
def metastore(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HiveMetastore]:
    with contextlib.ExitStack() as stack:
        with binaries.or_skip():
            made = stack.enter_context(_METASTORES[request.param](tmp_path_factory.mktemp("hive")))
        connect_catalog(made.properties).create_namespace("db")
        yield made


def probe(metastore: HiveMetastore) -> Capabilities:
    probed_log._shown.clear()

    def connect() -> Any:
        return connect_catalog(metastore.properties)

    try:
        return probe_catalog(connect, ("db", "t"), open_store, SYSTEM)
    finally:
        assert [name for _, name in connect().list_tables("db") if "probe" in name] == []
        assert [it for it in metastore.warehouse.rglob("*probe*/**/*") if it.is_file()] == []


def test_a_metastore_passes_and_nothing_of_the_probe_stays(metastore: HiveMetastore) -> None:
    assert probe(metastore) == Capabilities(
        raced=True, keeps_both=True, removes_snapshots=True, keeps_tags=True
    )


def test_without_the_lock_3_1_3_loses_commits_and_is_refused_and_2_3_10_compares_by_itself(
    metastore: HiveMetastore, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(TableLock, "acquire", lambda _: 0)
    monkeypatch.setattr(TableLock, "show_held", lambda self, *_: self.environment.monotonic())
    if "2.3.10" in request.node.name:
        assert probe(metastore).raced
    else:
        with pytest.raises(UnsafeCatalogError, match="would be lost"):
            probe(metastore)


class Case:
    """A table of its own, which a sink writes to and pyiceberg changes."""

    def __init__(self, metastore: HiveMetastore, spark: SparkSession, uri: str = "") -> None:
        self.metastore, self.spark = metastore, spark
        self.name = f"db.t{next(_names)}"
        self.table = CatalogTable(self.name, {**metastore.properties, "uri": uri or metastore.uri})

    def sink(self, **sizing: Any) -> IcebergSink:
        """Return a sink as a process that starts anew has it."""
        sizes = FileSizing(max_file_bytes="64KiB", small_file_bytes="48KiB", **{"fill": "never", **sizing})
        return IcebergSink(self.table, app_id="app", sizing=sizes)

    def land(self, number: int, sink: IcebergSink) -> Any:
        """Land ten rows: batch 3 has the ids 30 to 39."""
        return sink(self.spark.range(number * 10, number * 10 + 10).selectExpr("id", "'ours' by"), number)

    def theirs(self) -> Any:
        """The table as pyiceberg has it, through its own catalog."""
        return HiveCatalog("theirs", **self.metastore.properties).load_table(self.name)

    def ids(self) -> list[int]:
        return sorted(self.theirs().scan().to_arrow()["id"].to_pylist())


@pytest.mark.spark
@pytest.mark.usefixtures("no_room")
def test_a_stream_beside_pyiceberg_keeps_the_rows_of_both(
    metastore: HiveMetastore, spark: SparkSession
) -> None:
    case = Case(metastore, spark)
    sink = case.sink(fill="beside")
    for number in range(4):
        assert case.land(number, sink).outcome == "committed"
    table = case.theirs()
    table.append(pa.table({"id": [1000], "by": ["theirs"]}))
    table.delete("id < 5")
    for number in range(4, 12):
        case.land(number, sink)
    sink.finish()
    assert case.land(11, case.sink()).outcome == "skipped"
    assert case.ids() == [*range(5, 120), 1000]
    assert {it.batch_id for it in history(case.table) if it.batch_id is not None} == set(range(12))
    assert len(list(case.theirs().scan().plan_files())) < 12


def test_of_racing_processes_no_acknowledged_commit_is_lost_and_no_metadata_piles_up(
    metastore: HiveMetastore,
) -> None:
    wrote = let_write(Served("Hive", metastore.properties), "raced", 4, 120.0, 30, seen=False)
    assert wrote.missing == 0
    assert sum(wrote.commits) > 10
    assert (wrote.attempts or 0) > sum(wrote.commits) + 4, "no race was lost, so nothing was tried"
    folder = metastore.warehouse / "db.db" / "raced" / "metadata"
    assert len(list(folder.glob("*.metadata.json"))) <= KEPT + 10


@pytest.fixture
def proxy(metastore: HiveMetastore) -> Iterator[ByteProxy]:
    with ByteProxy(metastore.uri).running() as running:
        assert isinstance(running, ByteProxy)
        yield running


@pytest.mark.spark
@pytest.mark.parametrize("fault", [Fault.RESET_BEFORE, Fault.RESET_AFTER])
@pytest.mark.parametrize("said", [b"get_table", b"\x04lock", b"heartbeat", _MOVE, b"unlock"])
def test_a_connection_that_is_dropped_loses_and_doubles_nothing(
    metastore: HiveMetastore,
    proxy: ByteProxy,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    said: bytes,
    fault: Fault,
) -> None:
    monkeypatch.setattr(hive_lock, "_DEAD_MS", 2_000)
    monkeypatch.setattr(hive_lock, "_LOOK_SECONDS", 0.5)
    case = Case(metastore, spark, f"thrift://127.0.0.1:{proxy.port}")
    sink = case.sink()
    case.land(0, sink)
    proxy.spoil_once(said, fault=fault)
    assert case.land(1, sink).outcome == "committed"
    assert proxy.spoiled, "no connection was dropped"
    case.land(2, sink)
    assert case.land(2, case.sink()).outcome == "skipped"
    assert case.ids() == list(range(30))
    folder = Path(case.theirs().location().removeprefix("file:"), "metadata")
    named = [it.metadata_file for it in case.theirs().metadata.metadata_log]
    assert len(list(folder.glob("*.metadata.json"))) <= len(named) + 2
