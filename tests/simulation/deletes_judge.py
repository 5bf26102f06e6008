"""Judges position deletes: which rows they leave of a file, and that none outlives its data file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.simulation.raw import Member, SnapshotFiles, ViolationError


@dataclass
class DeletesJudge:
    """What the delete files of row deltas delete, as their actors declared it."""

    positions: dict[str, frozenset[int]] = field(default_factory=dict)
    """Delete file → positions in its data file. Those of another engine are not declared: they match none."""

    def live_rows(
        self, uris: Iterable[str], files: SnapshotFiles, rows: Mapping[str, tuple[int, ...]]
    ) -> Counter[int]:
        """Return the rows of some live files of a snapshot that its delete files leave."""
        live = Counter[int]()
        for uri in uris:
            gone = self._positions_gone(uri, files)
            live.update(row for at, row in enumerate(rows[uri]) if at not in gone)
        return live

    def changed(self, old: SnapshotFiles, new: SnapshotFiles) -> set[str]:
        """Return the files that are live in one of two snapshots only, or whose deletes differ."""
        deletes = {delete[3]: delete[2] for delete in old.deletes}
        later = {delete[3]: delete[2] for delete in new.deletes}
        of = {only for uri, only in (deletes | later).items() if (uri in deletes) != (uri in later)}
        return (old.live.keys() ^ new.live.keys()) | ({only for only in of if only} & old.live.keys())

    def check(self, member: Member) -> None:
        """No delete file of a row delta outlives its data file: a fold takes it away."""
        for _, _, only, uri in member.files.deletes:
            if uri in self.positions and only not in member.files.live:
                raise ViolationError(f"version {member.number} keeps deletes of a file that has left: {uri}")

    def check_removed(self, before: Member, member: Member, removed: Iterable[str]) -> None:
        """A removed file had no deletes but those of row deltas, whose rows the new files leave out."""
        for uri in removed:
            sequence, partition = before.files.live[uri]
            if any(
                at >= sequence and (where == partition if only is None else only == uri)
                for at, where, only, delete in before.files.deletes
                if delete not in self.positions
            ):
                raise ViolationError(f"version {member.number} rewrites a file with deletes (R13): {uri}")

    def _positions_gone(self, uri: str, files: SnapshotFiles) -> set[int]:
        sequence, _ = files.live[uri]
        return {
            position
            for at, _, only, delete in files.deletes
            if only == uri and at >= sequence
            for position in self.positions.get(delete, ())
        }
