"""The checks that a commit must pass against the head, one named sentence each. The list is the
specification.

=====================  ======  ==================================  ==========================  =============
mine over theirs       append  fill, clustering                    deletes added               schema changed
=====================  ======  ==================================  ==========================  =============
append                 ok      ok                                  ok                          checked again
replace (fill, group)  ok      dropped unless its inputs are live  dropped if one has deletes  dropped
=====================  ======  ==================================  ==========================  =============
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from timeline import names, properties
from timeline.commit.changes import Replace
from timeline.errors import CommitConflictError, SchemaMismatchError
from timeline.versions.head import Head
from timeline.versions.manifests import LiveFile


def check_table_is_the_same(head: Head, table_uuid: str) -> None:
    """The table was not dropped and made again under this commit."""
    if str(head.metadata.table_uuid) != table_uuid:
        raise CommitConflictError(
            "the table was dropped and created again while this commit ran, and nothing of the commit is"
            f" live; restart the query if the new table is the one that you mean: was {table_uuid}, is"
            f" {head.metadata.table_uuid}"
        )


def check_files_are_above_the_fence(head: Head, locations: Iterable[str]) -> None:
    """No added file is old enough for the garbage collection to have taken it (R6)."""
    cutoff = head.properties.get(properties.GC_CUTOFF)
    if cutoff is None:
        return
    for location in locations:
        file_id = names.file_id(location)
        if file_id is not None and file_id < cutoff:
            raise CommitConflictError(
                f"this file was written before the table's garbage cutoff {cutoff} and may be deleted"
                f" already; nothing of the commit is live, write the batch again: {location}"
            )


def check_files_are_not_live(head: Head, locations: Set[str]) -> None:
    """No appended file is in the table already, as far as the manifests in memory tell: its rows would count
    twice. This is for callers without a transaction, who commit again after an unknown outcome.
    """
    for manifest in head.manifests:
        contents = head.manifest_files.known(manifest)
        if contents is not None and (known := locations & contents.files.keys()):
            raise CommitConflictError(
                "a file of this append is in the table already, and its rows would count twice; nothing more"
                f" of the commit is live: {min(known)}"
            )


def check_appended_files_fit_the_schema(head: Head, schema_id: int) -> None:
    """Rows written under another schema still mean the same under the head's: no field gone, none narrowed,
    none newly required.
    """
    if schema_id == head.schema.schema_id:
        return
    written = head.metadata.schema_by_id(schema_id)
    if written is None:
        raise CommitConflictError(
            f"the files were written under schema {schema_id}, which the table no longer has; nothing of the"
            " commit is live, write the batch again"
        )
    if problem := _first_misfit(written, head.schema):
        raise SchemaMismatchError(
            "the table's schema changed while the batch was written, and its rows no longer fit:"
            f" {problem}. Nothing of the batch is live; change the stream, or the table back, and restart the"
            " query on its checkpoint"
        )


def check_files_have_a_known_spec(head: Head, files: Iterable[DataFile]) -> None:
    """Every added file names a partition spec that the table has."""
    known = head.metadata.specs()
    for file in files:
        if file.spec_id not in known:
            raise CommitConflictError(
                f"the file has partition spec {file.spec_id}, which the table no longer has; nothing of the"
                f" commit is live, write the batch again: {file.file_path}"
            )


def why_replace_must_be_dropped(
    head: Head, replace: Replace, appended: Set[str], taken: Set[str], schema_id: int
) -> str | None:
    """Return why a replace no longer fits the head, or None if it does (R13).

    `appended` are the files that the same commit appends; `taken` those that an earlier replace of this
    commit removes.
    """
    if schema_id != head.schema.schema_id:
        return f"the table's schema changed from {schema_id} to {head.schema.schema_id}"
    for location in sorted(replace.removed):
        if location in taken:
            return f"another replace of this commit takes the same file: {location}"
        if location in appended:
            continue
        live = head.find_live(location)
        if live is None:
            return f"another commit has replaced an input: {location}"
        if head.has_deletes(live):
            return f"an input has deletes: {location}"
    return None


def check_replace_keeps_rows(head: Head, replace: Replace, appended: dict[str, LiveFile]) -> None:
    """A replace adds as many rows as it removes. ValueError if not: that is a fault of whoever planned it."""
    removed = sum(
        (appended.get(location) or head.find_live(location) or _GONE).rows for location in replace.removed
    )
    added = sum(file.record_count for file in replace.added)
    if removed != added:
        raise ValueError(
            f"a replace must keep its rows: it removes {removed} and adds {added} rows; removed"
            f" {sorted(replace.removed)}"
        )


_GONE = LiveFile("", 0, (), 0, 0, 0, 0)


def _first_misfit(written: Schema, current: Schema) -> str | None:
    # Nested fields count too, so this walks the flat index of field ids.
    now: dict[int, NestedField] = {field_id: current.find_field(field_id) for field_id in current.field_ids}
    before: dict[int, NestedField] = {
        field_id: written.find_field(field_id) for field_id in written.field_ids
    }
    for field_id, field in before.items():
        if field_id not in now:
            return f"column {field.name!r} was dropped"
        if field.field_type.is_primitive and now[field_id].field_type != field.field_type:
            return f"column {field.name!r} changed from {field.field_type} to {now[field_id].field_type}"
        if now[field_id].required and field.optional:
            return f"column {field.name!r} became required"
    for field_id, field in now.items():
        if field_id not in before and field.required:
            return f"column {field.name!r} was added as required"
    return None
