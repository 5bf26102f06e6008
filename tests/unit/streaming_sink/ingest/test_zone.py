"""A buffer zone without Spark: what it stores, what it refuses, and how planners agree over its logs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from planners import FileSizing
from planners.ingestion.buffering import PlanningRules
from streaming_sink import Append, BulkInsert, CatalogTable, Checks, SchemaContract, Upsert, ingest
from streaming_sink.commands.ingesting.ingest import ingest as commands
from streaming_sink.ingest import running
from streaming_sink.zones.definition_log import read_definition
from streaming_sink.zones.ledger import Ledger, retry
from streaming_sink.zones.planning.flux import Flux
from streaming_sink.zones.status import status
from tests.sinks import flat_zone
from timeline.errors import CorruptTableError
from timeline.slots.numbered import NumberedLog
from timeline.stores import open_store


def zone_at(folder: Path, **given: object) -> ingest.BufferZone:
    return flat_zone(str(folder / "zone"), table=str(folder / "table"), **given)  # type: ignore[arg-type]


def source(folder: Path, name: str) -> str:
    path = folder / "drop" / f"{name}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": [1]}), path)
    return str(path)


# ------------------------------------------------------------------------------- what a zone stores


def test_a_zone_remembers_its_options_and_takes_new_ones(tmp_path: Path) -> None:
    sizing, contract = FileSizing(max_file_bytes="16MiB", small_file_bytes="8MiB"), SchemaContract.evolving()
    made = zone_at(
        tmp_path,
        rules=ingest.Rules(max_files=7),
        partition_by=["day"],
        sizing=sizing,
        schema=contract,
        table_properties={"owner": "us"},
    )
    assert made.rules.max_files == 7
    again = ingest.BufferZone(str(tmp_path / "zone"))
    options = again.sink_options
    assert (list(options.partition_by), options.sizing, options.contract) == (["day"], sizing, contract)
    assert again.app_id == made.app_id
    assert ingest.BufferZone(str(tmp_path / "zone"), rules=ingest.Rules(max_files=9)).rules.max_files == 9
    assert ingest.BufferZone(str(tmp_path / "zone")).rules.max_files == 9


def test_what_is_left_out_is_kept_and_none_or_an_empty_value_removes(tmp_path: Path) -> None:
    full = Upsert(key=["id"], sequence_by="at", delete_where="op = 'D'", except_columns=["op"])
    contract = SchemaContract(new_columns="ignore")
    made = zone_at(
        tmp_path,
        write=full,
        partition_by=["day"],
        contract=contract,
        table_properties={"owner": "us"},
        rules=ingest.Rules(max_files=7, max_waiting="1GiB"),
        sources=[str(tmp_path)],
    ).definition
    where = tmp_path / "zone"
    assert ingest.BufferZone(where).definition == made
    assert [*(where / "definition").iterdir()] == [where / "definition" / "000000000001.json"]
    less = ingest.BufferZone(where, write=Upsert(key=["id"]), contract=None).sink_options
    assert (less.write, less.contract) == (Upsert(key=["id"]), SchemaContract())
    assert (less.partition_by, less.table_properties) == (("day",), {"owner": "us"})
    ingest.BufferZone(where, write=None, partition_by=[], table_properties={}).refresh()
    ingest.BufferZone(where, rules=None, sources=None).refresh()
    last = ingest.BufferZone(where)
    assert (last.sink_options.write, last.sink_options.partition_by) == (Append(), ())
    assert last.sink_options.table_properties == {}
    assert (last.definition.rules_of, last.definition.source_folders) == (
        ingest.Rules(),
        ingest.SourceFolders(),
    )


def test_of_two_that_set_options_at_once_the_later_sees_the_earlier(tmp_path: Path) -> None:
    """The second has read the zone before the first wrote it: it reads again, and both options are there."""
    zone_at(tmp_path).refresh()
    where, raced = tmp_path / "zone", []
    create = NumberedLog.create

    def after_another(log: NumberedLog, number: int, data: bytes) -> bool:
        if not raced:
            raced.append(number)
            ingest.BufferZone(where, partition_by=["day"]).refresh()
        return create(log, number, data)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(NumberedLog, "create", after_another)
        ingest.BufferZone(where, rules=ingest.Rules(max_files=7)).refresh()
    both = ingest.BufferZone(where)
    assert raced == [2]
    assert (both.rules.max_files, both.sink_options.partition_by) == (7, ("day",))
    assert len([*(where / "definition").iterdir()]) == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"partition_by": ["day(t"]}, "a partition field is a column or a transform of one"),
        ({"table_properties": {"uuid": "x"}}, "table property uuid is reserved by Iceberg"),
        ({"max_quarantined": 3}, "at_most says how rows are quarantined"),
        ({"schema": SchemaContract(mismatch="rescue")}, "a zone decides about whole files"),
        ({"schema": SchemaContract(new_columns="rescue")}, "a zone decides about whole files"),
        ({"schema": SchemaContract(columns={"a": SchemaContract(mismatch="drop")})}, "about whole files"),
    ],
    ids=["partition_by", "table_properties", "max_quarantined", "mismatch", "new_columns", "columns"],
)
def test_a_zone_stores_no_option_that_its_sink_would_refuse(
    tmp_path: Path, given: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        zone_at(tmp_path, **given).refresh()
    made = zone_at(tmp_path).definition
    with pytest.raises(ValueError, match=message):
        flat_zone(str(tmp_path / "zone"), **given).refresh()  # type: ignore[arg-type]
    assert ingest.BufferZone(str(tmp_path / "zone")).definition == made


def test_partition_fields_are_a_list_of_texts_that_spell_transforms(tmp_path: Path) -> None:
    for wrong, error in (("day", TypeError), (["day(t"], ValueError), ([""], ValueError)):
        with pytest.raises(error, match="partition"):
            ingest.BufferZone(str(tmp_path / "zone"), partition_by=wrong)  # makes no request


@pytest.mark.parametrize(
    "use",
    [
        lambda zone: zone.push("/drop/a.parquet"),
        lambda zone: zone.watched(),
        lambda zone: zone.siphon("events"),
        status,
        Flux,
        Ledger,
    ],
    ids=["push", "watched", "siphon", "status", "Flux", "Ledger"],
)
def test_the_first_use_of_a_zone_that_became_another_tables_is_refused_whichever_it_is(
    tmp_path: Path, use: Callable[[ingest.BufferZone], object]
) -> None:
    other = ingest.BufferZone(str(tmp_path / "zone"), table=str(tmp_path / "other"))
    made = zone_at(tmp_path).definition
    with pytest.raises(ValueError, match=f"is for the table {made.table}, and this is {tmp_path}/other"):
        use(other)


@pytest.mark.parametrize(
    ("by_key", "message"),
    [
        ({"key": []}, "key must name the columns of the key"),
        ({"key": ["id"], "changelog_table": "x"}, "a zone keeps no change log"),
        ({"key": ["id"], "sequence_by": "id"}, "sequence_by says which of two rows of one key is newer"),
    ],
)
def test_options_of_changes_by_key_are_checked(
    tmp_path: Path, by_key: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        zone_at(tmp_path, by_key=by_key).refresh()


def test_a_zone_remembers_its_key(tmp_path: Path) -> None:
    where = str(tmp_path / "zone")
    said = ["create", where, "--table", str(tmp_path / "table"), "--key", "id", "--key", "day"]
    said += ["--sequence-by", "at", "--delete-where", "op = 'D'", "--except-column", "op"]
    result = CliRunner().invoke(commands, said)
    assert result.exit_code == 0, result.output
    keys = ingest.BufferZone(where).sink_options.keys
    assert keys is not None
    assert (keys.key, keys.sequence_by, keys.except_columns) == (("id", "day"), "at", ("op",))


def test_a_zone_remembers_its_table_in_a_catalog_by_names_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, said = str(tmp_path / "zone"), ["--table", "db.events", "--catalog", "lake"]
    unknown = CliRunner().invoke(commands, ["create", where, *said])
    assert "no catalog is configured under the name 'lake'" in f"{unknown.exception} {unknown.output}"
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "http://127.0.0.1:9")
    made = CliRunner().invoke(commands, ["create", where, *said])
    assert made.exit_code == 0, made.output
    assert "is the buffer zone of lake:db.events" in made.output
    assert ingest.BufferZone(where).sink_options.table == CatalogTable("db.events", "lake")
    (stored,) = (tmp_path / "zone" / "definition").iterdir()
    assert "127.0.0.1" not in stored.read_text()
    with pytest.raises(ValueError, match=f"is for the table catalog:db.events, and this is {tmp_path}/table"):
        ingest.BufferZone(where, str(tmp_path / "table")).refresh()


def test_rules_that_are_said_replace_those_alone(tmp_path: Path) -> None:
    where = str(tmp_path / "zone")
    first = ["create", where, "--table", str(tmp_path / "table"), "--max-files", "7", "--per-partition"]
    assert CliRunner().invoke(commands, first).exit_code == 0
    again = ["create", where, "--table", str(tmp_path / "table"), "--max-age", "1 minute"]
    assert CliRunner().invoke(commands, again).exit_code == 0
    assert ingest.BufferZone(where).rules == PlanningRules(max_files=7, max_age_ms=60_000, per_partition=True)


def test_a_planner_takes_rules_that_are_changed_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "RULES_SECONDS", 0)
    zone = zone_at(tmp_path, rules=ingest.Rules(max_files=2, max_age="1 hour"))
    zone.push(source(tmp_path, "a.parquet"))
    stop = threading.Event()
    planner = threading.Thread(target=running.plan_until, args=(zone, stop, 0.01))
    planner.start()
    try:
        ingest.BufferZone(zone.store.location, rules=ingest.Rules(max_files=1)).definition  # noqa: B018
        for _ in range(1000):
            if (plan := zone.plan(1)) is not None:
                break
            time.sleep(0.01)
    finally:
        stop.set()
        planner.join()
    assert plan is not None
    assert plan.items[0].why == "1 files wait, and 1 are enough"


def test_files_of_a_folder_that_no_format_fits_are_named(tmp_path: Path) -> None:
    source(tmp_path, "a.parquet")
    (tmp_path / "drop" / "b.orc").write_text("")
    (tmp_path / "drop" / "_SUCCESS").write_text("")
    pushed = zone_at(tmp_path).push(f"{tmp_path}/drop/")
    assert (pushed.files, pushed.left_out) == (1, (f"{tmp_path}/drop/b.orc",))


def test_a_zone_stays_with_its_table(tmp_path: Path) -> None:
    zone_at(tmp_path).definition  # noqa: B018
    with pytest.raises(ValueError, match="a zone stays with its table, so give this one another location"):
        ingest.BufferZone(str(tmp_path / "zone"), table=str(tmp_path / "other"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"write": BulkInsert()}, "a zone plans the sizes of the files that it writes"),
        ({"contract": SchemaContract(mismatch="rescue")}, "a zone decides about whole files"),
        ({"checks": Checks({"id > 0": "drop"}), "audit": True}, "a zone with expectations publishes items"),
        ({"write": Upsert(key=["id"]), "audit": True}, "a zone with a key publishes items"),
        ({"table": "{folder}/zone/table"}, "neither its nor the table's is inside of the other"),
        ({"table": "{folder}/zone"}, "neither its nor the table's is inside of the other"),
        ({"table": "{folder}"}, "neither its nor the table's is inside of the other"),
    ],
    ids=["bulk", "rescue", "audited checks", "audited keys", "table in zone", "one folder", "zone in table"],
)
@pytest.mark.parametrize("there", [False, True], ids=["new", "there"])
def test_options_that_no_zone_has_are_refused_when_it_is_made(
    tmp_path: Path, given: dict[str, Any], message: str, there: bool
) -> None:
    location, table = str(tmp_path / "zone"), str(tmp_path / "table")
    stored = ingest.BufferZone(location, table).definition if there else None
    options: dict[str, Any] = {"table": table, **given}
    options["table"] = options["table"].format(folder=tmp_path)
    if there and "table" in given:
        message = "a zone stays with its table"
    with pytest.raises(ValueError, match=message):
        ingest.BufferZone(location, **options)
    assert read_definition(open_store(location)) == stored


def test_a_zone_that_is_not_there_needs_a_table(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no buffer zone here; `streaming-sink ingest create"):
        ingest.BufferZone(str(tmp_path / "zone")).push("x.parquet")


def test_a_damaged_definition_is_told(tmp_path: Path) -> None:
    zone_at(tmp_path).definition  # noqa: B018
    (tmp_path / "zone" / "definition" / "000000000001.json").write_text("{")
    with pytest.raises(CorruptTableError, match="the buffer zone's definition cannot be read"):
        ingest.BufferZone(str(tmp_path / "zone")).definition  # noqa: B018


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_bytes": "many"}, "not a size in bytes"),
        ({"max_files": 0}, "max_files must be a whole number of 1 or more"),
        ({"max_age": "soon"}, "max_age must be a number of seconds, minutes"),
        ({"max_age": "0 seconds"}, "max_age must be above 0"),
    ],
)
def test_rules_that_cannot_be_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        ingest.Rules(**given)  # type: ignore[arg-type]


def test_a_definition_that_is_lost_is_not_made_anew(tmp_path: Path) -> None:
    """Its id is what the table knows the landed items by."""
    zone = zone_at(tmp_path)
    zone.push(source(tmp_path, "a"))
    Flux(zone).plan(flush=True)
    (tmp_path / "zone" / "definition" / "000000000001.json").unlink()
    with pytest.raises(CorruptTableError, match="a new one would land all of their files again"):
        zone_at(tmp_path).definition  # noqa: B018


def test_announcements_stay_where_they_are(tmp_path: Path) -> None:
    """Plans state positions in the log, which mean nothing in another one."""
    zone_at(tmp_path).push(source(tmp_path, "a"))
    moved = zone_at(tmp_path)
    topic = ingest.KafkaTopic("kafka://host:9092/topic")  # the client may not be installed
    moved._given = replace(moved._given, topic=topic)
    with pytest.raises(ValueError, match="a zone's announcements stay where they are"):
        moved.definition  # noqa: B018


def test_folders_that_several_processes_watch_are_all_watched(tmp_path: Path) -> None:
    first, second, planner = zone_at(tmp_path), zone_at(tmp_path), zone_at(tmp_path)
    assert (first.watched(), second.watched(), planner.watched()) == ([], [], [])
    for name in "ab":
        (tmp_path / name).mkdir()
    first.watch(f"{tmp_path}/a/")
    second.watch(f"{tmp_path}/b", "*.csv")
    second.watch(f"{tmp_path}/b", "*.csv")
    zone_at(tmp_path, rules=ingest.Rules(max_files=7)).definition  # noqa: B018
    assert planner.watched() == [(f"{tmp_path}/a", "*"), (f"{tmp_path}/b", "*.csv")]


def test_a_folder_without_files_is_watched_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    zone = zone_at(tmp_path)
    (tmp_path / "dorp").mkdir()
    zone.watch(f"{tmp_path}/dorp")
    assert [it.getMessage() for it in caplog.records] == [
        "nothing is in this folder, or there is none: files that come are announced; if it is misspelled,"
        f" watch the right one: {tmp_path}/dorp"
    ]
    caplog.clear()
    source(tmp_path, "a")
    zone.watch(f"{tmp_path}/drop")
    assert caplog.records == []
    assert [folder for folder, _ in zone.watched()] == [f"{tmp_path}/dorp", f"{tmp_path}/drop"]


@pytest.mark.parametrize("folder", ["dorp", "drop/a.parquet", "dorp/"])
def test_a_folder_of_a_disk_that_is_not_there_is_not_watched(tmp_path: Path, folder: str) -> None:
    zone = zone_at(tmp_path)
    source(tmp_path, "a")
    for given in (f"{tmp_path}/{folder}", f"file://{tmp_path}/{folder}"):
        with pytest.raises(ValueError, match=f"no such folder on this machine.*{folder.rstrip('/')}$"):
            zone.watch(given)
    assert zone.watched() == []


def test_a_folder_of_an_object_store_is_watched_before_it_has_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Folders do not exist there, and a listing of none is empty."""
    zone = zone_at(tmp_path, sources=["memory://partner"])
    zone.watch("memory://partner/drop")
    assert "nothing is in this folder, or there is none" in caplog.text
    assert zone.watched() == [("memory://partner/drop", "*")]


# --------------------------------------------------------------------------------- announcements


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    pushed = zone_at(tmp_path).push(source(tmp_path, "a"), f"{tmp_path}/drop/b.parquet")
    assert (pushed.files, pushed.missing) == (1, (f"{tmp_path}/drop/b.parquet",))


def test_files_outside_of_the_sources_are_refused(tmp_path: Path) -> None:
    zone = zone_at(tmp_path, sources=[str(tmp_path / "drop")])
    zone.push(source(tmp_path, "a"))
    for path in (
        "/etc/passwd.parquet",
        f"{tmp_path}/drop/../secret.parquet",
        f"{tmp_path}/dropped/a.parquet",
    ):
        with pytest.raises(ValueError, match=r"the buffer zone takes files from .*drop, .*zone alone"):
            zone.push(path)


def test_a_file_of_no_known_format_is_refused(tmp_path: Path) -> None:
    source(tmp_path, "a")
    (tmp_path / "drop" / "a.xml").touch()
    with pytest.raises(ValueError, match=r"the name of a source file ends in \.parquet"):
        zone_at(tmp_path).push(f"{tmp_path}/drop/a.xml")


# ----------------------------------------------------------------------------------------- plans


def test_two_planners_agree_and_a_restart_knows_what_waits(tmp_path: Path) -> None:
    zone = zone_at(tmp_path, rules=ingest.Rules(max_files=2))
    first, second = Flux(zone), Flux(zone_at(tmp_path))
    zone.push(source(tmp_path, "a"), source(tmp_path, "b"))
    zone.push(source(tmp_path, "c"))
    planned = first.plan()
    assert planned is not None
    assert [len(item.files) for item in planned.items] == [3]
    assert second.plan(flush=True) is None
    zone.push(source(tmp_path, "d"))
    late = Flux(zone_at(tmp_path))
    late.catch_up()
    assert late.buffer.waiting[""][0] == 1
    assert [entry.state for entry in Ledger(zone).entries()] == ["planned"] * 3


def test_a_planner_that_finds_its_number_taken_plans_again(tmp_path: Path) -> None:
    zone = zone_at(tmp_path, rules=ingest.Rules(max_files=1))
    slow, quick = Flux(zone), Flux(zone)
    zone.push(source(tmp_path, "a"))
    slow.catch_up()
    slow.catch_up = lambda: None  # type: ignore[method-assign] # it plans on what it knew
    assert quick.plan() is not None
    slow.catch_up = lambda: Flux.catch_up(slow)  # type: ignore[method-assign]
    assert slow.plan() is None
    assert zone.plans.last() == 1


def test_a_damaged_plan_stops_planners(tmp_path: Path) -> None:
    zone = zone_at(tmp_path)
    zone.push(source(tmp_path, "a"))
    Flux(zone).plan(flush=True)
    (tmp_path / "zone" / zone.plans.path(1)).write_bytes(b"no")
    with pytest.raises(CorruptTableError, match="an entry of the buffer zone cannot be read"):
        Flux(zone)


def test_the_status_shows_what_waits_and_what_is_planned(tmp_path: Path) -> None:
    zone = zone_at(tmp_path)
    zone.push(source(tmp_path, "a"))
    assert [group.files for group in status(zone).waiting] == [1]
    Flux(zone).plan(flush=True)
    found = status(zone)
    assert ([item.state for item in found.open_items], list(found.waiting)) == (["planned"], [])
    assert retry(zone) == []


@pytest.mark.parametrize("hours", [-24, 0, 24])
def test_the_clock_of_a_producer_moves_no_deadline_back(tmp_path: Path, hours: int) -> None:
    zone = zone_at(tmp_path, rules=ingest.Rules(max_age="1 minute"))
    (file,), _ = zone.find([source(tmp_path, "a")])
    now_ms = zone.environment.now_ms()
    zone.announce([replace(file, arrived_ms=now_ms + hours * 3_600_000)])
    flux = Flux(zone)
    flux.catch_up()
    deadline = flux.buffer.deadline_ms()
    assert deadline is not None
    assert deadline <= zone.environment.now_ms() + 60_000


def test_a_run_ends_with_what_ended_its_planner(tmp_path: Path) -> None:
    zone = zone_at(tmp_path)
    (tmp_path / "drop").mkdir()
    zone.watch(f"{tmp_path}/drop")
    narrower = zone_at(tmp_path, sources=[f"{tmp_path}/other"])
    stop = threading.Event()
    limit = threading.Timer(20, stop.set)
    limit.start()
    with pytest.raises(ValueError, match="the buffer zone takes files from"):
        ingest.run(None, narrower, stop=stop, poll_seconds=0.01)  # type: ignore[arg-type] # nothing is planned
    limit.cancel()
    assert not stop.is_set()  # another run may have it


@pytest.mark.parametrize(("zone", "table"), [("t/zone", "t"), ("z", "z/t"), ("t", "t")])
def test_a_zone_is_not_inside_of_its_tables_folder(tmp_path: Path, zone: str, table: str) -> None:
    with pytest.raises(ValueError, match="neither its nor the table's is inside of the other"):
        ingest.BufferZone(tmp_path / zone, table=str(tmp_path / table)).refresh()
