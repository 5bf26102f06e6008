"""What the commands print, as text and as JSON, held against `outputs/`.

`REWRITE_OUTPUTS=1 pytest` writes those files anew; read the difference before it is committed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming_sink.commands.cli import main
from tests.unit.streaming_sink.commands import command_tables
from tests.unit.streaming_sink.commands.command_tables import MINUTE_MS
from tests.unit.timeline.world import Lake
from timeline.clock import Environment

OUTPUTS = Path(__file__).with_name("outputs")
LOOKING = ["describe", "files", "partitions", "snapshots", "status", "plans"]
TABLES: dict[str, tuple[Callable[[], Lake], list[str]]] = {
    "empty": (command_tables.empty, [*LOOKING, "doctor"]),
    "partitioned": (
        command_tables.partitioned,
        [
            *LOOKING,
            "files --partition p=0,p=1 --limit 1 --order smallest",
            "partitions --max 16MiB --limit 2",
            "status --app events --max-age 30s",
            "history",
            "expire --dry-run",
            "orphans --dry-run",
            "cluster --dry-run --select all",
        ],
    ),
    "repartitioned": (
        command_tables.repartitioned,
        [*LOOKING, "files --partition id_bucket=3", "cluster --dry-run --select all"],
    ),
    "clustered": (command_tables.clustered, LOOKING),
    "quarantined": (
        command_tables.quarantined,
        ["quarantine --no-deliver --samples 0", "quarantine --samples 2"],
    ),
    "named": (
        command_tables.partitioned,
        ["tag release-7 --version 4", "branch try", "drop-tag release-7", "drop-branch try"],
    ),
    "people": (command_tables.people, ["purge --key id=2 --dry-run", "purge --key id=2"]),
}


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Lake, list[str]]:
    """Each table, looked at three minutes after its last commit."""
    make, commands = TABLES[request.param]
    lake = make()
    now_ms = lake.clock.now_ms + 3 * MINUTE_MS
    monkeypatch.setattr("timeline.clock.SYSTEM", Environment(now_ms=lambda: now_ms))
    return request.param, lake, commands


@pytest.mark.parametrize("kind", ["text", "json"])
def test_the_output_of_each_command(
    table: tuple[str, Lake, list[str]], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, lake, commands = table
    shown = []
    for command in commands:
        words = command_words(command) + (["--json"] if kind == "json" else [])
        code = main([words[0], f"memory://{lake.name}", *words[1:]])
        out, err = capsys.readouterr()
        assert err == ""
        if kind == "json":
            json.loads(out)
        shown.append(f"$ streaming-sink {words[0]} LOCATION {shlex.join(words[1:])}".rstrip())
        shown.append(normalised(out, lake) + (f"exit code {code}\n" if code else ""))
    text = "\n".join(shown)
    expected = OUTPUTS / f"{name}-{kind}.txt"
    if os.environ.get("REWRITE_OUTPUTS"):
        expected.parent.mkdir(exist_ok=True)
        expected.write_text(text)
    assert text == expected.read_text()


def command_words(command: str) -> list[str]:
    """Split a command; the age, which holds a space, is spelled 30s."""
    return ["30 seconds" if word == "30s" else word for word in command.split(" ")]


def normalised(text: str, lake: Lake) -> str:
    """Return an output without what differs from run to run: the table's name and uuid."""
    text = re.sub(rf"\b{lake.name}", "lake", text)
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", text)


def test_the_page_shows_these_outputs() -> None:
    page = (Path(__file__).parents[4] / "docs" / "command-line.md").read_text()
    shown = [block.split("```")[0] for block in page.split("```console\n")[1:]]
    blocks = [block for block in shown if "| jq" not in block]
    known = "".join(path.read_text() for path in OUTPUTS.glob("*-text.txt"))
    assert len(blocks) == len(LOOKING) + 2
    assert [block for block in blocks if block not in known] == []
