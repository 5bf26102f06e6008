"""Back-pressure: when small files are too many, what a report says of it, and when a batch clusters."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from itertools import count

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, NestedField, StringType

from planners import FileSizing
from streaming_sink import Clustering, PathTable
from streaming_sink.reports.cluster_report import ClusterReport
from streaming_sink.table.spec import partition_spec
from streaming_sink.upkeep import maintenance
from streaming_sink.upkeep.maintenance import Clusterer
from streaming_sink.upkeep.small_files import SmallFiles, count_small_files, warning
from tests.reports import lines, said
from tests.sinks import flat_options
from timeline.changes.changes import Append
from timeline.changes.plan_changes import CountCommit
from timeline.plans.reservations import Reservations
from timeline.stores import LocalStore
from timeline.table import Table

SCHEMA = Schema(NestedField(1, "region", StringType()), NestedField(2, "day", DateType()))
EU, US = ("eu", 20454), ("us", 20454)
KIB = 1024
CLUSTERING = {"target_file_bytes": "1MiB", "small_file_bytes": 600 * KIB}
NOT_FILLED = {"fill_policy": "never", "sizing": FileSizing(max_file_bytes="1MiB", small_file_bytes=100 * KIB)}
_numbers = count()


@pytest.fixture
def table(tmp_path):
    store = LocalStore(str(tmp_path / "table"))
    return Table.create(store, SCHEMA, partition_spec(["region", "day"], SCHEMA), store_is_checked=True)


def _append(table, partition, sizes):
    files = []
    for size in sizes:
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=table.store.uri(f"data/{next(_numbers)}.parquet"),
            file_format=FileFormat.PARQUET,
            partition=Record(*partition),
            record_count=1,
            file_size_in_bytes=size,
        )
        file.spec_id = 0
        files.append(file)
    table.commit([Append(tuple(files)), CountCommit()])


# ------------------------------------------------------------------------------------------------- counting


def test_small_files_are_counted_in_the_partitions_that_are_asked_for_and_the_fullest_is_named(table):
    _append(table, EU, [1, 2, 3, 100])
    _append(table, US, [1])
    _append(table, ("ap", 20454), [1] * 9)
    found = count_small_files(table.head, [(0, EU), (0, US)], 100)
    assert found == SmallFiles(4, 3, "region=eu/day=2026-01-01")
    assert count_small_files(table.head, [(0, ("af", 1)), (1, EU)], 100) == SmallFiles()


def test_where_nothing_partitions_the_table_it_is_the_table_that_has_them(tmp_path):
    table = Table.create(LocalStore(str(tmp_path / "t")), SCHEMA, store_is_checked=True)
    _append(table, (), [1, 2])
    assert str(count_small_files(table.head, [(0, ())], 100)) == "2 small files in the table"


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, 100 * KIB),
        ({"clustering": Clustering(**CLUSTERING)}, 100 * KIB),
        ({"clustering": Clustering(**CLUSTERING), "fill_policy": "never"}, 600 * KIB),
        ({"clustering": Clustering(**CLUSTERING), "operation": "bulk_insert"}, 600 * KIB),
        ({"fill_policy": "never"}, 100 * KIB),
    ],
)
def test_small_is_what_filling_calls_so_and_where_it_is_off_what_clustering_does(options, limit):
    given = {"sizing": FileSizing(max_file_bytes="1MiB", small_file_bytes=100 * KIB), **options}
    assert flat_options("/lake/events", given).small_below_bytes == limit


def test_with_no_limit_of_filling_that_of_clustering_holds_and_without_clustering_nothing_is_small():
    none = FileSizing(max_file_bytes="1MiB", small_file_bytes=0)
    inline = Clustering(**CLUSTERING)
    options = flat_options("/lake/events", {"sizing": none, "clustering": inline})
    assert options.small_below_bytes == 600 * KIB
    assert flat_options("/lake/events", {"sizing": none}).small_below_bytes == 0


# -------------------------------------------------------------------------------------------------- warning


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({}, "fills fall behind; see dropped_fills of the reports"),
        ({"fill_policy": "never"}, "nothing merges them; let the sink fill, or give it clustering="),
        (
            {"fill_policy": "never", "clustering": Clustering()},
            "clustering falls behind; lower every_commits, raise max_bytes_per_pass, or set when_small_files",
        ),
        (
            {"fill_policy": "never", "clustering": Clustering(when_small_files=7)},
            "clustering falls behind, though batches wait for it; raise max_bytes_per_pass",
        ),
    ],
)
def test_a_warning_says_the_number_the_bound_and_what_to_do(options, advice):
    said = warning(SmallFiles(500, 101, "region=eu"), flat_options("/lake/events", options))
    assert said.startswith("101 small files in region=eu (below ")
    assert "more than warn_small_files=100, and a query opens each: " in said
    assert advice in said


@pytest.mark.parametrize(("most", "bound", "warned"), [(101, 100, True), (100, 100, False), (9999, 0, False)])
def test_it_warns_past_the_bound_and_never_with_a_bound_of_0(most, bound, warned):
    options = flat_options("/lake/events", {"warn_small_files": bound})
    assert bool(warning(SmallFiles(most, most, "the table"), options)) is warned


@pytest.mark.parametrize("bound", [-1, "100", 1.5, True, None])
def test_a_bound_that_is_no_number_of_files_is_refused(bound):
    with pytest.raises(ValueError, match="warn_small_files must be a whole number of files in a partition"):
        flat_options("/lake/events", {"warn_small_files": bound})


# ------------------------------------------------------------------------------------------------- clustering


@pytest.mark.parametrize("bound", [0, -1, "9", 2.5, True])
def test_a_bound_of_clustering_that_is_no_number_of_files_is_refused(bound):
    with pytest.raises(ValueError, match="when_small_files must be a whole number of at least 1"):
        Clustering(when_small_files=bound)


def test_a_sink_that_only_schedules_cannot_do_the_work_itself():
    with pytest.raises(ValueError, match="give one of them: when_small_files=9, run='elsewhere'"):
        Clustering(run="elsewhere", when_small_files=9)


CLUSTERED = ClusterReport(table="/t", outcome="nothing", why="clustered")


@pytest.fixture
def passes(monkeypatch):
    """The names of the threads that ran a pass, which does nothing here."""
    ran = []

    def run_pass(*_):
        ran.append(threading.current_thread().name)
        return [CLUSTERED]

    monkeypatch.setattr(maintenance, "run_pass", run_pass)
    return ran


def _after_commit(table, clustering, touched=((0, EU),), **options):
    sink = Clusterer(flat_options(table.store.location, {**NOT_FILLED, "clustering": clustering, **options}))
    told = sink.after_commit(None, table, Reservations(table.store), touched, lambda _: nullcontext())
    sink.finish(60)
    return said(told)


@pytest.mark.parametrize(
    ("run", "files", "told", "in_the_batch"),
    [
        ("inline", 3, "", None),
        ("inline", 4, "more than when_small_files=3, so now: clustered", True),
        ("beside", 3, "", None),
        ("beside", 4, "more than when_small_files=3, so now: clustered", True),
    ],
)
def test_a_batch_that_sees_too_many_small_files_runs_a_pass_though_none_is_due(
    table, passes, run, files, told, in_the_batch
):
    _append(table, EU, [500 * KIB] * files)
    _append(table, US, [500 * KIB] * 20)
    came = _after_commit(table, Clustering(run=run, every_commits=100, when_small_files=3, **CLUSTERING))
    assert told in came
    assert bool(came) is bool(told)
    assert passes == ([threading.current_thread().name] if in_the_batch else [])


def test_a_pass_that_is_due_runs_where_it_always_does_while_files_are_few(table, passes):
    _append(table, EU, [500 * KIB])
    due = {"every_commits": 1, "when_small_files": 3, **CLUSTERING}
    assert _after_commit(table, Clustering(**due)) == "clustered"
    assert _after_commit(table, Clustering(run="beside", **due)) == "clustering: started beside the stream"
    assert passes == [threading.current_thread().name, "clustering"]


def test_a_pass_that_takes_longer_than_one_waits_goes_on_and_is_told_later(table, monkeypatch):
    _append(table, EU, [500 * KIB])
    let_go = threading.Event()
    monkeypatch.setattr(maintenance, "run_pass", lambda *_: [CLUSTERED] if let_go.wait(60) else [])
    due = {**NOT_FILLED, "clustering": Clustering(run="beside", every_commits=1, **CLUSTERING)}
    sink = Clusterer(flat_options(table.store.location, due))
    sink.after_commit(None, table, Reservations(table.store), [(0, EU)], lambda _: nullcontext())
    with pytest.raises(TimeoutError, match=r"running after 0.01 s, and continues; wait longer, or stop"):
        sink.finish(0.01)
    let_go.set()
    assert sink.finish(None) == [CLUSTERED]
    assert sink.finish(None) == []


def test_a_pass_beside_the_stream_that_cannot_open_the_table_is_told_whatever_stops_it(table, monkeypatch):
    def no_credentials(*_):
        raise PermissionError("no token")

    _append(table, EU, [500 * KIB])
    due = {**NOT_FILLED, "clustering": Clustering(run="beside", every_commits=1, **CLUSTERING)}
    sink = Clusterer(flat_options(table.store.location, due))
    monkeypatch.setattr(PathTable, "open", no_credentials)
    sink.after_commit(None, table, Reservations(table.store), [(0, EU)], lambda _: nullcontext())
    assert lines(sink.finish(60)) == [
        "clustering failed, and is tried again when it is due: PermissionError: no token"
    ]


def test_files_that_filling_calls_small_are_what_counts_in_a_sink_that_fills(table, passes):
    _append(table, EU, [500 * KIB] * 9)
    inline = Clustering(every_commits=100, when_small_files=3, **CLUSTERING)
    assert _after_commit(table, inline, fill_policy="always") == ""
    assert passes == []


def test_a_replay_which_touches_nothing_is_no_reason_to_cluster(table, passes):
    _append(table, EU, [1] * 9)
    assert _after_commit(table, Clustering(every_commits=100, when_small_files=3), touched=()) == ""


def test_a_batch_waits_for_the_pass_beside_the_stream_before_it_runs_its_own(table, monkeypatch):
    order, may_end = [], threading.Event()

    def run_pass(*_):
        if threading.current_thread().name == "clustering":
            may_end.wait(60)
        order.append(threading.current_thread().name)
        return [CLUSTERED]

    monkeypatch.setattr(maintenance, "run_pass", run_pass)
    asked = Clustering(run="beside", every_commits=1, when_small_files=3, **CLUSTERING)
    sink = Clusterer(flat_options(table.store.location, {**NOT_FILLED, "clustering": asked}))
    _append(table, EU, [1])
    told = sink.after_commit(None, table, Reservations(table.store), [(0, EU)], lambda _: nullcontext())
    assert said(told) == "clustering: started beside the stream"
    _append(table, EU, [1] * 9)
    threading.Timer(0.05, may_end.set).start()
    told = sink.after_commit(None, table, Reservations(table.store), [(0, EU)], lambda _: nullcontext())
    assert order == ["clustering", threading.current_thread().name]
    crowd = "10 small files in region=eu/day=2026-01-01, more than when_small_files=3"
    assert said(told) == f"clustered; {crowd}, so now: clustered"
