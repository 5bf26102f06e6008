"""Check that the files which retained snapshots refer to exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from timeline.diagnosis.files import Reachable
from timeline.diagnosis.findings import Finding, Severity, count, some
from timeline.stores.base import Store


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


def check_every_file_is_there(
    found: Reachable, objects: Mapping[str, int], store: Store
) -> Iterator[Finding]:
    """Yield a finding for each kind of file of which some are missing, now and in older snapshots."""
    gone = found.missing(objects, store)
    now_or_staged = found.needed_now | found.staged.keys()
    for what, loss in _LOSSES.items():
        now = [each for each in gone if found.what[each] == what and each in found.needed_now]
        past = [each for each in gone if found.what[each] == what and each not in now_or_staged]
        kind = f"{what.replace(' ', '-')}-missing"
        if now:
            rows = sum(found.live[each].rows for each in now if each in found.live)
            yield Finding(
                kind=kind,
                severity=Severity.DAMAGE,
                what=f"{count(len(now), what)} of the current snapshot"
                f" {'is' if len(now) == 1 else 'are'} missing"
                + (f", with {count(rows, 'row')}" if rows else "")
                + f": {some(now)}",
                means=f"something other than this sink deleted them. {loss.means}",
                repair="find what deletes files here, and stop it. Restore the files byte for byte from a"
                f" backup, or from the bucket's earlier object versions. Without a copy, {loss.without}",
            )
        if past:
            yield Finding(
                kind=kind,
                severity=Severity.WARNING,
                what=f"{count(len(past), what)} that only older snapshots need"
                f" {'is' if len(past) == 1 else 'are'} missing: {some(past)}",
                means="the current state is whole and writers may go on; time travel, and a stream reader"
                " that resumes at these snapshots, fail",
                repair="find what deletes files here. Restore them from a backup, or let the snapshots"
                " expire",
            )
