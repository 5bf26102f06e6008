"""The probe of a catalog: what would lose rows is refused, with the reason, and what it lacks is known."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
)
from pyiceberg.typedef import Record
from pyiceberg.types import LongType

from tests.unit.timeline.catalogs.defects import FaultyCatalog
from tests.unit.timeline.world import SCHEMA, data_file
from timeline import names, properties
from timeline.catalogs import probed_log
from timeline.catalogs.opening import create_in_catalog, open_in_catalog
from timeline.catalogs.probing.probe import Capabilities, probe_catalog
from timeline.catalogs.probing.scratch import Scratch
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.changes.follow_changes import HoldFollowed
from timeline.clock import SYSTEM
from timeline.errors import StoreUnavailableError, UnsafeCatalogError
from timeline.stores import LocalStore
from timeline.table import Table

TABLE = ("db", "t")
ALL = Capabilities(raced=True, keeps_both=True, removes_snapshots=True, keeps_tags=True)


class Lake:
    """A catalog of this test's own, and its connections."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[FaultyCatalog] = []
        self.defects: tuple[Any, ...] = ()
        self.connect().create_namespace("db")

    def connect(self) -> FaultyCatalog:
        self.made.append(FaultyCatalog(self.folder, *self.defects))
        return self.made[-1]

    def probe(self, *defects: Any) -> Capabilities:
        self.defects = defects
        return probe_catalog(self.connect, TABLE, LocalStore, SYSTEM)

    def create(self, given: dict[str, str] | None = None) -> Table:
        catalog, spec = self.connect(), UNPARTITIONED_PARTITION_SPEC
        return create_in_catalog(catalog, TABLE, LocalStore, SCHEMA, spec, given or {}, connect=self.connect)

    def open(self) -> Table:
        return open_in_catalog(self.connect(), TABLE, LocalStore, connect=self.connect)

    def tables(self) -> list[Any]:
        return self.made[0].list_tables("db")

    def files(self) -> set[str]:
        return {str(it.relative_to(self.folder)) for it in (self.folder / "lake").rglob("*") if it.is_file()}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    probed_log._shown.clear()
    made = Lake(tmp_path)
    yield made
    for catalog in made.made:
        catalog.engine.dispose()


def test_a_catalog_that_keeps_all_is_taken_and_nothing_of_the_probe_stays(lake: Lake) -> None:
    assert lake.probe() == ALL
    assert lake.tables() == []
    assert lake.files() == set()


@pytest.mark.parametrize(
    ("defect", "said"),
    [
        ("the last writer wins", "acknowledged rows of writers that meet would be lost"),
        ("the last wins on empty", "raced on an empty table.*would be lost"),
        ("passes over an empty main", "passes over the requirement that a table is empty"),
        ("takes numbers twice", "takes a sequence number twice"),
        ("acknowledges one that it does not write", "acknowledged, and is not there"),
        ("keeps the current snapshot only", "drops the snapshots from before it"),
        (AssertRefSnapshotId, "main's snapshot|acknowledged rows"),
        (AssertTableUUID, "passes over the requirement on the table's uuid"),
        (AssertCurrentSchemaId, "passes over the requirement on the schema"),
        (AssertDefaultSpecId, "passes over the requirement on the partition spec"),
        (AssertLastAssignedFieldId, "passes over the requirement on the last field id"),
        (AssertLastAssignedPartitionId, "passes over the requirement on the last partition id"),
    ],
)
def test_a_catalog_that_would_lose_rows_is_refused_and_nothing_of_the_probe_stays(
    lake: Lake, defect: Any, said: str
) -> None:
    with pytest.raises(UnsafeCatalogError, match=said):
        lake.probe(defect)
    assert lake.tables() == []


@pytest.mark.parametrize(
    ("defect", "found"),
    [
        ("keeps one snapshot of a commit", replace(ALL, keeps_both=False)),
        ("forgets parents", replace(ALL, keeps_both=False)),
        ("removes no snapshots", replace(ALL, removes_snapshots=False)),
        ("refuses tags", replace(ALL, keeps_tags=False)),
    ],
)
def test_what_a_catalog_lacks_that_not_all_commits_need_is_known(
    lake: Lake, defect: str, found: Capabilities
) -> None:
    assert lake.probe(defect) == found


def test_a_catalog_that_takes_no_commit_is_no_catalog_that_passed(lake: Lake) -> None:
    with pytest.raises(StoreUnavailableError, match="none has landed"):
        lake.probe("refuses all")


def test_without_the_right_to_make_a_table_requirements_are_tried_and_it_is_said(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    table = lake.create()
    table.commit([Append(())])
    before = table.head.version.identity
    with caplog.at_level(logging.WARNING):
        found = lake.probe("forbids tables")
    assert found == Capabilities(raced=False, keeps_both=False, removes_snapshots=False, keeps_tags=False)
    assert "no race of commits was run" in caplog.text
    assert lake.open().head.version.identity == before, "the table was changed"
    for defect in (AssertRefSnapshotId, AssertTableUUID, AssertDefaultSpecId, AssertLastAssignedFieldId):
        with pytest.raises(UnsafeCatalogError, match="passes over"):
            lake.probe("forbids tables", defect)
    with pytest.raises(StoreUnavailableError, match=r"neither a scratch table.*nor a commit"):
        lake.probe("forbids tables", "refuses all")
    assert lake.open().head.version.identity == before
    assert lake.tables() == [TABLE]


@pytest.mark.parametrize("before_request", range(8))
def test_a_probe_on_the_table_itself_leaves_what_another_engine_does_to_its_columns(
    lake: Lake, before_request: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is undone, and none makes true what the probe takes for untrue."""
    lake.create().commit([Append(())])
    send, sent = Scratch.send, itertools.count()

    def send_after_another(self: Any, *given: Any, **named: Any) -> Any:
        if next(sent) == before_request:
            other = lake.connect()
            other.defects.clear()
            other.load_table(TABLE).update_schema().add_column("theirs", LongType()).commit()
        return send(self, *given, **named)

    monkeypatch.setattr(Scratch, "send", send_after_another)
    assert not lake.probe("forbids tables").raced
    assert next(sent) > before_request
    assert "theirs" in lake.made[0].load_table(TABLE).schema().column_names


@pytest.mark.parametrize("defect", ["keeps one snapshot of a commit", "forbids tables"])
def test_an_append_stream_goes_on_where_one_snapshot_of_a_commit_is_kept(lake: Lake, defect: str) -> None:
    """Manifests wait for a commit that adds no rows, also in a sink that has found the probe's record."""
    table = lake.create({properties.MANIFEST_MIN_MERGE_COUNT: "2"})
    lake.defects = (defect,)
    files = [data_file(f"{table.store.location}/data/{n}", 1, partition=Record()) for n in range(5)]
    for number, file in enumerate(files):
        if number == 3:
            probed_log._shown.clear()  # another process
            table = lake.open()
        table.commit([Append((file,))])
    assert len(lake.open().head.manifests) == 5
    merged = data_file(f"{table.store.location}/data/m", 2, partition=Record())
    table.commit([Replace(frozenset(it.file_path for it in files[:2]), (merged,))])
    head = lake.open().head
    assert len(head.manifests) < 5
    assert len(list(head.live_files())) == 4


def test_where_tags_are_refused_a_stream_with_a_change_log_goes_on_without(lake: Lake) -> None:
    lake.defects = ("refuses tags",)
    table = lake.create()
    small, new, merged = (
        data_file(f"{table.store.location}/data/{name}", rows, partition=Record())
        for name, rows in (("a", 1), ("b", 1), ("c", 2))
    )
    table.commit([Append((small,)), HoldFollowed("a log")])
    replaced = Replace(frozenset({small.file_path, new.file_path}), (merged,))
    table.commit([Append((new,)), replaced, HoldFollowed("a log")])
    head = lake.open().head
    assert [each.location for each in head.live_files()] == [merged.file_path]
    assert set(head.metadata.refs) == {"main"}


def test_the_first_commit_of_a_writer_probes_and_the_table_remembers_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create().commit([SetProperties({"a": "1"})])
    probes = [path for path in lake.files() if names.CATALOG_PROBE_FOLDER in path]
    assert len(probes) == 1
    stated = json.loads((lake.folder / probes[0]).read_bytes())
    assert stated["shown"] == asdict(ALL)

    connections = len(lake.made)
    lake.open().commit([SetProperties({"a": "2"})])
    probed_log._shown.clear()  # another process
    lake.open().commit([SetProperties({"a": "3"})])
    assert len(lake.made) == connections + 2, "it was probed again"

    monkeypatch.setattr(probed_log, "_REVISION", 99)  # of a release that tries more
    lake.open().commit([SetProperties({"a": "4"})])
    assert len(lake.made) > connections + 3


def test_a_record_of_a_probe_that_cannot_be_read_is_no_record(lake: Lake) -> None:
    lake.create().commit([SetProperties({"a": "1"})])
    (path,) = (path for path in lake.files() if names.CATALOG_PROBE_FOLDER in path)
    for damaged in (b"", b"[]", b'{"shown": {"raced": true}}'):
        (lake.folder / path).write_bytes(damaged)
        probed_log._shown.clear()
        connections = len(lake.made)
        lake.open().commit([SetProperties({"a": "2"})])
        assert len(lake.made) > connections + 1


def test_nothing_is_written_through_a_catalog_that_is_refused(lake: Lake) -> None:
    lake.defects = ("the last wins on empty",)
    table = lake.create()
    for _ in range(2):
        with pytest.raises(UnsafeCatalogError, match="Nothing was written"):
            table.commit([SetProperties({"a": "1"})])
    with pytest.raises(UnsafeCatalogError):
        lake.open().ensure_store_is_safe()
    assert lake.open().head.number == 0
    assert not [path for path in lake.files() if names.CATALOG_PROBE_FOLDER in path]


def test_reading_needs_no_probe(lake: Lake) -> None:
    lake.create()
    connections = len(lake.made)
    lake.open().refresh()
    assert len(lake.made) == connections + 1


def test_two_snapshots_are_not_committed_where_one_would_be_kept(lake: Lake) -> None:
    lake.defects = ("keeps one snapshot of a commit",)
    table = lake.create()
    small, new, merged = (
        data_file(f"{table.store.location}/data/{name}", rows, partition=Record())
        for name, rows in (("a", 1), ("b", 1), ("c", 2))
    )
    table.commit([Append((small,))])
    before = lake.open().head.version.identity
    with pytest.raises(UnsafeCatalogError, match='Use fill="beside"'):
        table.commit([Append((new,)), Replace(frozenset({small.file_path, new.file_path}), (merged,))])
    assert lake.open().head.version.identity == before
