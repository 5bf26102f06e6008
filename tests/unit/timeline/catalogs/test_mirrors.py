"""A catalog names the newest version of a table at a location, and no fork is overwritten (R36)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tests.unit.timeline.catalogs.pointers import AFTER, BEFORE, PointersInMemory
from tests.unit.timeline.world import DAY_MS, NOON, Lake
from timeline import names, properties
from timeline.catalogs.mirrors.forgetting import forget_mirror
from timeline.catalogs.mirrors.mirroring import Mirror, Mirrored
from timeline.changes.changes import Append, SetProperties
from timeline.changes.drop_changes import Drop
from timeline.errors import (
    CommitStateUnknownError,
    CorruptTableError,
    MirrorForkedError,
    StoreUnavailableError,
    TableNotFoundError,
    UnknownFeatureError,
)
from timeline.features import required_features
from timeline.names import MIRROR_FOLDER, version_path
from timeline.retention.mirrored import list_mirror_notes, mirror_digest, read_fork
from timeline.stores import MemoryStore
from timeline.table import Table

NAME = "lake:db.t"
TABLE = ("db", "t")
BRIEF = {
    properties.MAX_SNAPSHOT_AGE_MS: "60000",
    properties.MIN_SNAPSHOTS_TO_KEEP: "1",
    properties.DELETION_GRACE_MS: "60000",
}
THEIRS = "s3://elsewhere/db/t/metadata/00003-5a1e.metadata.json"


def a_mirror(catalog: PointersInMemory, **options: Any) -> Mirror:
    """Return the mirror as a process that starts anew has it."""
    return Mirror(NAME, TABLE, catalog, **options)


def commit(table: Table, times: int = 1) -> None:
    for _ in range(times):
        table.commit([SetProperties({"a": "b"})])


def named(lake: Lake, catalog: PointersInMemory) -> int:
    """Return the version that the catalog names."""
    number = names.version_number(catalog.places[TABLE])
    assert number is not None
    assert catalog.places[TABLE] == lake.store.uri(version_path(number))
    return number


def fork_of(lake: Lake) -> str:
    """Return what a note says of a fork."""
    return read_fork(lake.store, mirror_digest(NAME, lake.table.head.metadata.table_uuid))


def noted(lake: Lake) -> list[int]:
    return [note.version for note in list_mirror_notes(lake.store)]


# naming a version ---------------------------------------------------------------------------------


def test_the_catalog_names_the_newest_version_and_one_note_says_so() -> None:
    lake, catalog = Lake(), PointersInMemory()
    mirror = a_mirror(catalog)
    commit(lake.open())
    assert mirror.bring_up(lake.table) == Mirrored(3, moved=True)
    for at in (4, 5, 6):
        commit(lake.open())
        assert mirror.bring_up(lake.table) == Mirrored(at, moved=True)
        assert named(lake, catalog) == at
        assert noted(lake) == [at]
    assert lake.table.head.properties[properties.MIRRORS] == f'["{NAME}"]'
    assert "mirror" in required_features(lake.table.head.properties)


def test_a_mirror_that_is_up_to_date_is_left_alone() -> None:
    lake, catalog = Lake(), PointersInMemory()
    a_mirror(catalog).bring_up(lake.table)
    catalog.requests.clear()
    assert a_mirror(catalog).bring_up(lake.open()) == Mirrored(2, moved=False)
    assert catalog.requests == ["read"]


def test_the_note_is_there_before_the_catalog_names_the_version() -> None:
    lake, catalog = Lake(), PointersInMemory()
    mirror = a_mirror(catalog)
    mirror.bring_up(lake.table)
    commit(lake.table)
    seen: list[list[int]] = []
    catalog.meets.extend([None, lambda: seen.append(noted(lake))])
    mirror.bring_up(lake.table)
    assert seen == [[2, 3]]


def test_a_namespace_is_made_where_that_is_asked_for_alone() -> None:
    lake, catalog = Lake(), PointersInMemory()
    catalog.namespaces.clear()
    with pytest.raises(TableNotFoundError, match="has no namespace db"):
        a_mirror(catalog).bring_up(lake.table)
    assert a_mirror(catalog, creates_namespace=True).bring_up(lake.table).moved


def test_requests_of_a_call_are_few() -> None:
    lake, catalog = Lake(), PointersInMemory()
    mirror = a_mirror(catalog)
    mirror.bring_up(lake.table)
    commit(lake.open())
    lake.store.count()
    catalog.requests.clear()
    mirror.bring_up(lake.table)
    assert catalog.requests == ["read", "move"]
    assert lake.store.count() == {"LIST": 3, "GET": 1, "PUT": 1, "DELETE": 2}


# forks --------------------------------------------------------------------------------------------


def _elsewhere(lake: Lake) -> str:
    return THEIRS


def _in_the_folder(lake: Lake) -> str:
    return lake.store.uri("metadata/00003-5a1e.metadata.json")


def _below_the_folder(lake: Lake) -> str:
    return lake.store.uri("metadata/m/v2.metadata.json")


def _no_table_of_iceberg(lake: Lake) -> str:
    return ""


@pytest.mark.parametrize("fork", [_elsewhere, _in_the_folder, _below_the_folder, _no_table_of_iceberg])
@pytest.mark.parametrize("compares", [True, False])
def test_a_fork_is_never_overwritten_and_leaves_a_note(fork: Callable[[Lake], str], compares: bool) -> None:
    lake, catalog = Lake(), PointersInMemory(compares=compares)
    a_mirror(catalog).bring_up(lake.table)
    catalog.places[TABLE] = fork(lake)
    commit(lake.table)
    for mirror in (a_mirror(catalog), a_mirror(catalog)):
        with pytest.raises(MirrorForkedError, match="no mirror of the table") as raised:
            mirror.bring_up(lake.table)
        assert raised.value.location == lake.store.location
        assert catalog.places[TABLE] == fork(lake)
        assert "no mirror of the table" in fork_of(lake)
    del catalog.places[TABLE]
    assert a_mirror(catalog).bring_up(lake.table).moved
    assert fork_of(lake) == ""


def test_the_mirror_of_another_table_is_told_by_its_location_and_not_to_be_dropped() -> None:
    lake, catalog = Lake(), PointersInMemory()
    catalog.places[TABLE] = "s3://elsewhere/db/t/metadata/v7.metadata.json"
    with pytest.raises(MirrorForkedError, match="that of the table at s3://elsewhere/db/t, and") as raised:
        a_mirror(catalog).bring_up(lake.table)
    assert "mirror this table under another name" in str(raised.value)
    assert "drop" not in str(raised.value)


def test_a_write_through_the_catalog_just_before_the_move_is_not_overwritten() -> None:
    lake, catalog = Lake(), PointersInMemory()
    mirror = a_mirror(catalog)
    mirror.bring_up(lake.table)
    commit(lake.table)
    catalog.meets.extend([None, lambda: catalog.places.update({TABLE: THEIRS})])
    with pytest.raises(MirrorForkedError):
        mirror.bring_up(lake.table)
    assert catalog.places[TABLE] == THEIRS


def test_the_mirror_of_a_table_that_was_dropped_is_not_that_of_the_one_in_its_place() -> None:
    lake, catalog = Lake(), PointersInMemory()
    a_mirror(catalog).bring_up(lake.table)
    lake.table.commit([Drop()])
    made = Table.create(lake.store, lake.table.head.schema, environment=lake.clock.environment(9))
    with pytest.raises(MirrorForkedError, match="which was dropped"):
        a_mirror(catalog).bring_up(made)
    assert named(lake, catalog) == 2


@pytest.mark.parametrize("times", [1, 2])
def test_an_old_mirror_is_a_fork_once_the_metadata_that_it_names_is_deleted_too(times: int) -> None:
    """No uuid can be read then, but the table in its place began later."""
    lake, catalog = Lake(), PointersInMemory()
    a_mirror(catalog).bring_up(lake.table)
    for _ in range(times):
        lake.open().commit([Drop()])
        made = Table.create(lake.store, lake.table.head.schema, environment=lake.clock.environment(9))
    commit(made, 120)
    lake.store.delete([version_path(2)])
    with pytest.raises(MirrorForkedError, match="which was dropped"):
        a_mirror(catalog).bring_up(made)
    assert named(lake, catalog) == 2
    catalog.places.clear()
    assert a_mirror(catalog).bring_up(made).moved


def test_a_version_that_the_table_does_not_have_yet_is_told_and_stays() -> None:
    lake, catalog = Lake(), PointersInMemory()
    a_mirror(catalog).bring_up(lake.table)
    catalog.places[TABLE] = lake.store.uri(version_path(9))
    with pytest.raises(MirrorForkedError, match="restored from an older copy"):
        a_mirror(catalog).bring_up(lake.table)
    assert named(lake, catalog) == 9


# answers, races and kills -------------------------------------------------------------------------


@pytest.mark.parametrize("compares", [True, False])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("faults", list(itertools.product([None, BEFORE, AFTER], repeat=2)))
def test_answers_that_are_lost_are_looked_up(
    compares: bool, first: bool, faults: tuple[str | None, ...]
) -> None:
    lake, catalog = Lake(), PointersInMemory(compares=compares)
    mirror = a_mirror(catalog)
    if not first:
        mirror.bring_up(lake.table)
    commit(lake.table)
    catalog.meets.extend(faults)
    mirror.bring_up(lake.table)
    assert named(lake, catalog) == lake.table.head.number
    assert noted(lake) == [lake.table.head.number]


def test_a_catalog_that_does_not_answer_leaves_it_unknown() -> None:
    lake, catalog = Lake(), PointersInMemory()
    catalog.meets.extend([BEFORE] * 100)
    with pytest.raises(CommitStateUnknownError, match=r"which version the mirror lake:db\.t names"):
        a_mirror(catalog).bring_up(lake.table)
    catalog.meets.clear()
    assert a_mirror(catalog).bring_up(lake.table).moved


class _KilledError(Exception):
    """The process ends."""


class _Killing:
    """Kills at one request to the store or the catalog, before it or after it."""

    def __init__(self, at: int, lake: Lake, catalog: PointersInMemory, *, after: bool) -> None:
        self.left, self.after = at, after
        self.store = MemoryStore(lake.name, before=self._meet if not after else None)
        if after:
            for verb in ("create", "overwrite", "read", "list_folder", "delete"):
                self._end_after(self.store, verb)
        self.catalog = catalog
        for verb in ("read_pointer", "begin_pointer", "move_pointer"):
            self._end_after(catalog, verb) if after else self._end_before(catalog, verb)

    def _meet(self, *_: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise _KilledError

    def _end_before(self, of: Any, verb: str) -> None:
        does = getattr(type(of), verb)

        def ending(*arguments: Any) -> Any:
            self._meet()
            return does(of, *arguments)

        setattr(of, verb, ending)

    def _end_after(self, of: Any, verb: str) -> None:
        does = getattr(type(of), verb)

        def ending(*arguments: Any) -> Any:
            done = does(of, *arguments)
            self._meet()
            return done

        object.__setattr__(of, verb, ending)


@pytest.mark.parametrize("compares", [True, False])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("after", [True, False])
def test_a_process_that_dies_at_any_request_is_finished_by_the_next_call(
    compares: bool, first: bool, after: bool
) -> None:
    died = 0
    for at in range(40):
        lake, catalog = Lake(), PointersInMemory(compares=compares)
        if not first:
            a_mirror(catalog).bring_up(lake.table)
            commit(lake.table)
        before = None if first else named(lake, catalog)
        dying = _Killing(at, lake, catalog, after=after)
        table = Table.open(MemoryStore(lake.name), lake.clock.environment(7))
        object.__setattr__(table.log, "store", dying.store)
        try:
            a_mirror(catalog).bring_up(table)
        except _KilledError:
            died += 1
        for verb in ("read_pointer", "begin_pointer", "move_pointer"):
            vars(catalog).pop(verb, None)
        if TABLE in catalog.places:
            assert named(lake, catalog) in noted(lake), "what the catalog names has a note"
            assert before is None or named(lake, catalog) >= before
        again = lake.open()
        a_mirror(catalog).bring_up(again)
        assert named(lake, catalog) == again.head.number
        assert noted(lake) == [again.head.number]
    assert 5 < died < 40


def test_where_the_catalog_compares_nothing_a_later_look_sets_the_pointer_right() -> None:
    """The other process has named version 4 between this one's look at version 2 and its move to 3."""
    lake, catalog = Lake(), PointersInMemory(compares=False)
    ours, theirs = a_mirror(catalog), a_mirror(catalog)
    ours.bring_up(lake.table)
    commit(lake.table)
    other = lake.open()

    def be_overtaken() -> None:
        commit(other)
        theirs.bring_up(other)
        assert named(lake, catalog) == 4

    catalog.meets.extend([None, be_overtaken])
    assert ours.bring_up(lake.table) == Mirrored(4, moved=True)
    assert named(lake, catalog) == 4


def test_where_the_catalog_compares_the_slower_one_changes_nothing() -> None:
    lake, catalog = Lake(), PointersInMemory()
    ours, theirs = a_mirror(catalog), a_mirror(catalog)
    ours.bring_up(lake.table)
    commit(lake.table)
    other = lake.open()

    def be_overtaken() -> None:
        commit(other)
        theirs.bring_up(other)

    catalog.meets.extend([None, be_overtaken])
    assert ours.bring_up(lake.table) == Mirrored(4, moved=False)
    assert named(lake, catalog) == 4


def test_a_process_that_slept_names_no_version_that_may_have_been_deleted() -> None:
    """A hundred versions have come between its look at the head and its note."""
    lake, catalog = Lake(), PointersInMemory()
    mirror = a_mirror(catalog)
    mirror.bring_up(lake.table)
    commit(lake.table)
    other = lake.open()
    catalog.meets.append(lambda: commit(other, 120))
    moved: list[str] = []
    move = catalog.move_pointer
    catalog.move_pointer = lambda *it: (moved.append(it[2]), move(*it))[1]  # type: ignore[method-assign,assignment]
    mirror.bring_up(lake.table)
    assert moved == [lake.store.uri(version_path(other.head.number))]


@pytest.mark.parametrize("anew", [True, False])
def test_a_catalog_that_is_down_for_long_leaves_few_notes(anew: bool) -> None:
    lake, catalog = Lake(), PointersInMemory()
    mirror = a_mirror(catalog)
    mirror.bring_up(lake.table)
    begin = catalog.move_pointer
    catalog.move_pointer = lambda *_: 1 / 0  # type: ignore[method-assign,assignment]
    for _ in range(30):
        commit(lake.table)
        with pytest.raises(ZeroDivisionError):
            (a_mirror(catalog) if anew else mirror).bring_up(lake.table)
    assert noted(lake) == [2, 3]
    catalog.move_pointer = begin  # type: ignore[method-assign]
    assert mirror.bring_up(lake.table) == Mirrored(32, moved=True)
    assert noted(lake) == [32]


# what is kept -------------------------------------------------------------------------------------


def _pass(lake: Lake, table: Table, versions: int, minutes: float) -> None:
    for _ in range(versions):
        lake.clock.now_ms += int(minutes * 60_000)
        commit(table)


def test_a_version_that_a_mirror_names_stays_for_a_day_and_then_goes() -> None:
    lake, catalog = Lake(), PointersInMemory()
    mirror = a_mirror(catalog)
    mirror.bring_up(lake.table)
    at = named(lake, catalog)
    table = lake.open()
    _pass(lake, table, 220, 6)  # 22 hours
    kept = {number for it in lake.store.list_folder("metadata") if (number := names.version_number(it.path))}
    assert min(kept) == at
    assert at + 1 not in kept
    _pass(lake, table, 40, 6)
    kept = {number for it in lake.store.list_folder("metadata") if (number := names.version_number(it.path))}
    assert at not in kept
    assert noted(lake) == [at], "the newest note says how old the mirror is"


def test_the_day_of_a_version_begins_when_a_later_one_supersedes_it() -> None:
    """The table has rested for days, and then the catalog is down for some hours."""
    lake, catalog = Lake(table_properties=BRIEF), PointersInMemory()
    lake.table.commit([Append((lake.file(),))])
    a_mirror(catalog).bring_up(lake.table)
    at, first = named(lake, catalog), lake.table.head.metadata.snapshots[0].manifest_list
    lake.clock.now_ms += 3 * DAY_MS
    table = lake.open()
    for _ in range(230):  # in 23 hours
        lake.clock.now_ms += 6 * 60_000
        table.commit([Append((lake.file(),))])
    assert first not in {snapshot.manifest_list for snapshot in table.head.metadata.snapshots}
    for path in (version_path(at), lake.store.relative(first)):
        assert lake.store.look(path)
    _pass(lake, table, 40, 6)
    for path in (version_path(at), lake.store.relative(first)):
        with pytest.raises(FileNotFoundError):
            lake.store.look(path)


def test_what_a_mirrored_version_reaches_stays_for_as_long() -> None:
    lake, catalog = Lake(table_properties=BRIEF), PointersInMemory()
    for _ in range(5):
        lake.table.commit([Append((lake.file(),))])
    a_mirror(catalog).bring_up(lake.table)
    table = lake.open()
    lists = [snapshot.manifest_list for snapshot in table.head.metadata.snapshots]
    _pass(lake, table, 230, 6)  # 23 hours
    left = {snapshot.manifest_list for snapshot in table.head.metadata.snapshots}
    assert len(left) < len(lists)
    for each in lists:
        assert lake.store.look(lake.store.relative(each))
    _pass(lake, table, 60, 6)
    there = {it.path for it in lake.store.list_folder("metadata/m")}
    assert [each for each in lists if lake.store.relative(each) in there] == sorted(left)


def test_a_table_without_a_mirror_is_asked_for_none() -> None:
    lake = Lake()
    lake.store.count()
    commit(lake.table, 19)
    assert not [path for _, path in lake.store.requests if path.startswith(MIRROR_FOLDER)]


def test_a_writer_that_does_not_know_mirrors_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake()
    a_mirror(PointersInMemory()).bring_up(lake.table)
    monkeypatch.setattr("timeline.features.KNOWN_FEATURES", frozenset({"keys"}))
    with pytest.raises(UnknownFeatureError, match=r"'mirror' \(since version 0\.1\)"):
        commit(lake.open())


def test_a_mirror_that_is_forgotten_holds_nothing() -> None:
    lake, catalog = Lake(), PointersInMemory()
    mirror = a_mirror(catalog)
    mirror.bring_up(lake.table)
    forget_mirror(lake.table, NAME)
    assert properties.MIRRORS not in lake.table.head.properties
    assert lake.store.list_folder(MIRROR_FOLDER) == []
    assert named(lake, catalog) == 2


def test_a_mirror_is_dropped_from_its_catalog_unless_it_is_a_fork() -> None:
    lake, catalog = Lake(), PointersInMemory()
    mirror = a_mirror(catalog)
    mirror.bring_up(lake.table)
    assert mirror.drop(lake.store)
    assert not mirror.drop(lake.store)
    catalog.places[TABLE] = THEIRS
    with pytest.raises(MirrorForkedError):
        mirror.drop(lake.store)
    catalog.meets.append(BEFORE)
    with pytest.raises(StoreUnavailableError, match="does not say whether it has dropped"):
        mirror.drop(lake.store)
    assert catalog.places == {TABLE: THEIRS}


@pytest.mark.parametrize("stated", ["db.t", '{"a": 1}', "[1]"])
def test_a_property_that_was_edited_is_named(stated: str) -> None:
    lake = Lake()
    lake.change_metadata(lambda it: {"properties": {**it.properties, properties.MIRRORS: stated}})
    with pytest.raises(CorruptTableError, match=r"streaming-sink\.mirrors was edited"):
        a_mirror(PointersInMemory()).bring_up(lake.table)


def test_two_tables_have_notes_of_their_own_for_mirrors_of_any_name() -> None:
    uuids = UUID(int=1), UUID(int=2)
    each = itertools.product(("lake:db.t", "lake:db.u", "http://lake/x:db.t", "ß"), uuids)
    assert len({mirror_digest(*it) for it in each}) == 8
    digest = mirror_digest("ß", uuids[0])
    assert names.mirrored_parts(names.mirrored_path(digest, 12, NOON)) == (digest, 12, NOON)
    assert names.mirrored_parts(names.mirror_fork_path(digest)) is None


@pytest.mark.parametrize("drops_mirror", [True, False])
def test_a_table_that_is_made_anew_begins_with_notes_of_its_own(drops_mirror: bool) -> None:
    lake, catalog = Lake(), PointersInMemory()
    mirror = a_mirror(catalog)
    commit(lake.table, 4)
    mirror.bring_up(lake.table)
    lake.table.commit([Drop()])
    if drops_mirror:
        mirror.drop(lake.store)
    else:
        catalog.places.clear()
    made = Table.create(lake.store, lake.table.head.schema, environment=lake.clock.environment(9))
    assert a_mirror(catalog).bring_up(made).moved
    assert named(lake, catalog) == made.head.number
