"""The checks that the changes of one commit must pass together, on any table."""

from __future__ import annotations

from collections.abc import Sequence

from timeline.changes.changes import Change
from timeline.changes.drop_changes import Drop
from timeline.changes.ref_changes import Rollback


def check_changes(changes: Sequence[Change]) -> None:
    """Raise ValueError or TypeError for changes that fit no table."""
    for change in changes:
        change.check()
    if len(changes) > 1 and any(change.staged_files for change in changes):
        raise ValueError("a work item is staged by a commit of its own: what else it changes would not wait")
    if len(changes) > 1 and any(isinstance(change, Rollback) for change in changes):
        raise ValueError("a rollback is a commit of its own: what else it changed would leave with it")
    if len(changes) > 1 and any(isinstance(change, Drop) for change in changes):
        raise ValueError("a drop is a commit of its own: what else it changed would be dropped with it")
    added = [file.file_path for each in changes for file in (*each.appended_files, *each.delete_files)]
    if len(set(added)) < len(added):
        raise ValueError(f"a file is added twice, and its rows would count twice: {_most_frequent(added)}")
    deleted_from = [
        location
        for each in changes
        for location in set[str]().union(*(file.rows_of for file in each.delete_files))
    ]
    if len(set(deleted_from)) < len(deleted_from):
        raise ValueError(
            "two changes of one commit delete from one file, maybe the same rows; make one row delta of them:"
            f" {_most_frequent(deleted_from)}"
        )
    if added and any(change.precedes_files for change in changes):
        raise ValueError(
            "a schema or partition spec changes in a version of its own, before files are written under it:"
            " the table assigns the ids that are in the files"
        )


def _most_frequent(locations: Sequence[str]) -> str:
    return max(locations, key=locations.count)
