"""What becomes of files that contradict each other, and what the user is told to do (R4, R9, R18)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.timeline.world import BY_P, SCHEMA, Clock, FaultyStore, Lake, versions_of
from timeline import properties
from timeline.changes.changes import Append, SetProperties
from timeline.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    CorruptTableError,
    StoreUnavailableError,
    TableNotFoundError,
    UnsafeStoreError,
)
from timeline.names import version_path
from timeline.stores import Created, CreateOutcome, LocalStore, MemoryStore
from timeline.table import Committed, Table

Edit = Callable[[dict[str, Any]], Any]


def two_versions() -> Lake:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    return lake


def store_of(lake: Lake) -> MemoryStore:
    return MemoryStore(lake.name)


def rewrite(lake: Lake, edit: Edit, number: int = 2) -> None:
    store = store_of(lake)
    stored = json.loads(store.read(version_path(number)).data)
    edit(stored)
    store.overwrite(version_path(number), json.dumps(stored).encode())


def refuses(lake: Lake, *words: str) -> str:
    """Opening and committing both refuse; nothing is written or stepped back to."""
    before = dict(store_of(lake)._contents.objects)
    with pytest.raises(CorruptTableError) as caught:
        lake.open()
    with pytest.raises(CorruptTableError):
        Table.create(store_of(lake), SCHEMA, environment=lake.clock.environment(9))
    for word in words:
        assert word in str(caught.value)
    assert store_of(lake)._contents.objects == before
    return str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"12",
        b"{}",
        b'"text"',
        b"\xff\xfe",
        b"\x00" * 100,
        b'{"format-version": 2}',
    ],
)
def test_a_highest_version_that_cannot_be_read_is_an_error_never_a_step_back(data: bytes) -> None:
    lake = two_versions()
    store_of(lake).overwrite(version_path(2), data)
    refuses(
        lake,
        "version 2 of the table cannot be read",
        "Restore metadata/v2.metadata.json from a copy",
        lake.store.location,
    )


def test_a_version_cut_off_in_the_middle_is_an_error() -> None:
    lake = two_versions()
    whole = store_of(lake).read(version_path(2)).data
    for length in range(0, len(whole), 97):
        store_of(lake).overwrite(version_path(2), whole[:length])
        with pytest.raises(CorruptTableError, match="cannot be read"):
            lake.open()


def test_a_damaged_older_version_does_not_matter() -> None:
    lake = two_versions()
    store_of(lake).overwrite(version_path(1), b"{")
    assert lake.open().head.number == 2


@pytest.mark.parametrize("version", [1, 3, 4, 9])
def test_another_format_version_is_refused_by_its_number(version: int) -> None:
    lake = two_versions()

    def change(stored: dict[str, Any]) -> None:
        stored["format-version"] = version
        stored["next-row-id"] = 0
        if version == 1:
            stored["schema"] = stored["schemas"][0]
            stored["partition-spec"] = stored["partition-specs"][0]["fields"]

    rewrite(lake, change)
    refuses(lake, f"format version {version}", "format version 2 only", "a table of its own")


def test_a_table_of_another_writer_is_refused() -> None:
    lake = two_versions()
    rewrite(lake, lambda stored: stored["properties"].clear())
    refuses(lake, "was not written by this sink", "Use a location of its own")


@pytest.mark.parametrize("key", [properties.COMMIT_ID, properties.VERSION])
def test_a_version_without_its_identity_is_refused(key: str) -> None:
    lake = two_versions()
    rewrite(lake, lambda stored: stored["properties"].pop(key))
    refuses(lake, "was not written by this sink")


@pytest.mark.parametrize("damaged", [None, "", "01ANOTHERCOMMITSID"])
def test_a_version_that_has_forgotten_the_commits_before_it_is_refused(damaged: str | None) -> None:
    """By a head without that memory a live commit would be declared lost, and its version deleted (R1)."""
    lake = two_versions()

    def forget(stored: dict[str, Any]) -> None:
        del stored["properties"][properties.RECENT_COMMITS]
        if damaged is not None:
            stored["properties"][properties.RECENT_COMMITS] = damaged

    rewrite(lake, forget)
    refuses(
        lake,
        "its property streaming-sink.recent-commits was removed or damaged",
        "restore the file from a copy",
    )


def test_a_version_under_another_number_is_refused() -> None:
    lake = two_versions()
    store = store_of(lake)
    store.create(version_path(3), store.read(version_path(2)).data)
    refuses(
        lake, "metadata/v3.metadata.json says that it is version 2", "copied or written by another writer"
    )


def test_a_version_without_the_guard_against_other_writers_is_refused() -> None:
    lake = two_versions()
    rewrite(lake, lambda stored: stored["properties"].pop(properties.METADATA_PATH))
    refuses(
        lake,
        "the property write.metadata.path was removed",
        f"set it to {lake.store.location}/metadata again",
    )


def test_a_table_that_was_moved_is_refused() -> None:
    lake = two_versions()
    elsewhere = MemoryStore(f"{lake.name}-moved")
    for path, (data, _) in store_of(lake)._contents.objects.items():
        elsewhere.create(path, data)
    with pytest.raises(CorruptTableError) as caught:
        Table.open(elsewhere)
    message = str(caught.value)
    assert f"made at {lake.store.location} and is opened at {elsewhere.location}" in message
    assert "Open it where it was made" in message


@pytest.mark.parametrize("kind", ["list", "manifest"])
def test_a_missing_metadata_file_is_named(kind: str) -> None:
    lake = two_versions()
    store = store_of(lake)
    for listed in store.list_folder("metadata/m"):
        if listed.path.endswith(f"-{kind}.avro"):
            store.delete([listed.path])
    with pytest.raises(
        CorruptTableError,
        match=f"the table names a manifest{' list' if kind == 'list' else ''} that does not exist",
    ):
        list(lake.open().head.live_files())


@pytest.mark.parametrize("kind", ["list", "manifest"])
@pytest.mark.parametrize("damage", [b"", b"Obj\x01", b"no avro at all"])
def test_a_damaged_metadata_file_is_a_corrupt_table_that_names_it(kind: str, damage: bytes) -> None:
    lake = two_versions()
    store = store_of(lake)
    for listed in store.list_folder("metadata/m"):
        if listed.path.endswith(f"-{kind}.avro"):
            store.overwrite(listed.path, damage)
    with pytest.raises(CorruptTableError, match=f"-{kind}.avro"):
        list(lake.open().head.live_files())


def test_a_current_snapshot_that_is_not_there_is_a_corrupt_table() -> None:
    lake = two_versions()
    rewrite(lake, lambda stored: stored.update({"snapshots": []}))
    with pytest.raises(CorruptTableError):
        lake.open()


def test_no_table_is_told_as_such() -> None:
    with pytest.raises(TableNotFoundError, match="there is no table of this sink at memory://nothing here"):
        Table.open(MemoryStore("nothing here"))


def test_a_table_that_goes_away_is_told_as_such() -> None:
    lake = two_versions()
    store = store_of(lake)
    store.delete([version_path(1), version_path(2)])
    with pytest.raises(TableNotFoundError, match="the table has vanished"):
        lake.table.refresh()


def test_a_commit_under_which_the_table_was_made_again_is_unknown() -> None:
    lake = two_versions()
    store = store_of(lake)

    def again() -> None:
        store.delete([version_path(1), version_path(2)])
        other = Table.create(store, SCHEMA, environment=Clock().environment(77))
        for _ in range(3):
            other.commit([SetProperties({"a": "b"})])

    lake.store.creates.append(again)
    with pytest.raises(CommitStateUnknownError, match="created again while version 3 was being committed"):
        lake.table.commit([Append((lake.file(),))])
    with pytest.raises(CommitConflictError, match="dropped and created again"):
        lake.table.refresh()


@pytest.mark.parametrize("commits_again", [None, 0, 1, 2])
def test_a_table_that_was_dropped_before_a_commit_is_not_buried_by_it(commits_again: int | None) -> None:
    """A table that was made again begins at version 1: a writer of the old one went on above it, with an
    acknowledgement, and nobody saw the new table's rows any more.
    """
    lake = two_versions()
    stale = lake.open()
    lake.table.commit([Append((lake.file(),))])
    stale.refresh()
    store = store_of(lake)
    store.delete([listed.path for listed in store.list_below("")])
    theirs = [lake.file() for _ in range(commits_again or 0)]
    if commits_again is not None:
        other = Table.create(store, SCHEMA, BY_P, environment=Clock().environment(77))
        for file in theirs:
            other.commit([Append((file,))])
    before = sorted(listed.path for listed in store.list_folder("metadata"))
    with pytest.raises(CommitStateUnknownError, match="was dropped while version 4 was being committed"):
        stale.commit([Append((lake.file(),))])
    assert sorted(listed.path for listed in store.list_folder("metadata")) == before
    if commits_again is not None:
        assert lake.live() == {file.file_path for file in theirs}
        other.commit([Append((lake.file(),))])


def test_a_known_version_that_was_made_again_is_told_by_the_next_look() -> None:
    lake = two_versions()
    mine = lake.open()
    store_of(lake).delete([version_path(2)])
    lake.open().commit([Append((lake.file(),))])
    with pytest.raises(CorruptTableError, match="version 2 of the table was deleted, and another writer"):
        mine.refresh()


def test_a_base_that_was_made_again_is_told_though_others_have_built_on_it() -> None:
    lake = two_versions()
    mine = lake.open(lake.store)
    store_of(lake).delete([version_path(2)])
    theirs = lake.file()
    assert lake.open().commit([Append((theirs,))]).version == 2
    lake.store.lists.append(lambda: lake.open().commit([Append((lake.file(),))]))
    with pytest.raises(CorruptTableError, match="2 was deleted, and another writer has created it again"):
        mine.commit([Append((lake.file(),))])
    assert theirs.file_path not in lake.live()


def test_a_store_that_fails_is_never_an_empty_table() -> None:
    lake = two_versions()
    lake.store.lists.append("fails")
    with pytest.raises(StoreUnavailableError):
        Table.open(lake.store, lake.clock.environment())
    lake.store.lists.append("fails")
    with pytest.raises(StoreUnavailableError):
        Table.create(lake.store, SCHEMA, environment=lake.clock.environment())


# reading what was listed (R4) ---------------------------------------------------------------------


def test_bytes_that_were_replaced_between_listing_and_reading_are_not_taken() -> None:
    """The reader lists again, and takes what that listing shows."""
    lake = two_versions()
    store = lake.store

    def replace() -> None:
        rewrite(lake, lambda stored: stored["properties"].update({"which": "second"}))

    store.reads.append(replace)
    store.requests.clear()
    version = lake.open(store).head.version
    assert version.metadata.properties["which"] == "second"
    assert [verb for verb, path in store.requests if verb == "list" or path == version_path(2)] == [
        "list",
        "read",
    ] * 2


def test_a_version_deleted_between_listing_and_reading_is_listed_again() -> None:
    lake = two_versions()
    lake.store.reads.append(lambda: store_of(lake).delete([version_path(2)]))
    assert lake.open(lake.store).head.number == 1


def test_a_version_that_never_reads_as_it_is_listed_is_an_unsteady_store() -> None:
    lake = two_versions()
    lake.store.reads.extend([lambda: rewrite(lake, lambda stored: None)] * 100)
    with pytest.raises(StoreUnavailableError, match="changed under each of 20 reads"):
        lake.open(lake.store)


def test_versions_compare_as_numbers_and_other_names_are_no_versions() -> None:
    lake = Lake()
    for step in range(10):
        lake.table.commit([SetProperties({"step": str(step)})])
    store = store_of(lake)
    for name in (
        "v012.metadata.json",
        "v99.gz.metadata.json",
        "v0.metadata.json",
        "v99.metadata.json.tmp",
        "00099-a.metadata.json",
    ):
        store.create(f"metadata/{name}", b"{}")
    assert lake.open().head.number == 11
    assert sorted(versions_of(store)) == list(range(1, 12))


# the probe (R18) ----------------------------------------------------------------------------------


class Signed(FaultyStore):
    signature = "memory 1"


def probes(store: FaultyStore) -> int:
    return len({path.rpartition("-")[0] for _, path in store.requests if path.startswith("_timeline/probe/")})


def test_a_store_is_probed_when_a_table_is_made_and_not_when_it_is_opened_again() -> None:
    store = Signed("probed")
    table = Table.create(store, SCHEMA, environment=Clock().environment())
    assert table.head.properties[properties.PROBED_STORES] == "memory 1"
    assert probes(store) == 1
    assert store.list_folder("_timeline/probe") == []
    store.requests.clear()
    Table.open(store, Clock().environment(1)).commit([SetProperties({"a": "b"})])
    assert probes(store) == 0


def test_a_new_endpoint_or_client_is_probed_and_recorded_with_the_next_commit() -> None:
    store = Signed("probed again")
    Table.create(store, SCHEMA, environment=Clock().environment())
    store.signature = "memory 2"
    store.requests.clear()
    table = Table.open(store, Clock().environment(1))
    assert probes(store) == 0
    table.commit([SetProperties({"a": "b"})])
    assert probes(store) == 1
    assert table.head.properties[properties.PROBED_STORES] == "memory 1,memory 2"
    store.requests.clear()
    Table.open(store, Clock().environment(2)).commit([SetProperties({"a": "b"})])
    assert probes(store) == 0


def test_the_record_of_a_probe_keeps_what_others_recorded_meanwhile() -> None:
    store, other = Signed("probed twice"), Signed("probed twice")
    Table.create(store, SCHEMA, environment=Clock().environment())
    store.signature, other.signature = "memory 2", "memory 3"
    mine, theirs = Table.open(store, Clock().environment(1)), Table.open(other, Clock().environment(2))
    mine.ensure_store_is_safe()
    theirs.commit([SetProperties({"a": "b"})])
    mine.commit([SetProperties({"a": "b"})])
    assert mine.head.properties[properties.PROBED_STORES] == "memory 1,memory 3,memory 2"


def test_a_store_without_create_if_absent_is_refused_before_a_table_is_made() -> None:
    class Careless(MemoryStore):
        def create(self, path: str, data: bytes) -> CreateOutcome:
            self.overwrite(path, data)
            return Created()

    store = Careless("careless")
    with pytest.raises(UnsafeStoreError):
        Table.create(store, SCHEMA, environment=Clock().environment())
    assert store.list_folder("metadata") == []


def test_protocol_properties_are_refused_when_a_table_is_made() -> None:
    for key in (
        properties.METADATA_PATH,
        properties.GC_ENABLED,
        properties.PREVIOUS_VERSIONS_MAX,
        properties.COMMIT_ID,
    ):
        with pytest.raises(ValueError, match=f"table property {key} belongs to the commit protocol"):
            Table.create(MemoryStore("refused"), SCHEMA, table_properties={key: "x"})
    with pytest.raises(ValueError, match="must be a whole number, not 'many'"):
        Table.create(MemoryStore("refused"), SCHEMA, table_properties={properties.MAX_SNAPSHOTS: "many"})


def test_a_new_table_carries_the_guards() -> None:
    head = Lake().table.head
    assert head.properties["write.metadata.path"] == f"{head.metadata.location}/metadata"
    assert head.properties["gc.enabled"] == "false"
    assert head.properties["write.metadata.previous-versions-max"] == "1000"


def test_a_local_table_keeps_its_versions_as_the_memory_store_does(tmp_path: Any) -> None:
    store = LocalStore(tmp_path / "table")
    table = Table.create(store, SCHEMA)
    assert isinstance(table.commit([SetProperties({"a": "b"})]), Committed)
    assert (tmp_path / "table" / "metadata" / "version-hint.text").read_bytes() == b"2"
    (tmp_path / "table" / "metadata" / "v2.metadata.json").write_bytes(b"{")
    with pytest.raises(CorruptTableError, match="version 2 of the table cannot be read"):
        Table.open(store)
