"""Files by reference: outside of the table's location, live like any other, and never deleted (R28)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record

from tests.unit.timeline.cleaning import Shore
from tests.unit.timeline.world import DAY_MS, Lake, data_file
from timeline import names, properties, staging
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.changes.intent import Intent
from timeline.changes.references import AllowReferences
from timeline.changes.staging_changes import Discard, Publish
from timeline.commit.attempts import Candidate
from timeline.commit.log import Standing
from timeline.commit.standing import judge_standing
from timeline.diagnosis import doctor
from timeline.errors import CommitConflictError, UnknownFeatureError
from timeline.features import KNOWN_FEATURES
from timeline.maintenance.expiry import expire_snapshots
from timeline.maintenance.orphans import remove_orphan_files
from timeline.manifests.stated_files import StatedFiles
from timeline.stores import MemoryStore, open_by_name, paths_below
from timeline.table import Committed
from timeline.versions.work_items import WorkItem


@pytest.fixture
def drop() -> MemoryStore:
    """A producer's folder."""
    return MemoryStore("drop-of-a-producer")


def elsewhere(lake: Lake, drop: MemoryStore, name: str = "a.parquet") -> DataFile:
    """A file of ten bytes in the producer's folder."""
    drop.overwrite(name, b"x" * 10)
    lake.rows[drop.uri(name)] = tuple(range(1000, 1010))
    return data_file(drop.uri(name), 10, partition=Record(0), size=10)


def test_a_file_elsewhere_needs_a_table_that_allows_it_and_old_writers_are_refused(
    drop: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake()
    file = elsewhere(lake, drop)
    with pytest.raises(CommitConflictError, match="does not allow files by reference"):
        lake.table.commit([Append((file,))])
    lake.table.commit([AllowReferences()])
    assert lake.table.head.properties[properties.REQUIRED_FEATURES] == "by-reference>=0.1"
    lake.table.commit([Append((file,))])
    assert lake.table.head.find_live(file.file_path) is not None
    monkeypatch.setattr("timeline.features.KNOWN_FEATURES", KNOWN_FEATURES - {"by-reference"})
    with pytest.raises(UnknownFeatureError, match="by-reference"):
        lake.open().commit([SetProperties({"a": "b"})])


def test_a_location_is_live_once_whoever_brings_it(drop: MemoryStore) -> None:
    lake = Lake()
    lake.table.commit([AllowReferences()])
    file = elsewhere(lake, drop)
    other = lake.open()
    staging.stage_item(other, WorkItem("zone", 1), [file])
    lake.table.commit([Append((file,))])
    with pytest.raises(CommitConflictError, match="in the table already, by reference"):
        lake.open().commit([Append((file,))])
    with pytest.raises(CommitConflictError, match="in the table already, by reference"):
        staging.publish_item(other, WorkItem("zone", 1))


def test_a_location_is_live_once_whatever_names_of_manifests_say(
    drop: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake()
    lake.table.commit([AllowReferences()])
    file = elsewhere(lake, drop)
    lake.table.commit([Append((file,))])
    never = StatedFiles(0, None, None, "1" * 10, "1" * 10)
    monkeypatch.setattr("timeline.manifests.lookup.stated_files", lambda _: never)
    with pytest.raises(CommitConflictError, match="in the table already, by reference"):
        lake.open().commit([Append((file,))])


def test_a_name_that_looks_like_one_of_the_tables_own_is_not_behind_its_fence(drop: MemoryStore) -> None:
    shore = Shore()
    shore.table.commit([AllowReferences()])
    shore.append()
    old = names.data_file_name(names.ulid(1, 1), "app", 1, 0, 0)
    shore.clock.now_ms += 4 * DAY_MS
    shore.append()
    shore.objects.overwrite(f"data/{names.data_file_name(names.ulid(2, 2), 'app', 1, 0, 0)}", b"orphan")
    assert len(remove_orphan_files(shore.table).files) == 1
    shore.table.commit([Append((elsewhere(shore, drop, old),))])


def test_expiry_and_orphan_removal_leave_a_file_by_reference_alone(drop: MemoryStore) -> None:
    """A clustering takes it out of the table, and its snapshots expire; the producer's bytes stay."""
    shore = Shore()
    shore.table.commit([AllowReferences()])
    file = elsewhere(shore, drop)
    shore.table.commit([Append((file,))])
    rewritten = shore.file(shore.rows[file.file_path], size=10)
    done = shore.table.commit([Replace(frozenset([file.file_path]), (rewritten,))])
    assert isinstance(done, Committed)
    shore.fill()
    shore.fill()
    shore.pass_versions(102)
    expired = expire_snapshots(shore.table)
    shore.pass_versions(101)
    gone = {each.path for each in (*expired.files, *expire_snapshots(shore.table).files)}
    shore.clock.now_ms += 10 * DAY_MS
    shore.append()
    gone |= {each.path for each in remove_orphan_files(shore.table, older_than=timedelta(days=1)).files}
    assert any(path.startswith("data/") for path in gone), "files of its own have gone"
    assert not any(path.endswith("a.parquet") for path in gone)
    assert drop.read("a.parquet").data == b"x" * 10


def test_the_doctor_looks_at_files_by_reference(drop: MemoryStore) -> None:
    shore = Shore()
    shore.table.commit([AllowReferences()])
    file = elsewhere(shore, drop)
    shore.table.commit([Append((file,))])
    assert [each.kind for each in doctor(shore.objects, probe=False).findings] == []
    drop.overwrite("a.parquet", b"other bytes")
    (finding,) = doctor(shore.objects, probe=False).findings
    assert (finding.kind, "has 11 bytes and is stated with 10" in finding.what) == ("file-size-differs", True)
    drop.delete(["a.parquet"])
    (finding,) = doctor(shore.objects, probe=False).findings
    assert (finding.kind, file.file_path in finding.what) == ("data-file-missing", True)


def test_names_outside_of_the_table_are_opened_and_never_deleted(drop: MemoryStore) -> None:
    shore = Shore()
    drop.overwrite("a.parquet", b"rows")
    with open_by_name(shore.store, drop.uri("a.parquet")) as file:
        assert file.read() == b"rows"
    with pytest.raises(ValueError, match="memory"):
        shore.store.at("s3://bucket/folder")
    assert paths_below(shore.store, [drop.uri("a.parquet"), shore.store.uri("data/b")]) == ["data/b"]


def test_a_commit_is_not_known_by_files_that_others_may_have_added(drop: MemoryStore) -> None:
    """Another worker has landed the item with the very same files, and the head has forgotten both."""
    lake, item = Lake(), WorkItem("zone", 1)
    lake.table.commit([AllowReferences()])
    own, referenced, staged = lake.file(), elsewhere(lake, drop), lake.file()
    staging.stage_item(lake.table, item, [staged])
    changes = {
        "own": Append((own,)),
        "by reference": Append((referenced,)),
        "staged": Publish((staged,), item, lake.table.head.metadata.refs[item.tag].snapshot_id),
    }
    lake.table.commit([Append((own, referenced, staged))])
    lake.table.commit([Discard(item)], transaction=item)
    judged = {}
    for what, change in changes.items():
        intent = Intent((change,), 0, str(lake.table.head.metadata.table_uuid), transaction=item)
        candidate = Candidate(lake.table.head, b"", appended_snapshot_id=1)
        judged[what] = judge_standing(intent, lake.table.head, candidate)
    wanted = {"own": Standing.COMMITTED, "by reference": Standing.UNKNOWN, "staged": Standing.UNKNOWN}
    assert judged == wanted
