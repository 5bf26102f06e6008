"""Rules of tables in catalogs, switched off one at a time: what a process of a test can no longer keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from pyiceberg.table.update import AssertRefSnapshotId

from timeline.catalogs import catalog_log
from timeline.catalogs.updates import CatalogCommit, catalog_commit
from timeline.versions.head import Head
from timeline.versions.keys import Looked


def switch_on(fault: str) -> None:
    """Break a rule for the rest of this process, or until `patch.stopall()`."""
    _FAULTS[fault]()


def commit_without_main(*metadata: Any) -> CatalogCommit:
    """Return a commit without the requirement that main is where it was."""
    whole = catalog_commit(*metadata)
    kept = (each for each in whole.requirements if not isinstance(each, AssertRefSnapshotId))
    return CatalogCommit(tuple(kept), whole.updates)


def _leave_out_main() -> None:
    patch.object(catalog_log, "catalog_commit", commit_without_main).start()


def _ignore_deletes() -> None:
    patch.object(Head, "deletes_of", lambda *_: []).start()
    patch.object(Head, "has_deletes", lambda *_: False).start()


def _know_keys_by_numbers() -> None:
    """Take for new what has a higher sequence number than the head that was looked at."""
    look = Looked.at

    def at(head: Head) -> Looked:
        looked = look(head)
        object.__setattr__(looked, "number", head.metadata.last_sequence_number)
        return looked

    def find_unseen(looked: Looked, head: Head) -> Iterator[str]:
        number = getattr(looked, "number", 0)
        return (file.location for file in head.live_files() if file.sequence_number > number)

    patch.object(Looked, "at", at).start()
    patch.object(Looked, "find_unseen", find_unseen).start()


def _look_once() -> None:
    patch.object(Looked, "find_unseen", lambda *_: iter(())).start()


def _follow_any_head() -> None:
    patch.object(Head, "follows", lambda *_: True).start()


_FAULTS = {
    "none": lambda: None,
    "no requirement on main": _leave_out_main,
    "deletes are ignored": _ignore_deletes,
    "keys are known by numbers": _know_keys_by_numbers,
    "keys are looked for once": _look_once,
    "rows that a rollback brings back are not looked at": _follow_any_head,
}
