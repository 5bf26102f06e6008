"""Judges purges: no file that the head needs holds a key that was purged, and none once it is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.key_files import Change
from tests.simulation.oracle import Oracle
from tests.simulation.raw import OURS, Member, ViolationError
from timeline import names

Wanted = Mapping[str, int]
"""A key that is to be gone: column → value."""
LOOKS_AT_MOST = 20
"""A purge may stop where other writers were first as often."""


@dataclass
class PurgeJudge:
    """The purges of one table, and what its bytes hold of their keys."""

    oracle: Oracle
    change_of: Callable[[int], Change]
    """What a row of the table is of."""
    wanted: list[Wanted] = field(default_factory=list)
    """The keys of all purges so far."""

    def is_wanted(self, change: Change) -> bool:
        """Whether a row may leave with a purge."""
        return any(is_of(change, wanted) for wanted in self.wanted)

    def history(self, member: Member) -> Iterable[dict[str, Any]]:
        """Return the snapshots of which the newest change of rows must have none of the keys."""
        return member.snapshots.values()

    def told_rewritten(self, wanted: Wanted, since: int) -> None:
        """A purge has rewritten what holds its key: some version since then needs no such file."""
        versions = [member for member in self.oracle.lineage if member.number >= since]
        held = [{}, *(self._held_by(member, wanted) for member in versions)]
        if all(held[1:]) and len(versions) < LOOKS_AT_MOST:
            raise ViolationError(
                f"a purge of {wanted} ended, and version {versions[-1].number} has {held[-1]}"
            )
        self.oracle.met["key purged"] += 1

    def stored_with(self, wanted: Wanted) -> set[str]:
        """Return all that is stored of a key: data files, and manifests that state it as a bound."""
        stored = {f"{self.oracle.location}/{path}" for path in self.oracle._raw.objects}
        found = {uri for uri in stored & self.oracle.rows.keys() if self._holds(uri, wanted)}
        return found | {uri for uri in stored if _is_manifest(uri) and any(self._bounds(uri, wanted))}

    def told_gone(self, wanted: Wanted, before: set[str]) -> None:
        """A purge was told that nothing of its key is left, but for what was not yet there `before`."""
        if left := before & self.stored_with(wanted):
            raise ViolationError(
                f"nothing of {wanted} is left, a purge was told, and there is {sorted(left)}"
            )
        self.oracle.met["key gone"] += 1

    def newest_ms(self) -> int:
        """Return the time of the newest of all that is stored, by its name: some clocks are days ahead."""
        objects = self.oracle._raw.objects
        notes = (it[1] for it in map(names.expired_version, objects) if it is not None)
        ids = [*filter(None, map(names.file_id, objects)), *notes]
        return max([self.oracle.head.updated_ms, *map(names.ulid_time_ms, ids)])

    def _held_by(self, member: Member, wanted: Wanted) -> dict[str, Any]:
        """Return which files hold a key that a version's readers and its newest change of rows need."""
        raw, current = self.oracle._raw, member.current
        found: dict[str, Any] = {}
        if current is None:
            return found
        snapshots = sorted(self.history(member), key=lambda it: it["sequence-number"])
        newest = [it for it in snapshots if it["summary"]["operation"] != "replace"][-1:]
        for snapshot in (member.snapshots[current], *newest):
            live = raw.files_of(snapshot["manifest-list"]).live
            found |= {uri: "a row" for uri in live if self._holds(uri, wanted)}
        for manifest in raw.read(member.snapshots[current]["manifest-list"]):
            bounds = self._bounds(manifest["manifest_path"], wanted)
            found |= dict.fromkeys(bounds, f"a bound in {manifest['manifest_path']}")
        return found

    def _holds(self, uri: str, wanted: Wanted) -> bool:
        return any(is_of(self.change_of(row), wanted) for row in self.oracle.rows[uri])

    def _bounds(self, manifest: str, wanted: Wanted) -> Iterator[str]:
        """Yield the files of which a manifest states the key as a bound, whether it has them or had."""
        for entry in self.oracle._raw.read(manifest):
            file = entry["data_file"]
            rows = [self.change_of(row) for row in self.oracle.rows.get(file["file_path"], ())]
            ends = [
                {name: end(getattr(it, name) for it in rows) for name in wanted} for end in (min, max) if rows
            ]
            if file["lower_bounds"] and wanted in ends:
                yield file["file_path"]


def is_of(change: Change, wanted: Wanted) -> bool:
    return all(getattr(change, name) == value for name, value in wanted.items())


def purges(before: Member, member: Member) -> bool:
    """Whether a version is one of a purge that deletes rows."""
    new = (it for key, it in member.snapshots.items() if key not in before.snapshots)
    return any(OURS + "purge" in snapshot["summary"] for snapshot in new)


def _is_manifest(uri: str) -> bool:
    path = uri.partition("/metadata/")[2]
    # The list of another engine is called snap-….avro.
    return path.endswith(".avro") and not names.is_manifest_list(path) and not path.startswith("snap-")
