"""Check what is staged of work items: that it is there, and that its tag holds it (R27)."""

from __future__ import annotations

from collections.abc import Iterator

from timeline.diagnosis.files import WrongFiles
from timeline.diagnosis.findings import Finding, count, some, warning
from timeline.diagnosis.reachable import staged_tags
from timeline.versions.staged import wap_id_of
from timeline.versions.version_file import Version
from timeline.versions.work_items import STAGED_TAG_PREFIX

_REPAIR = (
    "run `streaming-sink ingest retry` where the item was set apart: the next worker that takes it writes it"
    " again from its source files"
)


def check_staged(wrong: WrongFiles, head: Version) -> Iterator[Finding]:
    """Yield what is wrong with staged snapshots."""
    gone = wrong.staged
    if gone.count:
        yield warning(
            kind="staged-file-missing",
            what=f"{count(gone.count, 'file')} of what is staged as {some(sorted(wrong.staged_tags))}"
            f" {'is' if gone.count == 1 else 'are'} missing: {gone}",
            means="main is whole and writers may go on; workers find it before they publish the item",
            repair=f"find what deletes files here, and stop it. {_REPAIR}",
        )
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in head.metadata.snapshots}
    for snapshot_id, tag in staged_tags(head).items():
        snapshot = snapshots.get(snapshot_id)
        if snapshot is None or wap_id_of(snapshot) != tag.removeprefix(STAGED_TAG_PREFIX):
            what = "the table does not hold" if snapshot is None else "is not the staged one of its work item"
            yield warning(
                kind="staged-tag-dangling",
                what=f"tag {tag!r} names snapshot {snapshot_id}, which {what}",
                means="the work item is not published, and nothing else is at risk; the version file was"
                " edited, or written by another engine",
                repair=_REPAIR,
            )
