"""The mirror of a table as users meet it: the value, the functions, the command, and what is said of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from streaming_sink import CatalogTable, PathTable, drop, mirror, unmirror
from streaming_sink.commands.cli import main
from streaming_sink.options.table_options import sink_options
from streaming_sink.reports.maintenance_report import MirrorReport
from streaming_sink.upkeep.mirroring import Mirroring
from tests.unit.timeline.world import SCHEMA, Clock
from timeline import doctor, properties
from timeline.changes.changes import SetProperties
from timeline.clock import SYSTEM
from timeline.diagnosis import Severity
from timeline.errors import MirrorForkedError, TableNotFoundError
from timeline.stores import LocalStore
from timeline.table import Table
from timeline.versions.mirrors import mirrors_of


@pytest.fixture
def lake(tmp_path: Path) -> dict[str, str]:
    """The properties of a catalog in SQL."""
    where = tmp_path / "lake"
    where.mkdir()
    return {"type": "sql", "name": "lake", "uri": f"sqlite:///{where}/c.db", "warehouse": f"file://{where}/w"}


@pytest.fixture
def clock() -> Clock:
    """A clock that begins with the system's, by which calls make the table's version."""
    return Clock(SYSTEM.now_ms())


@pytest.fixture
def table(tmp_path: Path, lake: dict[str, str], clock: Clock) -> PathTable:
    """A table at a location, whose mirror is not there yet."""
    location = str(tmp_path / "events")
    Table.create(LocalStore(location), SCHEMA, environment=clock.environment())
    return PathTable(location, mirror=CatalogTable("db.events", lake, create_namespace=True))


def commit(table: PathTable, clock: Clock, times: int = 1) -> None:
    opened = Table.open(table.store(), clock.environment())
    for _ in range(times):
        opened.commit([SetProperties({"a": "b"})])


def named(lake: dict[str, str]) -> str:
    return load_catalog(**lake).load_table("db.events").metadata_location.rpartition("/")[2]


# the value ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["db.t", PathTable("/lake/other"), 7])
def test_a_mirror_is_a_table_in_a_catalog(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"mirror must be a table in a catalog, as CatalogTable"):
        PathTable("/lake/events", mirror=wrong)


def test_a_table_says_its_mirror_without_secrets() -> None:
    secret = CatalogTable("db.t", {"type": "rest", "uri": "http://lake", "token": "hush-hush"})
    table = PathTable("/lake/events", mirror=secret)
    assert "hush-hush" not in repr(table)
    assert "hush-hush" not in json.dumps(table.to_dict())
    by_name = replace(table, mirror=CatalogTable("db.t", "lake"))
    assert repr(by_name) == "PathTable(location='/lake/events', mirror=CatalogTable(('db', 't'), 'lake'))"
    assert PathTable.from_dict(by_name.to_dict()) == by_name


def test_tables_beside_one_have_no_mirror() -> None:
    table = PathTable("/lake/events", mirror=CatalogTable("db.t", "lake"))
    assert table.beside("/lake/other").mirror is None
    assert table.default_quarantine.mirror is None


def test_a_mirror_of_no_use_is_refused_when_the_sink_is_made(lake: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="must be a REST catalog"):
        PathTable("/lake/events", mirror=CatalogTable("db.t", {"type": "dynamodb", "uri": "x://y"})).check()
    with pytest.raises(ValueError, match="no catalog is configured under the name 'nowhere'"):
        PathTable("/lake/events", mirror=CatalogTable("db.t", "nowhere")).check()
    PathTable("/lake/events", mirror=CatalogTable("db.t", lake)).check()


def test_a_buffer_zone_keeps_no_mirror(table: PathTable, tmp_path: Path) -> None:
    from streaming_sink import ingest

    with pytest.raises(ValueError, match="a buffer zone keeps no mirror"):
        ingest.BufferZone(str(tmp_path / "zone"), table)


# the functions ------------------------------------------------------------------------------------


def test_a_call_brings_the_mirror_up(table: PathTable, lake: dict[str, str], clock: Clock) -> None:
    first = mirror(table)
    assert (first.outcome, first.version) == ("mirrored", 2)
    assert first.line() == f"the mirror {first.mirror} names version 2"
    assert mirror(table).outcome == "current"
    commit(table, clock)
    assert mirror(table).version == 3
    assert named(lake) == "v3.metadata.json"
    unmirror(table)
    assert mirrors_of(table.open().head.properties) == ()
    assert named(lake) == "v3.metadata.json"


@pytest.mark.parametrize("given", ["/lake/events", CatalogTable("db.t", "lake")])
def test_what_has_no_mirror_is_a_mistake_of_the_call(given: Any) -> None:
    for call in (mirror, unmirror):
        with pytest.raises(ValueError, match="a table at a location has a mirror, as PathTable"):
            call(given)


def test_a_mirror_that_the_table_does_not_have_is_not_forgotten(
    table: PathTable, lake: dict[str, str]
) -> None:
    done = mirror(table)
    with pytest.raises(ValueError, match=r"has no mirror .*:db\.evnts; it has ") as raised:
        unmirror(replace(table, mirror=CatalogTable("db.evnts", lake)))
    assert f"it has {done.mirror}: {table.location}" in str(raised.value)
    assert mirrors_of(table.open().head.properties) == (done.mirror,)


def test_a_sink_asks_a_catalog_that_cannot_have_mirrors_once(
    table: PathTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    def refuse(*given: Any) -> None:
        asked.append(given[-1])
        raise NotImplementedError("405")

    monkeypatch.setattr("timeline.catalogs.clients.metastore.Metastore.begin_pointer", refuse)
    passes = Mirroring(sink_options(table, {}))
    versions = list[int]()
    for _ in range(3):
        passes.after_commit()
        (report,) = passes.finish(None)
        assert report.outcome == "failed"
        assert report.why.startswith("UnsupportedTableError: the catalog cannot have mirrors")
        versions.append(table.open().head.number)
    assert len(asked) == 1
    assert versions == [3, 3, 3], "it was stated, and taken back"


def test_a_table_that_is_not_there_is_not_mirrored(tmp_path: Path, lake: dict[str, str]) -> None:
    with pytest.raises(TableNotFoundError):
        mirror(PathTable(str(tmp_path / "none"), mirror=CatalogTable("db.t", lake)))


def test_a_sink_without_a_mirror_starts_nothing() -> None:
    passes = Mirroring(sink_options("/lake/events", {}))
    assert passes.after_commit() == []
    assert not passes._passes.is_running
    assert passes.finish(None) == []


def test_what_became_of_a_mirror_is_reported_and_raises_nothing(
    table: PathTable, lake: dict[str, str], clock: Clock
) -> None:
    handed: list[Any] = []
    passes = Mirroring(sink_options(table, {}, on_report=handed.append))

    def ended() -> MirrorReport:
        passes.after_commit()
        (report,) = passes.finish(None)
        return report

    assert ended().outcome == "mirrored"
    load_catalog(**lake).drop_table("db.events")
    theirs = load_catalog(**lake).create_table("db.events", SCHEMA)
    commit(table, clock)
    forked = ended()
    assert forked.outcome == "forked"
    assert forked.why.startswith("MirrorForkedError: ")
    assert forked.line().startswith(f"the mirror {forked.mirror} is forked: MirrorForkedError: ")
    assert load_catalog(**lake).load_table("db.events").metadata.table_uuid == theirs.metadata.table_uuid
    assert [report.to_dict()["kind"] for report in handed] == ["mirror", "mirror"]


# the commands -------------------------------------------------------------------------------------


def test_the_command_mirrors_and_forgets(
    table: PathTable, lake: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    options = [text for key, value in lake.items() for text in ("--catalog-option", f"{key}={value}")]
    words = ["mirror", table.location, *options, "--table", "db.events"]
    assert main(words) == 2
    assert "has no namespace db" in capsys.readouterr().err
    assert main([*words, "--create-namespace", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 2
    assert main(words) == 0
    assert "names version 2" in capsys.readouterr().out
    assert main([*words, "--forget"]) == 0
    assert "nothing is kept for" in capsys.readouterr().out
    assert main([*words, "--forget"]) == 2
    assert "has no mirror sqlite:" in capsys.readouterr().err
    assert main(["mirror", table.location, "--table", "db.events"]) == 2
    assert "say where the mirror is" in capsys.readouterr().err


def test_what_one_catalog_names_stays_while_another_one_at_its_address_is_moved_on(
    table: PathTable, lake: dict[str, str], clock: Clock
) -> None:
    mirror(table)
    clock.now_ms = table.open().head.metadata.last_updated_ms
    other = CatalogTable("db.events", {**lake, "name": "another"}, create_namespace=True)
    for _ in range(2):
        mirror(replace(table, mirror=other))
        clock.now_ms += 2 * 3_600_000
        commit(table, clock, 110)
    assert named(lake) == "v2.metadata.json", "the catalog reads the file"
    assert len(table.open().head.properties[properties.MIRRORS].split(", ")) == 2


def test_a_drop_whose_mirror_stays_says_that_the_table_is_dropped(
    table: PathTable, lake: dict[str, str]
) -> None:
    mirror(table)
    catalog = load_catalog(**lake)
    catalog.load_table("db.events").transaction().set_properties({"by": "another"}).commit_transaction()
    for _ in range(2):
        with pytest.raises(
            MirrorForkedError, match="the table was dropped, by version 3, and its mirror was not"
        ):
            drop(table)
    catalog.drop_table("db.events")
    assert drop(table) == 3


def test_a_mirror_is_one_however_its_catalog_is_given(
    table: PathTable, lake: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = mirror(table)
    for key in ("type", "uri", "warehouse"):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{key.upper()}", lake[key])
    again = mirror(replace(table, mirror=CatalogTable("db.events", "lake")))
    assert (again.mirror, again.outcome) == (first.mirror, "current")
    unmirror(replace(table, mirror=CatalogTable("db.events", "lake")))
    assert mirrors_of(table.open().head.properties) == ()


def test_status_and_describe_say_how_far_a_mirror_is_behind(
    table: PathTable, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    done = mirror(table)
    clock.now_ms = table.open().head.metadata.last_updated_ms + 120_000
    commit(table, clock, 3)
    assert main(["status", table.location]) == 0
    behind = f"{done.mirror}: version 2, 3 versions and 2 min behind"
    assert f"mirror {behind}" in capsys.readouterr().out
    assert main(["describe", table.location]) == 0
    assert f"mirror    {behind}" in capsys.readouterr().out
    assert main(["status", table.location, "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)["mirrors"]
    behind = {"name": done.mirror, "version": 2, "behind": 3, "behind_seconds": 120}
    assert said == {**behind, "fork": "", "outdated": False}


def test_the_doctor_finds_a_fork_an_old_mirror_and_a_property_that_was_edited(
    table: PathTable, lake: dict[str, str], clock: Clock
) -> None:
    mirror(table)
    assert doctor(table.location, probe=False).healthy
    commit(table, clock)
    clock.now_ms += 25 * 3_600_000
    commit(table, clock, 140)
    found = doctor(table.location, probe=False)
    (old,) = [it for it in found.findings if it.severity is not Severity.NOTE]
    assert (old.kind, old.severity) == ("mirror-outdated", Severity.WARNING)
    assert "version 2" in old.what
    mirror(table)
    load_catalog(**lake).drop_table("db.events")
    load_catalog(**lake).create_table("db.events", SCHEMA)
    commit(table, clock)
    with pytest.raises(MirrorForkedError):
        mirror(table)
    found = doctor(table.location, probe=False)
    assert [it.kind for it in found.findings if it.severity is not Severity.NOTE] == ["mirror-forked"]
    assert any(name == "mirror" and value.endswith(", a fork") for name, value in found.facts)


def test_a_mirror_of_a_table_that_has_rested_is_not_said_to_be_outdated_before_it_is(
    table: PathTable, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its day begins when a later version comes, as that of what is held for it."""

    def said() -> tuple[bool, bool]:
        assert main(["status", table.location]) == 0
        warned = "what it names may be deleted" in capsys.readouterr().out
        found = doctor(table.location, probe=False).findings
        return warned, "mirror-outdated" in [it.kind for it in found]

    mirror(table)
    clock.now_ms += 5 * 24 * 3_600_000
    commit(table, clock, 140)
    assert said() == (False, False)
    clock.now_ms += 25 * 3_600_000
    commit(table, clock)
    assert said() == (True, True)


def test_versions_that_a_mirror_holds_are_no_finding(table: PathTable, clock: Clock) -> None:
    mirror(table)
    for _ in range(14):
        clock.now_ms += 3_600_000
        commit(table, clock, 20)
    assert (Path(table.location) / "metadata" / "v2.metadata.json").exists()
    assert not (Path(table.location) / "metadata" / "v3.metadata.json").exists()
    assert doctor(table.location, probe=False).findings == ()


def test_a_property_that_was_edited_is_a_finding(table: PathTable, clock: Clock) -> None:
    from tests.unit.timeline.world import change_metadata

    change_metadata(
        Table.open(table.store(), clock.environment()),
        lambda it: {"properties": {**it.properties, properties.MIRRORS: "db.t"}},
    )
    kinds = [it.kind for it in doctor(table.location, probe=False).findings]
    assert "mirrors-unreadable" in kinds
