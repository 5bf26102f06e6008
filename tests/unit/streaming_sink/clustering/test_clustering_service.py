"""What clustering is told of a table's files, what it may be asked for, and what never starts Spark."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import ListType, LongType, NestedField, StringType

from planners import All, ClusteringPolicy, Strategy
from planners.model import Arrival, ColumnBounds
from streaming_sink import Clustering, clustering
from streaming_sink.clustering.known_files import known_files
from streaming_sink.clustering.options import PassOptions, pass_of
from streaming_sink.commands.cli import CANNOT, DONE, main
from streaming_sink.writing.planning import Experience, plan_batch
from tests.sinks import flat_options
from timeline import names
from timeline.changes.changes import Append, SetProperties
from timeline.changes.plan_changes import CountCommit
from timeline.clock import Environment
from timeline.plans import instants
from timeline.stores import LocalStore
from timeline.table import Table

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "text", StringType(), required=False)
)
SORTED = ClusteringPolicy(sort_by=["id", "text desc"], select=All())
OPTIONS = {"sort_by": ["id"], "target_file_bytes": "1MiB", "small_file_bytes": "64KiB"}
FILLING = flat_options("/lake/events", {"fill_policy": "always", "fill": "inline"})
_numbers = count()


@pytest.fixture
def location(tmp_path):
    return str(tmp_path / "table")


@pytest.fixture
def table(location):
    return Table.create(LocalStore(location), SCHEMA, store_is_checked=True)


def _file(table, name, low=None, high=None, size=1000):
    bounds = {} if low is None else {1: to_bytes(LongType(), low), 2: b"a"}
    uppers = {} if high is None else {1: to_bytes(LongType(), high), 2: b"b"}
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=table.store.uri(f"data/{name}"),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=10,
        file_size_in_bytes=size,
        lower_bounds=bounds,
        upper_bounds=uppers,
        sort_order_id=0,
    )
    file.spec_id = 0
    return file


def _id(time_ms):
    return names.ulid(time_ms, next(_numbers))


def _known(table, policy=SORTED, reserved=None):
    (known,) = known_files(table.head, policy, reserved or {}).files
    return known


# ---------------------------------------------------------------------------------- what files' names tell


@settings(deadline=None)
@given(
    st.text(min_size=1, max_size=300),
    st.integers(0, 10**6),
    st.tuples(*[st.integers(0, 10**9)] * 3),
)
def test_a_clustered_files_name_tells_its_order_and_level_and_is_one_of_ours(order, level, rest):
    file_id = _id(5)
    path = f"data/p=1/{names.clustered_file_name(file_id, order, level, *rest)}"
    assert names.clustering_of(path) == (names.order_digest(order), level)
    assert names.written_id(path) == names.file_id(path) == file_id


@settings(deadline=None)
@given(st.text(max_size=30), st.tuples(*[st.integers(0, 10**9)] * 3))
def test_no_file_of_a_stream_looks_clustered_whatever_its_application_is_called(app_id, rest):
    for app in (app_id, f"clustered-{app_id}", "clustered-0123456789ab-1"):
        assert names.clustering_of(names.data_file_name(_id(5), app, *rest)) is None


def test_different_orders_have_different_digests():
    orders = [
        ClusteringPolicy(sort_by=by, strategy=how).order
        for by in (["a"], ["a", "b"], ["a desc"])
        for how in ("sort", "zorder", "hilbert")
    ]
    lengths = [
        ClusteringPolicy(strategy=Strategy("shortest", (("column", column),))).order for column in ("a", "b")
    ]
    assert len({names.order_digest(order) for order in [*orders, *lengths]}) == len(orders) + len(lengths)


# ---------------------------------------------------------------------------------- what the planner is told


def test_bounds_of_the_sort_columns_are_decoded_and_others_left_out(table):
    table.commit([Append((_file(table, f"{_id(7000)}-app-0-0-0.parquet", -5, 9),))])
    assert _known(table).bounds == (ColumnBounds("id", -5, 9), ColumnBounds("text", "a", "b"))
    assert _known(table, ClusteringPolicy(sort_by=["text"])).bounds == (ColumnBounds("text", "a", "b"),)
    assert _known(table, ClusteringPolicy()).bounds == ()


@pytest.mark.parametrize(("low", "high"), [(None, None), (1, None), (None, 1)])
def test_bounds_of_which_one_is_missing_are_unknown(table, low, high):
    table.commit([Append((_file(table, f"{_id(7000)}-app-0-0-0.parquet", low, high),))])
    assert _known(table).bounds == ()


def test_a_file_is_of_the_policys_order_of_another_or_of_none(table):
    name = names.clustered_file_name(_id(7000), SORTED.order, 3, 0, 0, 0)
    table.commit([Append((_file(table, name),))])
    known = _known(table)
    assert (known.clustered_by, known.level, known.sorted) == (SORTED.order, 3, True)
    for other in (ClusteringPolicy(sort_by=["id"]), ClusteringPolicy()):
        known = _known(table, other)
        assert known.sorted
        assert known.clustered_by not in (None, other.order)


def test_a_files_time_is_that_of_its_id_and_a_strangers_that_of_its_snapshot(table):
    table.commit([Append((_file(table, f"{_id(7000)}-app-0-0-0.parquet"),))])
    assert (_known(table).committed_at, _known(table).sorted) == (7000, False)
    stranger = Table.create(LocalStore(table.store.location + "2"), SCHEMA, store_is_checked=True)
    stranger.commit([Append((_file(stranger, "part-00000.parquet"),))])
    assert _known(stranger).committed_at == stranger.head.snapshot.timestamp_ms


def test_a_reserved_file_names_its_plan(table):
    file = _file(table, f"{_id(7000)}-app-0-0-0.parquet")
    table.commit([Append((file,))])
    assert _known(table, reserved={file.file_path: "plan"}).reserved_by == "plan"


# --------------------------------------------------------------------------- what fills leave alone, and why


def test_a_file_along_a_curve_is_not_filled_though_it_names_no_sort_order(table):
    name = names.clustered_file_name(_id(7000), "zorder(id asc nulls first)", 0, 0, 0, 0)
    table.commit([Append((_file(table, name),))])
    plan = plan_batch(table.head, 0, (Arrival((), 10),), FILLING, 2, Experience()).plan
    assert [bucket.inputs for bucket in plan.buckets] == [()]
    assert [it.reason for it in plan.decisions] == ["carries a sort order"]


def test_a_file_that_a_plan_reserves_is_not_filled(table):
    file = _file(table, f"{_id(7000)}-app-0-0-0.parquet")
    table.commit([Append((file,))])

    def inputs(reserved):
        plan = plan_batch(table.head, 0, (Arrival((), 10),), FILLING, 2, Experience(), reserved).plan
        return [[it.path for it in bucket.inputs] for bucket in plan.buckets]

    assert inputs({}) == [[file.file_path]]
    assert inputs({file.file_path: "01PLAN"}) == [[]]


# ---------------------------------------------------------------------------------- options, checked together


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sort": ["a"]}, TypeError, "Clustering has no option 'sort'; did you mean 'sort_by'?"),
        ({"every_commit": 4}, TypeError, "did you mean 'every_commits'?"),
        ({"every_commits": 0}, ValueError, "every_commits must be a whole number of at least 1: 0"),
        ({"sort_by": ["a"], "strategy": "zoder"}, ValueError, "'zoder'; did you mean 'zorder'?"),
        ({"strategy": "sort"}, ValueError, "strategy 'sort' needs columns to sort by"),
        ({"sort_by": "a"}, ValueError, "must be a list of columns"),
        ({"target_file_bytes": "1MiB"}, ValueError, "target_file_bytes must be above small_file_bytes"),
        ({"max_bytes_per_pass": "1MiB"}, ValueError, "max_bytes_per_pass must reach target_file_bytes"),
        ({"max_group_bytes": "2GiB"}, ValueError, "max_bytes_per_pass must hold a group"),
        ({"memory_bytes": 10}, ValueError, "memory_bytes must be at least 1,048,576"),
        ({"sort_by": ["a"], "strategy": "sort", "parameters": {"x": "1"}}, ValueError, "takes no parameters"),
        ({"strategy": Strategy("mine")}, ValueError, "unknown clustering strategy 'mine'"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_are_refused_where_they_are_said(options, error, message):
    with pytest.raises(error) as refused:
        Clustering(**options)
    assert message in str(refused.value)


def test_ones_own_strategy_is_known_by_its_name():
    asked = pass_of(strategy="mine", parameters={"n": "1"}, strategies={"mine": dict})
    assert asked.policy.strategy == Strategy("mine", (("n", "1"),))


def test_a_group_of_a_pass_is_never_larger_than_the_pass():
    assert pass_of().policy.max_group_bytes == 1024**3
    assert pass_of(max_bytes_per_pass="10GiB").policy.max_group_bytes == 4 * 1024**3


def test_a_sink_takes_nothing_but_a_clustering():
    with pytest.raises(TypeError, match="clustering must be a Clustering, such as"):
        flat_options("/lake/events", {"clustering": {"sort_by": ["id"]}})


def test_inline_clustering_pickles_with_the_sink():
    inline = Clustering(every_commits=3, **OPTIONS)
    assert pickle.loads(pickle.dumps(inline)) == inline


# ----------------------------------------------------------------------------------------------- what is due


def test_commits_are_counted_in_the_head_and_every_third_is_due(table, location):
    inline = Clustering(every_commits=3)
    due = []
    for number in range(7):
        writer = Table.open(LocalStore(location))  # another process each time
        file = _file(writer, f"{_id(number)}-app-0-0-0.parquet")
        writer.commit([Append((file,)), CountCommit()])
        writer.commit([SetProperties({"n": str(number)})])
        due.append(inline.is_due(writer.head))
    assert due == [False, False, True, False, False, True, False]


def test_a_count_goes_on_over_a_lost_race(table, location):
    late = Table.open(LocalStore(location))
    table.commit([CountCommit()])
    late.commit([CountCommit()])
    assert late.head.counted_commits == 2


def test_a_table_without_counted_commits_is_never_due(table):
    assert not Clustering(every_commits=1).is_due(table.head)


# ------------------------------------------------------------------------------------------- without Spark


@pytest.fixture
def two_files(table, location):
    files = tuple(_file(table, f"{_id(7000 + n)}-app-0-0-0.parquet", n, n + 5) for n in range(2))
    table.commit([Append(files)])
    return [file.file_path for file in files]


def test_plans_are_scheduled_shown_and_cancelled_on_a_location(location, two_files, caplog):
    assert clustering.plan(location, **OPTIONS).groups[0].inputs == tuple(two_files)
    assert clustering.show(location) == ()
    scheduled = clustering.schedule(location, **OPTIONS)
    (shown,) = clustering.show(location)
    assert (shown.plan_id, shown.state) == (scheduled.plan_id, instants.State.REQUESTED)
    with caplog.at_level(logging.INFO, "streaming_sink"):
        assert clustering.schedule(location, **OPTIONS) is None
        report = clustering.schedule_and_execute(None, location, **OPTIONS)
    said = [it.getMessage() for it in caplog.records if "clustering" in it.getMessage()]
    assert len(said) == 2
    reserved = f"reserved by plan {scheduled.plan_id}"
    why = f"clustering: nothing to do: 2 files: {reserved}"
    assert set(said) == {f"{location}: {why}"}
    assert (report.outcome, report.why, report.line(), report.groups) == ("nothing", why, why, ())
    assert clustering.cancel(location, scheduled.plan_id)
    assert clustering.show(location)[0].state is instants.State.CANCELLED


def test_a_column_that_the_table_lacks_is_told_with_the_nearest(location, two_files):
    with pytest.raises(ValueError, match=r"unknown sort column 'txt'; did you mean 'text'\?"):
        clustering.schedule(location, **{**OPTIONS, "sort_by": ["txt"]})


def test_a_column_whose_type_has_no_order_is_refused_by_name(tmp_path, capsys):
    tags = ListType(3, StringType(), element_required=False)
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "tags", tags))
    location = str(tmp_path / "tags")
    Table.create(LocalStore(location), schema, store_is_checked=True)
    for strategy in ("sort", "zorder", "hilbert"):
        with pytest.raises(ValueError, match="column 'tags' has no order to sort by"):
            clustering.plan(location, **{**OPTIONS, "sort_by": ["id", "tags"], "strategy": strategy})
    assert main(["cluster", location, "--sort-by", "tags", "--dry-run"]) == CANNOT
    assert "column 'tags' has no order to sort by" in capsys.readouterr().err


def test_the_command_line_plans_schedules_shows_and_cancels(location, two_files, capsys):
    sizes = ["--target-file-bytes", "1MiB", "--small-file-bytes", "64KiB"]
    arguments = ["cluster", location, "--sort-by", "id, text desc", "--strategy", "zorder", *sizes]
    assert main([*arguments, "--dry-run"]) == DONE
    out = capsys.readouterr().out
    assert out.startswith("clustering plan: 1 group, 2 files -> 1")
    assert "zorder(id asc nulls first, text desc nulls last)" in out
    assert main(["plans", location]) == DONE
    assert capsys.readouterr().out == "no plan is pending, and none ended in the last week\n"

    assert main([*arguments, "--schedule-only"]) == DONE
    plan_id = capsys.readouterr().out.splitlines()[0]
    assert main(["plans", location]) == DONE
    assert capsys.readouterr().out.splitlines()[-1].split()[:3] == [plan_id, "requested", "zorder"]
    assert main(["cancel", location, plan_id]) == DONE
    assert main(["plans", location]) == DONE
    assert capsys.readouterr().out.splitlines()[-1].split()[:2] == [plan_id, "cancelled"]
    assert main(["cancel", location, plan_id]) == CANNOT
    assert f"no plan {plan_id} is pending" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sort-by", "txt"], "cluster: unknown sort column 'txt'; did you mean 'text'?"),
        (["--sort-by", "id", "--strategy", "zoder"], "did you mean 'zorder'?"),
        (["--select", "by_sise"], "unknown plan strategy 'by_sise'; did you mean 'by_size'?"),
        (["--select", "recent_partitions"], "plan strategy 'recent_partitions' needs look_back="),
        (["--select", "recent_partitions,look_back"], "look_back takes a whole number, as in look_back=3"),
        (["--select", "recent_partitions,lok_back=3"], "did you mean 'look_back'?"),
        (["--target-file-bytes", "1MiB"], "--target-file-bytes must be above --small-file-bytes"),
        (["--max-group-files", "1"], "--max-group-files must be an integer of at least 2"),
        (["--where", "month=1"], "the table is not partitioned, so there is nothing to choose by: month=1"),
        (["--dry-run", "--pending"], "--dry-run, --schedule-only and --pending exclude each other"),
        (["--wait", "10 minutes"], "--wait waits for other executors; give it with --pending"),
        (["--pending", "--wait", "5 minutes"], "--wait must be longer: 5 minutes"),
        (["--pending", "--wait", "soon"], "--wait must be a number of seconds, minutes, hours or days"),
        (["--pending", "--sort-by", "id"], "executes plans as they were saved: drop --sort-by"),
        (["--pending", "--select", "all"], "executes plans as they were saved: drop --select"),
        (["--pending", "--parameter", "a=b"], "executes plans as they were saved: drop --parameter"),
        (["--pending", "--memory-bytes", "1KiB"], "--memory-bytes must be at least 1,048,576"),
    ],
)
def test_the_command_line_refuses_what_cannot_be(location, two_files, capsys, arguments, message):
    assert main(["cluster", location, *arguments]) == CANNOT
    assert message in capsys.readouterr().err


def test_every_option_of_a_pass_that_is_no_code_is_on_the_command_line(location, capsys):
    assert main(["cluster", "--help"]) == DONE
    shown = capsys.readouterr().out
    names = {name.replace("_", "-") for name in PassOptions.__annotations__} - {
        "strategies",
        "keys",
        "parameters",
    }
    assert [name for name in (*names, "parameter") if f"--{name}" not in shown] == []


def test_numbers_and_parameters_of_the_command_line_reach_the_plan(location, two_files, capsys):
    sizes = ["--target-file-bytes", "1MiB", "--small-file-bytes", "64KiB"]
    select = ["--select", "all", "--select", "by_overlap,others=2", "--overlap-at-least", "2"]
    assert main(["cluster", location, "--sort-by", "id", *sizes, *select, "--dry-run"]) == DONE
    out = capsys.readouterr().out
    assert "selected by: all(), by_overlap(others=2)" in out
    assert "shares keys with 1 other files, below 2" in out
    assert main(["cluster", location, *sizes, "--parameter", "x=1", "--dry-run"]) == CANNOT
    assert "takes no parameters" in capsys.readouterr().err


def test_as_json_cluster_prints_one_object_with_the_same_keys_in_all_its_modes(location, two_files, capsys):
    sizes = ["--target-file-bytes", "1MiB", "--small-file-bytes", "64KiB"]

    def said(*arguments):
        assert main(["cluster", location, *arguments, "--json"]) == DONE
        return json.loads(capsys.readouterr().out)

    planned = said("--sort-by", "id", *sizes, "--dry-run")
    assert [planned["plan_id"], planned["reports"], planned["held"], planned["why"]] == [None, [], [], ""]
    assert [len(group["inputs"]) for group in planned["plan"]["groups"]] == [2]
    scheduled = said("--sort-by", "id", *sizes, "--schedule-only")
    assert scheduled == {**planned, "plan_id": scheduled["plan_id"], "plan": scheduled["plan"]}
    nothing = said("--sort-by", "id", *sizes)
    assert nothing["plan_id"] is None
    assert nothing["why"].startswith("nothing to do: 2 files: ")
    assert instants.claim_plan(Table.open(LocalStore(location)), scheduled["plan_id"])
    assert said("--pending")["held"] == [scheduled["plan_id"]]
    assert main(["cancel", location, scheduled["plan_id"], "--json"]) == DONE
    assert json.loads(capsys.readouterr().out) == {"plan_id": scheduled["plan_id"], "cancelled": True}


def test_where_there_is_nothing_to_do_the_command_line_says_why(location, two_files, capsys):
    select = ["--select", "by_overlap,others=9", "--sort-by", "id"]
    assert main(["cluster", location, *select]) == DONE
    why = "nothing to do: 2 files: shares keys with 1 other files, below 9\n"
    assert capsys.readouterr().out == why


def test_a_claimed_plan_is_told_and_with_patience_its_executor_is_watched(
    location, two_files, capsys, monkeypatch
):
    plan_id = clustering.schedule(location, **OPTIONS).plan_id
    claim = instants.claim_plan(Table.open(LocalStore(location)), plan_id)
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds
        assert claim.beat()

    monkeypatch.setattr(
        "streaming_sink.commands.clustering_pass.SYSTEM", Environment(monotonic=lambda: now[0], sleep=sleep)
    )
    assert main(["cluster", location, "--pending"]) == DONE
    told = capsys.readouterr().out
    assert told.startswith(f"clustering {plan_id}: another executor has it, which may have died; --wait ")
    assert now == [0.0]
    assert main(["cluster", location, "--pending", "--wait", "1 hour"]) == DONE
    told = capsys.readouterr().out
    assert told == f"clustering {plan_id}: another executor has it, which wrote heartbeats\n"
    assert now == [3600.0]


def test_only_carrying_out_starts_spark(location, two_files):
    arguments = [["cluster", location, "--dry-run"], ["cluster", location, "--pending"], ["plans", location]]
    code = (
        "import sys\nfrom streaming_sink.commands.cli import main\n"
        f"for given in {arguments!r}: assert main(given) == 0\n"
        "assert 'pyspark.sql' not in sys.modules, 'pyspark was imported'\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
