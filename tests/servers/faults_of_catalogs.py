"""Rules of tables in catalogs, switched off one at a time: what a process of a test can no longer keep."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from pyiceberg.table.update import AssertRefSnapshotId

from timeline.catalogs import catalog_log
from timeline.catalogs.updates import CatalogCommit, catalog_commit
from timeline.versions.head import Head


def switch_on(fault: str) -> None:
    """Break a rule for the rest of this process."""
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


_FAULTS = {
    "none": lambda: None,
    "no requirement on main": _leave_out_main,
    "deletes are ignored": _ignore_deletes,
}
