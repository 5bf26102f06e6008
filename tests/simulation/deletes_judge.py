"""Judges position deletes: which rows they leave of a file, and that none outlives its data file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tests.simulation.raw import Member, SnapshotFiles, ViolationError


@dataclass
class DeletesJudge:
    """What the delete files of row deltas delete, as their actors declared it."""

    positions: dict[str, Mapping[str, frozenset[int]]] = field(default_factory=dict)
    """Delete file → positions in each data file. Those of another engine are not declared: they match none.
    """
    by_value: dict[str, Mapping[str, frozenset[int]]] = field(default_factory=dict)
    """The same of equality deletes, which no writer of this protocol reads."""

    def gone(self, uri: str, deletes: Iterable[str]) -> frozenset[int]:
        """Return the positions that delete files delete of one data file."""
        named = (self._declared(each).get(uri, frozenset()) for each in deletes)
        return frozenset[int]().union(*named)

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
        of = {
            named
            for uri in deletes.keys() ^ later.keys()
            for named in self._declared(uri) or dict.fromkeys(filter(None, [(deletes | later)[uri]]))
        }
        return (old.live.keys() ^ new.live.keys()) | (of & old.live.keys())

    def _declared(self, delete: str) -> Mapping[str, frozenset[int]]:
        return self.positions.get(delete) or self.by_value.get(delete, {})

    def check(self, member: Member) -> None:
        """No delete file of a row delta outlives its data file: a fold takes it away."""
        for _, _, only, uri in member.files.deletes:
            if uri in self.positions and only is not None and only not in member.files.live:
                raise ViolationError(f"version {member.number} keeps deletes of a file that has left: {uri}")

    def check_removed(self, before: Member, member: Member, removed: Iterable[str]) -> None:
        """A removed file had no deletes but those of row deltas, whose rows the new files leave out. A shared
        delete file leaves with the last of its data files.
        """
        kept = {uri for *_, uri in before.files.deletes} & {uri for *_, uri in member.files.deletes}
        for uri in kept if removed else ():
            if (named := self.positions.get(uri)) and self._is_idle(before, member, uri, named):
                raise ViolationError(f"version {member.number} keeps deletes of files that have left: {uri}")
        for uri in removed:
            sequence, partition = before.files.live[uri]
            if any(
                at >= sequence and (where == partition if only is None else only == uri)
                for at, where, only, delete in before.files.deletes
                if delete not in self.positions
            ):
                raise ViolationError(f"version {member.number} rewrites a file with deletes (R13): {uri}")

    def _is_idle(self, before: Member, member: Member, uri: str, named: Collection[str]) -> bool:
        """Whether no live file that was there before lies between the data files that a delete file names."""
        (where,) = {partition for _, partition, _, each in before.files.deletes if each == uri}
        return not any(
            min(named) <= file <= max(named) and partition == where
            for file, (_, partition) in member.files.live.items()
            if file in before.files.live
        )

    def _positions_gone(self, uri: str, files: SnapshotFiles) -> frozenset[int]:
        sequence, partition = files.live[uri]
        applied = (
            delete
            for at, where, only, delete in files.deletes
            if at >= sequence and (only == uri or (only is None and where == partition))
        )
        return self.gone(uri, applied)
