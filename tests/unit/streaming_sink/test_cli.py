"""The command line: what it prints, what its exit codes mean, and that it starts no Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from streaming_sink.commands.cli import CANNOT, DONE, FINDINGS, main
from timeline.commit.changes import SetProperties
from timeline.stores import LocalStore
from timeline.table import Table

ROOT = Path(__file__).parents[3]


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """A small local table."""
    table = Table.create(
        LocalStore(tmp_path / "table"), Schema(NestedField(1, "id", LongType(), required=False))
    )
    table.commit([SetProperties({"a": "b"})])
    return tmp_path / "table"


def test_the_doctor_of_a_healthy_table_exits_0(location: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(location)]) == DONE == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"table     {location}\n")
    assert out.endswith("healthy (0 notes)\n")
    assert err == ""


def test_the_doctor_of_a_damaged_table_exits_1_and_tells(
    location: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (location / "metadata" / "v2.metadata.json").write_bytes(b"{")
    assert main(["doctor", "--no-probe", str(location)]) == FINDINGS == 1
    out = capsys.readouterr().out
    assert "DAMAGE version-unreadable: version 2 of the table cannot be read" in out
    assert "  means   it is the newest version" in out
    assert "  repair  stop all writers and restore the file" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["doctor", "/nowhere/at/all"], "doctor: there is nothing here"),
        (["history", "/nowhere/at/all"], "history: there is no table of this sink at /nowhere/at/all"),
        (["doctor", "ftp://host/table"], "doctor: unknown scheme; supported are"),
        (["doctor", "/a/table", "--option", "region=x"], "storage_options are for object stores only"),
        (["doctor", "s3://bucket/table", "--option", "regoin=x"], "regoin"),
    ],
)
def test_where_it_cannot_look_it_exits_2_and_says_why_on_stderr(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == CANNOT == 2
    out, err = capsys.readouterr()
    assert message in err
    assert out == ""


@pytest.mark.parametrize(
    "arguments", [[], ["operate", "x"], ["doctor"], ["doctor", "x", "--option", "region"]]
)
def test_arguments_that_cannot_be_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == CANNOT
    assert "usage: python -m streaming_sink" in capsys.readouterr().err


def test_the_history_of_a_table_without_batches_is_empty(
    location: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", str(location)]) == DONE
    assert capsys.readouterr().out == ""


def test_it_runs_as_a_module_where_pyspark_is_not_installed(location: Path) -> None:
    code = (
        "import runpy, sys; sys.modules['pyspark'] = None;"
        " runpy.run_module('streaming_sink', run_name='__main__')"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, "doctor", str(location)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.endswith("healthy (0 notes)\n")
