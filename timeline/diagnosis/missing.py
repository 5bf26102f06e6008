"""Check that the files which retained snapshots refer to exist."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from timeline.diagnosis.files import WrongFiles
from timeline.diagnosis.findings import Finding, count, damage, warning


@dataclass(frozen=True)
class _Loss:
    """What is lost with files of one kind, and what is left to do without a copy of them."""

    means: str
    without: str


_METADATA = _Loss(
    means="The table cannot be read or written; the data files that they list are still there",
    without="read the newest snapshot that is whole into a new table, and ingest what came later again",
)
_LOSSES = {
    "manifest list": _METADATA,
    "manifest": _METADATA,
    "data file": _Loss(
        means="Reads that need them fail, and do not lose rows in silence. Appends may go on",
        without="these rows are lost: read the other partitions into a new table, and ingest the lost rows"
        " again from their source",
    ),
    "delete file": _Loss(
        means="Reads of the data files that they delete from fail, and do not show deleted rows in silence."
        " Appends may go on; these data files are neither filled nor clustered",
        without="it is not known which rows were deleted: read the other partitions into a new table, and"
        " ingest this one again from its source",
    ),
    "tombstone file": _Loss(
        means="Batches of changes by key fail, and bring no deleted row back in silence. Reads are whole",
        without="it is not known which older changes would bring a deleted row back: read the table into a"
        " new one, and land later changes there",
    ),
    "statistics file": _METADATA,
}


def check_every_file_is_there(wrong: WrongFiles) -> Iterator[Finding]:
    """Yield a finding for each kind of file of which some are missing, now and in older snapshots."""
    for what, loss in _LOSSES.items():
        now, past = wrong.now.get(what), wrong.past.get(what)
        kind = f"{what.replace(' ', '-')}-missing"
        if now is not None:
            yield damage(
                kind=kind,
                what=f"{count(now.files.count, what)} of the current snapshot"
                f" {'is' if now.files.count == 1 else 'are'} missing"
                + (f", with {count(now.rows, 'row')}" if now.rows else "")
                + f": {now.files}",
                means=f"something other than this sink deleted them. {loss.means}",
                repair="find what deletes files here, and stop it. Restore the files byte for byte from a"
                f" backup, or from the bucket's earlier object versions. Without a copy, {loss.without}",
            )
        if past is not None:
            yield warning(
                kind=kind,
                what=f"{count(past.files.count, what)} that only older snapshots need"
                f" {'is' if past.files.count == 1 else 'are'} missing: {past.files}",
                means="the current state is whole and writers may go on; time travel, and a stream reader"
                " that resumes at these snapshots, fail",
                repair="find what deletes files here. Restore them from a backup, or let the snapshots"
                " expire",
            )
