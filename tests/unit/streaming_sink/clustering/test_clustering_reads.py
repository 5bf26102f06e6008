"""Which manifests a clustering pass reads, to plan and to find its files, and that it misses none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile

from planners.clustering import bound
from planners.clustering.candidates import Candidates
from planners.clustering.plan import ClusteringPlan
from planners.clustering.planner import plan_clustering
from planners.clustering.policy import All, BySize, ClusteringPolicy, PlanStrategy
from planners.clustering.selection import ByOverlap, RecentPartitions, SelectedPartitions
from streaming_sink.clustering import known_files as known
from streaming_sink.clustering.groups import match_groups
from streaming_sink.clustering.known_files import known_files
from streaming_sink.clustering.where import partitions_where
from tests.tiers import count, longer_in_soak
from tests.unit.timeline.test_manifest_reads import Reading, reading
from tests.unit.timeline.world import Lake
from timeline import names
from timeline.changes.changes import Append, Replace
from timeline.changes.row_deltas import RowDelta
from timeline.manifests import contents
from timeline.table import Table
from timeline.versions.head import Head

POLICY = ClusteringPolicy(target_file_bytes=100_000, small_file_bytes=1_400, overlap_at_least=2)
SORTED = ClusteringPolicy(sort_by=["id"], target_file_bytes=100_000, small_file_bytes=1_400)


def _plan(head: Head, policy: ClusteringPolicy = POLICY) -> ClusteringPlan:
    return plan_clustering(known_files(head, policy, {}).files, 1, policy)


def _file(
    lake: Lake, order: str | None, p: int, size: int, keys: tuple[int, int], rows: int | Iterable[int] = 10
) -> DataFile:
    """Return a file with bounds on its keys, in an order where one is given."""
    file = lake.file(rows, p=p, size=size)
    if order is not None:
        level = size % 2
        name = names.clustered_file_name(names.file_id(file.file_path) or "", order, level, 1, 1, 0)
        held = lake.rows.pop(file.file_path)
        file[1] = f"{file.file_path.rpartition('/')[0]}/{name}"
        lake.rows[file.file_path] = held
    for bounds, key in zip((file.lower_bounds, file.upper_bounds), keys, strict=True):
        bounds[1] = key.to_bytes(8, "little")
    return file


# ---------------------------------------------------------------------------- a plan of all files is the same

_SIZES = [400, 900, 1_401, 3_000]
_COMMITS = st.lists(
    st.lists(
        st.tuples(
            st.booleans(), st.integers(0, 3), st.sampled_from([400, 900, 1_401, 3_000]), st.integers(0, 9)
        ),
        min_size=1,
        max_size=6,
    ),
    min_size=1,
    max_size=6,
)
_SELECTS: list[list[PlanStrategy]] = [
    [BySize()],
    [All()],
    [RecentPartitions(look_back=1, skip_latest=1)],
    [RecentPartitions(look_back=2), BySize()],
    [BySize(), RecentPartitions(look_back=1)],
    [SelectedPartitions(lambda values: values[0] in (1, 2), "p in 1, 2", {0: [(1, 2)]}), BySize()],
    [BySize(), ByOverlap()],
    [SelectedPartitions(lambda values: values[0] < 2, "p < 2"), RecentPartitions(look_back=1)],
]
"""By what files are chosen; see `candidates`."""


@contextmanager
def _reading_all() -> Iterator[None]:
    with (
        mock.patch.object(known, "candidates", return_value=Candidates()),
        mock.patch.object(known, "files_to_compare", lambda files, *_: {it.path for it in files}),
    ):
        yield


@longer_in_soak
@settings(max_examples=count(100, 200), deadline=None)
@given(
    _COMMITS,
    st.sampled_from(_SELECTS),
    st.sampled_from(["sort", "zorder", None]),
    st.integers(1, 3),
    st.integers(0, 3),
    st.booleans(),
)
def test_a_plan_has_the_groups_of_a_plan_of_all_files(
    commits: list[list[tuple[bool, int, int, int]]],
    select: list[PlanStrategy],
    strategy: str | None,
    overlap: int,
    deletes: int,
    large: bool,
) -> None:
    policy = ClusteringPolicy(
        sort_by=["id"] if strategy else [],
        strategy=strategy,
        select=select,
        target_file_bytes=2_000,
        small_file_bytes=1_400,
        max_group_bytes=6_000,
        overlap_at_least=overlap + 1,
    )
    lake = Lake()
    files = []
    for commit in commits:
        lake.clock.now_ms += 1_000
        made = [
            _file(lake, policy.order if in_order else None, p, size, (start, start + 3))
            for in_order, p, size, start in commit
        ]
        lake.table.commit([Append(tuple(made))], open_below_bytes=1_000)
        files += made
    worn = [file for file in files if file.file_size_in_bytes == 3_000][:deletes]
    if worn:
        lake.table.commit([RowDelta((), tuple(lake.deletes(file, *range(6)) for file in worn))])
    with (
        mock.patch.object(contents, "_CACHED_ENTRIES", 1 if large else 256),
        mock.patch.object(known, "_EXPLAINED", 0),
    ):
        if large:
            for _ in lake.table.head.manifests:
                lake.table.head.write_copies()
        found = _plan(lake.open().head, policy)
        with _reading_all():
            of_all = _plan(lake.open().head, policy)
    assert found.groups == of_all.groups
    assert {it.path for it in found.left_out} <= {it.path for it in of_all.left_out}


# ------------------------------------------------------------------------------- how many manifests are read


@pytest.fixture
def aged(monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Return a table of ten large manifests of a partition's full files each, and of one of small ones."""
    monkeypatch.setattr(contents, "_CACHED_ENTRIES", 2)
    lake = Lake()
    for p in range(10):
        lake.clock.now_ms += 1_000
        full = [_file(lake, SORTED.order, p, 2_000 + 2 * each, (each, each + 1)) for each in range(4)]
        lake.table.commit([Append(tuple(full))], open_below_bytes=1_000)
    lake.clock.now_ms += 1_000
    lake.table.commit([Append(tuple(lake.file(p=3, size=500) for _ in range(2)))], open_below_bytes=1_000)
    assert len(lake.table.head.manifests) == 11
    return lake


def _opened(lake: Lake) -> tuple[Table, Reading]:
    table, store = reading(lake)
    store.manifests()
    return table, store


@pytest.mark.parametrize("policy", [POLICY, SORTED])
def test_a_pass_reads_no_manifest_of_full_files(aged: Lake, policy: ClusteringPolicy) -> None:
    table, store = _opened(aged)
    [group] = _plan(table.head, policy).groups
    assert (len(group.inputs), store.manifests()) == (2, 1)


def test_a_pass_of_some_partitions_reads_the_manifests_that_may_hold_them(aged: Lake) -> None:
    table, store = _opened(aged)
    chosen = partitions_where(table.head, "p=3,p=7")
    assert store.manifests() == 1
    policy = replace(POLICY, select=(All(), chosen))
    [group] = _plan(table.head, policy).groups
    assert (len(group.inputs), store.manifests()) == (2, 2)


def test_a_filter_that_matches_nothing_is_refused_by_the_list_and_says_what_there_is(aged: Lake) -> None:
    table, _ = _opened(aged)
    with pytest.raises(ValueError, match="the filter p=77 matches no partition; there are 10, such as p=0"):
        partitions_where(table.head, "p=77")


def test_a_pass_of_recent_partitions_reads_the_manifests_of_their_files(aged: Lake) -> None:
    table, store = _opened(aged)
    [group] = _plan(table.head, replace(POLICY, select=RecentPartitions(look_back=1))).groups
    assert len(group.inputs) == 2
    assert store.manifests() == 2, "that of the newest files, and that of their partition"


def test_only_manifests_of_files_that_are_compared_are_read_for_their_bounds(aged: Lake) -> None:
    for _ in aged.table.head.manifests:
        aged.table.head.write_copies()
    table, store = _opened(aged)
    policy = replace(SORTED, select=All())
    full = [it for it in known_files(table.head, policy, {}).files if it.bytes >= 1_400]
    assert (len(full), store.manifests()) == (40, 11), "four full files in order are enough to overlap"
    table, store = _opened(aged)
    known_files(table.head, replace(policy, overlap_at_least=5), {})
    assert store.manifests() == 1, "four are too few"


def test_a_pass_reads_the_manifests_that_may_hold_its_files() -> None:
    lake = Lake()
    for number in range(6):
        lake.clock.now_ms += 1_000
        lake.table.commit([Append(tuple(lake.file(p=number, size=1_000) for _ in range(2)))])
    plan = _plan(lake.open().head)
    one = plan.groups[0]
    table, store = _opened(lake)
    [group] = match_groups(table.head, replace(plan, groups=(one,)), has_keys=False)
    assert {file.location for file in group.inputs} == set(one.inputs)
    assert store.manifests() == 1


def test_a_group_whose_input_has_gone_is_dropped_unread(aged: Lake) -> None:
    plan = _plan(aged.open().head)
    inputs = plan.groups[0].inputs
    aged.clock.now_ms += 1_000
    merged = aged.file([row for path in inputs for row in aged.rows[path]], p=3)
    aged.table.commit([Replace(frozenset(inputs), (merged,))], open_below_bytes=1_000)
    table, store = _opened(aged)
    [group] = match_groups(table.head, plan, has_keys=False)
    assert group.dropped.startswith("an input is not live")
    assert store.manifests() <= 1


# ----------------------------------------------------------------------------- a table that was never sorted


@pytest.fixture
def unsorted(monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Return a table of ten large manifests of four files each, none of them in the order of `SORTED`."""
    monkeypatch.setattr(contents, "_CACHED_ENTRIES", 2)
    monkeypatch.setattr(bound, "LEAST_FILES", 6)
    lake = Lake()
    for number in range(10):
        lake.clock.now_ms += 1_000
        made = [_file(lake, None, number % 3, 1_000, (it, it + 1)) for it in range(4)]
        lake.table.commit([Append(tuple(made))], open_below_bytes=900)
    return lake


def _known(table: Table, policy: ClusteringPolicy = SORTED, **given: Any) -> list[str]:
    known = known_files(table.head, policy, **{"reserved": {}, **given})
    return [file.path for file in known.files]


def test_a_plan_compares_the_newest_files_that_are_not_in_order(unsorted: Lake) -> None:
    table, store = _opened(unsorted)
    files = [*unsorted.rows]
    assert len(_known(table)) == 6
    assert store.manifests() <= 6, "the two newest, for files and for bounds, and two that are read ahead"
    assert set(_known(table)[:4]) == set(files[-4:])
    assert len(_known(table, enough_bytes=9_000)) == 9
    assert len(_known(table, reserved=dict.fromkeys(files[-4:], "another plan"))) == 10
    late = tuple(unsorted.file(p=0, size=1_000, id_ms=1) for _ in range(4))
    unsorted.table.commit([Append(late)], open_below_bytes=900)
    assert not {it.file_path for it in late} & {*_known(unsorted.open())}
    in_order = tuple(_file(unsorted, SORTED.order, 0, 1_000, (0, 1)) for _ in range(6))
    unsorted.clock.now_ms += 1_000
    unsorted.table.commit([Append(in_order)], open_below_bytes=900)
    assert len(_known(unsorted.open())) == 12


@pytest.mark.parametrize("select", [ByOverlap(), RecentPartitions(look_back=3)])
def test_a_plan_whose_files_are_judged_by_one_another_knows_them_all(
    unsorted: Lake, select: PlanStrategy
) -> None:
    table, _ = _opened(unsorted)
    assert len(_known(table, replace(SORTED, select=select))) == 40


def test_a_plan_that_joins_knows_the_newest_files_that_make_enough_groups(unsorted: Lake) -> None:
    assert len(_known(unsorted.open(), POLICY)) == 6
    assert len(_known(unsorted.open(), POLICY, enough_bytes=20_000)) == 20
    for number in range(12):
        unsorted.clock.now_ms += 1_000
        alone = unsorted.file(p=100 + number, size=1_000)
        unsorted.table.commit([Append((alone,))], open_below_bytes=900)
    assert len(_known(unsorted.open(), POLICY)) == 24, "a file alone in its partition is joined with none"
    assert len(_known(unsorted.open(), POLICY, enough_bytes=20_000)) == 40, (
        "looked at twelve files, and at twice"
    )
    few = replace(POLICY, max_groups=1)
    assert len(_known(unsorted.open(), few, enough_bytes=20_000)) == 40, "four files in all are not worth it"
    few = replace(POLICY, max_groups=1, max_group_files=4)
    assert len(_known(unsorted.open(), few, enough_bytes=20_000)) == 20


@pytest.mark.parametrize("policy", [POLICY, SORTED])
def test_pass_after_pass_takes_all_files(unsorted: Lake, policy: ClusteringPolicy) -> None:
    lake, passes = unsorted, 0
    while groups := _plan(lake.open().head, policy).groups:
        passes += 1
        assert passes <= 10
        for group in groups:
            lake.clock.now_ms += 1_000
            rows = [row for path in group.inputs for row in lake.rows[path]]
            merged = _file(lake, policy.order, int(group.partition[0]), 2_000, (0, 9), rows)
            lake.table.commit([Replace(frozenset(group.inputs), (merged,))], open_below_bytes=900)
    assert passes > 3
    left = [*lake.open().head.live_files()]
    assert len(left) < 20
    assert not policy.order or all(names.clustering_of(it.location) for it in left)
