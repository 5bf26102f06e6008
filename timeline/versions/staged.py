"""Staged snapshots: work items whose files wait beside main, each held by a tag, until they are published.

A staged snapshot is an append to what main was, as Iceberg's own write-audit-publish makes it: its summary
has `wap.id`, and readers see its rows by its id or its tag alone. In a catalog the id has a key of our own,
so that no engine finds and publishes it by that id. Its snapshot may be cherry-picked all the same.
"""

from __future__ import annotations

from contextlib import suppress

from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import Snapshot

from timeline import properties
from timeline.errors import CorruptTableError, MissingMetadataError
from timeline.versions.head import Head
from timeline.versions.past import main_since
from timeline.versions.version_file import stated_by
from timeline.versions.work_items import STAGED_TAG_PREFIX, WorkItem, settled_items

WAP_ID = "wap.id"
OWN_WAP_ID = "streaming-sink.wap-id"
"""In the place of `WAP_ID`, where other engines write to the table."""
PUBLISHED_WAP_ID = "published-wap-id"
_OURS = "streaming-sink."
_OF_ONE_SNAPSHOT = (properties.VERSION, properties.COMMIT_ID, properties.DIGEST, OWN_WAP_ID)


def find_staged(head: Head, item: WorkItem) -> Snapshot | None:
    """Return the snapshot that holds the files of a work item beside main; None where the item is not staged.

    CorruptTableError where its tag names a snapshot that is not there, or not the item's.
    """
    ref = head.metadata.refs.get(item.tag)
    if ref is None:
        return None
    named = (it for it in head.metadata.snapshots if it.snapshot_id == ref.snapshot_id)
    snapshot = next(named, None)
    if snapshot is None or wap_id_of(snapshot) != item.wap_id:
        raise CorruptTableError(
            f"tag {item.tag!r} does not name a staged snapshot of its work item, so which files are staged is"
            " not known; nothing was changed. Discard the item, or drop the tag to have it written again:"
            f" {head.metadata.location}",
            **head.where,
        )
    return snapshot


def find_item_of_tag(head: Head, tag: str) -> WorkItem | None:
    """Return the work item that a tag holds staged, and that is not settled; None for every other name. A
    snapshot that another engine has staged is no work item, by any name.
    """
    app_id, _, number = tag.removeprefix(STAGED_TAG_PREFIX).rpartition("-")
    item = WorkItem(app_id, int(number)) if number.isdecimal() else None
    if item is None or item.tag != tag or tag not in head.metadata.refs:
        return None
    snapshot = head.metadata.snapshot_by_id(head.metadata.refs[tag].snapshot_id)
    if (
        snapshot is None
        or wap_id_of(snapshot) != item.wap_id
        or properties.VERSION not in stated_by(snapshot)
    ):
        return None
    return None if item.number in settled_items(head.properties, app_id) else item


def staged_items(metadata: TableMetadataV2, app_id: str) -> dict[int, Snapshot]:
    """Return the staged snapshots of an application's work items, by the items' numbers."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    prefix = f"{STAGED_TAG_PREFIX}{app_id}-"
    return {
        int(name.removeprefix(prefix)): by_id[ref.snapshot_id]
        for name, ref in metadata.refs.items()
        if name.startswith(prefix) and name.removeprefix(prefix).isdecimal() and ref.snapshot_id in by_id
    }


def staged_files(head: Head, snapshot: Snapshot) -> tuple[DataFile, ...]:
    """Return the files that a staged snapshot has added. MissingMetadataError where a manifest is missing."""
    found: list[DataFile] = []
    for manifest in head.manifest_files.read_list(snapshot.manifest_list):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        if (entries := head.manifest_files.find_entries(manifest)) is None:
            raise MissingMetadataError(
                "the manifest of a staged snapshot does not exist: something deleted it. Nothing was changed;"
                " restore it from a copy, or discard the work item, or unstage it to have it written again:"
                f" {manifest.manifest_path}",
                location=head.metadata.location,
                files=[manifest.manifest_path],
            )
        for entry in entries:
            entry.data_file.spec_id = manifest.partition_spec_id
            found.append(entry.data_file)
    return tuple(found)


def find_picked(head: Head, item: WorkItem) -> Snapshot | None:
    """Return a snapshot in which a work item was staged, with its tag or without, and whose files another
    engine has brought to main since; None where there is none.

    Main has it as its own, or a snapshot that names it as its source, or its files, where it can be read
    which they are. What has expired of main since the item was staged is looked for in the metadata files of
    before, as far as the log names them.
    """
    if not head.version.is_shared:
        return None
    own = [each for each in head.metadata.snapshots if wap_id_of(each) == item.wap_id]
    if not own:
        return None
    for each in own:
        try:
            files = [file.file_path for file in staged_files(head, each)]
        except CorruptTableError:  # missing or damaged: main names its source, or has it
            continue
        with suppress(MissingMetadataError):
            # A file by reference may be live by another commit (R28).
            if head.find_all_live(it for it in files if it.startswith(f"{head.metadata.location}/")):
                return each
    line, sources = main_since(head, {each.parent_snapshot_id for each in own})
    named = {sources[each] for each in line if each in sources}
    return next((each for each in own if each.snapshot_id in line or str(each.snapshot_id) in named), None)


def wap_id_of(snapshot: Snapshot) -> str | None:
    """Return the id under which a snapshot was staged; None for one of main."""
    stated = stated_by(snapshot)
    return stated.get(WAP_ID) or stated.get(OWN_WAP_ID)


def stated_of(snapshot: Snapshot) -> dict[str, str]:
    """Return what the writer of a snapshot has stated of it, beside its counts and its version."""
    stated = stated_by(snapshot).items()
    return {key: value for key, value in stated if key.startswith(_OURS) and key not in _OF_ONE_SNAPSHOT}
