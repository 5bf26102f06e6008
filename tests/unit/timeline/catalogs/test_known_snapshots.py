"""What an answer says is what pyiceberg reads of it, however much of it was known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pyiceberg.table import CommitTableResponse

from tests.unit.timeline.logs.kinds import CatalogKind
from timeline.catalogs.clients.known_snapshots import KnownSnapshots
from timeline.changes.changes import SetProperties


@pytest.fixture
def said(tmp_path: Path) -> dict[str, Any]:
    """An answer with five snapshots."""
    kind = CatalogKind(tmp_path)
    table = kind.create()
    for number in range(5):
        table.commit([SetProperties({"number": str(number)})])
    metadata = json.loads(kind.read().metadata.model_dump_json())
    kind.close()
    return {"metadata-location": "s3://lake/m.json", "metadata": metadata}


def read(known: KnownSnapshots, said: Any) -> CommitTableResponse:
    """Read an answer, which must be what pyiceberg makes of it."""
    text = json.dumps(said)
    found = known.read(CommitTableResponse, text)
    assert found == CommitTableResponse.model_validate_json(text)
    return found


def test_a_snapshot_that_is_known_is_not_read_again(said: dict[str, Any]) -> None:
    known = KnownSnapshots()
    whole = said["metadata"]["snapshots"]
    first = read(known, {**said, "metadata": {**said["metadata"], "snapshots": whole[:4]}})
    second = read(known, said)
    assert len(second.metadata.snapshots) == 5
    for before, after in zip(first.metadata.snapshots, second.metadata.snapshots, strict=False):
        assert before is after


def test_one_of_which_something_else_is_said_is_read_anew(said: dict[str, Any]) -> None:
    """Such as the parent, which some catalogs remove when it expires."""
    known = KnownSnapshots()
    read(known, said)
    del said["metadata"]["snapshots"][1]["parent-snapshot-id"]
    said["metadata"]["snapshots"][2]["summary"]["operation"] = "append"
    del said["metadata"]["snapshots"][0]
    found = read(known, said).metadata.snapshots
    assert [it.parent_snapshot_id is None for it in found] == [True, False, False, False]


def test_an_answer_without_snapshots_is_read_too(said: dict[str, Any]) -> None:
    known = KnownSnapshots()
    read(known, said)
    del said["metadata"]["snapshots"]
    said["metadata"] |= {"current-snapshot-id": -1, "refs": {}, "snapshot-log": []}
    assert read(known, said).metadata.snapshots == []


@pytest.mark.parametrize(
    "text", ["<html>", '{"metadata": {', "[]", "{}", '{"metadata": {"snapshots": [{}]}}', "7"]
)
def test_what_is_no_such_answer_is_no_refusal(text: str) -> None:
    """A plain ValueError would be one: a proxy's page would pass for a commit that had no effect."""
    with pytest.raises(ValidationError):
        KnownSnapshots().read(CommitTableResponse, text)
