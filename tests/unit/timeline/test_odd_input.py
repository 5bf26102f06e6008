"""What callers and hands may put into a table: refused before it is written, or read as what it is."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, NestedField

from tests.unit.timeline.world import Lake, data_file
from timeline import names
from timeline.changes.changes import Append, SetProperties
from timeline.errors import CommitConflictError, CorruptTableError
from timeline.names import HINT_PATH, expired_path, version_path
from timeline.retention.policy import MAINTAIN_EVERY
from timeline.stores import MemoryStore
from timeline.table import Table


@pytest.mark.parametrize("value", [None, 5, True, b"x"])
def test_a_property_that_is_no_text_is_refused_before_anything_is_written(value: Any) -> None:
    """With a null among the properties nobody could open the table again."""
    lake = Lake()
    with pytest.raises(TypeError, match="table property a must be text, not "):
        lake.table.commit([SetProperties({"a": value})])
    with pytest.raises(TypeError, match="table property a must be text, not "):
        Table.create(MemoryStore("elsewhere"), lake.table.head.schema, table_properties={"a": value})
    assert lake.open().head.number == 1


@pytest.mark.parametrize(
    "key",
    [
        "streaming-sink.history.deletion-grace-ms",
        "streaming-sink.history.max-snapshots",
        "history.expire.max-snapshot-age-ms",
        "commit.manifest.min-count-to-merge",
    ],
)
def test_a_number_that_is_no_number_is_refused_before_it_stops_every_commit(key: str) -> None:
    lake = Lake()
    with pytest.raises(ValueError, match=key):
        lake.table.commit([SetProperties({key: ""})])
    lake.table.commit([SetProperties({}, frozenset({key}))])
    lake.table.commit([Append((lake.file(),))])


def test_a_file_that_is_live_is_not_appended_again() -> None:
    """A caller without a transaction who commits again after an unknown outcome would double its rows."""
    lake = Lake()
    file, other = lake.file(), lake.file()
    lake.table.commit([Append((file,))])
    with pytest.raises(CommitConflictError, match="is in the table already, and its rows would count twice"):
        lake.table.commit([Append((other, file))])
    assert lake.live_rows() == lake.rows_of(file)


@pytest.mark.parametrize("hint", [b"9" * 5000, b"9" * 19])
def test_a_hint_that_no_number_holds_is_mended_and_stops_nothing(hint: bytes) -> None:
    lake = Lake()
    MemoryStore(lake.name).overwrite(HINT_PATH, hint)
    lake.table.commit([Append((lake.file(),))])
    assert MemoryStore(lake.name).read(HINT_PATH).data == b"2"


def _note(location: object, number: object) -> bytes:
    record = {"snapshot_id": number, "sequence_number": 1, "manifest_list": location}
    return json.dumps({"version": 1, "commit_id": "x", "expired": [record], "kept": record}).encode()


@pytest.mark.parametrize(
    "note",
    [
        _note("s3://elsewhere/list.avro", 7),
        _note("memory://elsewhere/../list.avro", 7),
        _note(5, 7),
        _note("memory://x", "7"),
        _note(None, None),
    ],
)
def test_a_note_of_another_shape_or_place_stops_no_commit(note: bytes) -> None:
    lake = Lake()
    commit_id = names.ulid(1, 1)
    MemoryStore(lake.name).create(expired_path(1, commit_id), note)
    for step in range(2 * MAINTAIN_EVERY):
        lake.table.commit([SetProperties({"step": str(step)})])
    assert lake.table.head.number == 2 * MAINTAIN_EVERY + 1


def test_no_failure_of_tidying_turns_a_commit_into_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it is: the commit is in the table, and an error would say that it is not."""
    lake = Lake()

    def fails(*_: object) -> None:
        raise RuntimeError("out of ideas")

    monkeypatch.setattr("timeline.versions.listing.VersionFiles.write_hint", fails)
    lake.table.commit([Append((lake.file(),))])
    assert "version 2 is committed; tidying after it failed" in caplog.text
    assert "out of ideas" in caplog.text


def _edit(lake: Lake, number: int, edit: Any) -> None:
    store = MemoryStore(lake.name)
    stored = json.loads(store.read(version_path(number)).data)
    edit(stored)
    store.overwrite(version_path(number), json.dumps(stored).encode())


@pytest.mark.parametrize("current", [-1, None, 12345])
def test_a_version_whose_current_snapshot_is_not_mains_is_damage(current: int | None) -> None:
    """The next append would follow nothing, and all rows before it were gone."""
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    _edit(lake, 2, lambda stored: stored.update({"current-snapshot-id": current}))
    with pytest.raises(CorruptTableError, match=r"was edited or damaged|does not hold it|cannot be read"):
        lake.open()


@pytest.mark.parametrize("content", [b'{"format-version":1}', b"[" * 5000 + b"]" * 5000, b"null", b"5"])
def test_whatever_stands_in_a_version_file_is_told_as_damage(content: bytes) -> None:
    lake = Lake()
    MemoryStore(lake.name).overwrite(version_path(1), content)
    with pytest.raises(CorruptTableError, match=r"cannot be read|format version 1"):
        lake.open()


def test_a_list_outside_the_table_is_told_as_damage() -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    _edit(lake, 2, lambda stored: stored["snapshots"][0].update({"manifest-list": "s3://elsewhere/l.avro"}))
    with pytest.raises(CorruptTableError, match="names a file that is not below its own location"):
        lake.open()


def test_files_of_the_nan_partition_are_of_one_partition() -> None:
    """Else they are never clustered, and a delete file there would be overlooked."""
    schema = Schema(NestedField(1, "x", DoubleType()))
    spec = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform=IdentityTransform(), name="x"))
    store = MemoryStore("nan")
    table = Table.create(store, schema, spec)
    for number in range(2):
        location = store.uri(f"data/x=NaN/{names.data_file_name(names.ulid(1, number), 'app', 1, 0, 0)}")
        table.commit([Append((data_file(location, 1, partition=Record(float("nan"))),))])
    one, two = Table.open(store).head.live_files()
    assert one.partition == two.partition
    assert all(isinstance(value, float) and math.isnan(value) for value in one.partition)
