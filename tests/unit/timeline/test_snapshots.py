"""What a commit leaves in the table: pure appends, exact summaries, one unbroken chain (R6, R8, R21, R22)."""

from __future__ import annotations

import json

import pytest
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record

from tests.unit.timeline.world import NOON, Audit, Lake, data_file, raw_entries, versions_of
from timeline import names, properties
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.errors import CommitConflictError
from timeline.table import Committed, Table
from timeline.versions.version_file import encode_metadata

OPEN = 5000


def fill(lake: Lake, table: Table, *, keep: int = 0) -> Committed:
    """Append one file to be merged with an older small one, and `keep` files that stay as they are."""
    new = lake.file()
    extra = [lake.file() for _ in range(keep)]
    old = [file.location for file in table.head.live_files() if file.bytes < OPEN][:1]
    rows = [row for location in (new.file_path, *old) for row in lake.rows[location]]
    replace = Replace(frozenset({new.file_path, *old}), (lake.file(rows),))
    committed = table.commit([Append((new, *extra)), replace], open_below_bytes=OPEN)
    assert isinstance(committed, Committed)
    return committed


def test_every_snapshot_of_a_busy_table_says_exactly_what_its_manifests_hold() -> None:
    lake = Lake()
    audit = Audit(lake.store)
    for step in range(40):
        if step % 3:
            fill(lake, lake.table, keep=step % 4)
        else:
            lake.table.commit([Append((lake.file(p=step % 5), lake.file(p=1)))])
        if step % 10 == 9:
            audit.check()
    audit.check()


def test_the_append_is_not_in_the_snapshot_log_and_the_replace_is() -> None:
    lake = Lake()
    committed = fill(lake, lake.table)
    logged = [entry.snapshot_id for entry in lake.table.head.metadata.snapshot_log]
    assert logged == [committed.replaced_snapshot_id]
    append, replace = lake.table.head.metadata.snapshots
    assert append.snapshot_id == committed.appended_snapshot_id
    assert replace.parent_snapshot_id == append.snapshot_id
    assert [append.summary.operation, replace.summary.operation] == [Operation.APPEND, Operation.REPLACE]  # type: ignore[union-attr]
    assert lake.table.head.metadata.refs["main"].snapshot_id == replace.snapshot_id


def test_an_append_alone_is_in_the_snapshot_log() -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    log = lake.table.head.metadata.snapshot_log
    assert [entry.snapshot_id for entry in log] == [lake.table.head.metadata.current_snapshot_id]


@pytest.mark.parametrize("losses", [0, 1, 2, 4])
def test_a_rebased_append_carries_the_numbers_of_the_attempt_that_won(losses: int) -> None:
    """Also the files that its replace leaves alone, whose entries the replace writes again."""
    lake = Lake()
    other = lake.open()

    def theirs() -> None:
        other.refresh()
        other.commit([Append((lake.file(),))], open_below_bytes=OPEN)

    lake.store.creates.extend([theirs] * losses)
    committed = fill(lake, lake.table, keep=2)
    assert committed.attempts == losses + 1
    head = lake.open().head
    append = head.metadata.snapshots[-2]
    live = {file.location: file.sequence_number for file in head.live_files()}
    assert sorted(live.values())[-3:] == [append.sequence_number] * 2 + [append.sequence_number + 1]  # type: ignore[operator]
    assert {file.location: file.sequence_number for file in lake.table.head.live_files()} == live
    Audit(lake.store).check()


def _with_a_second_spec(metadata: TableMetadataV2) -> dict[str, object]:
    spec = PartitionSpec(PartitionField(1, 1001, BucketTransform(4), "id_bucket"), spec_id=1)
    return {"partition_specs": [*metadata.partition_specs, spec], "last_partition_id": 1001}


def test_files_of_several_specs_go_to_manifests_of_their_own() -> None:
    lake = Lake()
    lake.change_metadata(_with_a_second_spec)
    table = lake.open()
    old, new = lake.file(), lake.file(p=3)
    new.spec_id = 1
    table.commit([Append((old, new))])
    assert {m.partition_spec_id for m in table.head.manifests} == {0, 1}
    assert {f.spec_id: f.partition for f in lake.open().head.live_files()} == {0: (0,), 1: (3,)}
    Audit(lake.store).check()


@pytest.mark.parametrize("kind", ["append", "replace"])
def test_a_file_of_an_unknown_partition_spec_is_refused_by_name(kind: str) -> None:
    lake = Lake()
    a = lake.file()
    lake.table.commit([Append((a,))])
    stranger = lake.merged(a)
    stranger.spec_id = 9
    change = Append((stranger,)) if kind == "append" else Replace(frozenset({a.file_path}), (stranger,))
    with pytest.raises(CommitConflictError, match="partition spec 9, which the table no longer has"):
        lake.table.commit([change])
    assert lake.live_rows() == lake.rows_of(a)


def test_the_writers_words_stand_in_the_summary_and_never_replace_a_count() -> None:
    lake = Lake()
    lake.table.commit(
        [Append((lake.file(),))],
        summary={"spark.sql.streaming.epochId": "7", "added-records": "1000000", "operation": "overwrite"},
    )
    summary = lake.table.head.snapshot.summary  # type: ignore[union-attr]
    assert summary is not None
    assert summary.additional_properties["spark.sql.streaming.epochId"] == "7"
    assert summary.additional_properties["added-records"] == "10"
    assert summary.operation == Operation.APPEND


def test_of_a_fill_the_append_tells_the_writers_words() -> None:
    lake = Lake()
    new = lake.file()
    replace = Replace(frozenset({new.file_path}), (lake.merged(new),))
    lake.table.commit([Append((new,)), replace], summary={"batch": "7"})
    told = [
        s.summary.additional_properties.get("batch") for s in lake.table.head.metadata.snapshots if s.summary
    ]
    assert told == ["7", None]


def test_a_properties_commit_adds_no_snapshot_and_carries_the_manifests() -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    before = lake.table.head
    committed = lake.table.commit(
        [SetProperties({"owner": "me"}, frozenset({"write.parquet.compression-codec"}))]
    )
    assert isinstance(committed, Committed)
    head = lake.open().head
    assert head.metadata.snapshots == before.metadata.snapshots
    assert head.properties["owner"] == "me"
    assert "write.parquet.compression-codec" not in head.properties
    assert committed.appended_snapshot_id is None


def test_a_properties_commit_merges_no_manifests() -> None:
    """It does not know which files are open, and has no rows to tell of."""
    lake = Lake()
    for _ in range(20):
        lake.table.commit([Append((lake.file(size=1000),))], open_below_bytes=OPEN)
        lake.table.commit([Append((lake.file(size=9000),))], open_below_bytes=OPEN)
    committed = lake.table.commit([SetProperties({"owner": "me"})])
    assert isinstance(committed, Committed)
    assert committed.replaced_snapshot_id is None


# manifests across a rebase ------------------------------------------------------------------------


def test_no_manifest_is_carried_that_the_new_head_does_not_list() -> None:
    """Theirs rewrote the manifest that mine had planned to keep (R8)."""
    lake = Lake()
    a, b = lake.file(), lake.file()
    lake.table.commit([Append((a, b))], open_below_bytes=OPEN)
    mine = lake.open()
    lake.open().commit([Replace(frozenset({a.file_path}), (lake.merged(a),))], open_below_bytes=OPEN)
    theirs = {m.manifest_path for m in lake.open().head.manifests}
    new = lake.file()
    mine.commit([Append((new,))], open_below_bytes=OPEN)
    listed = {m.manifest_path for m in mine.head.manifests}
    assert len(listed - theirs) == 1
    assert lake.live_rows() == lake.rows_of(a, b, new)


def test_manifests_that_only_tell_of_deleted_files_are_carried_no_further() -> None:
    """The replace moves the only file of one spec to another: the first spec is left with no live file."""
    lake = Lake()
    lake.change_metadata(_with_a_second_spec)
    table = lake.open()
    old = lake.file()
    table.commit([Append((old,))], open_below_bytes=OPEN)
    moved = lake.merged(old)
    moved.spec_id = 1
    table.commit([Replace(frozenset({old.file_path}), (moved,))], open_below_bytes=OPEN)
    told = [[e.status for e in raw_entries(lake.store, m)] for m in table.head.manifests]
    assert sorted(told) == [[ManifestEntryStatus.ADDED], [ManifestEntryStatus.DELETED]]
    table.commit([Append((lake.file(),))], open_below_bytes=OPEN)
    for manifest in table.head.manifests:
        assert any(e.status != ManifestEntryStatus.DELETED for e in raw_entries(lake.store, manifest))
    Audit(lake.store).check()


def test_a_retry_writes_the_manifest_of_the_appended_files_once() -> None:
    lake = Lake()
    other = lake.open()
    lake.store.creates.extend([lambda: (other.refresh(), other.commit([SetProperties({"a": "b"})]))] * 3)
    lake.store.requests.clear()
    lake.table.commit([Append((lake.file(),))])
    mine = [
        path for verb, path in lake.store.requests if verb == "create" and path.endswith("-manifest.avro")
    ]
    assert len(mine) == 1


# the garbage fence --------------------------------------------------------------------------------


def raise_cutoff(lake: Lake, cutoff: str) -> None:
    def update(metadata: TableMetadataV2) -> dict[str, object]:
        return {"properties": {**metadata.properties, properties.GC_CUTOFF: cutoff}}

    lake.change_metadata(update)


@pytest.mark.parametrize("stale", [False, True])
@pytest.mark.parametrize("kind", ["append", "replace"])
def test_a_file_below_the_cutoff_is_refused(kind: str, stale: bool) -> None:
    lake = Lake()
    a = lake.file()
    lake.table.commit([Append((a,))])
    mine = lake.open()
    old = lake.file(lake.rows[a.file_path], id_ms=NOON + 9)
    raise_cutoff(lake, names.ulid_floor(NOON + 10))
    change = Append((old,)) if kind == "append" else Replace(frozenset({a.file_path}), (old,))
    table = mine if stale else lake.open()
    with pytest.raises(CommitConflictError, match="before the table's garbage cutoff") as caught:
        table.commit([change])
    assert "write the batch again" in str(caught.value)
    assert old.file_path not in lake.live()


def test_a_file_at_the_cutoff_is_accepted() -> None:
    lake = Lake()
    new = lake.file(id_ms=NOON + 10)
    raise_cutoff(lake, names.file_id(new.file_path) or "")
    lake.clock.now_ms += 100
    assert isinstance(lake.open().commit([Append((new,))]), Committed)


def test_a_manifest_prepared_below_the_cutoff_is_written_again() -> None:
    """The files are new enough; the manifest that a slow attempt wrote before them is not."""
    lake = Lake()
    mine = lake.open(lake.store)
    cutoff = names.ulid_floor(NOON + 1000)
    lake.store.creates.append(
        lambda: (raise_cutoff(lake, cutoff), setattr(lake.clock, "now_ms", NOON + 2000))
    )
    new = lake.file(id_ms=NOON + 1500)
    committed = mine.commit([Append((new,))])
    assert isinstance(committed, Committed)
    assert committed.attempts == 2
    assert lake.live_rows() == lake.rows_of(new)
    for manifest in mine.head.manifests:
        assert (names.file_id(manifest.manifest_path) or "") >= cutoff
    Audit(lake.store).check()


def test_other_engines_file_names_pass_the_fence() -> None:
    lake = Lake()
    raise_cutoff(lake, names.ulid_floor(NOON + 10))
    location = lake.store.uri("data/00000-0-abc.parquet")
    lake.rows[location] = ()
    table = lake.open()
    assert isinstance(table.commit([Append((data_file(location, 1, partition=Record(0)),))]), Committed)


# the files behind it ------------------------------------------------------------------------------


def test_every_file_that_any_version_names_exists() -> None:
    lake = Lake()
    for _ in range(20):
        fill(lake, lake.table, keep=1)
    audit = Audit(lake.store)
    for version in versions_of(lake.store).values():
        audit.check_snapshots(version.metadata)


def test_versions_are_durable_before_they_are_told_and_manifests_before_versions() -> None:
    """The order of the requests is manifest, list, version (R14)."""
    lake = Lake()
    lake.store.requests.clear()
    fill(lake, lake.table)
    kinds = [
        path.rpartition("-")[2].rpartition("/")[2] for verb, path in lake.store.requests if verb == "create"
    ]
    assert kinds == ["manifest.avro", "list.avro", "manifest.avro", "list.avro", "v2.metadata.json"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_manifest_whose_create_gets_no_answer_is_stored_all_the_same(when: str) -> None:
    lake = Lake()
    failed: list[str] = []

    def fail_once(verb: str, path: str) -> None:
        if verb == "create" and path.endswith(".avro") and len(failed) < 2 and path not in failed:
            failed.append(path)
            raise ConnectionError("no")

    setattr(lake.store, when, fail_once)
    new = lake.file()
    lake.table.commit([Append((new,))])
    assert len(failed) == 2
    assert lake.live_rows() == lake.rows_of(new)


def test_a_changed_copy_of_a_snapshot_is_written_as_it_is() -> None:
    """The text of a snapshot is remembered on the object, and a copy takes what is on it along."""
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    metadata = lake.table.head.metadata
    changed = [snapshot.model_copy(update={"timestamp_ms": 7}) for snapshot in metadata.snapshots]
    written = json.loads(encode_metadata(metadata.model_copy(update={"snapshots": changed}))[0])
    assert [snapshot["timestamp-ms"] for snapshot in written["snapshots"]] == [7]
