"""Mirrors in a catalog in SQL, on sqlite, and in a Hive metastore in memory, read by pyiceberg (R36)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.types import StringType

from tests.unit.timeline.catalogs.metastores import AFTER, BEFORE
from tests.unit.timeline.logs.kinds import CatalogKind, HiveKind, VersionFilesKind
from timeline import names
from timeline.catalogs.mirrors.mirroring import Mirror, Mirrored
from timeline.catalogs.opening import connect_catalog, open_in_catalog
from timeline.changes.changes import Append, SetProperties
from timeline.changes.schema_changes import MergeSchema
from timeline.clock import SYSTEM
from timeline.errors import CommitStateUnknownError, MirrorForkedError, UnsupportedTableError
from timeline.retention import policy
from timeline.stores import LocalStore

ALTER = "alter_table_with_environment_context"
NAME = ("lake", "mirrored")


@pytest.fixture(params=["sql", "hive"])
def kind(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CatalogKind]:
    made = HiveKind(tmp_path, monkeypatch) if request.param == "hive" else CatalogKind(tmp_path)
    yield made
    made.close()


@pytest.fixture
def files(tmp_path: Path) -> VersionFilesKind:
    """A table at a location."""
    return VersionFilesKind(tmp_path / "files")


def a_mirror(kind: CatalogKind) -> Mirror:
    return Mirror("lake:lake.mirrored", NAME, kind._catalog(kind.answers))


def ids(kind: CatalogKind) -> list[int]:
    """Return what another engine reads by the name."""
    return sorted(kind.beside().load_table(NAME).scan().to_arrow()["id"].to_pylist())


def test_another_engine_reads_each_version_by_the_name(kind: CatalogKind, files: VersionFilesKind) -> None:
    table, mirror = files.create(), a_mirror(kind)
    for number in range(4):
        table.commit([Append((files.file([number]),))])
        mirror.bring_up(table)
        assert ids(kind) == list(range(number + 1))
    loaded = kind.beside().load_table(NAME)
    assert loaded.metadata_location == table.head.version.place
    assert loaded.metadata.table_uuid == table.head.metadata.table_uuid


def test_a_column_that_came_is_read_too(kind: CatalogKind, files: VersionFilesKind) -> None:
    table, mirror = files.create(), a_mirror(kind)
    table.commit([Append((files.file([1]),))])
    mirror.bring_up(table)
    merged = table.head.schema
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    wider = Schema(*merged.fields, NestedField(99, "note", StringType(), required=False))
    table.commit([MergeSchema(wider)])
    mirror.bring_up(table)
    assert kind.beside().load_table(NAME).scan().to_arrow().column_names == ["id", "p", "note"]
    if isinstance(kind, HiveKind):
        assert [it.name for it in kind.metastore.tables[NAME].sd.cols] == ["id", "p", "note"]


def test_what_another_engine_writes_through_the_catalog_stays(
    kind: CatalogKind, files: VersionFilesKind
) -> None:
    table, mirror = files.create(), a_mirror(kind)
    mirror.bring_up(table)
    with kind.beside().load_table(NAME).transaction() as edit:
        edit.set_properties({"theirs": "1"})
    forked = kind.beside().load_table(NAME).metadata_location
    table.commit([SetProperties({"ours": "1"})])
    with pytest.raises(MirrorForkedError, match=forked):
        mirror.bring_up(table)
    assert kind.beside().load_table(NAME).metadata_location == forked
    kind.beside().drop_table(NAME)
    assert a_mirror(kind).bring_up(table).moved
    assert kind.beside().load_table(NAME).properties["ours"] == "1"


def test_a_pointer_that_was_moved_since_is_not_moved_again(
    kind: CatalogKind, files: VersionFilesKind
) -> None:
    table, mirror = files.create(), a_mirror(kind)
    mirror.bring_up(table)
    first = table.head.version.place
    table.commit([SetProperties({"a": "1"})])
    mirror.bring_up(table)
    with pytest.raises(CommitFailedException):
        mirror.catalog.move_pointer(NAME, first, first)
    assert mirror.catalog.read_pointer(NAME) == table.head.version.place


def test_a_sink_on_a_mirror_is_refused_before_it_writes(kind: CatalogKind, files: VersionFilesKind) -> None:
    table = files.create()
    a_mirror(kind).bring_up(table)
    opened = open_in_catalog(kind._catalog(kind.answers), NAME, LocalStore, SYSTEM)
    with pytest.raises(
        UnsupportedTableError, match=r"is a mirror, for reading, of the table at .*/files/table"
    ):
        opened.ensure_store_is_safe()
    assert a_mirror(kind).bring_up(table) == Mirrored(2, moved=False)


def test_a_table_that_is_there_and_not_ours_stays(kind: CatalogKind, files: VersionFilesKind) -> None:
    theirs = kind.create()
    table = files.create()
    target = Mirror("lake:lake.table", ("lake", "table"), kind._catalog(kind.answers))
    with pytest.raises(MirrorForkedError, match="is no mirror of the table"):
        target.bring_up(table)
    assert kind.read().metadata.table_uuid == theirs.head.metadata.table_uuid


def test_a_mirror_whose_metadata_was_deleted_is_brought_up(
    kind: CatalogKind, files: VersionFilesKind
) -> None:
    """It was behind for more than a day."""
    table, mirror = files.create(), a_mirror(kind)
    at = mirror.bring_up(table).version
    for _ in range(policy.VERSIONS_ALWAYS_KEPT):
        table.commit([SetProperties({"a": "b"})])
    table.commit([Append((files.file([7]),))])
    table.store.delete([names.version_path(at)])
    assert mirror.bring_up(table).moved
    assert ids(kind) == [7]


@pytest.mark.parametrize("fault", [BEFORE, AFTER])
@pytest.mark.parametrize("request_", ["lock", "heartbeat", ALTER, "get_table"])
def test_connections_to_a_metastore_that_are_dropped_are_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: VersionFilesKind, fault: str, request_: str
) -> None:
    kind = HiveKind(tmp_path, monkeypatch)
    table, mirror = files.create(), a_mirror(kind)
    mirror.bring_up(table)
    table.commit([Append((files.file([7]),))])
    kind.metastore.meets[request_].append(fault)
    mirror.bring_up(table)
    assert ids(kind) == [7]


def test_a_metastore_that_is_down_leaves_it_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: VersionFilesKind
) -> None:
    kind = HiveKind(tmp_path, monkeypatch)
    table, mirror = files.create(), a_mirror(kind)
    kind.metastore.meets["get_table"].extend([BEFORE] * 200)
    with pytest.raises(CommitStateUnknownError, match="it is not known which version"):
        mirror.bring_up(table)
    kind.metastore.meets.clear()
    assert mirror.bring_up(table).moved


def test_of_catalogs_in_sql_two_that_meet_leave_the_later_version(
    tmp_path: Path, files: VersionFilesKind
) -> None:
    """The one that is slower has read the pointer before the other one moves it."""
    kind = CatalogKind(tmp_path)
    table, other = files.create(), files.open()
    ours, theirs = a_mirror(kind), a_mirror(kind)
    ours.bring_up(table)
    table.commit([SetProperties({"a": "1"})])
    move: Callable[..., Any] = ours.catalog.move_pointer

    def be_overtaken(*arguments: Any) -> None:
        ours.catalog.move_pointer = move  # type: ignore[method-assign]
        other.commit([SetProperties({"a": "2"})])
        theirs.bring_up(other)
        move(*arguments)

    ours.catalog.move_pointer = be_overtaken  # type: ignore[method-assign]
    assert ours.bring_up(table) == Mirrored(other.head.number, moved=False)
    assert ours.catalog.read_pointer(NAME) == other.head.version.place
    kind.close()


def test_a_catalog_is_connected_to_by_its_properties(tmp_path: Path) -> None:
    from timeline.catalogs.mirrors.opening import connect_pointers

    given = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    catalog = connect_pointers(given, LocalStore)
    assert catalog.read_pointer(NAME) is None
    assert isinstance(catalog, type(connect_catalog(given)))
