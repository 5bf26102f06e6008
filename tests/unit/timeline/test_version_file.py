"""A version file is read by what is known of the version before: it must say the same as when read whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import SnapshotLogEntry

from tests.unit.timeline.world import Lake, version_of
from timeline import properties
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.errors import CorruptTableError
from timeline.names import version_path
from timeline.versions import version_file
from timeline.versions.version_file import Version, encode_metadata, parse_version

ODD = 'a "line"\n],"snapshot-log":[\n\u2028,\n\\'
"""What the layout must not be taken in by, in a snapshot's summary and in a property."""


@pytest.fixture
def lake() -> Lake:
    """A table whose versions append, replace, set properties and, from the 121st on, expire snapshots."""
    lake = Lake(table_properties={properties.MAX_SNAPSHOTS: "10", properties.MIN_SNAPSHOTS_TO_KEEP: "1"})
    last = None
    for _ in range(150):
        new = lake.file()
        changes = [Append((new,))]
        if last is not None:
            changes.append(Replace(frozenset({last.file_path}), (lake.merged(last),)))
        lake.table.commit(changes, summary={"told": ODD})
        last = new
    lake.table.commit([SetProperties({"odd": ODD})])
    return lake


def test_reading_by_a_known_version_says_the_same_as_reading_whole(lake: Lake) -> None:
    expired = 0
    known = version_of(lake.store, 2)
    for number in range(3, lake.table.head.number + 1):
        data = lake.store.read(version_path(number)).data
        whole = parse_version(number, data, lake.store.location)
        read = parse_version(number, data, lake.store.location, known=known)
        assert read.metadata == whole.metadata
        assert encode_metadata(read.metadata)[0] == encode_metadata(whole.metadata)[0] == data
        assert encode_metadata(read.metadata, known.arrays)[0] == data
        assert {name: array.text for name, array in read.arrays.items()} == texts(whole.metadata)
        expired += len(known.metadata.snapshots) >= len(read.metadata.snapshots)
        known = read
    assert expired > 1, "no version left snapshots out: the prefix was always whole"
    assert known.metadata.properties["odd"] == ODD


def test_what_is_known_is_not_parsed_again(lake: Lake) -> None:
    number = lake.table.head.number - 1
    known = version_of(lake.store, number - 1)
    read = parse_version(number, lake.store.read(version_path(number)).data, lake.store.location, known=known)
    before = {id(entry) for entry in known.entries.values()}
    logs = (read.metadata.snapshots, read.metadata.snapshot_log, read.metadata.metadata_log)
    new = [[entry for entry in log if id(entry) not in before] for log in logs]
    assert [len(entries) for entries in new] == [2, 1, 1]


def test_an_entry_that_says_something_else_is_not_taken_for_the_known_one(lake: Lake) -> None:
    head = lake.table.head.version
    stored = json.loads(_data(lake, head.number))
    stored["snapshots"][0]["summary"]["total-records"] = "1"
    for changed in (_as_laid_out(lake, head.number, stored), json.dumps(stored, indent=1).encode()):
        read = parse_version(head.number, changed, lake.store.location, known=head)
        assert read.metadata == parse_version(head.number, changed, lake.store.location).metadata
        assert read.metadata.snapshots[0].summary is not None
        assert read.metadata.snapshots[0].summary.additional_properties["total-records"] == "1"
        assert read.metadata.snapshots[1:] == head.metadata.snapshots[1:]


def test_a_layout_that_is_almost_ours_reads_the_same_whatever_is_known(lake: Lake) -> None:
    head = lake.table.head.version
    data = _data(lake, head.number)
    first = data.index(b",\n{")
    for changed in (
        data[:-1] + b',"snapshot-log":[],"metadata-log":[]}',  # of two keys the last one counts
        data[:first] + b",\n" + data[first:].replace(b',"', b',\n"', 1)[2:],  # an entry on two lines
        data[: data.index(b'"metadata-log":[')] + b'"metadata-log":[\n]' + data[data.rindex(b"\n]") + 2 :],
    ):
        read = parse_version(head.number, changed, lake.store.location, known=head)
        assert read.metadata == parse_version(head.number, changed, lake.store.location).metadata


@pytest.mark.parametrize("at", [0.1, 0.5, 0.9, 0.99])
def test_damage_is_told_whatever_is_known(lake: Lake, at: float) -> None:
    head = lake.table.head.version
    data = _data(lake, head.number)
    cut = int(at * len(data))
    for damaged in (data[:cut], data[:cut] + b"\0" + data[cut + 1 :], b"", b"{}"):
        with pytest.raises(CorruptTableError, match="cannot be read"):
            parse_version(head.number, damaged, lake.store.location, known=head)


def test_a_version_of_another_table_helps_nobody_and_harms_nobody(lake: Lake) -> None:
    other = Lake()
    other.table.commit([Append((other.file(),))])
    number = lake.table.head.number
    read = parse_version(number, _data(lake, number), lake.store.location, known=other.table.head.version)
    assert read.metadata == lake.table.head.metadata


def texts(metadata: TableMetadataV2) -> dict[str, str]:
    """The texts of the long arrays, made of nothing but these."""
    return {name: array.text for name, array in encode_metadata(metadata)[1].items()}


@settings(max_examples=200, deadline=None)
@given(
    before=st.lists(st.integers(0, 9), max_size=6, unique=True),
    after=st.lists(st.integers(0, 9), max_size=6, unique=True),
)
def test_an_array_is_written_the_same_by_whatever_was_before(before: list[int], after: list[int]) -> None:
    """Entries that leave the front, the middle or the end, that come at any place, or change places."""
    empty = Lake().table.head.metadata

    def of(numbers: list[int]) -> TableMetadataV2:
        return empty.model_copy(update={"snapshot_log": [_LOG[number] for number in numbers]})

    known = encode_metadata(of(before))[1]
    assert encode_metadata(of(after), known)[0] == encode_metadata(of(after))[0]


_LOG = [SnapshotLogEntry(snapshot_id=10**number, timestamp_ms=number) for number in range(10)]


def test_a_commit_writes_no_line_that_the_version_before_has(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    lines = version_file._lines
    monkeypatch.setattr(version_file, "_lines", lambda entries: asked.append(len(entries)) or lines(entries))
    lake.table.commit([Append((lake.file(),))])
    assert asked == [1, 1, 1]  # a snapshot, and an entry of each log


def _data(lake: Lake, number: int) -> bytes:
    return lake.store.read(version_path(number)).data


def _as_laid_out(lake: Lake, number: int, stored: object) -> bytes:
    """The same as our own writer would lay it out."""
    whole: Version = parse_version(number, json.dumps(stored).encode(), lake.store.location)
    return encode_metadata(whole.metadata)[0]
