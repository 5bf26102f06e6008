"""A table that requires a feature of its writers: all may read it, only those that know the feature write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import pytest

from tests.unit.timeline.cleaning import Shore
from tests.unit.timeline.plans import plan_of
from tests.unit.timeline.world import DAY_MS, NOON, Lake
from timeline import features, properties
from timeline.changes.changes import Append, Change, RaiseFence, Replace, SetProperties
from timeline.changes.plan_changes import CountCommit
from timeline.commit import version_log
from timeline.drafts.draft import Draft
from timeline.errors import UnknownFeatureError
from timeline.maintenance.expiry import expire_snapshots
from timeline.maintenance.orphans import remove_orphan_files
from timeline.plans import instants
from timeline.plans.clustering import CLUSTERING
from timeline.table import Committed, Table


@dataclass(frozen=True)
class RequireFeatures(Change):
    """What a later version does to a table whose old writers would damage it: a kind of change, here."""

    entries: str

    def apply(self, draft: Draft) -> None:
        draft.properties[properties.REQUIRED_FEATURES] = self.entries


def upgrade(table: Table, entries: str = "branches>=0.3") -> None:
    """Commit as a writer of a later version, which adds the requirement."""
    table.commit([RequireFeatures(entries)])


@pytest.fixture
def lake() -> Lake:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    return lake


def test_a_writer_that_lacks_a_feature_is_refused_and_told_which_and_what_to_do(lake: Lake) -> None:
    upgrade(lake.open(), "branches>=0.3, staging")
    table = lake.open()
    with pytest.raises(UnknownFeatureError) as refused:
        table.commit([Append((lake.file(),))])
    text = str(refused.value)
    assert "'branches' (since version 0.3), 'staging'" in text
    assert f"Upgrade streaming-sink, which is version {version('streaming-sink')} here" in text
    assert refused.value.features == ("branches", "staging")
    assert refused.value.location == lake.store.location


def test_reading_stays_allowed(lake: Lake) -> None:
    before = lake.live_rows()
    upgrade(lake.open())
    assert lake.live_rows() == before
    lake.table.refresh()


def test_a_writer_is_refused_before_it_writes_data_files(lake: Lake) -> None:
    upgrade(lake.open())
    with pytest.raises(UnknownFeatureError):
        lake.open().ensure_store_is_safe()


def test_an_upgrade_under_a_running_writer_stops_its_next_commit(lake: Lake) -> None:
    """The head that the writer knows requires nothing; the one that its commit is rebased on does."""
    writer = lake.open()
    writer.ensure_store_is_safe()
    upgrade(lake.open())
    number = lake.open().head.number
    with pytest.raises(UnknownFeatureError):
        writer.commit([Append((lake.file(),))])
    assert lake.open().head.number == number


def test_an_upgrade_that_wins_the_race_stops_the_loser(lake: Lake) -> None:
    writer, other = lake.open(lake.store), lake.open()
    lake.store.creates.append(lambda: upgrade(other))
    with pytest.raises(UnknownFeatureError):
        writer.commit([Append((lake.file(),))])


def _replace(lake: Lake, table: Table) -> Any:
    live = next(iter(table.head.live_files()))
    file = lake.file(lake.rows[live.location], p=0)
    return table.commit([Replace(frozenset({live.location}), (file,))])


@pytest.mark.parametrize(
    "write",
    [
        lambda lake, table: table.commit([Append((lake.file(),))]),
        _replace,
        lambda lake, table: table.commit([SetProperties({"owner": "me"})]),
        lambda lake, table: table.commit([CountCommit()]),
        lambda lake, table: table.commit([RaiseFence("0" * 26)]),
        lambda lake, table: expire_snapshots(table, max_snapshots=1),
        lambda lake, table: instants.schedule_plan(table, plan_of(CLUSTERING, (lake.file(),)), CLUSTERING),
    ],
    ids=["append", "replace", "properties", "count", "fence", "expiry", "plan"],
)
def test_every_kind_of_write_is_refused(lake: Lake, write: Callable[[Lake, Table], Any]) -> None:
    upgrade(lake.open())
    number = lake.open().head.number
    with pytest.raises(UnknownFeatureError):
        write(lake, lake.open())
    assert lake.open().head.number == number


def test_the_orphan_cleaner_deletes_nothing_below_a_fence_that_was_raised_before() -> None:
    shore = Shore()
    shore.append()
    late = [shore.store.relative(shore.file(id_ms=NOON).file_path)]
    shore.clock.now_ms += 5 * DAY_MS
    shore.append()
    remove_orphan_files(shore.table)
    assert late[0] not in shore.paths()
    late.append(shore.store.relative(shore.file(id_ms=NOON).file_path))
    upgrade(shore.table)
    with pytest.raises(UnknownFeatureError):  # no commit is needed to raise the fence
        remove_orphan_files(shore.table, older_than=timedelta(days=4))
    assert late[1] in shore.paths()
    remove_orphan_files(shore.table, older_than=timedelta(days=4), dry_run=True)


def test_a_known_feature_is_no_hindrance(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade(lake.open(), " branches>=0.3 ,")
    monkeypatch.setattr(features, "KNOWN_FEATURES", frozenset({"branches"}))
    assert isinstance(lake.open().commit([Append((lake.file(),))]), Committed)


def test_an_entry_that_is_spelt_in_a_way_to_come_is_refused(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "KNOWN_FEATURES", frozenset({"branches"}))
    upgrade(lake.open(), "keys~2")
    with pytest.raises(UnknownFeatureError, match="'keys~2'"):
        lake.open().commit([Append((lake.file(),))])


def test_no_user_sets_the_property(lake: Lake) -> None:
    with pytest.raises(ValueError, match="belongs to the commit protocol"):
        lake.table.commit([SetProperties({properties.REQUIRED_FEATURES: ""})])
    with pytest.raises(ValueError, match="belongs to the commit protocol"):
        lake.table.commit([SetProperties(removals=frozenset({properties.REQUIRED_FEATURES}))])
    with pytest.raises(ValueError, match="belongs to the commit protocol"):
        Lake(table_properties={properties.REQUIRED_FEATURES: "branches"})


@pytest.mark.parametrize("stale", [False, True], ids=["current", "stale"])
def test_a_writer_that_opened_the_table_before_the_upgrade_deletes_nothing(
    lake: Lake, stale: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_log, "MAINTAIN_EVERY", 1)
    table = lake.open()
    upgrade(lake.open())
    if not stale:
        table.refresh()
    paths = sorted(it.path for it in lake.store.list_below(""))
    with pytest.raises(UnknownFeatureError):
        table.delete_expired(grace_ms=0)
    table.tidy()
    assert sorted(it.path for it in lake.store.list_below("")) == paths


def test_a_plan_leaves_no_file_where_a_feature_is_unknown(lake: Lake) -> None:
    plan_id = instants.schedule_plan(lake.open(), plan_of(CLUSTERING, (lake.file(),)), CLUSTERING)
    table = lake.open()
    upgrade(lake.open())
    paths = sorted(it.path for it in lake.store.list_below(""))
    with pytest.raises(UnknownFeatureError):
        instants.claim_plan(table, plan_id)
    with pytest.raises(UnknownFeatureError):
        instants.schedule_plan(table, plan_of(CLUSTERING, (lake.file(),)), CLUSTERING)
    assert sorted(it.path for it in lake.store.list_below("")) == paths
