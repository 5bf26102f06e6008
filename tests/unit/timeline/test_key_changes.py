"""The conflict table's rows of keys: rows whose keys were looked for, declared keys, deleted keys."""

from __future__ import annotations

import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import NestedField, StringType

from tests.unit.timeline.test_conflict_table import SMALL, THEIRS, UNFIT, Case
from tests.unit.timeline.world import DAY_MS, SCHEMA, Audit, Lake
from timeline import features, names, properties
from timeline.changes.changes import Append, Change, RaiseFence, Replace, SetProperties
from timeline.changes.key_changes import AllowDuplicates, DeclareKey, KeysResolved, PutTombstones
from timeline.changes.row_deltas import RowDelta
from timeline.changes.schema_changes import SetPartitioning
from timeline.errors import (
    CommitConflictError,
    CorruptTableError,
    KeyConflictError,
    RowsChangedError,
    SchemaMismatchError,
)
from timeline.table import Committed, Table
from timeline.versions.keys import KEY_SCOPES, PARTITION_SCOPE, Looked, TableKey, key_of
from timeline.versions.tombstones import TombstoneFile, tombstones_of, tombstones_to_property

KEY = TableKey((1,), 2)
OTHERS = [
    TableKey((2,), 2),
    TableKey((1, 2), None),
    TableKey((1,), None),
    TableKey((1,), 2, PARTITION_SCOPE),
    TableKey((1,), 2, partial=True),
    TableKey((1,), 2, partial=(3, 4)),
]
ADD_FILES = {
    "append",
    "fill my input",
    "fill another file",
    "cluster my input",
    "cluster other files",
    "a row delta on my input",
    "a row delta elsewhere",
    "expiry",  # after an append
}


def resolved(table: Table, key: TableKey = KEY) -> KeysResolved:
    """What a writer says that has looked for its keys in the known head."""
    head = table.head
    seen = frozenset(file.location for file in tombstones_of(head.properties))
    return KeysResolved(key, Looked.at(head), seen)


def keyed() -> Lake:
    """A table without rows and with a key, and one of rows that were found by it."""
    lake = Lake()
    committed(lake.table, DeclareKey(KEY))
    return lake


def committed(table: Table, *changes: Change) -> Committed:
    done = table.commit(changes, open_below_bytes=SMALL)
    assert isinstance(done, Committed)
    return done


def put(lake: Lake, *merged: str, id_ms: int | None = None, rows: int = 1) -> PutTombstones:
    file_id = names.ulid(lake.clock.now_ms if id_ms is None else id_ms, next(lake._seeds))
    path = names.tombstone_path(file_id, "app", 1, names.DATA_FOLDER)
    return PutTombstones(lake.store.uri(path), rows, frozenset(merged))


def known(lake: Lake) -> list[str]:
    return [file.location for file in tombstones_of(lake.open().head.properties)]


# --------------------------------------------------------------------------- rows that were looked for


@pytest.mark.parametrize("theirs", THEIRS)
def test_rows_whose_keys_were_looked_for_are_refused_over_files_that_came_since(theirs: str) -> None:
    case = Case.begin()
    mine = [Append((case.lake.file(p=1),)), resolved(case.mine)]
    seen = case.lake.live()
    THEIRS[theirs](case)
    before, version = case.lake.live_rows(), case.lake.open().head.number
    if theirs in UNFIT:
        with pytest.raises(SchemaMismatchError):
            case.mine.commit(mine, open_below_bytes=SMALL)
    elif theirs in ADD_FILES:
        with pytest.raises(RowsChangedError, match="may hold the same keys") as refused:
            case.mine.commit(mine, open_below_bytes=SMALL)
        assert set(refused.value.files) == case.lake.live() - seen
    else:
        committed(case.mine, *mine)
        assert case.lake.live_rows() == before + case.lake.rows_of(*mine[0].appended_files)
        return
    assert case.lake.live_rows() == before
    assert case.lake.open().head.number == version


@pytest.mark.parametrize("theirs", sorted(ADD_FILES))
def test_who_has_looked_at_what_came_since_commits(theirs: str) -> None:
    case = Case.begin()
    THEIRS[theirs](case)
    case.mine.refresh()
    committed(case.mine, Append((case.lake.file(p=1),)), resolved(case.mine))
    Audit(case.lake.store).check()


def test_files_are_known_by_themselves_and_not_by_their_manifests() -> None:
    """A manifest that merges old files and new ones is a new one."""
    lake = Lake(table_properties={properties.MANIFEST_MIN_MERGE_COUNT: "2"})
    old = [lake.file() for _ in range(6)]
    for file in old:
        committed(lake.table, Append((file,)))
    looked = Looked.at(lake.open().head)
    new = [lake.file() for _ in range(3)]
    for file in new:
        committed(lake.table, Append((file,)))
    head = lake.open().head
    assert len(head.manifests) < 9
    assert set(looked.find_unseen(head)) == {each.file_path for each in new}


def test_a_row_delta_may_delete_from_the_file_that_it_adds() -> None:
    """A row of the batch turned out to be older than one that came since."""
    lake = keyed()
    new = lake.file(3)
    committed(lake.table, RowDelta((new,), (lake.deletes(new, 1),)), resolved(lake.table))
    rows = lake.rows[new.file_path]
    assert sorted(lake.live_rows()) == [rows[0], rows[2]]
    Audit(lake.store).check()


def test_more_deletes_than_rows_of_the_own_file_are_refused() -> None:
    lake = keyed()
    new = lake.file(2)
    with pytest.raises(ValueError, match="3 rows are deleted of a file of 2"):
        lake.table.commit([RowDelta((new,), (lake.deletes(new, 0, 1, 2),)), resolved(lake.table)])


# ------------------------------------------------------------------------------------------- the key


@pytest.mark.parametrize("theirs", sorted(THEIRS.keys() - UNFIT))
def test_a_key_is_declared_over_rows_that_were_checked_unless_others_came(theirs: str) -> None:
    case = Case.begin()
    declare = DeclareKey(KEY, Looked.at(case.mine.head))
    THEIRS[theirs](case)
    if theirs in ADD_FILES:
        with pytest.raises(RowsChangedError, match="not known that each key is there once") as refused:
            case.mine.commit([declare])
        assert refused.value.files == ()
        assert key_of(case.lake.open().head.properties) is None
    else:
        committed(case.mine, declare)
        assert key_of(case.lake.open().head.properties) == KEY


def test_a_key_is_declared_without_a_check_where_no_row_is_live() -> None:
    lake = Lake()
    file = lake.file()
    committed(lake.table, Append((file,)))
    with pytest.raises(RowsChangedError):
        lake.table.commit([DeclareKey(KEY)])


def test_rows_that_came_before_a_key_was_declared_are_not_covered_by_a_look_for_other_keys() -> None:
    """The writer has looked for its own keys in them, and they may hold others twice."""
    case = Case.begin()
    mine = [Append((case.lake.file(),)), resolved(case.mine), DeclareKey(KEY)]
    with pytest.raises(RowsChangedError) as refused:
        case.mine.commit(mine)
    assert refused.value.files == ()


def test_of_two_writers_who_declare_the_same_key_both_land() -> None:
    lake = Lake()
    first, second = lake.open(), lake.open()
    mine = [DeclareKey(KEY), KeysResolved(KEY, Looked()), SetProperties({"mine": "1"})]
    assert committed(first, *mine).dropped == ()
    (dropped,) = committed(second, *mine).dropped
    assert dropped.change == mine[0]
    assert "declared this key already" in dropped.reason


@pytest.mark.parametrize("other", OTHERS)
def test_another_key_than_the_tables_is_refused(other: TableKey) -> None:
    lake = keyed()
    file, stale = lake.file(), resolved(lake.table, other)
    for changes in ([DeclareKey(other)], [Append((file,)), stale]):
        with pytest.raises(KeyConflictError, match="Give this sink the table's key"):
            lake.table.commit(changes)
    assert lake.live() == set()
    assert key_of(lake.open().head.properties) == KEY


def change_schema(lake: Lake, *fields: NestedField) -> None:
    schema = Schema(*fields, schema_id=1)
    lake.change_metadata(
        lambda metadata: {"schemas": [*metadata.schemas, schema], "current_schema_id": 1, "last_column_id": 9}
    )


@pytest.mark.parametrize(("key", "left"), [(KEY, 0), (KEY, 1), (TableKey((2,)), 0)])
def test_a_column_of_the_key_that_another_engine_drops_is_named_also_where_its_name_is_there_again(
    key: TableKey, left: int
) -> None:
    lake = Lake()
    committed(lake.table, DeclareKey(key))
    dropped = SCHEMA.fields[1 - left]
    again = NestedField(9, dropped.name, StringType(), required=False)
    mine = resolved(lake.table, key)
    change_schema(lake, SCHEMA.fields[left], again)
    with pytest.raises(KeyConflictError, match=f"its columns {dropped.name} were dropped"):
        lake.open().commit([put(lake), mine])


def test_a_column_of_the_key_that_another_engine_renames_is_the_same() -> None:
    lake = keyed()
    change_schema(lake, *(each.model_copy(update={"name": f"new {each.name}"}) for each in SCHEMA.fields))
    committed(lake.open(), Append((lake.file(),)), resolved(lake.open()))


@pytest.mark.parametrize("scope", KEY_SCOPES)
def test_another_partition_spec_stops_keys_that_are_unique_in_each_partition(scope: str) -> None:
    lake, key = Lake(), TableKey((1,), 2, scope)
    committed(lake.table, DeclareKey(key))
    mine = [Append((lake.file(),)), resolved(lake.table, key)]
    other = PartitionSpec(PartitionField(1, 1001, BucketTransform(4), "id_bucket"), spec_id=1)
    committed(lake.open(), SetPartitioning(other, "theirs"))
    if scope == PARTITION_SCOPE:
        with pytest.raises(KeyConflictError, match="has changed the table's partition spec"):
            lake.table.commit(mine)
        assert lake.live() == set()
    else:
        committed(lake.table, *mine)


def test_a_key_that_was_declared_after_the_look_is_noticed() -> None:
    lake = Lake()
    mine, look = lake.open(), resolved(lake.table, OTHERS[0])
    committed(lake.table, DeclareKey(KEY))
    with pytest.raises(KeyConflictError):
        mine.commit([Append((lake.file(),)), look])


def test_a_declared_key_is_required_of_all_writers_and_brings_its_defaults() -> None:
    lake = keyed()
    stored = lake.open().head.properties
    assert features.KEYS in features.required_features(stored)
    assert stored[properties.TOMBSTONE_TTL_MS] == properties.KEYED_DEFAULTS[properties.TOMBSTONE_TTL_MS]
    own = Lake(table_properties={properties.TOMBSTONE_TTL_MS: "5"})
    committed(own.table, DeclareKey(KEY))
    assert own.open().head.properties[properties.TOMBSTONE_TTL_MS] == "5"


def test_an_append_to_a_table_with_a_key_says_what_it_knows_of_its_keys() -> None:
    lake = keyed()
    file = lake.file()
    with pytest.raises(KeyConflictError, match="appends rows without a look at their keys"):
        lake.table.commit([Append((file,))])
    with pytest.raises(KeyConflictError):
        lake.table.commit([RowDelta((file,), (lake.deletes(file, 0),))])
    assert lake.live() == set()
    committed(lake.table, Append((file,)), AllowDuplicates())
    assert lake.live() == {file.file_path}


def test_a_key_that_was_declared_since_refuses_an_append_without_a_look() -> None:
    lake = Lake()
    mine = lake.open()
    committed(lake.table, DeclareKey(KEY))
    with pytest.raises(KeyConflictError):
        mine.commit([Append((lake.file(),))])


def test_replaces_need_no_look_at_keys() -> None:
    lake = keyed()
    files: list[DataFile] = [lake.file(), lake.file()]
    committed(lake.table, Append(tuple(files)), resolved(lake.table))
    before = lake.live_rows()
    done = committed(lake.table, Replace(frozenset(f.file_path for f in files), (lake.merged(*files),)))
    assert done.dropped == ()
    assert lake.live_rows() == before


# -------------------------------------------------------------------------------------- deleted keys


def test_keys_that_were_deleted_since_the_look_refuse_the_commit_with_their_files() -> None:
    lake = keyed()
    mine, look = lake.open(), resolved(lake.table)
    theirs = put(lake)
    committed(lake.table, theirs)
    with pytest.raises(RowsChangedError, match="keys were deleted since") as refused:
        mine.commit([Append((lake.file(),)), look])
    assert refused.value.files == (theirs.location,)
    mine.refresh()
    committed(mine, Append((lake.file(),)), resolved(mine))


def test_deleted_keys_that_a_merge_holds_now_are_looked_at_again() -> None:
    lake = keyed()
    first = put(lake)
    committed(lake.table, first)
    mine, look = lake.open(), resolved(lake.table)
    merge = put(lake, first.location, rows=2)
    committed(lake.table, merge)
    assert known(lake) == [merge.location]
    with pytest.raises(RowsChangedError) as refused:
        mine.commit([look, put(lake)])
    assert refused.value.files == (merge.location,)


def test_two_merges_of_the_same_files_both_land() -> None:
    lake = keyed()
    first = put(lake)
    committed(lake.table, first)
    mine = lake.open()
    theirs, own = put(lake, first.location), put(lake, first.location)
    committed(lake.table, theirs)
    committed(mine, own)
    assert known(lake) == [theirs.location, own.location]


def test_deleted_keys_are_as_old_as_the_commit_that_deletes_them() -> None:
    """A writer that has slept since it wrote them deletes their keys now."""
    lake = keyed()
    slept = put(lake)
    lake.clock.now_ms += 30 * DAY_MS
    committed(lake.table, slept)
    (file,) = tombstones_of(lake.open().head.properties)
    assert file == TombstoneFile(slept.location, 1, lake.clock.now_ms)
    later = put(lake)
    committed(lake.table, later)
    assert known(lake) == [slept.location, later.location]


def test_deleted_keys_are_forgotten_once_their_time_to_live_has_passed() -> None:
    lake = keyed()
    first, second, third = put(lake), put(lake), put(lake)
    committed(lake.table, first)
    lake.clock.now_ms += 7 * DAY_MS
    committed(lake.table, second)
    assert known(lake) == [first.location, second.location]
    lake.clock.now_ms += 10
    committed(lake.table, SetProperties({"x": "1"}))  # only who deletes keys forgets
    assert known(lake) == [first.location, second.location]
    committed(lake.table, third)
    assert known(lake) == [second.location, third.location]


def test_deleted_keys_from_below_the_fence_are_refused() -> None:
    lake = keyed()
    mine = put(lake)
    lake.open().commit([RaiseFence(names.ulid_floor(lake.clock.now_ms + 1))])
    with pytest.raises(CommitConflictError, match="garbage cutoff") as refused:
        lake.table.commit([mine])
    assert refused.value.files == (mine.location,)
    assert known(lake) == []


@pytest.mark.parametrize("folder", [names.DATA_FOLDER, names.TOMBSTONE_FOLDER])
def test_a_cleaner_knows_files_of_deleted_keys_by_their_names_in_either_folder(folder: str) -> None:
    file_id = names.ulid(1, 1)
    assert names.written_id(names.tombstone_path(file_id, "app", 1, folder)) == file_id
    assert names.written_id(f"{folder}/notes-tombstones.parquet") is None


@pytest.mark.parametrize("text", ["", "{", "[1]", '[["a", "b", 1]]', '[["a", 1]]'])
def test_deleted_keys_that_cannot_be_read_are_damage(text: str) -> None:
    with pytest.raises(CorruptTableError, match="which keys were deleted cannot be read"):
        tombstones_of({properties.TOMBSTONES: text})


def test_deleted_keys_read_back_as_they_were_stored() -> None:
    files = (TombstoneFile("memory://t/a", 3, 17), TombstoneFile("memory://t/b", 1, 18))
    assert tombstones_of({properties.TOMBSTONES: tombstones_to_property(files)}) == files
    assert tombstones_of({}) == ()


@pytest.mark.parametrize("key", [KEY, *OTHERS])
def test_a_key_reads_back_as_it_was_declared(key: TableKey) -> None:
    assert key_of({properties.KEY: key.to_property()}) == key


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"columns": 1, "sequence": 2, "scope": "table"}'])
def test_a_key_that_cannot_be_read_is_damage(text: str) -> None:
    with pytest.raises(CorruptTableError, match="does not parse"):
        key_of({properties.KEY: text})
