"""A worker that dies at any step of write-audit-publish leaves an item that lands once. Without Spark: what
tasks write is a file of three rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink import ingest
from streaming_sink.ingest.auditing import Auditor
from streaming_sink.ingest.item_source import FittedItem, ItemSource, nothing_written
from streaming_sink.ingest.profiling import Profiled
from streaming_sink.ingest.worker import Worker
from streaming_sink.landing.source import SinkParts
from streaming_sink.landing.stages import Written
from streaming_sink.reports.reporting import Steps
from streaming_sink.tasks.results import TaskReport, WrittenFile
from streaming_sink.writing.target import Target
from streaming_sink.writing.writer import WriteResult
from streaming_sink.zones import deciding
from streaming_sink.zones.errors import AuditFailedError
from streaming_sink.zones.landed import read_landed
from streaming_sink.zones.ledger import Ledger, retry
from streaming_sink.zones.planning.flux import Flux
from streaming_sink.zones.records import KIND
from tests.unit.timeline.world import SCHEMA
from timeline import names, staging
from timeline.errors import CommitConflictError, StoreUnavailableError
from timeline.plans.claims import all_instants
from timeline.stores import LocalStore
from timeline.table import Table, open_table
from timeline.versions.staged import staged_items
from timeline.versions.work_items import WorkItem, published_items

_numbers = itertools.count(1)


class _Dies(BaseException):
    """As kill -9, for the process that meets it."""


def dies(*_: object, **__: object) -> None:
    raise _Dies


class Audits:
    """An auditor that counts, and does what a test says."""

    def __init__(self, does: Callable[[], None] = lambda: None) -> None:
        self.seen: list[int] = []
        self.does = does

    def audit(self, session: object, table: Table, item: object, staged: Any) -> None:
        self.seen.append(staged.snapshot_id)
        self.does()


class OwnWrites:
    """Writes what a world writes in the place of tasks."""

    def __init__(self, world: World) -> None:
        self.world = world

    def fit(self, parts: SinkParts, fitted: FittedItem) -> FittedItem:
        return fitted

    def write(self, parts: SinkParts, fitted: FittedItem, item: WorkItem, steps: Steps) -> Written:
        return replace(nothing_written(parts.options, fitted, item), result=self.world.write())

    def learn(self, written: Written, steps: Steps) -> None:
        """Nothing is planned."""


class World:
    """A zone with one item that waits, its table, and how often tasks have written."""

    def __init__(self, folder: Path) -> None:
        self.zone = ingest.BufferZone(str(folder / "zone"), table=str(folder / "table"), audit=True)
        self.table = Table.create(LocalStore(str(folder / "table")), SCHEMA, store_is_checked=True)
        self.folder, self.writes = folder, 0
        source = folder / "0.parquet"
        pq.write_table(pa.table({"id": [0, 1, 2], "p": [0, 1, 2]}), source)
        self.zone.push(str(source))
        Flux(self.zone).plan(flush=True)

    def worker(self, audits: Audits | None) -> Worker:
        made = Worker(self.zone, patience_seconds=0.0)
        landing: Any = made._landing
        auditor = audits if audits is None else mock.create_autospec(Auditor, instance=True)
        if audits is not None:
            auditor.audit = audits.audit
        object.__setattr__(landing._publishing, "auditor", auditor)
        profile = SimpleNamespace(number=0, rows=3, rewritten="it is small")
        landing._profiling = SimpleNamespace(
            profile=lambda *_: Profiled(Target.of(landing._destination.table), [profile])
        )
        source = landing._source

        def source_of_this_world(*given: Any, **named: Any) -> ItemSource:
            made: ItemSource = source(*given, **named)
            made.writer = OwnWrites(self)
            return made

        landing._source = source_of_this_world
        return made

    def land(self, audits: Audits | None) -> list[ingest.Landed]:
        """What a worker lands that looks twice, since it sees a claim twice before it takes it over."""
        worker = self.worker(audits)
        landed = [worker.land_next(None) for _ in range(2)]  # type: ignore[arg-type]
        worker.complete_notes()
        return [each for each in landed if each is not None]

    def write(self, below: str = "table") -> WriteResult:
        self.writes += 1
        name = names.data_file_name(
            names.ulid(names.ulid_time_ms(self.zone.new_id()), next(_numbers)), "a", 0, 0, 0
        )
        path = self.folder / below / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        kinds = (("id", pa.int64(), b"1"), ("p", pa.int32(), b"2"))
        fields = [pa.field(field, kind, metadata={b"PARQUET:field_id": id_}) for field, kind, id_ in kinds]
        pq.write_table(pa.table({"id": [0, 1, 2], "p": [0, 1, 2]}, pa.schema(fields)), path)
        file = WrittenFile(str(path), (), 0, 3, path.stat().st_size, {}, {}, {}, {}, {}, {}, ())
        return WriteResult((file,), (), (), (TaskReport(0, 0, 3, 0.0, 0.0),))

    def check_landed_once(self) -> None:
        head = self.table.refresh()
        assert sum(file.rows for file in head.live_files()) == 3
        assert published_items(head.properties, self.zone.app_id).to_text() == "0"
        assert not staged_items(head.metadata, self.zone.app_id)
        assert [entry.state for entry in Ledger(self.zone).entries()] == ["landed"]


def test_an_item_is_staged_audited_and_published(tmp_path: Path) -> None:
    world, audits = World(tmp_path), Audits()
    (landed,) = world.land(audits)
    assert (landed.rows, landed.files_out, landed.published_before) == (3, 1, False)
    assert landed.oldest_ms <= landed.landed_ms
    assert len(audits.seen) == 1
    assert world.table.refresh().number == 3
    world.check_landed_once()


@pytest.mark.parametrize(
    ("step", "writes", "audits"),
    [("written", 2, 1), ("staged", 1, 1), ("being audited", 1, 2), ("audited", 1, 2), ("published", 1, 1)],
)
def test_a_worker_that_dies_at_a_step_leaves_an_item_that_lands_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, writes: int, audits: int
) -> None:
    world, seen = World(tmp_path), Audits()
    with monkeypatch.context() as dying:
        if step == "written":
            dying.setattr("streaming_sink.ingest.publishing.stage_item", dies)
        elif step == "staged":
            dying.setattr("streaming_sink.ingest.publishing.check_row_counts", dies)
        elif step == "being audited":
            seen.does = dies
        elif step == "audited":
            dying.setattr("timeline.staging.publish_item", dies)
        else:
            dying.setattr("streaming_sink.ingest.worker.write_landed", dies)
        with pytest.raises(_Dies):
            world.land(seen)
    seen.does = lambda: None
    landed = world.land(seen)
    assert [each.rows for each in landed] == ([] if step == "published" else [3])
    assert (world.writes, len(seen.seen), len(set(seen.seen))) == (writes, audits, 1)
    world.check_landed_once()
    assert world.land(seen) == []


def test_what_an_earlier_worker_has_staged_is_told_as_landed_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, audits = World(tmp_path), Audits()
    with monkeypatch.context() as dying:
        dying.setattr("timeline.staging.publish_item", dies)
        with pytest.raises(_Dies):
            world.land(audits)
    (landed,) = world.land(audits)
    assert not landed.published_before
    assert landed.landed_ms >= landed.oldest_ms > 0
    assert (landed.rows, landed.version, world.writes) == (3, 3, 1)


def test_rows_that_a_writer_has_lost_are_not_published(tmp_path: Path) -> None:
    """The count of rows is that of the sources, and not what the written files say of themselves."""
    world = World(tmp_path)
    write = world.write

    def loses_a_row() -> WriteResult:
        whole = write()
        return replace(whole, new=(replace(whole.new[0], rows=2),))

    world.write = loses_a_row  # type: ignore[assignment, method-assign]
    with pytest.raises(CommitConflictError, match="hold 3 rows, and 2 were written"):
        world.worker(Audits()).land_next(None)  # type: ignore[arg-type]
    assert not staged_items(world.table.refresh().metadata, world.zone.app_id)


def test_a_claim_whose_item_has_landed_is_kept_until_its_note_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the store goes away while a pass after the commit runs."""
    world = World(tmp_path)

    def away(*_: object) -> None:
        raise StoreUnavailableError("away")

    with monkeypatch.context() as failing:
        failing.setattr("streaming_sink.landing.landing.Landing._follow", away)
        with pytest.raises(StoreUnavailableError):
            world.worker(None).land_next(None)  # type: ignore[arg-type]
    assert read_landed(world.zone.store, 0) is None
    assert world.worker(None).complete_notes() == 1
    assert read_landed(world.zone.store, 0) is not None
    world.check_landed_once()


def test_a_later_run_notes_what_a_dead_worker_did_not_though_newer_items_have_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    with monkeypatch.context() as dying:
        dying.setattr("streaming_sink.ingest.worker.write_landed", dies)
        with pytest.raises(_Dies):
            world.worker(None).land_next(None)  # type: ignore[arg-type]
    source = tmp_path / "1.parquet"
    pq.write_table(pa.table({"id": [3, 4, 5], "p": [0, 1, 2]}), source)
    world.zone.push(str(source))
    Flux(world.zone).plan(flush=True)
    worker = world.worker(None)
    landed = worker.land_next(None)  # type: ignore[arg-type]
    assert landed is not None
    assert landed.number == 1
    assert [read_landed(world.zone.store, number) is None for number in (0, 1)] == [True, False]
    assert (worker.complete_notes(), worker.complete_notes()) == (1, 0)
    noted = read_landed(world.zone.store, 0)
    assert noted is not None
    assert (noted.rows, noted.version) == (3, landed.version - 1)
    assert all_instants(world.zone.store, KIND) == {}, "a claim that nobody needs was left"


def test_an_item_that_fails_is_held_and_audited_again_when_it_is_freed(tmp_path: Path) -> None:
    world = World(tmp_path)

    def fails() -> None:
        raise AuditFailedError("no")

    audits = Audits(fails)
    for tries in (1, 2):
        assert world.land(audits) == []
        assert [(each.state, each.why) for each in Ledger(world.zone).entries()] == [
            ("held", "its audit has failed: no")
        ]
        assert (len(audits.seen), world.writes) == (tries, 1)
        assert world.land(audits) == []  # no worker takes it
        assert len(audits.seen) == tries
        assert retry(world.zone) == [0]
    assert [each.rows for each in world.land(None)] == [3]  # the zone does not audit any more
    assert world.writes == 1
    world.check_landed_once()


def test_an_operator_publishes_what_is_held(tmp_path: Path) -> None:
    world = World(tmp_path)

    def fails() -> None:
        raise AuditFailedError("no")

    world.land(Audits(fails))
    assert deciding.publish(world.zone, 0).rows == 3
    assert deciding.publish(world.zone, 0).published_before
    world.check_landed_once()
    assert retry(world.zone) == []


def test_two_workers_that_write_one_item_land_it_once(tmp_path: Path) -> None:
    """The other one has staged it since this one looked, and dies."""
    world, audits = World(tmp_path), Audits()
    other = open_table(str(tmp_path / "table"))
    worker = world.worker(audits)
    write = world.write

    def staged_before() -> WriteResult:
        if world.writes == 0:
            theirs = write()
            from streaming_sink.table.data_files import data_file

            file = data_file(theirs.new[0], other.head.spec)
            summary = {"streaming-sink.ingest.rows-expected": "3"}
            staging.stage_item(other, WorkItem(world.zone.app_id, 0), [file], summary=summary)
        return write()

    world.write = staged_before  # type: ignore[assignment, method-assign]
    assert worker.land_next(None) is not None  # type: ignore[arg-type]
    assert world.writes == 2
    world.check_landed_once()


def test_an_item_that_an_operator_discards_during_its_audit_does_not_land(tmp_path: Path) -> None:
    world = World(tmp_path)
    audits = Audits(lambda: deciding.discard(world.zone, 0))
    with pytest.raises(Exception, match="work item 0 was discarded"):
        world.land(audits)
    assert list(world.table.refresh().live_files()) == []
    assert [entry.state for entry in Ledger(world.zone).entries()] == ["discarded"]
    assert world.land(audits) == []
