"""Which delete files apply to which data files, and how many bytes they leave live."""

from __future__ import annotations

import io

import fastavro
import pytest
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StringType, StructType

from tests.unit.timeline.world import BY_P, SCHEMA, Lake, OneFile, data_file
from timeline.changes.changes import Append, Replace
from timeline.errors import CommitConflictError
from timeline.manifests.avro import AvroFormat
from timeline.manifests.deletes import DeleteIndex, live_bytes, live_rows
from timeline.manifests.entries import LiveFile, added_entry, live_file, position_deletes
from timeline.manifests.manifest_format import ReadBytes, decode_live_entries, encode_manifest
from timeline.table import Committed

EQUALITY = DataFileContent.EQUALITY_DELETES


@pytest.fixture
def lake() -> Lake:
    return Lake()


def appended(lake: Lake, count: int = 2, *, size: int = 1000) -> list[DataFile]:
    files = [lake.file(p=0, size=size) for _ in range(count)]
    lake.table.commit([Append(tuple(files))])
    return files


def files_with_deletes(lake: Lake, files: list[DataFile]) -> list[bool]:
    head = lake.open().head
    found = [head.find_live(file.file_path) for file in files]
    return [live is not None and head.has_deletes(live) for live in found]


def test_position_deletes_of_one_file_leave_the_others_of_its_partition_alone(lake: Lake) -> None:
    files = appended(lake)
    lake.add_delete_file(0, paths=(files[0].file_path, files[0].file_path))
    assert files_with_deletes(lake, files) == [True, False]


def test_position_deletes_of_a_range_of_files_apply_within_it(lake: Lake) -> None:
    files = sorted(appended(lake, 3), key=lambda file: file.file_path)
    lake.add_delete_file(0, paths=(files[0].file_path, files[1].file_path))
    assert files_with_deletes(lake, files) == [True, True, False]


def test_a_range_of_files_reaches_no_other_partition(lake: Lake) -> None:
    files = [lake.file(p=p) for p in (0, 1)]
    lake.table.commit([Append(tuple(files))])
    first, last = sorted(file.file_path for file in files)
    lake.add_delete_file(0, paths=(first, last))
    assert files_with_deletes(lake, files) == [True, False]


def test_position_deletes_without_bounds_may_be_of_any_file_of_their_partition(lake: Lake) -> None:
    files = appended(lake)
    lake.add_delete_file(0)
    assert files_with_deletes(lake, files) == [True, True]


def test_equality_deletes_are_of_their_partition_whatever_their_bounds(lake: Lake) -> None:
    files = appended(lake)
    lake.add_delete_file(0, paths=(files[0].file_path, files[0].file_path), content=EQUALITY)
    assert files_with_deletes(lake, files) == [True, True]


def test_equality_deletes_of_a_spec_of_void_transforms_apply_in_every_partition() -> None:
    """A foreign writer may leave them beside files of another spec: such a spec is unpartitioned."""
    file = LiveFile("a", 1, (7,), 10, 1, 0, sequence_number=1)
    delete = LiveFile("d", 0, (None,), 1, 1, 0, 2, None, EQUALITY)
    assert DeleteIndex([delete]).find(file) == [delete]


def test_deletes_of_a_file_do_not_apply_to_what_was_added_later() -> None:
    old = LiveFile("a", 0, (0,), 10, 1, 0, sequence_number=3)
    delete = LiveFile("d", 0, (0,), 1, 1, 0, 4, None, DataFileContent.POSITION_DELETES, (b"a", b"a"))
    index = DeleteIndex([delete])
    assert index.find(old) == [delete]
    assert index.find(LiveFile("a", 0, (0,), 10, 1, 0, sequence_number=5)) == []


def test_a_file_beside_one_with_deletes_may_be_replaced(lake: Lake) -> None:
    files = appended(lake)
    lake.add_delete_file(0, paths=(files[0].file_path, files[0].file_path))
    replaces = [Replace(frozenset({each.file_path}), (lake.merged(each),)) for each in files]
    committed = lake.open().commit([replaces[1]])
    assert isinstance(committed, Committed)
    with pytest.raises(CommitConflictError, match="an input has deletes") as refused:
        lake.open().commit([replaces[0]])
    assert refused.value.files == (files[0].file_path,)


def test_the_data_file_that_a_manifest_refers_to_decides() -> None:
    """Iceberg 1.7 and later write `referenced_data_file`; the bounds of paths may be missing then."""
    delete = data_file("d", 1, partition=Record(0), content=DataFileContent.POSITION_DELETES)
    referring = StructType(
        *data_file_with_partition(BY_P.partition_type(SCHEMA), 2).fields,
        NestedField(143, "referenced_data_file", StringType(), required=False),
    )
    entry = ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=1, data_file=Record(*delete._data, "s3://t/a")
    )
    form = AvroFormat(manifest_entry_schema_with_data_file(2, referring), "manifest_entry")
    manifest = ManifestFile.from_args(
        manifest_path="m", manifest_length=1, partition_spec_id=0, content=ManifestContent.DELETES
    )
    (read,) = decode_live_entries(manifest, form.encode([entry], {}))
    read.data_file.spec_id = 0
    assert live_file(read).applies_to == (b"s3://t/a", b"s3://t/a")
    assert live_file(read).content is DataFileContent.POSITION_DELETES


def test_a_file_knows_its_content(lake: Lake) -> None:
    appended(lake, 1)
    lake.add_delete_file(0)
    lake.add_delete_file(0, content=EQUALITY)
    head = lake.open().head
    assert [file.content for file in head.live_files()] == [DataFileContent.DATA]
    assert {file.content for file in head.delete_files()} == {DataFileContent.POSITION_DELETES, EQUALITY}


def test_live_bytes_are_the_share_of_rows_that_are_not_deleted(lake: Lake) -> None:
    files = appended(lake, 2, size=1000)
    lake.add_delete_file(0, paths=(files[0].file_path, files[0].file_path), rows=3)
    head = lake.open().head
    live = [head.find_live(file.file_path) for file in files]
    rows = [live_rows(each, head.deletes_of(each)) for each in live if each]
    assert rows == [7, 10]
    assert [live_bytes(each, left) for each, left in zip(live, rows, strict=True) if each] == [700, 1000]
    assert [each.location for each in head.files_with_deletes()] == [files[0].file_path]


def test_deletes_that_may_match_no_row_count_for_none(lake: Lake) -> None:
    (file,) = appended(lake, 1, size=1000)
    lake.add_delete_file(0, paths=(file.file_path, file.file_path), rows=3)
    lake.add_delete_file(0)
    head = lake.open().head
    live = head.find_live(file.file_path)
    assert live is not None
    assert live_rows(live, head.deletes_of(live)) == 7


def test_a_file_of_which_more_rows_are_deleted_than_it_has_is_empty(lake: Lake) -> None:
    (file,) = appended(lake, 1, size=1000)
    for _ in range(2):
        lake.add_delete_file(0, paths=(file.file_path, file.file_path), rows=8)
    head = lake.open().head
    live = head.find_live(file.file_path)
    assert live is not None
    assert live_bytes(live, live_rows(live, head.deletes_of(live))) == 0


def test_a_delete_manifest_states_the_data_file_twice_and_its_content() -> None:
    """Readers that do not know field 143 find the data file by the bounds of the paths."""
    delete = position_deletes("s3://t/d", "s3://t/a", rows=2, size=900, spec_id=0, partition=Record(7))
    data, manifest = encode_manifest(
        "m", BY_P, SCHEMA, 77, [added_entry(77, delete)], ManifestContent.DELETES
    )
    assert manifest.content is ManifestContent.DELETES
    assert (manifest.added_files_count, manifest.added_rows_count) == (1, 2)
    reader = fastavro.reader(io.BytesIO(data))
    assert reader.metadata["content"] == "deletes"
    (entry,) = reader
    assert entry["data_file"]["content"] == DataFileContent.POSITION_DELETES
    assert entry["data_file"]["referenced_data_file"] == "s3://t/a"
    bounds = [{"key": 2147483546, "value": b"s3://t/a"}]
    assert (entry["data_file"]["lower_bounds"], entry["data_file"]["upper_bounds"]) == (bounds, bounds)
    assert entry["data_file"]["partition"] == {"p": 7}
    (ours,) = decode_live_entries(manifest, data)
    assert live_file(ours).refers_to == "s3://t/a"
    (theirs,) = manifest.fetch_manifest_entry(OneFile(ReadBytes("m", data)))
    assert theirs.data_file.upper_bounds == {2147483546: b"s3://t/a"}


def test_a_delete_manifest_that_was_read_is_written_again_as_it_was() -> None:
    """A fold rewrites manifests that other deletes are in, a foreign writer's too."""
    delete = position_deletes("d", "s3://t/a", rows=2, size=900, spec_id=0, partition=Record(7))
    data, manifest = encode_manifest(
        "m", BY_P, SCHEMA, 77, [added_entry(77, delete)], ManifestContent.DELETES
    )
    (read,) = decode_live_entries(manifest, data)
    again, _ = encode_manifest("m", BY_P, SCHEMA, 77, [added_entry(77, read.data_file)], manifest.content)
    assert list(fastavro.reader(io.BytesIO(again))) == list(fastavro.reader(io.BytesIO(data)))
