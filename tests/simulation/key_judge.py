"""Judges a table with a key: the only live row of a key is that of the change that counts (R25)."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.simulation.key_files import LEAST_AT, Change, keyed_schema
from tests.simulation.oracle import Oracle, Work
from tests.simulation.purge_judge import PurgeJudge, purges
from tests.simulation.raw import OURS, Member, ViolationError
from tests.unit.timeline.world import DAY_MS

_SCHEMA = keyed_schema(seed=0)
Key = tuple[int | str, ...]
_LEAST = (LEAST_AT, False, "")


@dataclass(frozen=True)
class Declared:
    """The key, as the table's property has it."""

    columns: tuple[str, ...]
    has_sequence: bool

    def of(self, change: Change) -> Key:
        return tuple(getattr(change, name) for name in self.columns)

    def newest(self, changes: Iterable[Change]) -> list[Change]:
        """Return of each key the change that counts."""
        found: dict[Key, Change] = {}
        for change in changes:
            held = found.setdefault(self.of(change), change)
            if change.rank > held.rank:
                found[self.of(change)] = change
        return list(found.values())


@dataclass
class _Held:
    """What the commits have made of one key."""

    row: Change | None = None
    most: tuple[int, bool, str] = _LEAST
    """The largest rank of any change of it."""
    landed_ms: int = 0
    """When that one was committed."""
    lowered: list[tuple[int, tuple[int, bool, str]]] = field(default_factory=list)
    """The versions whose purge left a smaller rank, each with the rank before."""


@dataclass
class KeyJudge(Oracle):
    """The oracle of a table with a key, which follows every key through the lineage."""

    changes: dict[int, Change] = field(default_factory=dict)
    """Every row that was ever made → its values."""
    batches: dict[tuple[str, str | None, int], tuple[Work, tuple[Change, ...]]] = field(default_factory=dict)
    """(application, query, batch) → what it is to do."""
    empty: set[tuple[str, str | None, int]] = field(default_factory=set)
    """Batches that were told to change nothing."""
    begun: dict[tuple[str, Work, str], int] = field(default_factory=dict)
    """Actor, batch and table's uuid → the first version in which it has looked for the keys."""
    purged: PurgeJudge = field(init=False)
    _differences: dict[int, tuple[str, Counter[int], bool]] = field(default_factory=dict)
    """Version → the table's uuid, how often each row is live in it more than before, whether it purges."""
    _refused: set[str] = field(default_factory=set)
    """Delete files of tries that were refused, and which no commit has."""
    _uuid: str = ""
    _key: Declared | None = None
    _held: dict[Key, _Held] = field(default_factory=lambda: defaultdict(_Held))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.purged = PurgeJudge(self, self.changes.__getitem__)

    # ------------------------------------------------------------------------------------ the lineage

    def _check_rows(self, before: Member, member: Member) -> None:
        """A version commits whole batches of changes, and leaves of each key the row that counts."""
        if member.uuid != self._uuid:
            self._uuid, self._key = member.uuid, None
            self._held.clear()
        self._check_files(before, member)
        self._check_tombstones(before, member)
        self._refused -= member.files.objects
        change = self._change(before.files, member.files)
        purge = purges(before, member)
        self._differences[member.number] = member.uuid, change, purge
        plain = {self.owner[row] for row, count in change.items() if count > 0}
        works = [*self._batches_of(before, member), *(work for work in plain if work.query is None)]
        for work in works:
            if (member.uuid, work) in self.committed:
                earlier = self.committed[member.uuid, work]
                raise ViolationError(
                    f"version {member.number} adds {work}, which version {earlier} has added"
                )
            self.committed[member.uuid, work] = member.number
        self._check_transactions(before, member, [work for work in works if work.query is not None])
        self._check_key(before, member)
        if self._key is None:
            self._check_without_key(member, change, works)
        elif works or change:
            self._check_keys(self._key, member, works, purge=purge)

    def _batches_of(self, before: Member, member: Member) -> list[Work]:
        works = []
        for app, state in member.transactions.items():
            if before.transactions.get(app) != state:
                batch = app, state["query_id"], state["batch"]
                if batch not in self.batches:
                    raise ViolationError(
                        f"version {member.number} states a batch that nobody has made: {batch}"
                    )
                works.append(self.batches[batch][0])
        return works

    def _check_tombstones(self, before: Member, member: Member) -> None:
        cutoff = before.properties.get(OURS + "gc-cutoff", "")
        for uri in named_tombstones(member):
            if uri not in named_tombstones(before) and uri.rpartition("/")[2][:26] < cutoff:
                raise ViolationError(
                    f"version {member.number} adds deleted keys from below the fence (R6): {uri}"
                )
            if uri.removeprefix(f"{self.location}/") not in self._raw.objects:
                raise ViolationError(f"version {member.number} names deleted keys that do not exist: {uri}")
            if uri in self.forbidden:
                raise ViolationError(f"version {member.number} adds deleted keys of a failed commit: {uri}")
        self.met["deleted keys forgotten"] += bool(named_tombstones(before) - named_tombstones(member))

    def _check_key(self, before: Member, member: Member) -> None:
        """A key is declared once, over rows of which each key is there once."""
        declared = declared_key(member)
        if self._key not in (None, declared):
            raise ViolationError(f"version {member.number} has the key {declared}, and had {self._key} (R25)")
        if self._key is None and declared is not None:
            self.met["key declared"] += 1
            for change in self._live(before):
                if self._held[declared.of(change)].row is not None:
                    raise ViolationError(f"version {member.number} declares a key that is there twice (R25)")
                self._held[declared.of(change)] = _Held(change, change.rank, before.updated_ms)
        self._key = declared

    def _check_without_key(self, member: Member, change: Counter[int], works: Sequence[Work]) -> None:
        """Before a key is declared, rows are only added."""
        wanted = Counter(row for work in works for row in work.rows)
        if {row: count for row, count in change.items() if count} != wanted:
            raise ViolationError(f"version {member.number} changes rows {change}, and is to add {wanted}")

    def _check_keys(self, key: Declared, member: Member, works: Sequence[Work], *, purge: bool) -> None:
        """Each key has the row of the change that counts, or none. A purge deletes rows that were there."""
        perhaps: dict[Key, Change | None] = {}
        for work in works:
            for change in self._changes_of(key, work):
                self._apply(key, member, change, perhaps)
        live: dict[Key, list[Change]] = defaultdict(list)
        for change in self._live(member):
            live[key.of(change)].append(change)
        for at in live.keys() | self._held.keys():
            held, found = self._held[at], [change.values for change in live.get(at, ())]
            if purge and not found and held.row is not None and self.purged.is_wanted(held.row):
                self.met["key deleted by a purge"] += 1
                held.lowered.append((member.number, held.most))
                held.most, held.landed_ms = (held.row.at, True, ""), member.updated_ms
                held.row = None
            if at in perhaps and found == _values(perhaps[at]) != _values(held.row):
                held.row = perhaps[at]
                self.met["a change came after its delete was forgotten"] += 1
            if found != _values(held.row):
                raise ViolationError(
                    f"version {member.number} has {found} of key {at}, and the change that counts left"
                    f" {held.row}, of {held.most} (R25)"
                )

    def _changes_of(self, key: Declared, work: Work) -> list[Change]:
        batch = self.batches.get((work.app, work.query, work.batch))
        return key.newest([self.changes[row] for row in work.rows] if batch is None else batch[1])

    def _apply(
        self, key: Declared, member: Member, change: Change, perhaps: dict[Key, Change | None]
    ) -> None:
        held = self._held[key.of(change)]
        if not key.has_sequence or change.rank > held.most:
            self.met["key deleted"] += change.deletes
            self.met["key came back"] += held.most[1] and not change.deletes
            held.row = None if change.deletes else change
            held.most, held.landed_ms = change.rank, member.updated_ms
            return
        self.met["late change committed"] += 1
        ttl_ms = int(member.properties[OURS + "tombstone-ttl-ms"])
        newer = held.row is None or change.rank > held.row.rank
        if held.most[1] and member.updated_ms - held.landed_ms >= ttl_ms and newer:
            perhaps[key.of(change)] = None if change.deletes else change

    def _live(self, member: Member) -> list[Change]:
        rows = self.deletes.live_rows(member.files.live, member.files, self.rows)
        return [self.changes[row] for row in rows.elements()]

    def changed_between(self, uuid: str, first: int, last: int) -> Counter[tuple[int, bool, int]]:
        """Return the rows that the versions from `first` to `last` have added, or deleted: (version, added,
        row). A purge's deletes are no change that anyone may keep a copy of.
        """
        found = Counter[tuple[int, bool, int]]()
        for number in range(first, last + 1):
            of, change, purge = self._differences.get(number, ("", Counter[int](), False))
            for row, count in change.items() if of == uuid else ():
                if count and not (purge and count < 0):
                    found[number, count > 0, row] += abs(count)
        return found

    def check_the_end(self) -> None:
        """Every version was compared with what had been committed up to it."""

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

    def _follows(self, work: Work, batch: int) -> bool:
        return work.batch > batch and all(
            (work.app, work.query, each) in self.empty for each in range(batch + 1, work.batch)
        )

    # ------------------------------------------------------------------------- what actors declare

    def told_empty(self, work: Work, table_uuid: str, seen: int) -> None:
        """A batch was told to change nothing, by a look at version `seen`: others have made newer changes of
        all its keys, or the same. A purge may have lowered what is known of one since.
        """
        self.empty.add((work.app, work.query, work.batch))
        self.met["batch that changes nothing"] += 1
        if table_uuid != self.head.uuid or self._key is None:
            return
        for change in self._changes_of(self._key, work):
            held = self._held[self._key.of(change)]
            most = max([held.most, *(most for version, most in held.lowered if version > seen)])
            if not self._key.has_sequence or change.rank > most:
                raise ViolationError(f"{work} was told to change nothing, and {change} is newer (R25)")

    def told_refused(self, deletes: Iterable[str]) -> None:
        """A try was refused: no commit has its delete files, unless the next one does."""
        for uri in deletes:
            if any(uri in member.files.objects for member in self.lineage):
                raise ViolationError(f"a try was refused, and its delete file is live: {uri}")
            self._refused.add(uri)
        self.met["keys looked for again"] += 1


def _values(row: Change | None) -> list[tuple[int, int, int, str]]:
    return [] if row is None else [row.values]


def declared_key(member: Member) -> Declared | None:
    text = member.properties.get(OURS + "key")
    if text is None:
        return None
    stored = json.loads(text)
    names = [_SCHEMA.find_column_name(each) or "" for each in stored["columns"]]
    return Declared(
        (*names, *(["p"] if stored["scope"] == "partition" else [])), stored["sequence"] is not None
    )


def named_tombstones(member: Member) -> set[str]:
    return {location for location, *_ in json.loads(member.properties.get(OURS + "tombstones", "[]"))}


NEVER_MS = 100 * DAY_MS
"""A time to live that no schedule reaches: clocks are days apart."""
