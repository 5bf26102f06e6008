"""Check that every version can be read, and that each one continues its parent."""

from __future__ import annotations

import json
from collections.abc import Iterator

from timeline import names, properties
from timeline.diagnosis.findings import Finding, Severity, damage, note, some, warning
from timeline.diagnosis.lineage import Lineage
from timeline.retention.policy import VERSIONS_ALWAYS_KEPT


def check_versions(lineage: Lineage) -> Iterator[Finding]:
    """Yield what is wrong with the versions."""
    yield from _check_every_version_can_be_taken(lineage)
    yield from _check_no_version_is_missing(lineage)
    yield from _check_each_version_continues_the_one_before(lineage)
    yield from _check_times_go_forward(lineage)


def _check_every_version_can_be_taken(lineage: Lineage) -> Iterator[Finding]:
    for number, (refusal, data) in lineage.refused.items():
        highest = number == lineage.highest
        path = names.version_path(number)
        if _is_of_another_writer(data):
            yield damage(
                kind="foreign-table",
                what=str(refusal),
                means="this sink refuses to write here, and wrote nothing; the other writer's table is as it"
                " was",
                repair="give the stream a location of its own. If the table was this sink's, and another"
                f" engine has committed to it in spite of the guard: stop all writers and move {path} out of"
                " metadata/, with all that only it holds",
            )
        elif _json(data) is None:
            yield Finding(
                kind="version-unreadable",
                severity=Severity.DAMAGE if highest else Severity.WARNING,
                what=str(refusal),
                means="it is the newest version: the table can be neither read nor written until it is"
                " repaired, and no reader steps back over it in silence. Its data files are all there"
                if highest
                else "an old version, which only travel to that version reads; no row is at risk, and writers"
                " may go on",
                repair="stop all writers and restore the file from a backup, or from the bucket's earlier"
                f" object versions. Without a copy: keep its bytes elsewhere and remove {path}; the table"
                f" then ends at version {_newest_readable(lineage)}, and what was committed after it is no"
                " longer in it. Its data files stay, as orphans: read them as Parquet and write their rows"
                " again"
                if highest
                else "leave it: retention removes it in time. Or restore it from a backup",
            )
        else:
            yield Finding(
                kind="version-refused",
                severity=Severity.DAMAGE if highest else Severity.WARNING,
                what=str(refusal),
                means="the table is refused by every reader and writer of this sink, and nothing is"
                " overwritten"
                if highest
                else "an old version that something else wrote or changed; writers may go on",
                repair="do as the message says. A version that was copied or written by another engine"
                f" belongs out of metadata/: stop all writers and move {path} away",
            )


def _check_no_version_is_missing(lineage: Lineage) -> Iterator[Finding]:
    kept = [n for n in lineage.missing if n > lineage.highest - VERSIONS_ALWAYS_KEPT]
    older = len(lineage.missing) - len(kept)
    if kept:
        yield warning(
            kind="version-missing",
            what=f"missing below the highest version {lineage.highest}: {some(kept)}",
            means="something other than this sink deleted it: the last"
            f" {VERSIONS_ALWAYS_KEPT} versions always stay. No row is lost, since each version is whole;"
            " readers that named that version fail. Writers may go on",
            repair="nothing to do for the rows; find what deletes files here, before it deletes others."
            " Restore the file from a backup only byte for byte",
        )
    if older:
        yield note(
            kind="version-missing",
            what=f"{older} version files are missing among those that are due to go",
            means="a deletion of old versions was cut off in the middle",
            repair="nothing: a later commit finishes it",
        )


def _check_each_version_continues_the_one_before(lineage: Lineage) -> Iterator[Finding]:
    head = lineage.head
    if head is None:
        return
    for number in lineage.strays:
        due = number <= lineage.highest - VERSIONS_ALWAYS_KEPT
        yield Finding(
            kind="version-fork",
            severity=Severity.NOTE if due else Severity.DAMAGE,
            what=f"version {number} (commit {lineage.places[number].commit_id}) is not the one that version"
            f" {head.number} continues",
            means="a writer that had been stalled for long created a number that was deleted, and died before"
            " it swept it away. It was never acknowledged, and no reader takes it for the newest"
            if due
            else "a version was deleted or replaced, and another took its number: of two commits that may"
            " both have been acknowledged, the table has one. The rows that only the other added are out of"
            " it",
            repair="nothing: a later commit's retention removes it"
            if due
            else "find what deletes versions here. Keep the file: what it lists and the newest does not, read"
            " as Parquet and write again, before remove_orphan_files takes it",
        )
    dropped = max((n for n, it in lineage.places.items() if it.is_last and n < head.number), default=0)
    for number, place in lineage.places.items():
        is_other = place.table_uuid != str(head.metadata.table_uuid) and number > dropped
        if is_other or place.parent_number != str(number - 1):
            yield Finding(
                kind="lineage-broken",
                severity=Severity.DAMAGE if number == head.number else Severity.WARNING,
                what=f"version {number} says that it follows version {place.parent_number or 'none'} of table"
                f" {place.table_uuid}; the table is {head.metadata.table_uuid}",
                means="a version file was copied or edited, and what it says cannot be trusted: do not write"
                if number == head.number
                else "an old version file was copied or edited. The newest does not depend on it;"
                " writers may go on",
                repair=f"stop all writers and compare {names.version_path(number)} with a backup",
            )


def _check_times_go_forward(lineage: Lineage) -> Iterator[Finding]:
    strays = set(lineage.strays)
    for number, place in lineage.places.items():
        before = lineage.places.get(number - 1)
        if before is None or number in strays or before.number in strays:
            continue
        if place.updated_ms <= before.updated_ms:
            yield warning(
                kind="time-goes-back",
                what=f"version {number} is of {place.updated_ms} ms, version {before.number} of"
                f" {before.updated_ms} ms",
                means="no version of this sink is older than the one before: a file was edited. Readers that"
                " start from a time may miss rows, and Java refuses a table whose time steps back by a"
                " minute",
                repair=f"restore {names.version_path(number)} from a backup",
            )


def _newest_readable(lineage: Lineage) -> str:
    return str(max(lineage.places, default="none"))


def _json(data: bytes) -> object:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _is_of_another_writer(data: bytes) -> bool:
    stored = _json(data)
    return (
        isinstance(stored, dict)
        and "format-version" in stored
        and properties.COMMIT_ID not in (stored.get("properties") or {})
    )
