"""Fills beside the stream, without Spark: what is published and deleted, when a pass starts, who waits."""

from __future__ import annotations

import logging
import threading
from contextlib import nullcontext
from itertools import count
from types import SimpleNamespace

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from planners import ClusteringPolicy, FileSizing
from planners.fills import FillPlan, PlannedFill
from planners.folds import DELETE_FILES_AT_REST, PASSES_AT_REST
from planners.model import TableFile, TablePartition
from streaming_sink import history
from streaming_sink.clustering.known_files import known_files
from streaming_sink.reports.maintenance_report import FillReport
from streaming_sink.table.spec import partition_sources, partition_spec
from streaming_sink.tasks.files.delete_merging import DeleteMerge, DeletesMerged, NewDeletes, RunMerge
from streaming_sink.upkeep import filler, fills
from streaming_sink.upkeep.fill_portions import divide, sharing_files
from streaming_sink.upkeep.filler import DELETE_FILES_WHILE_FILLING, SMALL_FILES_WHILE_FILLING, Filler
from streaming_sink.upkeep.fills import FillPass, PublishedFills, commit_merges, delete_lost, plan_merges
from streaming_sink.writing.planning import commit_sizes
from tests.reports import lines, said
from tests.sinks import flat_options
from tests.unit.timeline.plans import joined_live
from tests.unit.timeline.world import change_metadata, dropping
from timeline.changes.changes import Append, Replace
from timeline.changes.delete_merges import MergeDeletes
from timeline.changes.row_deltas import RowDelta
from timeline.errors import CommitStateUnknownError, StoreUnavailableError
from timeline.manifests.entries import position_deletes, shared_deletes
from timeline.plans import instants
from timeline.plans.clustering import CLUSTERING
from timeline.plans.reservations import Reservations
from timeline.stores import LocalStore
from timeline.table import Table
from timeline.versions.pending import pending_plans

SCHEMA = Schema(NestedField(1, "region", StringType()), NestedField(2, "id", LongType()))
EU, US = ("eu",), ("us",)
KIB = 1024
SIZING = FileSizing(max_file_bytes=1024 * KIB, small_file_bytes=800 * KIB)
_numbers = count()

SOURCES = {0: partition_sources(SCHEMA, partition_spec(["region"], SCHEMA))}


@pytest.fixture
def table(tmp_path):
    store = LocalStore(str(tmp_path / "table"))
    return Table.create(store, SCHEMA, partition_spec(["region"], SCHEMA), store_is_checked=True)


def _file(table, partition, rows, size):
    path = f"data/{next(_numbers)}.parquet"
    with table.store.open_output(path) as output:
        output.write(b"rows")
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=table.store.uri(path),
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=rows,
        file_size_in_bytes=size,
    )
    file.spec_id = 0
    return file


def _append(table, partition, files=1, size=50 * KIB):
    added = tuple(_file(table, partition, 10, size) for _ in range(files))
    table.commit([Append(added)], open_below_bytes=SIZING.small_file_bytes)
    return added


def _options(table, **given):
    return flat_options(table.store.location, {"sizing": SIZING, "fill": "beside", **given})


def _replace(table, inputs):
    """A merge whose new file is there."""
    rows, size = sum(it.record_count for it in inputs), sum(it.file_size_in_bytes for it in inputs)
    partition = tuple(inputs[0].partition)
    return Replace(frozenset(it.file_path for it in inputs), (_file(table, partition, rows, size),))


def _publish(table, *replaces):
    done = commit_merges(table, replaces, 0, SIZING.small_file_bytes, Reservations(table.store))
    delete_lost(table, done)
    return done


def _exists(table, replace):
    [file] = replace.added
    try:
        return table.store.read(table.store.relative(file.file_path)).data == b"rows"
    except FileNotFoundError:
        return False


def _live(table):
    return {file.location for file in table.refresh().live_files()}


# -------------------------------------------------------------------------------------- what is published


def test_merges_are_one_version_of_one_replace_which_is_no_batch_and_says_its_sizes(table):
    here, there = _append(table, EU, 3), _append(table, US, 2)
    number, replaces = table.head.number, [_replace(table, here), _replace(table, there)]
    assert _publish(table, *replaces) == PublishedFills(number + 1, tuple(replaces), (), (), 1)
    assert _live(table) == {file.file_path for replace in replaces for file in replace.added}
    assert table.head.snapshot.summary.operation.value == "replace"
    assert history(table.store.location) == []
    sizes = [(each.rows, each.bytes, each.files) for each in commit_sizes(table.head)]
    assert sizes[-1] == (50, 250 * KIB, 2), "for the estimate of bytes per row, which clusterings mislead"


def test_a_merge_whose_file_another_has_taken_is_dropped_alone_and_its_file_deleted(table):
    here, there = _append(table, EU, 3), _append(table, US, 2)
    lost, kept = _replace(table, here), _replace(table, there)
    theirs = _replace(table, here[:2])
    Table.open(table.store).commit([theirs])
    done = _publish(table, lost, kept)
    assert (done.version, done.live, done.lost) == (table.head.number, (kept,), (lost,))
    assert done.problems[0].startswith("another commit has replaced an input: ")
    assert [_exists(table, each) for each in (lost, kept, theirs)] == [False, True, True]


def test_where_nothing_is_left_to_publish_there_is_no_version(table):
    here = _append(table, EU, 3)
    lost = _replace(table, here)
    Table.open(table.store).commit([_replace(table, here)])
    number = table.refresh().number
    done = _publish(table, lost)
    assert (done.version, done.live, table.refresh().number) == (None, (), number)
    assert "another commit has replaced an input" in done.problems[0]
    assert not _exists(table, lost)


def test_a_merge_whose_file_a_plan_has_reserved_meanwhile_is_dropped(table):
    here, there = _append(table, EU, 2), _append(table, US, 2)
    lost, kept = _replace(table, here), _replace(table, there)
    planned = joined_live("eu", [table.head.find_live(file.file_path) for file in here])
    plan = {"planned_at": 0, "target_file_bytes": 1, "selected_by": [], "groups": [planned], "left_out": []}
    plan_id = instants.schedule_plan(Table.open(table.store), plan, CLUSTERING)
    done = _publish(table, lost, kept)
    assert (done.version, done.live) == (table.head.number, (kept,))
    assert done.problems == (f"plan {plan_id} has reserved an input since: {min(lost.removed)}",)
    assert not _exists(table, lost)


@pytest.mark.parametrize("error", [CommitStateUnknownError, StoreUnavailableError])
def test_where_the_state_of_the_commit_is_unknown_no_file_is_deleted(table, monkeypatch, error):
    replace = _replace(table, _append(table, EU, 3))

    def commit(*_, **__):
        raise error("no answer")

    monkeypatch.setattr(table, "commit", commit)
    with pytest.raises(error):
        _publish(table, replace)
    assert _exists(table, replace)


# --------------------------------------------------------------------------------------- plans and tasks


def test_a_pass_takes_touched_partitions_and_no_file_that_is_reserved_or_unfit(table):
    here = [file.file_path for file in _append(table, EU, 12)]
    _append(table, US, 12)
    plan = plan_merges(table.head, [(0, EU)], _options(table), {here[0]: "a plan"}, unfit={here[1]})
    [fill] = plan.fills
    assert fill.partition == (0, EU)
    assert not {here[0], here[1]} & {file.path for file in fill.inputs}
    assert plan.most_small_files == 10


@pytest.mark.parametrize("is_remembered", [True, False])
def test_a_pass_leaves_files_that_no_manifest_can_list_anew(table, is_remembered):
    """Another engine has dropped the column that they are partitioned by, and perhaps its schemas."""
    _append(table, EU, 12)
    change_metadata(table, lambda metadata: dropping(metadata, 1, is_remembered=is_remembered))
    head = table.refresh()
    assert plan_merges(head, [(0, EU)], _options(table), {}).is_empty is not is_remembered
    policy = ClusteringPolicy(small_file_bytes=800 * KIB, target_file_bytes=900 * KIB)
    known = known_files(head, policy, {}).files
    why = {it.unfit for it in known}
    assert (
        why == {None}
        if is_remembered
        else all("partitioned by a column whose type is not known" in it for it in why)
    )


def _delete(table, file, *counts):
    """Commit a delete file for each of these numbers of rows; return their locations."""
    made = []
    for rows in counts:
        location = table.store.uri(f"data/{next(_numbers)}-deletes.parquet")
        where = {"spec_id": 0, "partition": file.partition}
        deletes = position_deletes(location, file.file_path, rows=rows, size=900, **where)
        table.commit([RowDelta((), (deletes,), frozenset(made))])
        made.append(location)
    return made


def test_a_pass_folds_worn_files_of_touched_partitions_and_merges_delete_files_of_others(table):
    [worn, crowded] = _append(table, EU, 2, 900 * KIB)
    [elsewhere] = _append(table, US, 1, 900 * KIB)
    _delete(table, worn, 3)
    _delete(table, elsewhere, 3)
    _delete(table, crowded, 1)
    plan = plan_merges(table.head, [(0, EU)], _options(table), {})
    assert [[file.path for file in fill.inputs] for fill in plan.fills] == [[worn.file_path]]
    assert plan.delete_merges == ()
    assert plan_merges(table.head, [(0, EU)], _options(table, fold_above=0.3), {}).is_empty
    assert plan_merges(table.head, [(0, EU)], _options(table, fill_policy="never", fill=None), {}).is_empty
    assert plan_merges(table.head, [(0, EU)], _options(table), {worn.file_path: "a plan"}).is_empty
    assert plan_merges(table.head, [(0, EU)], _options(table), {}, unfit={worn.file_path}).is_empty
    assert not plan_merges(table.head, [(0, US)], _options(table), {}).is_empty


def _crowded(table, deletes=9):
    """A full file of 100 rows, of which that many rows are deleted, one by one."""
    file = _file(table, EU, 100, 900 * KIB)
    table.commit([Append((file,))])
    return file, _delete(table, file, *[1] * deletes)


def test_merges_of_delete_files_are_divided_among_the_tasks_too(table):
    file, locations = _crowded(table)
    plan = plan_merges(table.head, [(0, EU)], _options(table), {})
    [[merge]] = divide(plan, 4, SOURCES)
    assert isinstance(merge, DeleteMerge)
    assert (merge.number, merge.partition, merge.file.path) == (0, EU, file.file_path)
    assert {it.path for it in merge.file.deletes} == set(locations)


def _share(table, files, runs=5):
    """Delete a row of each of these files, so many times, in a delete file that they share."""
    made = []
    for run in range(runs):
        location = table.store.uri(f"data/{next(_numbers)}-deletes.parquet")
        rows_of = {file.file_path: 1 for file in files}
        deletes = shared_deletes(location, rows_of, size=900 + run, spec_id=0, partition=files[0].partition)
        known = {
            each.location
            for file in files
            for each in table.refresh().deletes_of(table.head.find_live(file.file_path))
        }
        table.commit([RowDelta((), (deletes,), frozenset(known))])
        made.append(location)
    return made


def test_a_pass_merges_runs_of_shared_delete_files_but_none_that_cannot_be_read(table):
    files = [_crowded(table, 0)[0] for _ in range(3)]
    locations = _share(table, files)
    assert plan_merges(table.head, [(0, US)], _options(table), {}).is_empty
    [merge] = plan_merges(table.head, [(0, EU)], _options(table), {}).run_merges
    assert {it.path for it in merge.deletes} == set(locations)
    assert plan_merges(table.head, [(0, EU)], _options(table), {}, unfit={locations[2]}).is_empty
    assert plan_merges(table.head, [(0, EU)], _options(table), {files[0].file_path: "a plan"}).is_empty


def test_a_file_that_the_pass_rewrites_gets_no_delete_file_of_its_own(table):
    worn, *others = (_crowded(table, 0)[0] for _ in range(3))
    _delete(table, worn, 50)
    _share(table, [worn, *others])
    elsewhere = _append(table, US, 1)
    plan = plan_merges(table.head, [(0, EU)], _options(table), {})
    assert [file.path for fill in plan.fills for file in fill.inputs] == [worn.file_path]
    sharing = sharing_files(table.head, plan, 0.2)
    [portion] = divide(plan, 1, SOURCES, sharing=sharing)
    [runs] = [each for each in portion if isinstance(each, RunMerge)]
    own_from = {path: file.own_from for path, file in runs.files.items()}
    assert own_from == {worn.file_path: None, **{file.file_path: 5 for file in others}}
    assert elsewhere[0].file_path not in runs.files
    assert (runs.partition, runs.into, len(runs.deletes)) == (EU, 1, 5)


def test_what_a_plan_has_reserved_since_keeps_its_delete_files(table):
    """Its executor has read them: its group would be dropped."""
    file, locations = _crowded(table, 2)
    planned = joined_live("eu", [table.head.find_live(file.file_path)])
    plan = {"planned_at": 0, "target_file_bytes": 1, "selected_by": [], "groups": [planned], "left_out": []}
    added = position_deletes(
        table.store.uri("data/m-deletes.parquet"),
        file.file_path,
        rows=2,
        size=900,
        spec_id=0,
        partition=file.partition,
    )
    merge = MergeDeletes(frozenset(locations), (added,))
    plan_id = instants.schedule_plan(Table.open(table.store), plan, CLUSTERING)
    done = _publish(table, merge)
    assert (done.version, done.lost) == (None, (merge,))
    assert done.problems == (f"plan {plan_id} has reserved an input since: {file.file_path}",)
    assert instants.cancel_plan(Table.open(table.store), plan_id)
    assert _publish(table, merge).live == (merge,)
    assert [it.location for it in table.head.delete_files()] == [added.file_path]


@pytest.mark.parametrize("kind", ["its own", "shared"])
def test_too_many_delete_files_are_merged_beside_the_plan_that_has_read_them(table, monkeypatch, kind):
    """A clusterer that plans again at once would put the merge off for ever."""
    if kind == "its own":
        file, _ = _crowded(table, 33)
        files = [file]
    else:
        files = [_file(table, EU, 100, 900 * KIB) for _ in range(2)]
        table.commit([Append(tuple(files))])
        _share(table, files, 17)
    planned = joined_live("eu", [table.head.find_live(files[0].file_path)])
    plan = {"planned_at": 0, "target_file_bytes": 1, "selected_by": [], "groups": [planned], "left_out": []}
    plan_id = instants.schedule_plan(Table.open(table.store), plan, CLUSTERING)
    reservations = Reservations(table.store)
    passed = plan_merges(table.refresh(), [(0, EU)], _options(table), reservations.files(table.head))
    [merge] = passed.delete_merges or passed.run_merges
    rows_of = {file.file_path: len(merge.deletes) for file in files}
    new = NewDeletes(table.store.uri("data/merged-deletes.parquet"), rows_of, 900)
    monkeypatch.setattr(
        fills, "collect_results", lambda *_: [DeletesMerged(0, (new,), {}, of_runs=kind == "shared")]
    )
    session = SimpleNamespace(range=lambda *_: None)
    monkeypatch.setattr(fills, "described", lambda *_: nullcontext())
    report = fills.execute_merges(session, table, passed, _options(table), reservations, 2).report
    assert (report.problems, report.merged_deletes, report.written_deletes) == ((), len(merge.deletes), 1)
    assert plan_id in {each.plan_id for each in pending_plans(table.refresh().properties)}


def test_a_batch_that_leaves_too_many_delete_files_of_a_file_runs_a_pass_itself(table, merging):
    _crowded(table, DELETE_FILES_WHILE_FILLING)
    made = Filler(_options(table, fold_above=1.0))
    _after_commit(made, table)
    made.finish(60, at_rest=False)
    assert [thread for thread, _ in merging.ran] == ["filling"], "beside the stream"
    _crowded(table, DELETE_FILES_WHILE_FILLING + 1)
    assert _after_commit(made, table).startswith("25 delete files of one data file, so the batch waited: ")
    assert merging.ran[-1] == (threading.current_thread().name, 4)


class _Timer:
    """A timer that rings when it is told to."""

    def __init__(self, seconds, rings):
        self.seconds, self.rings, self.runs = seconds, rings, False

    def start(self):
        assert self.daemon, "no process waits for it"
        self.runs = True

    def cancel(self):
        self.runs = False


@pytest.fixture
def timers(monkeypatch):
    made = []

    def make(seconds, rings):
        made.append(_Timer(seconds, rings))
        return made[-1]

    monkeypatch.setattr(
        filler, "threading", SimpleNamespace(Event=threading.Event, Lock=threading.Lock, Timer=make)
    )
    return made


def test_the_end_of_a_stream_merges_the_delete_files_that_stay_while_it_runs(table, merging, timers):
    _crowded(table, DELETE_FILES_AT_REST)
    made = Filler(_options(table, fold_above=1.0))
    _after_commit(made, table)
    made.finish(60)
    assert (merging.ran, timers) == ([], []), "two may stay"
    _crowded(table, DELETE_FILES_AT_REST + 1)
    _after_commit(made, table)
    made.finish(60, at_rest=False)
    assert merging.ran == []
    made.finish(60)
    assert merging.ran == [("filling", 4)] * PASSES_AT_REST, "on all cores: no batch has to wait"
    assert [timer.runs for timer in timers] == [False]
    made.finish(60)
    assert len(merging.ran) == PASSES_AT_REST, "nothing has come since"


def test_a_stream_that_brings_nothing_for_a_while_is_at_rest(table, merging, timers):
    _crowded(table, DELETE_FILES_AT_REST + 1)
    made = Filler(_options(table, fold_above=1.0))
    for touched in ([(0, EU)], [(0, US)]):
        _after_commit(made, table, touched)
    assert [(timer.seconds, timer.runs) for timer in timers] == [(60, False), (60, True)], "each puts it off"
    timers[1].rings()
    made.finish(60, at_rest=False)
    assert merging.ran == [("filling", 4)] * PASSES_AT_REST


def test_what_a_stream_at_rest_merges_is_merged_though_it_goes_on_in_that_moment(table, merging, timers):
    crowded, _ = _crowded(table, DELETE_FILES_AT_REST + 1)
    made = Filler(_options(table, fold_above=1.0))
    merging.goes_on.clear()
    _append(table, US, 9)
    _after_commit(made, table, [(0, US)])
    assert merging.began.wait(60)
    _after_commit(made, table)
    timers[-1].rings()
    _append(table, US, 9)
    _after_commit(made, table, [(0, US)])
    merging.goes_on.set()
    made.finish(60, at_rest=False)
    assert {tasks for _, tasks in merging.ran} == {2}, "a batch is near"
    assert [it.file.path for it in merging.plan.delete_merges] == [crowded.file_path]


def test_merges_are_divided_among_the_tasks_by_their_bytes(table):
    for region, size in (("a", 700), ("b", 300), ("c", 250), ("d", 100)):
        _append(table, (region,), 2, size * KIB // 2)
    options = _options(table, fill_policy="always")
    plan = plan_merges(table.head, [(0, (region,)) for region in "abcd"], options, {})
    portions = [[fill.partition for fill in portion] for portion in divide(plan, 2, SOURCES)]
    assert portions == [[("a",)], [("b",), ("c",), ("d",)]]
    assert [len(portion) for portion in divide(plan, 9, SOURCES)] == [1] * 4
    numbers = {fill.number: fill.partition for portion in divide(plan, 3, SOURCES) for fill in portion}
    assert numbers == dict(enumerate([("a",), ("b",), ("c",), ("d",)]))


def test_a_report_says_files_bytes_and_version_and_why_others_were_left_out():
    made = {"table": "/t", "outcome": "committed", "version": 7}
    report = FillReport(
        **made, input_files=9, output_files=2, output_bytes=3 * 1024 * KIB, problems=("it is missing",)
    )
    assert report.line() == (
        "filled beside the stream: 9 files -> 2 (3.0 MiB), version 7;"
        " a fill beside the stream was left out: it is missing"
    )
    assert FillReport(table="/t", outcome="nothing").line() == ""
    files = {"input_files": 2, "output_files": 1, "output_bytes": 1024 * KIB}
    folded = FillReport(**made, **files, folded_deletes=3, merged_deletes=18, written_deletes=2)
    assert folded.line() == (
        "filled beside the stream: 2 files -> 1 (1.0 MiB), 3 delete files folded, version 7;"
        " merged beside the stream: 18 delete files -> 2, version 7"
    )


# ------------------------------------------------------------------------------- passes of a stream


_RUNNING = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))


@pytest.fixture
def merging(monkeypatch):
    """Passes merge at once and without Spark, once `goes_on` is set. Lists (thread, tasks) of each."""
    passes = SimpleNamespace(ran=[], began=threading.Event(), goes_on=threading.Event(), fails=None)
    passes.goes_on.set()

    def carry_out(_session, table, plan, options, reservations, tasks):
        passes.began.set()
        assert passes.goes_on.wait(60)
        passes.ran.append((threading.current_thread().name, tasks))
        passes.plan = plan
        if passes.fails is not None:
            raise passes.fails
        files = {file.location: file for file in table.head.live_files()}
        replaces = []
        for fill in plan.fills:
            size = sum(files[file.path].bytes for file in fill.inputs)
            added = _file(table, fill.partition.values, fill.rows, size)
            replaces.append(Replace(frozenset(file.path for file in fill.inputs), (added,)))
        done = commit_merges(table, replaces, 0, SIZING.small_file_bytes, reservations)
        taken = sum(len(replace.removed) for replace in done.live)
        made = {"table": "/t", "outcome": "committed", "version": done.version, "problems": done.problems}
        return FillPass(FillReport(**made, input_files=taken, output_files=len(done.live), output_bytes=1))

    monkeypatch.setattr(filler, "execute_merges", carry_out)
    return passes


def _after_commit(made, table, touched=((0, EU),), session=None):
    context = SimpleNamespace(defaultParallelism=4, _jsc=_RUNNING)
    session = session or SimpleNamespace(sparkContext=context)
    reservations = Reservations(table.store)
    return said(made.after_commit(session, table, reservations, touched, lambda _: nullcontext()))


def _count(table, partition=EU):
    return sum(file.partition == partition for file in table.refresh().live_files())


def test_a_pass_starts_at_nine_small_files_and_the_next_report_says_what_it_did(table, merging):
    made = Filler(_options(table))
    for _ in range(8):
        _append(table, EU)
        assert _after_commit(made, table) == ""
    assert merging.ran == []
    _append(table, EU)
    assert _after_commit(made, table) == ""
    made._passes.wait()
    assert merging.ran == [("filling", 2)], "half of the cores"
    assert made.has_published()
    assert not made.has_published()
    _append(table, EU)
    assert _after_commit(made, table) == "filled beside the stream: 9 files -> 1 (1 B), version 11"
    assert lines(made.finish(None)) == []


def test_a_batch_that_needs_a_pass_while_one_runs_starts_no_second_and_gets_its_own_afterwards(
    table, merging
):
    merging.goes_on.clear()
    made = Filler(_options(table))
    _append(table, EU, 9)
    _after_commit(made, table, [(0, EU)])
    assert merging.began.wait(60)
    _append(table, US, 9)
    _after_commit(made, table, [(0, US)])
    assert [it.name for it in threading.enumerate()].count("filling") == 1
    with pytest.raises(TimeoutError, match=r"filling is still running after 0\.01 s, and continues; wait"):
        made.finish(0.01)
    merging.goes_on.set()
    assert len(made.finish(60)) == 2
    assert (_count(table, EU), _count(table, US)) == (1, 1)


def test_a_stream_never_holds_more_than_the_bound_however_long_a_pass_takes(table, merging):
    """And every batch but those that wait is back at once, with the pass still running."""
    merging.goes_on.clear()
    made, waited = Filler(_options(table)), []
    for batch in range(1, 60):
        _append(table, EU)
        if batch > SMALL_FILES_WHILE_FILLING:  # from here on passes end, each when a batch waits for it
            merging.goes_on.set()
        told = _after_commit(made, table)
        assert _count(table) <= SMALL_FILES_WHILE_FILLING
        waited += [batch] if told else []
        if batch <= SMALL_FILES_WHILE_FILLING:
            assert not waited
    assert waited[0] == SMALL_FILES_WHILE_FILLING + 1
    made.finish(60)
    assert _count(table) <= 8


def test_a_batch_that_leaves_too_many_runs_a_pass_itself_with_all_cores(table, merging):
    made = Filler(_options(table))
    _append(table, EU, SMALL_FILES_WHILE_FILLING + 1, 10 * KIB)
    assert _after_commit(made, table) == (
        "25 small files in a partition, so the batch waited:"
        " filled beside the stream: 25 files -> 1 (1 B), version 3"
    )
    assert merging.ran == [(threading.current_thread().name, 4)]
    assert _count(table) == 1


def test_a_pass_that_fails_is_reported_and_tried_again_after_the_next_batch(table, merging, caplog):
    merging.fails = RuntimeError("no core left")
    made = Filler(_options(table))
    _append(table, EU, 9)
    _after_commit(made, table)
    failed = (
        "filling beside the stream failed, and is planned again after the next batch:"
        " RuntimeError: no core left"
    )
    assert lines(made.finish(60)) == [failed]
    assert [(it.getMessage(), it.exc_info is not None) for it in caplog.records] == [(failed, True)]
    merging.fails = None
    _append(table, EU)
    _after_commit(made, table)
    assert lines(made.finish(60)) == ["filled beside the stream: 10 files -> 1 (1 B), version 4"]


@pytest.mark.parametrize("ends", ["it fails", "another takes its file"])
def test_what_a_pass_left_out_is_planned_again_though_no_batch_comes_to_its_partition(table, merging, ends):
    """As at midnight, in a table that is partitioned by day."""
    merging.goes_on.clear()
    made = Filler(_options(table))
    here = _append(table, EU, 9)
    _after_commit(made, table, [(0, EU)])
    assert merging.began.wait(60)
    if ends == "it fails":
        merging.fails = RuntimeError("no core left")
    else:
        Table.open(table.store).commit(
            [Replace(frozenset([here[0].file_path]), (_file(table, EU, 10, 900 * KIB),))]
        )
    merging.goes_on.set()
    made._passes.wait()
    merging.fails = None
    _append(table, EU)
    _append(table, US)
    _after_commit(made, table, [(0, US)])
    assert lines(made.finish(60))[0].startswith("filled beside the stream: ")


def test_a_pass_that_spark_stopped_under_is_one_line_of_the_log_without_a_traceback(table, merging, caplog):
    """Also where another batch has asked for a pass since."""
    merging.fails = ConnectionRefusedError("py4j")
    merging.goes_on.clear()
    made = Filler(_options(table))
    session = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=4, _jsc=_RUNNING))
    _append(table, EU, 9)
    _after_commit(made, table, session=session)
    assert merging.began.wait(60)
    _after_commit(made, table, session=session)
    session.sparkContext._jsc = None
    merging.goes_on.set()
    [report] = made.finish(60)
    assert report.outcome == "abandoned"
    assert (
        report.line()
        == "filling beside the stream was abandoned, since Spark was stopped; a later batch does it"
    )
    [record] = caplog.records
    assert (record.levelno, record.exc_info) == (logging.WARNING, None)
    assert _count(table) == 9


def test_a_file_that_cannot_be_merged_is_not_planned_again(table, merging, monkeypatch):
    [bad, *_] = [file.file_path for file in _append(table, EU, 9)]
    report = FillReport(table="/t", outcome="nothing", problems=("it is missing",))
    monkeypatch.setattr(filler, "execute_merges", lambda *_: FillPass(report, frozenset([bad])))
    made = Filler(_options(table))
    _after_commit(made, table)
    assert lines(made.finish(60)) == ["a fill beside the stream was left out: it is missing"]
    _after_commit(made, table)
    assert lines(made.finish(60)) == [], "eight are left, and may wait"


def test_two_sinks_on_one_table_merge_a_file_once(table, merging):
    """The second plans from a fresh head: what the first has merged is no work for it."""
    merging.goes_on.clear()
    first, second = Filler(_options(table)), Filler(_options(table))
    other = Table.open(table.store)
    _append(table, EU, 9)
    other.refresh()
    _after_commit(first, table)
    _after_commit(second, other)
    merging.goes_on.set()
    told = lines([*first.finish(60), *second.finish(60)])
    assert _count(table) == 1
    assert sum(each.startswith("filled beside the stream: 9 files") for each in told) == 1
    for made, opened in ((first, table), (second, other)):
        opened.refresh()
        assert _after_commit(made, opened) == ""
        assert lines(made.finish(60)) == []


def test_a_sink_that_fills_inline_has_no_pass(table, merging):
    _append(table, EU, 30)
    made = Filler(_options(table, fill="inline"))
    assert _after_commit(made, table) == ""
    assert lines(made.finish(None)) == []
    assert merging.ran == []
    assert fills.plan_merges(table.head, [(0, EU)], _options(table), {}).fills


def test_a_sorted_file_that_is_folded_keeps_its_order_and_no_other():
    """By the plan: the order that its manifest names may be one that no footer can state."""
    files = [TableFile(f"f{at}", EU, 10, 10, sorted=at == 1) for at in range(2)]
    fills = tuple(PlannedFill(TablePartition(0, EU), (file,), (), "worn") for file in files)
    [portion] = divide(FillPlan(fills, 0), 1, SOURCES)
    assert {fill.inputs[0].path: fill.keeps_order for fill in portion} == {"f0": False, "f1": True}
