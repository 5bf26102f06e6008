"""The checks that a commit must pass against the head that it is to follow. `check_conflicts` is the
specification: each check is one named sentence, and they apply in this order.

What becomes of each kind of change is said by its class, `Change.over`, and done by its `find_conflict`; the
table of all kinds is in `docs/protocol.md`. Under a spec that evolved all stay as they are: files of every
spec are valid. Changes by key are refused over any file of rows that they have not been looked for in,
over keys that others have deleted, and over another key; appends that say nothing of keys over a key that
others have declared (R25).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyiceberg.manifest import DataFile

from timeline import names, properties
from timeline.changes.changes import Beside, Change
from timeline.changes.drop_changes import check_not_dropped
from timeline.changes.intent import Dropped, Intent
from timeline.changes.references import check_references_are_allowed_and_new, without_references
from timeline.changes.row_deltas import by_data_file
from timeline.changes.staging_changes import Discard, Publish
from timeline.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    KeyConflictError,
    SchemaMismatchError,
)
from timeline.features import check_features_are_known
from timeline.manifests.lookup import find_files
from timeline.manifests.manifests import ManifestFiles
from timeline.versions.evolution import find_misfit
from timeline.versions.head import Head
from timeline.versions.keys import key_of
from timeline.versions.work_items import WorkItem

_APPENDED = 100_000
"""The last files that a process remembers to have appended without a transaction: some 20 MB."""


@dataclass(frozen=True)
class CommitVerdict:
    """What a commit may do on a head."""

    epoch: int | None
    """The epoch to commit the batch under; None for a commit without a transaction."""
    kept: tuple[Change, ...]
    dropped: tuple[Dropped, ...]


def check_conflicts(intent: Intent, head: Head) -> CommitVerdict | None:
    """Return what of a commit still fits the head, or None where its batch was committed before.

    Raises CommitConflictError, SchemaMismatchError, UnknownFeatureError, CheckpointRegressionError or
    FencedError where the commit does not fit; nothing of it is then live.
    """
    check_table_is_the_same(head, intent.table_uuid)
    check_features_are_known(head.properties, head.metadata.location)
    epoch = None
    if (transaction := intent.transaction) is not None:
        epoch = transaction.check(head.properties)
        if epoch is None:
            return None
    check_staged_item_is_published_as_it_is(head, intent)
    check_new_files_fit_the_schema(head, intent)
    check_keys_of_new_rows_are_known(head, intent)
    check_files_have_a_known_spec(head, (*intent.new_files, *intent.rewritten_files))
    check_references_are_allowed_and_new(head, intent.new_files)
    check_files_are_above_the_fence(head, without_references(head, intent))
    check_files_are_not_live(head, intent.new_files)
    kept, dropped = drop_changes_that_no_longer_fit(head, intent)
    check_something_is_left(head, kept, dropped)
    return CommitVerdict(epoch, kept, dropped)


def check_table_is_the_same(head: Head, table_uuid: str) -> None:
    """The table was not dropped, nor created again, under this commit."""
    check_not_dropped(head)
    if str(head.metadata.table_uuid) != table_uuid:
        raise CommitConflictError(
            "the table was dropped and created again while this commit ran, and nothing of the commit is"
            f" live; restart the query if the new table is the one that you mean: was {table_uuid}, is"
            f" {head.metadata.table_uuid}",
            **head.where,
        )


def check_staged_item_is_published_as_it_is(head: Head, intent: Intent) -> None:
    """A work item that is staged is neither staged again nor published with other files (R27)."""
    item = intent.transaction
    if not isinstance(item, WorkItem) or item.tag not in head.metadata.refs:
        return
    if not any(isinstance(change, (Publish, Discard)) for change in intent.changes):
        raise CommitConflictError(
            f"another worker has staged work item {item.number} of {item.app_id!r}; nothing of this commit is"
            f" live, publish what is staged: {head.metadata.location}",
            **head.where,
            files=[file.file_path for file in intent.new_files],
        )


def check_new_files_fit_the_schema(head: Head, intent: Intent) -> None:
    """Rows written under another schema still mean the same under the head's: no field was dropped, narrowed
    or made required. Fields that were added are null in them.
    """
    written = head.metadata.schema_by_id(intent.schema_id)
    is_another = None not in (written, intent.written) and written != intent.written
    if not intent.new_files and not (is_another and intent.rewritten_files):
        return
    if intent.schema_id == head.schema.schema_id and not is_another:
        return
    if written is None or is_another:
        raise CommitConflictError(
            f"the files were written under schema {intent.schema_id}, which the table no longer has; nothing"
            " of the commit is live, write the batch again",
            **head.where,
        )
    if problem := find_misfit(written, head.schema):
        raise SchemaMismatchError(
            "the table's schema changed while the batch was written, and its rows no longer fit:"
            f" {problem}. Nothing of the batch is live; change the stream, or the table back, and restart the"
            " query on its checkpoint",
            **head.where,
        )


def check_keys_of_new_rows_are_known(head: Head, intent: Intent) -> None:
    """Rows join a keyed table only by a commit that says what it knows of their keys."""
    if not intent.new_files or any(change.knows_keys for change in intent.changes):
        return
    if (key := key_of(head.properties)) is not None:
        raise KeyConflictError(
            f"the table has the key {key.describe(head.schema)}, and this commit appends rows without a look"
            " at their keys; nothing of it is live. Write with Upsert and that key, or with"
            " Append(allow_duplicates=True) if the keys are known to be new",
            **head.where,
        )


def check_files_have_a_known_spec(head: Head, files: Iterable[DataFile]) -> None:
    """Every added file names a partition spec that the table has."""
    known = head.metadata.specs()
    for file in files:
        if file.spec_id not in known:
            raise CommitConflictError(
                f"the file has partition spec {file.spec_id}, which the table no longer has; nothing of the"
                f" commit is live, write the batch again: {file.file_path}",
                **head.where,
                files=[file.file_path],
            )


def check_files_are_above_the_fence(head: Head, files: Iterable[DataFile]) -> None:
    """No added file is old enough for the garbage collection to have deleted it (R6)."""
    cutoff = head.properties.get(properties.GC_CUTOFF)
    if cutoff is None:
        return
    for file in files:
        file_id = names.file_id(file.file_path)
        if file_id is not None and file_id < cutoff:
            raise CommitConflictError(
                f"this file was written before the table's garbage cutoff {cutoff} and may be deleted"
                f" already; nothing of the commit is live, write the batch again: {file.file_path}",
                **head.where,
                files=[file.file_path],
            )


def check_files_are_not_live(head: Head, files: Iterable[DataFile]) -> None:
    """No appended file is in the table already, as far as manifests in memory show, and every one for a file
    that this process has appended before: its rows would count twice. This is for callers without a
    transaction, who commit again after an unknown outcome.
    """
    manifest_files, locations = head.manifest_files, {file.file_path for file in files}
    known = (it for it in head.manifests if manifest_files.known(it) is not None)
    live = set(find_files(manifest_files, known, locations))
    live |= head.find_all_live(locations & manifest_files.appended.keys()).keys()
    if live:
        raise CommitConflictError(
            "a file of this append is in the table already, and its rows would count twice; nothing more"
            f" of the commit is live: {min(live)}",
            **head.where,
            files=sorted(live),
        )


@contextmanager
def remember_appended(manifest_files: ManifestFiles, intent: Intent) -> Iterator[None]:
    """Remember the files of a commit without a transaction, unless it is known to have failed."""
    try:
        yield
    except CommitStateUnknownError:
        _remember_appended(manifest_files, intent)
        raise
    _remember_appended(manifest_files, intent)


def _remember_appended(manifest_files: ManifestFiles, intent: Intent) -> None:
    if intent.transaction is None:
        manifest_files.appended |= dict.fromkeys(file.file_path for file in intent.new_files)
        for location in [*manifest_files.appended][:-_APPENDED]:
            del manifest_files.appended[location]


def drop_changes_that_no_longer_fit(
    head: Head, intent: Intent
) -> tuple[tuple[Change, ...], tuple[Dropped, ...]]:
    """A change that no longer fits the head is left out alone, with the reason; the others stay (R13)."""
    appended = {file.file_path: file.record_count for file in intent.appended_files}
    deletes = by_data_file(intent.delete_files)
    kept: list[Change] = []
    dropped: list[Dropped] = []
    taken: set[str] = set()
    for change in intent.changes:
        reason = change.find_conflict(head, intent.schema_id, Beside(appended, taken, deletes))
        if reason is None:
            kept.append(change)
            taken |= change.inputs
        else:
            dropped.append(Dropped(change, reason))
    return tuple(kept), tuple(dropped)


def check_something_is_left(head: Head, kept: Sequence[Change], dropped: Sequence[Dropped]) -> None:
    """A commit of which changes were dropped still does something."""
    if dropped and not any(change.find_idleness(head) is None for change in kept):
        reasons = "; ".join(each.reason for each in dropped)
        raise CommitConflictError(
            f"nothing of this commit is live; plan it again: {reasons}",
            **head.where,
            files=sorted({location for each in dropped for location in each.change.inputs}),
        )
