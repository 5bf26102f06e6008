"""`streaming-sink ingest status`: what it exits with, and amounts as people read them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from planners.printing import span_text
from streaming_sink import ingest
from streaming_sink.commands.cli import DONE, FINDINGS, main
from streaming_sink.zones.deciding import reannounce
from streaming_sink.zones.landed import Landed, write_landed
from streaming_sink.zones.planning.flux import Flux
from streaming_sink.zones.status import status
from tests.unit.streaming_sink.serving.served import ODD, filled_zone
from timeline.stores import LocalStore
from timeline.table import Table
from timeline.versions.work_items import WorkItem

Captured = pytest.CaptureFixture[str]


def test_a_rejected_file_exits_1_until_an_item_has_it_again(tmp_path: Path, capsys: Captured) -> None:
    zone = filled_zone(tmp_path)
    command = ["ingest", "status", zone.store.location]
    assert main(command) == FINDINGS == 1
    odd = f"{tmp_path}/drop/{ODD}"
    assert f"rejected {odd}: not a whole Parquet file: <b>no footer</b>\n" in capsys.readouterr().out
    assert main([*command, "--json"]) == FINDINGS
    assert [it["path"] for it in json.loads(capsys.readouterr().out)["rejected"]] == [odd]
    assert reannounce(zone).files == (odd,)
    assert main(command) == FINDINGS  # announced, and in no item yet
    Flux(zone).plan(flush=True)
    assert main(command) == DONE == 0
    assert "rejected " not in capsys.readouterr().out.rpartition("zone ")[2]


def test_a_rejected_file_leaves_the_list_once_enough_items_have_landed_since(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a file that nobody mends would have every later status exit with 1."""
    zone = filled_zone(tmp_path)
    command = ["ingest", "status", zone.store.location]
    table = Table.open(LocalStore(zone.definition.table))
    table.commit([], transaction=WorkItem(zone.app_id, 1))
    write_landed(zone.store, Landed(1, published_before=False, version=3))
    assert main(command) == FINDINGS
    monkeypatch.setattr("streaming_sink.zones.status._LAST", 1)
    assert main(command) == DONE


def test_rules_and_amounts_are_told_as_they_were_given(tmp_path: Path, capsys: Captured) -> None:
    zone = filled_zone(tmp_path, rejected=False)
    assert main(["ingest", "status", zone.store.location]) == DONE
    assert "rules    1.0 GiB, 10,000 files, or 5 min\n" in capsys.readouterr().out
    other = ["--max-bytes", "1536KiB", "--max-age", "90 seconds"]
    assert main(["ingest", "create", zone.store.location, "--table", zone.definition.table, *other]) == DONE
    assert main(["ingest", "status", zone.store.location]) == DONE
    assert "rules    1.5 MiB, 10,000 files, or 1 min 30 s\n" in capsys.readouterr().out


def test_what_landed_is_told_in_units_for_people(tmp_path: Path, capsys: Captured) -> None:
    landed = Landed(
        7, False, 3, files_in=9, files_out=1, partitions=1, rows=5, bytes_out=3 << 29, oldest_ms=1_000
    )
    landed = replace(landed, landed_ms=391_000, milliseconds={"land": 65_000, "note": 12})
    assert landed.line() == (
        "work item 7: 9 files became 1 in 1 partition, 5 rows, 1.5 GiB; version 3, visible 6 min 30 s after"
        " the first arrival (land 1 min 5 s, note 12 ms)"
    )
    found = status(filled_zone(tmp_path, rejected=False))
    lag = ", ".join(f"{name} {span_text(value)}" for name, value in found.lag_ms.items())
    assert main(["ingest", "status", found.location]) == DONE
    assert f"lag      {lag}, of the last 1\n" in capsys.readouterr().out
    assert main(["ingest", "status", found.location, "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["lag_ms"] == dict(found.lag_ms)


def test_an_item_that_is_due_says_why_in_the_same_words(tmp_path: Path) -> None:
    rules = ingest.Rules(max_bytes=1, max_age="5 minutes")
    zone = ingest.BufferZone(str(tmp_path / "zone"), table=str(tmp_path / "table"), rules=rules)
    (tmp_path / "a.csv").write_text("id\n1\n")
    zone.push(str(tmp_path / "a.csv"))
    plan = Flux(zone).plan()
    assert plan is not None
    assert plan.items[0].why == "5 B wait, and 1 B are enough"
