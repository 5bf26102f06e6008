"""Audits without Spark: what a zone stores, what a worker may run, and what becomes of staged items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record

from streaming_sink import ingest
from streaming_sink.ingest.auditing import Auditor, auditor_of
from streaming_sink.ingest.worker import Worker
from streaming_sink.zones import deciding
from streaming_sink.zones.audit import (
    AuditFailedError,
    StagedFilesLostError,
    check_row_counts,
)
from streaming_sink.zones.cleaning import Cleaned, clean
from streaming_sink.zones.ledger import Ledger
from streaming_sink.zones.planning.flux import Flux
from streaming_sink.zones.status import status
from streaming_sink.zones.write_audit_publish import settle, unstage_old
from tests.sinks import flat_zone
from tests.unit.timeline.world import DAY_MS, NOON, SCHEMA, Lake, data_file
from timeline import names, staging
from timeline.changes.changes import Append
from timeline.changes.references import AllowReferences
from timeline.errors import CommitConflictError
from timeline.stores import LocalStore
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions.staged import find_staged, staged_files, staged_items
from timeline.versions.work_items import WorkItem

ITEM = WorkItem("zone", 3)


def zone_at(folder: Path, **given: object) -> ingest.BufferZone:
    return flat_zone(str(folder / "zone"), table=str(folder / "table"), **given)  # type: ignore[arg-type]


def look(item: ingest.StagedItem) -> bool:
    """An audit that a worker can import."""
    return item.number > 0


# what a zone stores -------------------------------------------------------------------------------


def test_a_zone_publishes_as_it_writes_unless_it_is_told_to_audit(tmp_path: Path) -> None:
    zone = zone_at(tmp_path)
    assert auditor_of(zone) is None
    assert auditor_of(zone_at(tmp_path, audit=True)) == Auditor((), None)
    assert auditor_of(zone_at(tmp_path)) == Auditor((), None)
    assert auditor_of(zone_at(tmp_path, audit=False)) is None
    assert auditor_of(zone_at(tmp_path)) is None


def test_a_zone_stores_what_any_worker_needs_for_its_audit(tmp_path: Path) -> None:
    given = ingest.Audit(conditions=["p >= 0"], function=look, timeout="2 days")
    zone_at(tmp_path, audit=given).definition  # noqa: B018
    other = ingest.BufferZone(str(tmp_path / "zone"))
    assert auditor_of(other) == Auditor(("p >= 0",), look)
    assert other.staged_timeout_ms == 2 * DAY_MS


def test_a_function_that_a_worker_cannot_import_stops_it(tmp_path: Path) -> None:
    def local(item: ingest.StagedItem) -> None:
        """Known to this process alone."""

    zone = zone_at(tmp_path, audit=local)
    assert auditor_of(zone) == Auditor((), local)
    other = ingest.BufferZone(str(tmp_path / "zone"))
    with pytest.raises(ValueError, match="which this process cannot import, so it lands nothing"):
        Worker(other)
    for name in ("__main__:__name__", "no.such:module", f"{__name__}:missing"):
        zone_at(tmp_path, audit=ingest.Audit(function=name)).definition  # noqa: B018
        with pytest.raises(ValueError, match="cannot import"):
            auditor_of(ingest.BufferZone(str(tmp_path / "zone")))
    zone_at(tmp_path, audit=ingest.Audit(function=f"{__name__}:ITEM")).definition  # noqa: B018
    with pytest.raises(ValueError, match="is no function"):
        auditor_of(ingest.BufferZone(str(tmp_path / "zone")))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ingest.Audit(conditions="p >= 0"), "must be a list of SQL conditions"),
        (lambda: ingest.Audit(conditions={"p >= 0": "drop"}), "must be a list of SQL conditions"),
        (lambda: ingest.Audit(conditions=[""]), "must be a list of SQL conditions"),
        (lambda: ingest.Audit(function="audit"), "must be named as package.module:function"),
        (lambda: ingest.Audit(function=7), "must be a function or its name"),  # type: ignore[arg-type]
        (lambda: ingest.Audit(timeout="0 days"), "timeout must be above 0"),
        (lambda: ingest.BufferZone("z", table="t", audit=7), "audit must be True, False"),  # type: ignore[arg-type]
    ],
)
def test_an_audit_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], object], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((TypeError, ValueError), match=message):
        make()


# settled, staged, or neither ----------------------------------------------------------------------


def passes(staged: Snapshot, files: Sequence[DataFile]) -> None:
    """Every item passes."""


def test_what_is_staged_of_a_file_that_the_table_has_got_since_is_written_again() -> None:
    """A file by reference is live once (R28): published as it is, the item would fail for ever."""
    lake = Lake()
    lake.table.commit([AllowReferences()])
    file = data_file("memory://drop-of-a-producer/a.parquet", 10, partition=Record(0), size=10)
    staging.stage_item(lake.table, ITEM, [file])
    lake.table.commit([Append((file,))])
    with pytest.raises(CommitConflictError, match=r"it is written again: .* by reference already"):
        settle(lake.table, ITEM, passes, 0)
    assert settle(lake.table, ITEM, passes, 0) is None


def test_the_order_is_settled_then_staged_then_neither() -> None:
    lake = Lake()
    assert settle(lake.table, ITEM, passes, 0) is None
    staging.stage_item(lake.table, ITEM, [lake.file()])
    assert isinstance(settle(lake.table, ITEM, passes, 0), Committed)
    assert isinstance(settle(lake.table, ITEM, passes, 0), AlreadyCommitted)
    assert lake.live_rows().total() == 10


def test_an_item_that_fails_stays_staged() -> None:
    lake = Lake()
    staging.stage_item(lake.table, ITEM, [lake.file()])

    def fails(staged: Snapshot, files: Sequence[DataFile]) -> None:
        raise AuditFailedError("no")

    with pytest.raises(AuditFailedError):
        settle(lake.table, ITEM, fails, 0)
    assert find_staged(lake.table.refresh(), ITEM) is not None
    assert not lake.live_rows()


def test_nothing_but_what_was_audited_is_published() -> None:
    """Another worker has unstaged it and staged it again, with other files, during the audit."""
    lake = Lake()
    staging.stage_item(lake.table, ITEM, [lake.file()])

    def replaced(staged: Snapshot, files: Sequence[DataFile]) -> None:
        other = lake.open()
        staging.unstage_item(other, ITEM, staged.snapshot_id)
        staging.stage_item(other, ITEM, [lake.file()])

    with pytest.raises(CommitConflictError, match="is not staged in snapshot"):
        settle(lake.table, ITEM, replaced, 0)
    assert not lake.live_rows()


def test_what_is_lost_is_unstaged_and_written_again() -> None:
    for damage in ("its files", "its manifest", "its list"):
        lake = Lake()
        staging.stage_item(lake.table, ITEM, [lake.file()])
        table = lake.open(lake.store)
        staged = find_staged(table.head, ITEM)
        assert staged is not None

        def check(staged: Snapshot, files: Sequence[DataFile], damage: str = damage) -> None:
            if damage == "its files":
                raise StagedFilesLostError("missing")

        if damage == "its list":
            lake.store.delete([lake.store.relative(staged.manifest_list)])
        elif damage == "its manifest":
            (manifest,) = table.head.manifest_files.read_list(staged.manifest_list)
            lake.store.delete([lake.store.relative(manifest.manifest_path)])
        with pytest.raises(CommitConflictError, match="cannot be published; it is written again"):
            settle(table, ITEM, check, 0)
        assert not staged_items(table.refresh().metadata, "zone")
        assert settle(table, ITEM, passes, 0) is None


def test_items_are_unstaged_after_their_time_by_the_tables_own_time() -> None:
    lake = Lake()
    staging.stage_item(lake.table, WorkItem("zone", 0), [lake.file()])
    lake.clock.now_ms += DAY_MS
    staging.stage_item(lake.table, WorkItem("zone", 1), [lake.file()])
    late = lake.open(lake.store)
    lake.clock.now_ms += 365 * DAY_MS  # of this machine's clock, and of no commit
    assert unstage_old(lake.table, "zone", DAY_MS) == []
    assert unstage_old(lake.table, "zone", DAY_MS - 2) == [0]
    assert sorted(staged_items(lake.table.refresh().metadata, "zone")) == [1]
    assert unstage_old(late, "zone", 1000 * DAY_MS) == []


# row counts ---------------------------------------------------------------------------------------


def staged_file(folder: Path, rows: int) -> tuple[Table, Path, Snapshot]:
    """A table on disk with a staged item of one real file, which states that it was made of three rows."""
    from pyiceberg.manifest import DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    table = Table.create(LocalStore(str(folder / "table")), SCHEMA, store_is_checked=True)
    path = folder / "table" / "data" / names.data_file_name(names.ulid(NOON * 2, 1), "a", 0, 0, 0)
    path.parent.mkdir(parents=True)
    fields = [
        pa.field(field.name, kind, metadata={"PARQUET:field_id": str(field.field_id)})
        for field, kind in zip(SCHEMA.fields, (pa.int64(), pa.int32()), strict=True)
    ]
    pq.write_table(pa.table({"id": range(rows), "p": range(rows)}, pa.schema(fields)), path)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=str(path),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows,
        file_size_in_bytes=path.stat().st_size,
    )
    file.spec_id = 0
    staging.stage_item(table, ITEM, [file], summary={"streaming-sink.ingest.rows-expected": "3"})
    found = find_staged(table.head, ITEM)
    assert found is not None
    return table, path, found


def test_rows_are_counted_in_the_staged_files_themselves(tmp_path: Path) -> None:
    table, _, staged = staged_file(tmp_path / "whole", 3)
    check_row_counts(table.store, staged, staged_files(table.head, staged))
    table, _, staged = staged_file(tmp_path / "short", 2)
    with pytest.raises(AuditFailedError, match="2 rows were staged, and the source files have 3"):
        check_row_counts(table.store, staged, staged_files(table.head, staged))


def test_staged_files_that_are_missing_or_cut_off_are_lost(tmp_path: Path) -> None:
    table, path, staged = staged_file(tmp_path, 3)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(StagedFilesLostError):
        check_row_counts(table.store, staged, staged_files(table.head, staged))
    path.unlink()
    with pytest.raises(StagedFilesLostError):
        check_row_counts(table.store, staged, staged_files(table.head, staged))


# an operator --------------------------------------------------------------------------------------


def held(folder: Path) -> tuple[ingest.BufferZone, Table, Path]:
    """A zone whose first item waits, with a source file that a stream has staged in the zone."""
    zone = zone_at(folder, audit=True)
    source = folder / "zone" / "staged" / "app" / "0.parquet"
    source.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), source)
    zone.announce(zone.find([str(source)])[0])
    Flux(zone).plan(flush=True)
    return zone, Table.create(LocalStore(str(folder / "table")), SCHEMA, store_is_checked=True), source


def test_a_discarded_item_keeps_its_files_and_holds_nothing_up(tmp_path: Path) -> None:
    zone, _, source = held(tmp_path)
    deciding.discard(zone, 0)
    deciding.discard(zone, 0)
    assert [(each.state, each.why) for each in Ledger(zone).entries()] == [("discarded", "it was discarded")]
    assert status(zone).open_items == []
    assert Worker(zone).open_items() == {}
    assert clean(zone, "0 seconds") == Cleaned(1, 0)
    assert source.exists()


def test_an_operator_is_told_what_cannot_be(tmp_path: Path) -> None:
    zone, table, _ = held(tmp_path)
    with pytest.raises(ValueError, match="work item 0 is not staged"):
        deciding.publish(zone, 0)
    with pytest.raises(ValueError, match="the zone has no work item 1"):
        deciding.discard(zone, 1)
    table.commit([Append(())], transaction=WorkItem(zone.app_id, 0))
    with pytest.raises(ValueError, match="work item 0 has landed already"):
        deciding.discard(zone, 0)
    empty = ingest.BufferZone(str(tmp_path / "other"), table=str(tmp_path / "none"))
    empty.announce(zone.find([])[0])
    with pytest.raises(ValueError, match="has no work item 0"):
        deciding.discard(empty, 0)


class Limits:
    """An audit that is called, and has no name that another process could import."""

    def __call__(self, item: ingest.StagedItem) -> object:
        raise ValueError("too many rows")


def test_an_object_that_audits_is_imported_by_no_other_process(tmp_path: Path) -> None:
    """Its class would be found in its place, and makes of every item an object, which is not False."""
    assert auditor_of(zone_at(tmp_path, audit=Limits()))
    with pytest.raises(ValueError, match=r"is the function .*:Limits\(\), which this process cannot import"):
        auditor_of(zone_at(tmp_path))
    with pytest.raises(ValueError, match="the zone's audit is no function"):
        auditor_of(zone_at(tmp_path, audit=ingest.Audit(function=f"{__name__}:Limits")))
