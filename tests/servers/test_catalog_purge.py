"""`purge` of a table in a real REST catalog, which Spark writes to, tags and cleans (R32)."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

from streaming_sink import check_gone, purge
from streaming_sink.commands.cli import main
from streaming_sink.removal import purge as purging
from streaming_sink.removal import until
from tests.servers.keyed_case import KeyedCase
from timeline.retention import grace, policy

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]

WEEK_SECONDS = 7 * 24 * 3600
ALICE = 42
GONE = [{"id": ALICE}]
DISTANCE = 4
"""Of commits, in the place of 100."""


@pytest.fixture
def keyed(running: Any, spark: Any, monkeypatch: pytest.MonkeyPatch) -> KeyedCase:
    for module in (policy, grace, until):
        monkeypatch.setattr(module, "SAFE_DISTANCE", DISTANCE)
    monkeypatch.setattr(purging, "_PACE_SECONDS", 0.1)
    case = KeyedCase(*running, spark)
    brief = {"streaming-sink.history.deletion-grace-ms": "1"}
    case.change(0, (ALICE, 1, "ours"), (1, 1, "ours"), sink=case.new_sink(table_properties=brief))
    return case


def test_her_rows_leave_what_both_engines_have_written_beside_inserts_and_deletes(keyed: KeyedCase) -> None:
    keyed.insert((ALICE, 2, "theirs"), (2, 1, "theirs"))
    keyed.set_mode("merge-on-read")
    keyed.insert((ALICE, 3, "deleted"), (3, 1, "theirs"))
    keyed.do("DELETE FROM {t} WHERE v = 'deleted'")
    report = purge(keyed.table, GONE)
    assert keyed.rows() == [(1, 1, "ours"), (2, 1, "theirs"), (3, 1, "theirs")]
    (done,) = report.tables
    assert (done.deleted_rows, done.rewritten_files, done.problems) == (2, 3, ())
    assert keyed.delete_files() == 0
    keyed.change(1, (ALICE, 1, "late"))
    assert keyed.rows() == [(1, 1, "ours"), (2, 1, "theirs"), (3, 1, "theirs")], "a late change"
    keyed.insert((4, 1, "theirs"))

    (done,) = purge(keyed.table, GONE, wait="60 seconds").tables
    kinds = {each.kind.value for each in done.left}
    assert kinds == {"row-foreign", "key-in-tombstones"}
    assert done.expired_snapshots >= 3
    found = keyed.rows()
    for file in keyed.folder().rglob("*"):
        os.utime(file, (time.time() - WEEK_SECONDS,) * 2)
    keyed.call("remove_orphan_files")
    assert purge(keyed.table, GONE).is_gone
    assert check_gone(keyed.table, GONE).healthy
    assert keyed.rows() == found == [(1, 1, "ours"), (2, 1, "theirs"), (3, 1, "theirs"), (4, 1, "theirs")]


def test_a_tag_of_sparks_is_named_by_the_command_and_left_alone(
    keyed: KeyedCase, capsys: pytest.CaptureFixture[str]
) -> None:
    keyed.do("ALTER TABLE {t} CREATE TAG audit")
    named = ["--catalog-option", f"uri={keyed.catalog.uri}", "--catalog-option", "type=rest"]
    named += ["--table", keyed.name]
    assert main(["purge", *named, "--key", f"id={ALICE}"]) == 2
    assert "kept by tag 'audit', and nothing was changed" in capsys.readouterr().err
    assert (ALICE, 1, "ours") in keyed.rows()
    keyed.do("ALTER TABLE {t} DROP TAG audit")
    assert main(["purge", *named, "--key", f"id={ALICE}", "--json"]) == 1, "older snapshots have them"
    assert json.loads(capsys.readouterr().out)["report"]["tables"][0]["deleted_rows"] == 1
    assert keyed.rows() == [(1, 1, "ours")]
    assert main(["doctor", *named, "--gone", f"id={ALICE}"]) == 1
    assert "gone-row-in-history" in capsys.readouterr().out
