"""The command line: its exit codes, what it says of misuse, and what it loads."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import click
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from streaming_sink import __version__
from streaming_sink.commands import cli
from streaming_sink.commands.cli import CANNOT, DONE, FINDINGS, main
from tests.unit.streaming_sink.commands import command_tables
from tests.unit.streaming_sink.commands.command_tables import MINUTE_MS
from timeline.changes.changes import SetProperties
from timeline.clock import Environment
from timeline.refs import snapshot_at
from timeline.stores import LocalStore
from timeline.table import Table

ROOT = Path(__file__).parents[4]
READING = ["describe", "files", "partitions", "snapshots", "status", "plans", "history"]
MAINTAINING = ["expire", "orphans", "cluster", "quarantine"]

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """A small local table."""
    table = Table.create(
        LocalStore(tmp_path / "table"), Schema(NestedField(1, "id", LongType(), required=False))
    )
    table.commit([SetProperties({"a": "b"})])
    return tmp_path / "table"


def test_the_doctor_of_a_healthy_table_exits_0(location: Path, capsys: Captured) -> None:
    assert main(["doctor", str(location)]) == DONE == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"table     {location}\n")
    assert out.endswith("healthy (0 notes)\n")
    assert err == ""


def test_the_doctor_of_a_damaged_table_exits_1_and_tells(location: Path, capsys: Captured) -> None:
    (location / "metadata" / "v2.metadata.json").write_bytes(b"{")
    assert main(["doctor", "--no-probe", str(location)]) == FINDINGS == 1
    out = capsys.readouterr().out
    assert "DAMAGE version-unreadable: version 2 of the table cannot be read" in out
    assert "  means   it is the newest version" in out
    assert "  repair  stop all writers and restore the file" in out
    assert main(["doctor", "--no-probe", "--json", str(location)]) == FINDINGS
    said = json.loads(capsys.readouterr().out)
    assert said["healthy"] is False
    assert [(it["kind"], it["severity"]) for it in said["findings"]] == [("version-unreadable", "damage")]
    assert set(said["findings"][0]) == {"kind", "severity", "what", "means", "repair"}


@pytest.mark.parametrize("command", [*READING, *MAINTAINING])
@pytest.mark.parametrize("more", [[], ["--json"]], ids=["text", "json"])
def test_a_table_that_cannot_be_read_exits_2_with_nothing_on_stdout(
    location: Path, command: str, more: list[str], capsys: Captured
) -> None:
    (location / "metadata" / "v2.metadata.json").write_bytes(b"{")
    assert main([command, str(location), *more]) == CANNOT
    out, err = capsys.readouterr()
    assert err.startswith(f"{command}: version 2 of the table cannot be read")
    assert out == ""


@pytest.mark.parametrize("command", [*READING, *MAINTAINING])
def test_a_location_without_a_table_exits_2_and_asks_for_its_spelling(command: str, capsys: Captured) -> None:
    assert main([command, "/nowhere/at/all", "--json"]) == CANNOT
    out, err = capsys.readouterr()
    assert err.startswith(
        f"{command}: there is no table of this sink at /nowhere/at/all: is that how the stream spells it?"
    )
    assert out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["doctor", "/nowhere/at/all"], "doctor: there is nothing here"),
        (["doctor", "ftp://host/table"], "doctor: unknown scheme; supported are"),
        (["doctor", "/a/table", "--option", "region=x"], "storage_options are for object stores only"),
        (["doctor", "s3://bucket/table", "--option", "regoin=x"], "regoin"),
        (["quarantine", "ftp://host/table"], "quarantine: unknown scheme"),
        (["describe", "/a/table", "--small", "1GiB"], "describe: --small must not exceed --max, or full"),
        (["describe", "/a/table", "--small", "1GiB"], "raise --max: --max 120MiB, --small 1GiB\n"),
        (["key", "/a/table", "--columns", "a,"], "--columns names columns, with commas between them"),
        (["ingest", "create", "/a/zone", "--table", "/a/b", "--max-age", "x"], "create: --max-age must be a"),
        (["ingest", "create", "/a/zone", "--table", "/a/b", "--sequence-by", "at"], "each of them by --key"),
        (
            ["ingest", "create", "/a/zone", "--table", "/a/b", "--audit-function", "x"],
            "ingest create: --audit-function must be named as package.module:function",
        ),
        (["ingest", "clean", "/a/zone", "--grace", "x"], "ingest clean: --grace must be a number of"),
        (["key", "/a/table", "--declare"], "--declare needs the columns of the key: --columns id"),
        (
            ["ingest", "push", "/a/zone", "/a/b.csv"],
            "`streaming-sink ingest create ZONE --table",
        ),
        (["status", "/a/table", "--max-age", "5"], "--max-age must be a number of seconds, minutes, hours"),
        (["status", "/a/table", "--watch", "--every", "x"], "--every must be a number of seconds, minutes"),
    ],
)
def test_where_it_cannot_look_it_exits_2_and_says_why_on_stderr(
    arguments: list[str], message: str, capsys: Captured
) -> None:
    assert main(arguments) == CANNOT == 2
    out, err = capsys.readouterr()
    assert message in err
    assert out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "COMMAND [ARGS]"),
        (["operate", "x"], "No such command 'operate'"),
        (["snapshot", "x"], "Did you mean 'snapshots'?"),
        (["doctor"], "Missing argument 'LOCATION'"),
        (["doctor", "x", "--table", "db.t"], "say one"),
        (["doctor", "--table", "db.t"], "go together"),
        (["doctor", "--catalog", "lake"], "go together"),
        (["doctor", "--catalog-option", "hunter2", "--table", "db.t"], "takes KEY=VALUE\n"),
        (["files", "x", "--limt", "3"], "Did you mean '--limit'?"),
        (["files", "x", "--limit", "0"], "--limit"),
        (["files", "x", "--order", "size"], "'largest', 'smallest', 'path'"),
        (["doctor", "x", "--option", "region"], "takes KEY=VALUE, not 'region'"),
        (["describe", "x", "--max", "16 apples"], "'--max': not a size in bytes: '16 apples'"),
        (["ingest", "create", "x", "--table", ""], "'--table': it is empty"),
        (["ingest", "create", "x", "--table", "y", "--key", ""], "'--key': it is empty"),
        (["ingest", "create", "x", "--table", "y", "--max-waiting", "x"], "'--max-waiting': not a size"),
        (["replay", "x"], "Missing option '--where'"),
        (["replay", "x", "--where", "true", "--set", "price"], "takes KEY=VALUE, not 'price'"),
    ],
)
def test_arguments_that_cannot_be_exit_2(arguments: list[str], message: str, capsys: Captured) -> None:
    assert main(arguments) == CANNOT
    out, err = capsys.readouterr()
    assert err.startswith("Usage: streaming-sink ")
    assert message in err
    assert out == ""


def test_an_unknown_partition_field_or_application_is_answered_with_the_nearest(capsys: Captured) -> None:
    lake = command_tables.partitioned()
    assert main(["files", f"memory://{lake.name}", "--partition", "P=1"]) == CANNOT
    assert "unknown partition field 'P'; did you mean 'p'?" in capsys.readouterr().err
    assert main(["status", f"memory://{lake.name}", "--app", "event"]) == CANNOT
    assert "unknown application 'event'; did you mean 'events'?" in capsys.readouterr().err


def test_every_command_takes_json_and_storage_options() -> None:
    for name, command in cli._commands.commands.items():
        if isinstance(command, click.Group):
            continue
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"location", "--json", "--option"} <= options, name


def test_every_command_of_a_zone_takes_storage_options() -> None:
    group = cli._commands.commands["ingest"]
    assert isinstance(group, click.Group)
    for name, command in group.commands.items():
        known = {option for each in command.params for option in each.opts}
        assert "--option" in known, name
        assert known & {"zone", "zones"}, name


def test_the_package_installs_it_as_streaming_sink() -> None:
    (target,) = re.findall(r'^streaming-sink = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    module, _, name = target.partition(":")
    assert getattr(import_module(module), name) is main


def test_it_has_a_version(capsys: Captured) -> None:
    assert main(["--version"]) == DONE
    assert __version__ in capsys.readouterr().out


def test_the_history_of_a_table_without_batches_is_empty(location: Path, capsys: Captured) -> None:
    assert main(["history", str(location)]) == DONE
    assert capsys.readouterr().out == ""


class Terminal(io.StringIO):
    """A stdout that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_only_a_terminal_gets_colours_and_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = command_tables.clustered()
    shown = []
    for stdout, columns in ((Terminal(), 60), (io.StringIO(), 60), (io.StringIO(), 200)):
        monkeypatch.setattr("sys.stdout", stdout)
        for name, value in (("COLUMNS", str(columns)), ("TERM", "xterm-256color")):
            monkeypatch.setitem(os.environ, name, value)
        for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
            monkeypatch.delenv(name, raising=False)
        assert main(["files", f"memory://{lake.name}"]) == DONE
        shown.append(stdout.getvalue())
    terminal, narrow, wide = shown
    assert "\x1b[" in terminal
    assert "\x1b[" not in narrow
    assert narrow == wide
    assert len(narrow.splitlines()) == 2 + 6  # a row is a line


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[float]]:
    """Sets the time of the next commands; `sleep` moves it, and is recorded."""

    def set_to(now_ms: int, asleep: Callable[[], object] = lambda: None) -> list[float]:
        sleeps: list[float] = []

        def sleep(seconds: float) -> None:
            sleeps.append(seconds)
            asleep()

        def now() -> int:
            return now_ms + round(1000 * sum(sleeps))

        monkeypatch.setattr("timeline.clock.SYSTEM", Environment(now_ms=now, sleep=sleep))
        return sleeps

    return set_to


@pytest.mark.parametrize(("seconds", "code"), [(60, DONE), (61, FINDINGS)])
def test_an_application_is_late_past_the_age(
    seconds: int, code: int, clock: Callable[..., list[float]], capsys: Captured
) -> None:
    lake = command_tables.partitioned()
    clock(lake.clock.now_ms + 1000 * seconds)
    age = ["--max-age", "1 minute"]
    assert main(["status", f"memory://{lake.name}", "--app", "events", *age]) == code
    assert main(["status", f"memory://{lake.name}", *age]) == FINDINGS, "backfill is a minute older"
    assert main(["status", f"memory://{lake.name}"]) == DONE, "no age was asked for"


def test_a_table_without_a_batch_is_late(capsys: Captured) -> None:
    lake = command_tables.empty()
    assert main(["status", f"memory://{lake.name}", "--max-age", "300 days"]) == FINDINGS


def test_watching_looks_again_until_a_commit_is_too_old(
    clock: Callable[..., list[float]], capsys: Captured
) -> None:
    lake = command_tables.partitioned()
    start = lake.clock.now_ms

    def commit_once() -> None:
        if lake.clock.now_ms == start:
            command_tables.land(lake, "events", 3, lake.file(10))

    sleeps = clock(start, commit_once)
    watched = ["--watch", "--every", "1 minute", "--max-age", "90 seconds", "--app", "events", "--json"]
    assert main(["status", f"memory://{lake.name}", *watched]) == FINDINGS
    lines = [json.loads(line)["applications"][0] for line in capsys.readouterr().out.splitlines()]
    assert [(it["batch_id"], it["age_seconds"]) for it in lines] == [(2, 0), (3, 0), (3, 60), (3, 120)]
    assert sleeps == [60.0] * 3
    assert lake.clock.now_ms == start + MINUTE_MS


def test_it_runs_as_a_module_where_pyspark_is_not_installed(location: Path) -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from streaming_sink.commands.cli import main\n"
        f"for command in {[*READING, 'expire', 'orphans', 'cluster', 'doctor']}:\n"
        f"    assert main([command, {str(location)!r}]) == 0, command\n"
        "import runpy; sys.argv[1:] = ['doctor', 'ftp://host/table']\n"
        "runpy.run_module('streaming_sink', run_name='__main__')"
    )
    run = run_python(code)
    assert run.returncode == CANNOT
    assert run.stderr.startswith("doctor: unknown scheme")
    assert run.stdout.endswith("healthy (0 notes)\n")


@pytest.mark.parametrize("arguments", [["--help"], ["describe", "--help"], ["cluster", "--help"]])
def test_help_loads_nothing_that_reads_a_table(arguments: list[str]) -> None:
    """What makes a start slow: pyiceberg and pyarrow take a second, Spark another."""
    code = (
        "import sys\nfrom streaming_sink.commands.cli import main\n"
        f"assert main({arguments!r}) == 0\n"
        "print(*sorted({'pyarrow', 'pyiceberg', 'pyspark', 'obstore', 'rich', 'numpy'} & sys.modules.keys()))"
    )
    run = run_python(code)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("Usage: streaming-sink ")
    assert run.stdout.splitlines()[-1] == ""


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_key_is_checked_and_declared_where_that_is_asked_for(location: Path, capsys: Captured) -> None:
    arguments = ["key", str(location), "--columns", "id"]
    assert main(arguments) == DONE
    assert "each key is there once; --declare makes it the key of the table" in capsys.readouterr().out
    assert Table.open(LocalStore(location)).head.number == 2
    assert main([*arguments, "--declare", "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["declared"] is True
    assert Table.open(LocalStore(location)).head.number == 3
    assert main(["key", str(location)]) == DONE
    assert "each key is there once\n" in capsys.readouterr().out


def test_the_metadata_that_describe_names_is_what_duckdb_reads(location: Path, capsys: Captured) -> None:
    assert main(["describe", str(location), "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["metadata"] == f"{location}/metadata/v2.metadata.json"
    assert main(["describe", str(location)]) == DONE
    query = f"SELECT * FROM iceberg_scan('{location}/metadata/v2.metadata.json')"
    assert query in capsys.readouterr().out.splitlines()
    assert (location / "metadata" / "v2.metadata.json").is_file()


def test_a_table_is_set_back_and_versions_get_names(capsys: Captured) -> None:
    lake = command_tables.partitioned()
    location, before = lake.store.location, lake.open().head.number
    assert main(["tag", location, "then", "--version", str(before - 1)]) == DONE
    assert main(["branch", location, "try", "--json"]) == DONE
    assert json.loads(capsys.readouterr().out.split("\n", 1)[1])["name"] == "try"
    assert main(["rollback", location, "--to", str(before - 1)]) == DONE
    assert f"has the content of version {before - 1}" in capsys.readouterr().out
    assert main(["snapshots", location, "--limit", "1"]) == DONE
    to = snapshot_at(lake.open().head, before - 1).snapshot_id
    assert f"rollback to {to}\n" in capsys.readouterr().out
    assert main(["snapshots", location, "--json"]) == DONE
    assert [it["rolled_back_to"] for it in json.loads(capsys.readouterr().out)][:2] == [str(to), None]
    assert main(["rollback", location, "--to", "99999"]) == CANNOT
    assert "the history has the versions" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_a_name_is_dropped_once(kind: str, capsys: Captured) -> None:
    lake = command_tables.partitioned()
    location = lake.store.location
    assert main([kind, location, "then"]) == DONE
    assert main([kind, location, "kept"]) == DONE
    snapshot_id = lake.open().head.metadata.refs["then"].snapshot_id
    capsys.readouterr()
    assert main([f"drop-{kind}", location, "then", "--json"]) == DONE
    assert json.loads(capsys.readouterr().out) == {"name": "then", "snapshot_id": str(snapshot_id)}
    assert main([f"drop-{kind}", location, "then"]) == CANNOT
    err = capsys.readouterr().err
    assert err.startswith(
        f"drop-{kind}: the table has no {kind} 'then', but {kind} 'kept'; nothing was changed:"
    )
    assert main([f"drop-{kind}", location, "main"]) == CANNOT
    assert capsys.readouterr().err.startswith(f"drop-{kind}: main is the table, and is never removed")
    assert lake.open().head.metadata.refs.keys() == {"main", "kept"}


def test_a_table_is_dropped_and_made_again_above(capsys: Captured) -> None:
    lake = command_tables.partitioned()
    location, before = lake.store.location, lake.open().head.number
    assert main(["drop", location, "--json"]) == DONE
    assert json.loads(capsys.readouterr().out) == {"version": before + 1}
    assert main(["describe", location]) == CANNOT
    assert f"was dropped, by version {before + 1}" in capsys.readouterr().err
    assert main(["drop", location]) == DONE
    assert f"version {before + 1} was its last" in capsys.readouterr().out
