"""Manifest lists whose blocks are copied: they hold what a list holds that is encoded in whole."""

from __future__ import annotations

import io

import fastavro
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import ManifestContent, ManifestFile, PartitionFieldSummary, read_manifest_list

from timeline import names
from timeline.manifests.list_encoder import ListEncoder
from timeline.manifests.manifest_format import LIST_FORMAT, ReadBytes

METADATA = {"snapshot-id": "7", "format-version": "2"}


def manifest(number: int, sequence_number: int = 5) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=f"s3://lake/t/{names.manifest_path(names.ulid(number, number))}",
        manifest_length=number,
        partition_spec_id=0,
        content=ManifestContent.DATA,
        sequence_number=sequence_number,
        min_sequence_number=1,
        added_snapshot_id=-number,
        added_files_count=number % 5,
        existing_files_count=1,
        deleted_files_count=0,
        added_rows_count=1 << 40,
        existing_rows_count=2,
        deleted_rows_count=0,
        partitions=[PartitionFieldSummary(False, None, b"\0\xff", None)],
        key_metadata=None,
    )


def records(data: bytes) -> list[object]:
    return list(fastavro.reader(io.BytesIO(data)))


@given(st.lists(st.lists(st.integers(0, 60), unique=True), max_size=6))
def test_lists_hold_what_they_would_if_each_were_encoded_in_whole(lists: list[list[int]]) -> None:
    encoder = ListEncoder()
    for numbers in lists:
        manifests = [manifest(number) for number in numbers]
        data = encoder.encode(manifests, METADATA)
        whole = LIST_FORMAT.encode(manifests, METADATA)
        assert records(data) == records(whole)
        read = read_manifest_list(ReadBytes("s3://lake/list", data))
        assert [it.manifest_path for it in read] == [it.manifest_path for it in manifests]


def test_an_entry_of_another_sequence_number_is_encoded_anew() -> None:
    encoder = ListEncoder()
    first = encoder.encode([manifest(1)], METADATA)
    second = encoder.encode([manifest(1, sequence_number=6)], METADATA)
    assert records(first) != records(second)


def test_a_list_costs_what_is_new_in_it() -> None:
    encoder = ListEncoder()
    manifests = [manifest(number) for number in range(1, 1_000)]
    encoder.encode(manifests, METADATA)
    before = encoder.encoded
    for number in range(1_000, 1_100):
        manifests = [manifest(number), *manifests[:500], *manifests[501:]]
        encoder.encode(manifests, METADATA)
    assert (encoder.encoded - before) / 100 < 80, (
        "two blocks of some sixteen entries each, twice as long at most"
    )
