"""Which manifests a clustering pass reads to find the files of its plan."""

from __future__ import annotations

from dataclasses import replace

from planners.clustering.planner import plan_clustering
from planners.clustering.policy import ClusteringPolicy
from streaming_sink.clustering.groups import match_groups
from streaming_sink.clustering.known_files import known_files
from tests.unit.timeline.test_manifest_reads import reading
from tests.unit.timeline.world import Lake
from timeline.changes.changes import Append

POLICY = ClusteringPolicy(target_file_bytes=100_000, small_file_bytes=1_400)


def test_a_pass_reads_the_manifests_that_may_hold_its_files() -> None:
    lake = Lake()
    for number in range(6):
        lake.clock.now_ms += 1_000
        lake.table.commit([Append(tuple(lake.file(p=number, size=1_000) for _ in range(2)))])
    plan = plan_clustering(known_files(lake.open().head, POLICY, {}), 1, POLICY)
    one = plan.groups[0]
    table, store = reading(lake)
    store.manifests()
    [group] = match_groups(table.head, replace(plan, groups=(one,)), has_keys=False)
    assert {file.location for file in group.inputs} == set(one.inputs)
    assert store.manifests() == 1
