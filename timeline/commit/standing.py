"""Whether an old commit is part of the table: judged by its batch, its snapshot, or its files."""

from __future__ import annotations

from pyiceberg.manifest import DataFile

from timeline.changes.intent import Intent
from timeline.changes.references import is_reference
from timeline.commit.attempts import Candidate
from timeline.commit.log import Standing
from timeline.retention.policy import snapshot_version
from timeline.versions.head import Head
from timeline.versions.transactions import Transaction
from timeline.versions.work_items import WorkItem


def judge_standing(intent: Intent, head: Head, candidate: Candidate) -> Standing:
    """Judge a commit whose id the head no longer remembers: by its batch (R16), else by its snapshot, or its
    files (R1).
    """
    txn = intent.transaction
    if isinstance(txn, Transaction):
        state = head.transaction(txn.app_id)
        if state is None or (state.query_id == txn.query_id and state.batch < txn.batch):
            return Standing.LOST
        if (state.query_id, state.batch) == (txn.query_id, txn.batch):
            ours = state.commit == candidate.head.version.commit_id
            return Standing.COMMITTED if ours else Standing.LOST
    added = candidate.appended_snapshot_id or candidate.replaced_snapshot_id or candidate.staged_snapshot_id
    for snapshot in head.metadata.snapshots:
        if snapshot.snapshot_id == added:  # this attempt's, or another's of the same append
            ours = snapshot_version(snapshot) == candidate.head.number
            return Standing.COMMITTED if ours else Standing.LOST
    staged = candidate.staged_snapshot_id is not None
    if isinstance(txn, WorkItem) and not staged and txn.check(head.properties) is not None:
        return Standing.LOST  # neither published nor discarded, by anyone; what was staged may be unstaged
    if head.find_all_live(file.file_path for file in _written_for(intent, head)):
        return Standing.COMMITTED
    inputs, changes_rows = intent.inputs, intent.appended_files or intent.delete_files
    if inputs and not changes_rows and len(head.find_all_live(inputs)) == len(inputs):
        return Standing.LOST
    # Of a work item too: it is settled, by this worker or another one, and their files are not the same; or
    # they are, where they were staged, or are by reference.
    return Standing.UNKNOWN


def _written_for(intent: Intent, head: Head) -> list[DataFile]:
    """Return the new files that no other commit can add: not those that were staged, which any worker may
    publish, nor those by reference (R28).
    """
    written, table = {file.file_path for file in intent.fenced_files}, head.metadata.location
    return [
        file
        for file in (*intent.appended_files, *intent.rewritten_files)
        if file.file_path in written and not is_reference(table, file.file_path)
    ]
