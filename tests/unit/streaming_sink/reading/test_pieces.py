"""What a version has changed, from its metadata and from the delete files that several data files share."""

from __future__ import annotations

import pytest

from streaming_sink.reading.pieces import changed_pieces
from tests.unit.timeline.world import Lake
from timeline.changes.changes import Append
from timeline.changes.ref_changes import Rollback
from timeline.changes.row_deltas import RowDelta
from timeline.errors import MissingMetadataError


def test_each_data_file_counts_its_own_rows_of_a_shared_delete_file() -> None:
    lake = Lake()
    files = [lake.file() for _ in range(3)]
    lake.table.commit([Append(tuple(files))])
    own = lake.deletes(files[2], 1, 2, 3, 4)
    new = lake.file()
    shared = lake.share({files[0].file_path: [5], files[1].file_path: [6, 7], new.file_path: [0]})
    lake.table.commit([RowDelta((new,), (own, shared))])
    head = lake.open().head
    pieces = changed_pieces(head, head.number, head.number, lake.shared.__getitem__)
    assert {(it.location, it.added, it.rows, it.deletes) for it in pieces} == {
        (new.file_path, True, 9, (shared.file_path,)),
        (files[0].file_path, False, 1, (shared.file_path,)),
        (files[1].file_path, False, 2, (shared.file_path,)),
        (files[2].file_path, False, 4, (own.file_path,)),
    }


def test_changes_whose_manifest_was_deleted_are_missing_and_not_none() -> None:
    """A process may have slept past the grace period: a change log without them would be silently short."""
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    head = lake.open().head
    lake.store.delete([lake.store.relative(each.manifest_path) for each in head.manifests])
    with pytest.raises(MissingMetadataError, match="was deleted"):
        changed_pieces(head, head.number, head.number, lake.shared.__getitem__)


def test_a_rollback_is_named_as_one_and_not_as_what_another_engine_did() -> None:
    lake = Lake()
    file = lake.file()
    lake.table.commit([Append((file,))])
    before = lake.table.head.metadata.current_snapshot_id
    lake.table.commit([RowDelta((), (lake.deletes(file, 1, 2),))])
    lake.table.commit([Rollback(before)])
    head = lake.open().head
    said = f"version {head.number} is a rollback, .* read on from version {head.number + 1}, and begin a new"
    with pytest.raises(ValueError, match=said):
        list(changed_pieces(head, head.number, head.number, lake.shared.__getitem__))
