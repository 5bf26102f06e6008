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


def read(known: KnownSnapshots, said: Any, spaces: str = "") -> CommitTableResponse:
    """Read an answer, which must be what pyiceberg makes of it."""
    text = json.dumps(said, separators=(f",{spaces}", f":{spaces}"))
    found = known.read(CommitTableResponse, text)
    assert found == CommitTableResponse.model_validate_json(text)
    return found


def shortened(said: dict[str, Any], most: int) -> dict[str, Any]:
    """Return the answer before the last snapshots."""
    whole = said["metadata"]
    cut = {name: whole[name][:most] for name in ("snapshots", "snapshot-log")}
    return {**said, "metadata": {**whole, **cut, "refs": {}, "current-snapshot-id": -1}}


@pytest.mark.parametrize("spaces", ["", " "])
def test_a_snapshot_that_is_known_is_not_read_again(said: dict[str, Any], spaces: str) -> None:
    known = KnownSnapshots()
    first = read(known, shortened(said, 3), spaces)
    for most in (4, 5, 5):
        second = read(known, shortened(said, most), spaces)
        assert len(second.metadata.snapshots) == most
        for before, after in zip(first.metadata.snapshots, second.metadata.snapshots, strict=False):
            assert before is after
        for before, after in zip(first.metadata.snapshot_log, second.metadata.snapshot_log, strict=False):
            assert before is after
        first = second


@pytest.mark.parametrize(
    "elsewhere", [{"snapshots": []}, {"snapshots": [{}]}, {"snapshot-log": [7]}, {"x": '"snapshots":['}]
)
def test_a_list_of_that_name_elsewhere_is_not_the_table_s(said: dict[str, Any], elsewhere: Any) -> None:
    known = KnownSnapshots()
    said["metadata"]["properties"] |= {"odd": '"snapshots":[', '"snapshots': '"snapshots": ['}
    for _ in range(2):
        assert len(read(known, {"config": elsewhere, **said}).metadata.snapshots) == 5
    said["metadata"] |= {"refs": {}, "current-snapshot-id": -1}
    del said["metadata"]["snapshots"]
    assert read(known, {"config": elsewhere, **said}).metadata.snapshots == []


@pytest.mark.parametrize("after", ["x]", "}]", ",", ":[]", "", "]"])
def test_what_follows_a_known_snapshot_is_looked_at(said: dict[str, Any], after: str) -> None:
    known, answer = KnownSnapshots(), shortened(said, 1)
    text = json.dumps(answer, separators=(",", ":"))
    known.read(CommitTableResponse, text)
    snapshots = json.dumps(answer["metadata"]["snapshots"], separators=(",", ":"))
    assert snapshots in text
    changed = text.replace(snapshots, snapshots[:-1] + after)
    if after == "]":
        known.read(CommitTableResponse, changed)
    else:
        with pytest.raises(ValidationError):
            known.read(CommitTableResponse, changed)


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
