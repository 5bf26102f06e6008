"""`check_gone`: whether anything of some keys is left in a table, as a diagnosis with what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from streaming_sink.options.values.tables import AnyTable, KnownTable, as_table
from streaming_sink.removal.leftovers import Leftover, LeftoverKind, Leftovers
from streaming_sink.removal.matching import is_own_key
from streaming_sink.removal.tables import MAIN, find_everywhere
from streaming_sink.removal.wanted import WantedKeys
from timeline.diagnosis.findings import Diagnosis, Finding, Severity, count, some
from timeline.versions.keys import key_of

_PURGE = "`streaming-sink purge` removes it"
_MEANINGS: Mapping[LeftoverKind, tuple[str, str]] = {
    LeftoverKind.LIVE: (
        "every reader sees these rows",
        "`streaming-sink purge` deletes them, and rewrites the files",
    ),
    LeftoverKind.DELETED: (
        "no reader of the table sees these rows; they are in the bytes of live files, and in older snapshots",
        "`streaming-sink purge` rewrites the files without them",
    ),
    LeftoverKind.REF: (
        "readers of the tag or branch see these rows, and it keeps the files for ever",
        "`streaming-sink drop-tag` or `drop-branch`, if no reader needs it; then `streaming-sink purge`",
    ),
    LeftoverKind.STAGED: (
        "a work item with these rows, or another engine's snapshot, is beside main and may be published",
        "`streaming-sink ingest publish` or `discard` the item, or `streaming-sink drop-tag` its tag, wap-…,"
        " if there is no zone any more; publish another engine's snapshot there, or expire it by its id"
        " (expire_snapshots); then run `streaming-sink purge`",
    ),
    LeftoverKind.HISTORY: (
        "time travel to older snapshots shows these rows",
        "`streaming-sink purge` expires these snapshots and deletes the files after their grace period",
    ),
    LeftoverKind.EXPIRED: (
        "the snapshots have expired; the files stay for readers that still have one open",
        "run `streaming-sink purge` once 100 versions and the grace period have passed, or let it --wait",
    ),
    LeftoverKind.UNDELIVERED: (
        "a commit has named the file for this table, and it is not delivered yet",
        "restart the stream, which delivers it; then run `streaming-sink purge`",
    ),
    LeftoverKind.ORPHAN: (
        "no snapshot has the file: a batch that failed or lost has left it, or is writing it now",
        "`streaming-sink purge` deletes it once no writer can commit it any more",
    ),
    LeftoverKind.FOREIGN: (
        "another program has put the file here, and this sink does not delete it: in a catalog an engine that"
        " writes it now, or one whose snapshots have expired",
        "run remove_orphan_files of that engine, or delete it if it is yours",
    ),
    LeftoverKind.REFERENCE: (
        "the table has the file by reference, and it is its producer's: this sink never deletes it",
        "`streaming-sink purge` takes the rows out of the table; then delete the file yourself: one that is"
        " written anew under its name lands again",
    ),
    LeftoverKind.DELETE_FILE: (
        "another engine has deleted rows by their values, or wrote them beside its deletes: they are there",
        "have that engine rewrite its data files (rewrite_data_files), and expire its snapshots",
    ),
    LeftoverKind.INDEX: (
        "a run of the key index holds hashes of keys with places of rows, and no value; who guesses a key can"
        " test it, since the seed follows from the table's uuid",
        _PURGE,
    ),
    LeftoverKind.BOUNDS: (
        "manifests state the least and the greatest value of columns, here of files that are deleted",
        "`streaming-sink purge` rewrites such manifests; older ones leave with their snapshots",
    ),
    LeftoverKind.NOT_CHECKED: (
        "whether it holds a row of these keys could not be seen",
        "look at the reason: restore a damaged file or delete what is no longer needed, and check again",
    ),
    LeftoverKind.TOMBSTONE: (
        "a hash of the key and a sequence, so that no older change brings the row back; no value of the row."
        " Who guesses a key can test it, since the seed follows from the table's uuid",
        "none needed; once it is older than the table property streaming-sink.tombstone-ttl-ms, a later"
        " commit that deletes keys forgets it, or merges it away",
    ),
}


def check_gone(
    table: AnyTable,
    keys: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    also: Sequence[str] = (),
) -> Diagnosis:
    """Return what is left of some keys in a table and in its second tables, as findings.

    A key maps each of its columns to a value. Looked at are all files below the locations, whether a snapshot
    has them or not: data files, delete files, tombstones, key runs, and bounds in manifests. Second tables
    are the quarantine, at its default place, change logs that the table's commits have named, and `also`.
    The diagnosis is `healthy` where no row of the keys is left; hashes in tombstones are a note.

    Not looked at: what is no file of these tables, such as checkpoints, the stream's source, backups, older
    versions of objects in a bucket, and copies of key runs in the temporary folders of workers.

    Reads the keys' columns of every file. Changes nothing. Raises TableNotFoundError, SchemaMismatchError for
    a column that the table lacks, ValueError for a value that its column cannot hold.
    """
    wanted, place = WantedKeys.of(keys), as_table(table)
    found = find_everywhere(place, wanted, also)
    return _diagnosis(Diagnosis(place.called(found[0].table.store.location), (), ()), wanted, found)


def with_gone_findings(
    diagnosis: Diagnosis, place: KnownTable, wanted: WantedKeys, also: Sequence[str]
) -> Diagnosis:
    """Return a diagnosis with what is left of some keys. As `check_gone`."""
    return _diagnosis(diagnosis, wanted, find_everywhere(place, wanted, also))


def _diagnosis(diagnosis: Diagnosis, wanted: WantedKeys, found: Sequence[Leftovers]) -> Diagnosis:
    facts = [("gone", f"{count(len(wanted), 'key')} looked for: {wanted.described()}")]
    facts += [
        ("read", f"{count(each.files, 'file')} of the {each.role} {each.table.store.location}")
        for each in found
    ]
    findings = [it for each in found for it in _findings(each)]
    head = found[0].table.head
    if (key := key_of(head.properties)) is not None and not is_own_key(wanted, head):
        findings.append(
            _finding(
                LeftoverKind.NOT_CHECKED,
                f"the key index and the deleted keys of {found[0].table.store.location}: they hold hashes of"
                f" {key.describe(head.schema)}, and the keys asked about are of {', '.join(wanted.names)}",
            )
        )
    return diagnosis.extended(facts, findings)


def _findings(left: Leftovers) -> Iterator[Finding]:
    for kind in LeftoverKind:
        places = left.of(kind)
        if not places:
            continue
        of = "" if left.role == MAIN else f" of the {left.role} {left.table.store.location}"
        rows = sum(each.rows for each in places)
        noun = "hash of a key" if kind in (LeftoverKind.INDEX, LeftoverKind.TOMBSTONE) else "row of the keys"
        noun = "file with a key as a bound" if kind is LeftoverKind.BOUNDS else noun
        held = f"{_counted(rows, noun)} in " if rows else ""
        yield _finding(kind, f"{held}{count(len(places), 'file')}{of}: {some([_place(it) for it in places])}")


def _finding(kind: LeftoverKind, what: str) -> Finding:
    severity = Severity.NOTE if kind is LeftoverKind.TOMBSTONE else Severity.WARNING
    means, repair = _MEANINGS[kind]
    return Finding(kind=f"gone-{kind.value}", severity=severity, what=what, means=means, repair=repair)


def _place(left: Leftover) -> str:
    return f"{left.path} ({', '.join(left.holders)})" if left.holders else left.path


def _counted(number: int, noun: str) -> str:
    head, _, tail = noun.partition(" ")
    plural = {"hash": "hashes", "row": "rows", "file": "files"}[head]
    return f"{number:,} {noun if number == 1 else f'{plural} {tail}'}"
