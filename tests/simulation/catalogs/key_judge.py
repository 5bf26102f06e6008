"""Judges a table with a key in a catalog, where other engines insert, delete and bring back rows of any key.

What others leave is right by definition: a key may have two rows, or none, and a delete of theirs is not
remembered. What this protocol commits is judged against the rows that it found (R31).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pyiceberg.table.metadata import TableMetadata

from tests.simulation.catalogs.judge import CatalogOracle, main_of
from tests.simulation.catalogs.server import ENGINE
from tests.simulation.key_files import Change
from tests.simulation.key_judge import Declared, Key, KeyJudge, declared_key, named_tombstones
from tests.simulation.oracle import Work
from tests.simulation.purge_judge import PurgeJudge
from tests.simulation.raw import OURS, Member, ViolationError

_ROUNDED_MS = 10
"""A delete is as old as its commit's draft, which is a little older than its last snapshot."""


class _Dead(NamedTuple):
    """A delete of a key that a commit has brought."""

    at: int
    landed_ms: int
    counted: bool
    """Whether it was newer than all others then. One that was late may be remembered too, or not."""


@dataclass(frozen=True)
class _State:
    """One state of the table, as a look at its keys may have met it."""

    member: Member
    live: Mapping[Key, Sequence[Change]]
    dead: Mapping[Key, Sequence[_Dead]]

    def may_be_late(self, key: Key, change: Change) -> bool:
        """Return whether a look may find that the change is older than what there is, or the same."""
        return any(row.rank >= change.rank for row in self.live.get(key, ())) or any(
            dead.at >= change.at for dead in self.dead.get(key, ())
        )


class CatalogPurgeJudge(PurgeJudge):
    """Judges purges where branches of other engines have snapshots of their own."""

    def history(self, member: Member) -> Iterable[dict[str, Any]]:
        return [member.snapshots[key] for key in main_of(member)]


@dataclass
class KeyedCatalogOracle(CatalogOracle, KeyJudge):
    """The oracle of a table with a key in a catalog."""

    _states: list[_State] = field(default_factory=list)
    _dead: dict[Key, tuple[_Dead, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.purged = CatalogPurgeJudge(self, self.changes.__getitem__)

    def changed(self, metadata: TableMetadata, by: str) -> None:
        super().changed(metadata, by)
        member = self.head
        dead = {} if self._key is None else dict(self._dead)
        self._states.append(_State(member, self._by_key(self._key, member), dead))

    def _follow(self, before: Member | None, member: Member) -> None:
        super()._follow(before, member)
        if before is not None and before.uuid != member.uuid:
            self._dead.clear()
        self._uuid, self._key = member.uuid, declared_key(member)

    def _by_key(self, key: Declared | None, member: Member) -> dict[Key, list[Change]]:
        found: dict[Key, list[Change]] = defaultdict(list)
        for row in self._live(member) if key is not None else ():
            found[key.of(row)].append(row)
        return dict(found)

    # ------------------------------------------------------------------------------------ the lineage

    def _check_key(self, before: Member, member: Member) -> None:
        """A key is declared once, over rows of which each key is there once."""
        declared = declared_key(member)
        if self._key not in (None, declared):
            raise ViolationError(f"version {member.number} has the key {declared}, and had {self._key} (R25)")
        if self._key is None and declared is not None:
            self.met["key declared"] += 1
            found = self._by_key(declared, before)
            if twice := sorted(key for key, rows in found.items() if len(rows) > 1):
                raise ViolationError(
                    f"version {member.number} declares a key, and {twice} is there twice (R25)"
                )
            self._states = [replace(it, live=self._by_key(declared, it.member)) for it in self._states]
        self._key = declared

    def _check_keys(self, key: Declared, member: Member, works: Sequence[Work], *, purge: bool) -> None:
        """Keys that the batches change have the row that counts, or none; all others are as before."""
        before = self._states[-1]
        now_ms = member.snapshots[member.current or 0]["timestamp-ms"]
        self._check_may_change(before.member, member, works)
        was, now = before.live, self._by_key(key, member)
        touched: dict[Key, Change] = {}
        for work in works:
            for change in self._changes_of(key, work):
                at = key.of(change)
                touched[at] = change
                late = self._may_be_late(key, at, change, work, member)
                self._check_change(key, at, change, was.get(at, ()), now.get(at, ()), work, member, late)
                if change.deletes and key.has_sequence:
                    dead = _Dead(change.at, now_ms, not late)
                    self._dead[at] = (*self._dead.get(at, ()), dead)
        for at in (was.keys() | now.keys()) - touched.keys():
            if purge and self._is_purged(at, was.get(at, ()), now.get(at, ()), now_ms, key):
                continue
            if _numbers(was.get(at, ())) != _numbers(now.get(at, ())):
                raise ViolationError(
                    f"version {member.number} has {now.get(at)} of key {at}, had {was.get(at)}, and changes"
                    f" {sorted(touched)} (R31)"
                )

    def _is_purged(
        self, at: Key, was: Sequence[Change], now: Sequence[Change], now_ms: int, key: Declared
    ) -> bool:
        """Return whether a purge has deleted rows of a key, and none but those that it may. They are
        remembered under their own sequences.
        """
        gone = [row for row in was if row.row not in _numbers(now)]
        added = Counter(_numbers(now)) - Counter(_numbers(was))
        if not gone or added or not all(map(self.purged.is_wanted, gone)):
            return False
        self.met["key deleted by a purge"] += 1
        if key.has_sequence:
            self._dead[at] = (*self._dead.get(at, ()), _Dead(max(row.at for row in gone), now_ms, True))
        return True

    def _check_change(
        self,
        key: Declared,
        at: Key,
        change: Change,
        was: Sequence[Change],
        now: Sequence[Change],
        work: Work,
        member: Member,
        late: bool,
    ) -> None:
        """Either the change counts, and its row is the only one, or it is late: then it adds nothing, and no
        row leaves but one that is older than another, or than one that others have deleted since.
        """
        newest = max(was, key=lambda row: row.rank, default=None)
        self.met["change of a key that is there twice"] += len(was) > 1
        counts = not key.has_sequence or self._counts(member, at, change, newest)
        values = [row.values for row in now]
        if counts and values == ([] if change.deletes else [change.values]):
            self.met["key deleted"] += change.deletes and bool(was)
            self.met["one row left of a key that was there twice"] += len(was) > 1
            return
        if late and not Counter(_numbers(now)) - Counter(_numbers(was)):
            self.met["late change committed"] += 1
            beaten = newest is not None and any(dead.at >= newest.at for dead in self._dead.get(at, ()))
            if newest is None or beaten or newest.rank in {row.rank for row in now}:
                return
            if self._left_before_theirs(at, change, was, now, self._looked(work, member)):
                self.met["late by a row that others have deleted since"] += 1
                return
        raise ViolationError(
            f"version {member.number} has {list(now)} of key {at}, had {list(was)} with the deletes"
            f" {self._dead.get(at, ())}, and {work} is to make it {change} (R31)"
        )

    def _counts(self, member: Member, at: Key, change: Change, newest: Change | None) -> bool:
        """Return whether a change may be newer than all that there is."""
        now_ms = member.snapshots[member.current or 0]["timestamp-ms"]
        ttl_ms = int(member.properties[OURS + "tombstone-ttl-ms"])
        remembered = (
            dead
            for dead in self._dead.get(at, ())
            if dead.counted and now_ms - dead.landed_ms < ttl_ms - _ROUNDED_MS
        )
        held = any(dead.at >= change.at for dead in remembered)
        return not held and (newest is None or change.rank >= newest.rank)

    def _left_before_theirs(
        self, at: Key, change: Change, was: Sequence[Change], now: Sequence[Change], since: Sequence[_State]
    ) -> bool:
        """Return whether a look found all rows that are gone, which the change replaces, beside one that is
        newer than the change, and which others have deleted since: then the batch is as one that has landed
        before that delete, and such a delete has no look repeated (R31). A row that came after the look
        stays, and after a rollback the batch is written again: no order of commits would explain these.
        """
        gone = [row for row in was if row.row not in _numbers(now)]
        if not gone or any(row.rank >= change.rank for row in gone):
            return False
        return any(
            any(row.rank >= change.rank for row in state.live.get(at, ()))
            and all(set(_numbers(gone)) <= set(_numbers(it.live.get(at, ()))) for it in since[number:])
            and _follows(since[number:])
            for number, state in enumerate(since)
        )

    def _may_be_late(self, key: Declared, at: Key, change: Change, work: Work, member: Member) -> bool:
        since = self._looked(work, member)
        return key.has_sequence and any(state.may_be_late(at, change) for state in since)

    def _looked(self, work: Work, member: Member) -> list[_State]:
        """Return the states that the batch may have looked at."""
        return self._since(member, self.begun.get((self.by, work, member.uuid), 0))

    def _since(self, member: Member, number: int) -> list[_State]:
        return [it for it in self._states if it.member.uuid == member.uuid and it.member.number >= number]

    def _check_may_change(self, before: Member, member: Member, works: Iterable[Work]) -> None:
        """No batch by key lands where its keys cannot be found."""
        if theirs := [work for work in works if work.app.startswith(ENGINE)]:
            raise ViolationError(f"version {member.number} brings back rows of others: {theirs}")
        by_key = [str(work) for work in works if work.query is not None]
        if not by_key:
            return
        for at, where, _, delete in before.files.deletes:
            if delete in self.deletes.by_value and any(
                sequence < at and partition == where for sequence, partition in before.files.live.values()
            ):
                raise ViolationError(
                    f"version {member.number} adds {by_key}, and rows were deleted by their values (R31)"
                )
        self._check_deletes_are_new(before, member)
        if not _columns_of_key(member) <= self.schemas.current_ids:
            raise ViolationError(
                f"version {member.number} adds {by_key}, and its key has lost a column (R31)"
            )

    def _check_deletes_are_new(self, before: Member, member: Member) -> None:
        """No row is deleted that others have deleted: under another position it may be there again."""
        known = {uri for *_, uri in before.files.deletes}
        now = {uri for *_, uri in member.files.deletes}
        for uri in now - known:
            for data_file, positions in self.deletes.positions.get(uri, {}).items():
                if twice := positions & self.deletes.gone(data_file, now - {uri}):
                    raise ViolationError(
                        f"version {member.number} deletes {sorted(twice)} of {data_file} once more (R31)"
                    )

    def _check_ours(self, before: Member, member: Member, raw: dict[str, Any], by: str) -> None:
        self.by = by
        super()._check_ours(before, member, raw, by)

    by = ""
    """Who commits."""

    # ------------------------------------------------------------------------- what hangs on the bytes

    def _check_deleted_file(self, uri: str, path: str, by: str) -> None:
        if uri in named_tombstones(self.head):
            raise ViolationError(
                f"{by} deleted the deleted keys that version {self.head.number} needs: {path}"
            )
        if uri in self._refused and uri not in self.reachable(self.head):
            self.met["delete file of a refused try deleted"] += 1
            return
        super()._check_deleted_file(uri, path, by)

    # ------------------------------------------------------------------------- what actors declare

    def told_empty(self, work: Work, table_uuid: str, seen: int) -> None:
        """A batch was told to change nothing: some state since it looked has newer changes of all its keys,
        or the same.
        """
        self.empty.add((work.app, work.query, work.batch))
        self.met["batch that changes nothing"] += 1
        if table_uuid != self.head.uuid or self._key is None:
            return
        key, found = self._key, list(self._changes_of(self._key, work))
        since = self._since(self.head, seen)
        for change in found:
            if not key.has_sequence or not any(it.may_be_late(key.of(change), change) for it in since):
                raise ViolationError(f"{work} was told to change nothing, and {change} is newer (R25)")


def _follows(states: Sequence[_State]) -> bool:
    """Return whether main of the last state follows that of the first. What is between may have expired."""
    parents: dict[int, int | None] = {}
    for state in states:
        for key, snapshot in state.member.snapshots.items():
            parents.setdefault(key, snapshot.get("parent-snapshot-id"))
    first, at = states[0].member.current, states[-1].member.current
    while at is not None and at != first:
        at = parents.get(at)
    return at == first


def _numbers(rows: Iterable[Change]) -> list[int]:
    return sorted(row.row for row in rows)


def _columns_of_key(member: Member) -> set[int]:
    stored = json.loads(member.properties[OURS + "key"])
    return {*stored["columns"], *filter(None, [stored["sequence"]])}
