"""What a table in a catalog remembers for this protocol is bound to its rows (R30).

Properties survive `CREATE OR REPLACE TABLE`, a rollback and expiry; rows do not. So each commit leaves a
witness: a property that names its last snapshot, with the digest of all that is remembered, which that
snapshot's summary has too. A batch is taken for committed only where main still follows that snapshot.

Where all files were written again, and all snapshots from before have expired, the head alone does not show
whether it is another table. Each metadata file has the table as one change left it: those that the log names
show whether main was continued at each change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from pyiceberg.table.snapshots import Snapshot

from timeline import properties
from timeline.drafts.summaries import stating
from timeline.errors import CorruptTableError, TableReplacedError
from timeline.retention.policy import lineage
from timeline.versions.head import Head
from timeline.versions.past import PastState, line_of, past_state_of, read_past


class Witness(NamedTuple):
    """The last snapshot of the newest commit of this protocol, and the digest of what it remembered."""

    snapshot_id: int
    sequence_number: int
    digest: str


class Descent(Enum):
    """What became of the witness' snapshot."""

    FOLLOWED = auto()
    """Main has it, or descends from it."""
    EXPIRED = auto()
    ROLLED_BACK = auto()
    """Main was set to an ancestor of it, or to another line from there: its rows were removed on purpose."""
    REPLACED = auto()
    UNKNOWN = auto()


def bear_witness(table_properties: dict[str, str], snapshot: Snapshot) -> Snapshot:
    """Set the witness among the properties that a commit leaves, and return its last snapshot with the digest
    in the summary.
    """
    digest = _digest(table_properties)
    witness = Witness(snapshot.snapshot_id, snapshot.sequence_number or 0, digest)
    table_properties[properties.WITNESS] = json.dumps(witness, separators=(",", ":"))
    return stating(snapshot, {properties.DIGEST: digest})


def check_memory(head: Head) -> Descent:
    """Return what became of the snapshot that the table's memory was written with.

    TableReplacedError where main does not follow from it, so that a batch which is remembered may have lost
    its rows; CorruptTableError where what is remembered is not what was written.
    """
    stated, location = head.properties, head.metadata.location
    if properties.WITNESS not in stated:
        if remembered := sorted(_state(stated)):
            raise CorruptTableError(
                f"the table's property {properties.WITNESS} is missing, and {remembered[0]} is there: what"
                " the table remembers of its writers was edited. Nothing was changed; restore the property,"
                f" or remove all whose names begin as these: {location}",
                **head.where,
            )
        return Descent.FOLLOWED
    witness = witness_of(head)
    if _digest(stated) != witness.digest:
        raise CorruptTableError(
            "what the table remembers of its writers is not what the last of them wrote: its properties were"
            f" edited. Nothing was changed; restore them from an older metadata file: {location}",
            **head.where,
        )
    descent = find_descent(head, witness)
    if descent in (Descent.REPLACED, Descent.UNKNOWN):
        continued = was_continued(head, witness.snapshot_id)
        descent = descent if continued is None else Descent.EXPIRED if continued else Descent.REPLACED
    if descent in (Descent.REPLACED, Descent.UNKNOWN):
        seen = (
            "the table was replaced since this sink last committed to it"
            if descent is Descent.REPLACED
            else "whether the table was replaced since this sink last committed to it cannot be decided: no"
            " snapshot and no file from before is left, nor a log of metadata files from then on"
        )
        raise TableReplacedError(
            f"{seen}. That was in snapshot {witness.snapshot_id}, and main is at"
            f" {head.metadata.current_snapshot_id}. Nothing was written. If the table is what it should be,"
            " and the stream is to go on after its last batch, call CatalogTable(...).accept(); if its rows"
            f" are to be written again, use a fresh checkpoint and a new app_id: {location}",
            **head.where,
        )
    return descent


def witness_of(head: Head) -> Witness:
    """Return the witness that a head states. CorruptTableError where it cannot be read."""
    return _parse(head.properties[properties.WITNESS], head)


def find_descent(head: Head, witness: Witness) -> Descent:
    """Return what became of a witness' snapshot.

    Parent links alone do not decide: a catalog may remove them with the parent. A snapshot that is missing
    has expired where main still lists files of its time or from before, or is from before; a replaced table
    is not, and lists none.
    """
    metadata = head.metadata
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    main = {it.snapshot_id for it in lineage(metadata.current_snapshot_id, metadata.snapshots)}
    if witness.snapshot_id in main:
        return Descent.FOLLOWED
    if witness.snapshot_id in snapshots:
        line = {it.snapshot_id for it in lineage(witness.snapshot_id, metadata.snapshots)}
        if line & main:
            return Descent.ROLLED_BACK
    current = metadata.current_snapshot()
    number = None if current is None else current.sequence_number  # what main says where it lists nothing
    oldest = min((it.min_sequence_number or 0 for it in head.manifests), default=number)
    if oldest is not None and oldest <= witness.sequence_number:
        return Descent.EXPIRED
    root = snapshots[min(main, key=lambda each: snapshots[each].sequence_number or 0)] if main else None
    # A replaced table begins with a snapshot without a parent; so does, in some catalogs, one that expired.
    begins = root is None or (root.parent_snapshot_id is None and witness.snapshot_id in snapshots)
    return Descent.REPLACED if begins else Descent.UNKNOWN


def _state(table_properties: Mapping[str, str]) -> dict[str, str]:
    """Return what is remembered: the properties that decide something."""
    return {key: value for key, value in table_properties.items() if properties.decides(key)}


def _digest(table_properties: Mapping[str, str]) -> str:
    text = json.dumps(sorted(_state(table_properties).items()))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _parse(text: str, head: Head) -> Witness:
    try:
        snapshot_id, sequence_number, digest = json.loads(text)
        return Witness(int(snapshot_id), int(sequence_number), str(digest))
    except (ValueError, TypeError) as failure:
        raise CorruptTableError(
            f"the table's property {properties.WITNESS} cannot be read; nothing was changed. Restore it from"
            f" an older metadata file: {head.metadata.location}: {text[:200]!r}",
            **head.where,
        ) from failure


def was_continued(head: Head, snapshot_id: int) -> bool | None:
    """Return whether main was continued at each change since it had a snapshot, which may have expired: set
    to a descendant of what it was, or to an ancestor, or to another line from there.

    None where the log does not reach so far, a file of it cannot be read, or a change does not show it. Reads
    the metadata files one by one, newest first.
    """
    later = past_state_of(head.metadata)
    for earlier in read_past(head):
        if earlier is None:
            return None
        continued = _continues(earlier, later)
        if not continued:
            return continued
        if snapshot_id in line_of(earlier.main, earlier.parents):
            return True
        later = earlier
    return None


def _continues(earlier: PastState, later: PastState) -> bool | None:
    """Return whether one change has continued main. None where it has removed what would show it."""
    if earlier.main is None:
        return True
    if later.main is None:
        return False
    # Some catalogs cut the link to a parent that they remove: the earlier state has it.
    parents = {**later.parents, **earlier.parents}
    if set(line_of(later.main, parents)) & set(line_of(earlier.main, parents)):
        return True
    return False if earlier.main in later.parents else None
