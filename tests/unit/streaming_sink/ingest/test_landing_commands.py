"""What `ingest run` and `ingest work` print, and their exit codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streaming_sink.commands.ingesting import workers
from streaming_sink.ingest import running
from streaming_sink.zones.landed import Landed
from tests.sinks import flat_zone

WHOLE = Landed(0, False, 1, files_in=3, rows=1200, files_out=1, partitions=1)
PARTLY = Landed(1, False, 2, files_in=1, rows=1, files_out=1, partitions=1, rejected={"/drop/x.csv": "a tab"})


@pytest.mark.parametrize(
    ("command", "items", "code", "said"),
    [
        ("run", [], 0, "0 work items landed here: 0 files, 0 rows\n"),
        ("run", [WHOLE], 0, "1 work item landed here: 3 files, 1,200 rows\n"),
        ("run", [WHOLE, PARTLY], 1, "2 work items landed here: 4 files, 1,201 rows\n1 file rejected; why: "),
        ("run", [replace(WHOLE, published_before=True)], 0, "0 work items landed here: 0 files, 0 rows\n"),
        ("run", [replace(PARTLY, published_before=True)], 1, "0 rows\n1 file rejected; why: "),
        ("work", [WHOLE, PARTLY], 0, "2 work items landed here: 4 files, 1,201 rows\n1 file rejected; why: "),
    ],
)
def test_what_landed_and_what_was_rejected_is_summed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, items: list[Landed], code: int, said: str
) -> None:
    """A worker that has rejected files has not failed, so `dispatch` starts no other one for it. What was
    published before is of another sum.
    """
    zone = str(tmp_path / "zone")
    flat_zone(zone, table=str(tmp_path / "table")).definition  # noqa: B018

    def land(*_: Any, on_landed: Callable[[Landed], None], **__: Any) -> None:
        for item in items:
            on_landed(item)

    monkeypatch.setattr(running, command, land)
    monkeypatch.setattr(workers, "_session", lambda: None)
    done = CliRunner().invoke(workers.ingest, [command, zone, "--available-now"], standalone_mode=False)
    assert said in done.output
    assert done.output.count("work item ") == len(items) + ("1 work item " in said)
    assert done.return_value == code
