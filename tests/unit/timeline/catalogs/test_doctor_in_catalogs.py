"""What the doctor says of a table in a catalog."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.timeline.logs.kinds import Answers, CatalogKind
from tests.unit.timeline.world import BY_P, DAY_MS, SCHEMA
from timeline import names, properties
from timeline.changes.changes import Append
from timeline.diagnosis import Diagnosis, doctor_in_catalog
from timeline.errors import TableNotFoundError
from timeline.retention.expired import Note, SnapshotRecord
from timeline.table import Table

ROWS = pa.table({"id": [1], "p": [0]}, schema=pa.schema([("id", pa.int64()), ("p", pa.int32())]))


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[CatalogKind]:
    made = CatalogKind(tmp_path)
    made.clock.now_ms = int(time.time() * 1000)
    yield made
    made.close()


def diagnose(kind: CatalogKind) -> Diagnosis:
    def open_other(address: str) -> Table:
        raise TableNotFoundError(address)

    return doctor_in_catalog(kind.open(), "lake:db.events", open_other)


def kinds_of(kind: CatalogKind) -> set[str]:
    return {finding.kind for finding in diagnose(kind).findings}


def land(kind: CatalogKind, count: int) -> Table:
    table = kind.create()
    for row in range(count):
        table.commit([Append((kind.file([row]),))])
    return table


def test_a_whole_table_is_healthy_and_it_is_said_what_was_not_looked_at(kind: CatalogKind) -> None:
    land(kind, 3)
    kind.read().append(ROWS)
    found = diagnose(kind)
    assert (found.healthy, found.findings) == (True, ())
    assert found.location == "lake:db.events"
    facts = dict(found.facts)
    assert facts["version"] == "4"
    assert facts["current"].startswith("4 rows in 4 files")
    assert "hint" in facts["not looked at"]


def test_a_table_of_another_engine_is_looked_at(kind: CatalogKind) -> None:
    kind._catalog(Answers()).create_table(("lake", "table"), SCHEMA, partition_spec=BY_P)
    kind.read().append(ROWS)
    assert diagnose(kind).findings == ()


def test_a_rollback_is_told_with_the_snapshots_that_left(kind: CatalogKind) -> None:
    land(kind, 3)
    first, *left = [it.snapshot_id for it in kind.read().snapshots()]
    kind.read().manage_snapshots().set_current_snapshot(first).commit()
    (finding,) = diagnose(kind).findings
    assert finding.kind == "rolled-back"
    assert "2 snapshots" in finding.what
    assert all(str(each) in finding.what for each in left)


def test_a_table_that_was_replaced_is_damage_and_says_the_command(kind: CatalogKind) -> None:
    land(kind, 2)
    first, *_ = [it.snapshot_id for it in kind.read().snapshots()]
    with kind.read().transaction() as edit:
        edit.set_properties({properties.WITNESS: f'[1,1,"{"0" * 32}"]'})
    (finding,) = [it for it in diagnose(kind).findings if it.kind == "memory-damaged"]
    assert "edited" in finding.what
    assert first


def test_a_file_that_is_missing_is_damage(kind: CatalogKind) -> None:
    table = kind.create()
    file = kind.file([1])
    table.commit([Append((file,))])
    Path(file.file_path).unlink()
    assert kinds_of(kind) == {"data-file-missing"}


def test_what_lies_there_of_others_is_a_note(kind: CatalogKind) -> None:
    land(kind, 1)
    Path(kind.store().uri("data/p=0/00000-0-1234.parquet")).write_bytes(b"x" * 7)
    (finding,) = diagnose(kind).findings
    assert (finding.kind, "7 bytes" in finding.what) == ("foreign-file", True)


def test_files_of_an_expired_snapshot_that_are_gone_early_are_told(kind: CatalogKind) -> None:
    table = land(kind, 2)
    first, second = (SnapshotRecord.of(it) for it in table.head.metadata.snapshots)
    note = Note(2, names.ulid(kind.clock.now_ms, 7), (first,), second, owner=table.head.version.owner)
    table.head.manifest_files.write_fresh(note.path, note.encode())
    assert kinds_of(kind) == set()
    kind.read().maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    Path(first.manifest_list).unlink()
    assert kinds_of(kind) == {"taken-early"}


@pytest.mark.parametrize(
    "stated",
    [
        {properties.GC_ENABLED: "false"},
        {properties.MIN_SNAPSHOTS_TO_KEEP: "5000"},
        {properties.MAX_SNAPSHOT_AGE_MS: "a day"},
    ],
)
def test_a_policy_that_contradicts_retention_is_told(kind: CatalogKind, stated: dict[str, str]) -> None:
    land(kind, 1)
    with kind.read().transaction() as edit:
        edit.set_properties(stated)
    (finding,) = diagnose(kind).findings
    assert finding.kind == "history-held"
    assert next(iter(stated)) in finding.what


def test_a_snapshot_that_holds_another_engines_memory_for_long_is_named(kind: CatalogKind) -> None:
    land(kind, 1)
    kind.read().append(ROWS, snapshot_properties={"flink.job-id": "a"})
    held = kind.read().snapshots()[-1].snapshot_id
    assert kinds_of(kind) == set()
    kind.clock.now_ms += 3 * DAY_MS
    kind.open().commit([Append((kind.file([9]),))])
    (finding,) = diagnose(kind).findings
    assert (finding.kind, str(held) in finding.what) == ("history-held", True)
