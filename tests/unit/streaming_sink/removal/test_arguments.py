"""Arguments of calls on a table that are of another type: each is named, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import streaming_sink
from streaming_sink import ingest
from streaming_sink.ingest.running import work
from tests.unit.streaming_sink.small_tables import append, make_table

CALLS: dict[str, tuple[Callable[[str], Any], str]] = {
    "rollback": (lambda at: streaming_sink.rollback(at, "2"), "to_version must be a whole number, not '2'"),
    "rollback to a fraction": (
        lambda at: streaming_sink.rollback(at, 2.0),
        "to_version must be a whole number",
    ),
    "tag": (lambda at: streaming_sink.tag(at, 5), "name must be text, not 5"),
    "tag of": (lambda at: streaming_sink.tag(at, "a", "2"), "version must be a whole number, not '2'"),
    "branch": (lambda at: streaming_sink.branch(at, None), "name must be text, not None"),
    "expire": (
        lambda at: streaming_sink.expire_snapshots(at, max_snapshots="1"),
        "max_snapshots must be a whole number, not '1'",
    ),
    "changes": (
        lambda at: streaming_sink.changes(None, at, "1"),
        "from_version must be a whole number, not '1'",
    ),
    "changes to": (
        lambda at: streaming_sink.changes(None, at, 1, "2"),
        "to_version must be a whole number, not '2'",
    ),
    "ingest": (lambda at: ingest.run(None, at), "a BufferZone is what is run"),
    "work": (lambda at: work(None, at), "a BufferZone is what is run"),
    "siphon": (lambda at: ingest.BufferZone(f"{at}-zone", at).siphon(5), "app_id must be letters.*not 5"),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_argument_of_another_type_is_named(tmp_path: Path, call: str) -> None:
    table = make_table(tmp_path / "table")
    append(table, 0)
    append(table, 1)
    made, said = CALLS[call]
    with pytest.raises((TypeError, ValueError), match=said):
        made(str(tmp_path / "table"))
    assert table.refresh().number == 3
