"""The judge of a table in a catalog: every change of it is told apart by who made it.

What this protocol commits must be whole batches, each once, and moves of rows without a change; what others
commit is right by definition, and the model of the rows follows it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from tests.simulation.catalogs.expiry_judge import ExpiryJudge
from tests.simulation.catalogs.server import ENGINE
from tests.simulation.oracle import Oracle, Work
from tests.simulation.partition_judge import check_manifests
from tests.simulation.raw import OURS, Member, SnapshotFiles, ViolationError
from tests.simulation.schema_judge import SchemaJudge

REPLACED, EDITED = "was replaced", "was edited"
_MAIN = "main"
_LATELY = 6
_EXPIRING = "expirer", "purger"
"""Who asks for expiry."""


@dataclass
class GrownSchemas(SchemaJudge):
    """Schemas that others may change at will: names come and go, so a file's columns are field ids."""

    current_ids: frozenset[int] = frozenset()
    """The fields of the current schema."""

    def check(self, number: int, metadata: dict[str, Any]) -> None:
        schemas = {schema["schema-id"]: schema for schema in metadata["schemas"]}
        self.current_ids = frozenset(
            column["id"] for column in schemas[metadata["current-schema-id"]]["fields"]
        )
        newest = max((column["id"] for each in schemas.values() for column in each["fields"]), default=0)
        if metadata["last-column-id"] < newest:
            raise ViolationError(f"version {number} forgets the last column id")

    def check_added(self, number: int, before: dict[str, Any], after: dict[str, Any]) -> None:
        """Judge the columns that this protocol has added: no field id had another meaning before."""
        old = {schema["schema-id"] for schema in before["schemas"]}
        known = {column["id"] for schema in before["schemas"] for column in schema["fields"]}
        for schema in after["schemas"]:
            if schema["schema-id"] in old:
                continue
            for column in schema["fields"]:
                if column["id"] not in known and column["id"] <= before["last-column-id"]:
                    raise ViolationError(
                        f"version {number} gives {column['name']} the id {column['id']}, which another column"
                        " had"
                    )

    def check_replace(self, number: int, removed: Any, added: Any, rows: dict[str, tuple[int, ...]]) -> None:
        was = {row: uri for uri in removed for row in rows[uri]}
        for uri in added:
            for row in rows[uri]:
                lost = (self.columns[was[row]] - self.columns[uri]) & self.current_ids
                if lost:
                    raise ViolationError(
                        f"a replace of version {number} loses fields {sorted(lost)} of row {row}"
                    )


@dataclass
class CatalogOracle(Oracle):
    """The oracle of one table in a catalog. A version is the last sequence number."""

    schemas: GrownSchemas = field(default_factory=GrownSchemas)
    stops: str = ""
    """Why no commit of this protocol may land any more; "" where one may."""
    stopped_at: int = 0
    """The last sequence number then."""
    replaced_mains: set[int | None] = field(default_factory=set)
    """Where main was while the table was replaced: a head with main there is one of the replaced table."""
    edited: tuple[int | None, str] | None = None
    """Main's snapshot when somebody removed a property, which moves no main, and the property: one commit
    that was built before may still land on it. If it sets that property the harm is undone; else it is the
    last.
    """
    model: Counter[int] = field(default_factory=Counter)
    """The rows that must be live: as this protocol has committed them, and others have changed them."""
    expiry: ExpiryJudge = field(init=False)
    _metadata: dict[str, Any] = field(default_factory=dict)
    _columns: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    """Uuid, sequence number → the columns of the first state that had it."""
    _numbered: dict[int, list[Member]] = field(default_factory=dict)
    """Sequence number → the first state of each table that had it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expiry = ExpiryJudge(self.met, self.safe_distance)

    def member(self, number: int) -> Member:
        return self._numbered[number][-1]

    def member_with(self, work: Work | None, number: int, outputs: Collection[str]) -> Member:
        # A batch that was in a dropped table may get the same number in the one that was made again.
        uuids = {self._tables[uri] for uri in outputs}
        found = self._numbered[number]
        found = [it for it in found if it.uuid in uuids] or found
        return next((it for it in found if self.committed.get((it.uuid, work)) == number), found[-1])

    def columns_at(self, number: int, seen: Iterable[str]) -> set[str]:
        return self._columns[self.member(number).uuid, number]

    def has_member(self, number: int) -> bool:
        return number in self._numbered

    def gave_up_nothing(self, plan: str, version: int) -> None:
        before = next(at for at, each in enumerate(self.lineage) if each.number == version) - 1
        if plan not in self.lineage[before].pending:
            raise ViolationError(f"version {version} was acknowledged to an executor, and does nothing (R13)")

    def skipped(self, work: Work, version: int) -> None:
        super().skipped(work, version)
        if self.stops and version > self.stopped_at:  # else by a head from before
            raise ViolationError(f"{work} was skipped as committed, and the table {self.stops} (R30)")

    def changed(self, metadata: TableMetadata, by: str) -> None:
        """Judge the table's next state."""
        raw = json.loads(metadata.model_dump_json())
        member = self._member(raw)
        before = self.lineage[-1] if self.lineage else None
        number = member.number
        self.schemas.check(number, raw)
        if before is None or by.startswith(ENGINE):
            self._follow(before, member)
        else:
            self._check_ours(before, member, raw, by)
        self._metadata = raw
        self.lineage.append(member)
        schemas = {schema["schema-id"]: schema for schema in raw["schemas"]}
        columns = {column["name"] for column in schemas[raw["current-schema-id"]]["fields"]}
        self._columns.setdefault((member.uuid, number), columns)
        known = self._numbered.setdefault(number, [])
        if member.uuid not in {each.uuid for each in known}:
            known.append(member)
        self._check_live_files_exist(before, member)
        was, now = set() if before is None else self.reachable(before), self.reachable(member)
        self.expiry.follow(before, member, was - now, now - was)
        live = self.deletes.live_rows(member.files.live, member.files, self.rows)
        if live != self.model:
            raise ViolationError(f"version {number} has {live - self.model} and lacks {self.model - live}")

    def _follow(self, before: Member | None, member: Member) -> None:
        """Take what another engine did for what must be."""
        self.model = self.deletes.live_rows(member.files.live, member.files, self.rows)
        if before is not None and before.uuid != member.uuid:
            self.met["table made again"] += 1
            self._applications.clear()
            self.stops = ""
        at = member.snapshots.get(member.current, {}).get("sequence-number", self.stopped_at + 1)
        if self.stops == REPLACED and at <= self.stopped_at:
            self.stops = ""  # main was set to what it was before: a rollback
        if self.stops == REPLACED:
            self.replaced_mains.add(member.current)

    def _check_ours(self, before: Member, member: Member, raw: dict[str, Any], by: str) -> None:
        number = member.number
        if self.edited is not None and before.current == self.edited[0]:
            self.stops = "" if self.edited[1] in member.properties else self.stops
            self.edited = None
        elif self.stops:
            raise ViolationError(f"{by} commits {number}, and the table {self.stops} (R30)")
        if before.uuid != member.uuid:
            raise ViolationError(f"{by} commits to another table than it has opened (R17)")
        if member.current == before.current:
            raise ViolationError(f"version {number} moves no main (R29)")
        self._check_snapshots_of_ours(before, member, raw)
        self._check_what_is_theirs(before, member, raw, by)
        self.schemas.check_added(number, self._metadata, raw)
        self.partitions.check_files(number, member.files.live)
        manifest_list = member.snapshots[member.current]["manifest-list"] if member.current else None
        if manifest_list is not None:
            check_manifests(self._raw, number, manifest_list, before.files.objects, raw)
        for plan in member.pending.keys() - before.pending.keys():
            self.plans.completed.setdefault(plan, 0)
        self.plans.check_completed(before, member)
        change = self._change(before.files, member.files)
        self._check_rows(before, member)
        self.model.update(change)
        self.model = +self.model

    def _check_snapshots_of_ours(self, before: Member, member: Member, raw: dict[str, Any]) -> None:
        number, sequence, previous = member.number, before.last_sequence, before.current
        new = [each for key, each in member.snapshots.items() if key not in before.snapshots]
        newest = max((each["timestamp-ms"] for each in before.snapshots.values()), default=0)
        beside = [each for each in new if each["snapshot-id"] not in main_of(member)]
        for snapshot in (each for each in new if each not in beside):
            if snapshot.get("parent-snapshot-id") != previous:
                raise ViolationError(f"a snapshot of version {number} does not continue main (R29)")
            operation = snapshot["summary"]["operation"]
            if operation in ("append", "overwrite"):
                self._check_append_is_pure(number, snapshot)
            elif operation == "replace":
                was = {**before.snapshots, **member.snapshots}.get(previous)
                self._check_replace_keeps_rows(number, was, snapshot)
            previous = snapshot["snapshot-id"]
            if snapshot.get("schema-id") != self._metadata["current-schema-id"]:
                raise ViolationError(f"version {number} has a snapshot of another schema than the table's")
        for snapshot in sorted(new, key=lambda each: each["sequence-number"]):
            if snapshot["sequence-number"] != sequence + 1:
                raise ViolationError(f"sequence numbers skip in version {number} (R22)")
            if snapshot["timestamp-ms"] <= newest:
                raise ViolationError(f"snapshot times do not rise in version {number} (R12)")
            sequence, newest = snapshot["sequence-number"], snapshot["timestamp-ms"]
        if member.current != previous:
            raise ViolationError(f"version {number} does not end with its newest snapshot")

    def _check_what_is_theirs(self, before: Member, member: Member, raw: dict[str, Any], by: str) -> None:
        """What others have set, tagged and committed stays."""
        number = member.number
        theirs = {key: value for key, value in before.properties.items() if not _is_ours(key)}
        if {key: value for key, value in member.properties.items() if not _is_ours(key)} != theirs:
            raise ViolationError(f"version {number} changes properties of others")
        refs, asked = self._metadata.get("refs") or {}, by.startswith(_EXPIRING)
        self.expiry.check_expired(before, member, refs, asked=asked)
        old, new = (each.get("refs") or {} for each in (self._metadata, raw))
        kept = {name: ref for name, ref in old.items() if name != _MAIN}
        moved = {name: ref for name, ref in kept.items() if new.get(name) != ref}
        if any(name in new or not self._is_wanted(name, ref, number) for name, ref in moved.items()):
            raise ViolationError(f"version {number} moves refs of others: {kept}, then {new}")

    def _is_wanted(self, name: str, ref: dict[str, Any], number: int) -> bool:
        """Return whether a remover has seen the ref so, and asked for its removal."""
        return self.refs.take_removal((name, ref["snapshot-id"], ref["type"]), number)

    def _check_files(self, before: Member, member: Member) -> None:
        """As the base, but for delete files that others have left behind."""
        for uri in member.files.live.keys() - before.files.live.keys():
            if uri in self.forbidden:
                raise ViolationError(f"version {member.number} adds a file of {self.forbidden[uri]}: {uri}")
            if self._tables[uri] != member.uuid:
                raise ViolationError(f"version {member.number} adds a file of the dropped table (R17): {uri}")

    def is_undecidable(self) -> bool:
        """Return whether no live file tells any more that the table was not replaced, or told so lately."""
        return any(self._has_nothing_old(member) for member in self.lineage[-_LATELY:])

    def _has_nothing_old(self, member: Member) -> bool:
        witness = json.loads(member.properties.get(OURS + "witness", "[0, 0]"))[1]
        live = [sequence for sequence, _ in member.files.live.values()]
        return min((*live, *(delete[0] for delete in member.files.deletes)), default=witness + 1) > witness

    def _first_batch(self, work: Work) -> int:
        return work.batch - 1

    def _check_deleted_file(self, uri: str, path: str, by: str) -> None:
        """Others delete what no snapshot needs; a writer only what it was told to have failed."""
        if by.startswith(ENGINE):
            self.expiry.follow_deleted(uri)
            return
        if path.startswith("_timeline/"):
            self._check_deleted_note(path, by)
            return
        if uri in self.reachable(self.head):
            raise ViolationError(f"{by} deleted a file that version {self.head.number} needs: {path}")
        if uri in self.expiry.unreached:
            self.expiry.check_deleted(uri, self.head, by)
            return
        if uri not in self.forbidden and uri not in self._orphans(path):
            raise ViolationError(f"{by} deleted a file that may be committed yet, or is of others: {path}")
        self.met["file of a failed commit deleted"] += 1

    def _orphans(self, path: str) -> set[str]:
        """Return the file, where it is behind the fence, so that no commit can have it any more (R6): that of
        a table which was dropped since, too, where the delete comes late.
        """
        fence = max(each.properties.get(OURS + "gc-cutoff", "") for each in self.lineage)
        behind = path.rpartition("/")[2][:26] < fence
        self.met["orphan deleted"] += behind
        return {f"{self.location}/{path}"} if behind else set()

    def check_the_end(self) -> None:
        """The model has followed each change; what is left is that it is not empty by mistake."""
        acknowledged = {work for uuid, work in self.committed if uuid == self.head.uuid}
        self.met["batches in the end"] += len(acknowledged)

    def _member(self, metadata: dict[str, Any]) -> Member:
        """Return the table's state. Its commit is the newest of this protocol on main."""
        told = metadata["properties"]
        snapshots = {each["snapshot-id"]: each for each in metadata.get("snapshots") or []}
        current = metadata.get("current-snapshot-id")
        current = None if current in (None, -1) else current
        refs = metadata.get("refs") or {}
        files = SnapshotFiles({}, [], frozenset())
        if current is not None:
            files = self._raw.files_of(snapshots[current]["manifest-list"])
        commit, at = "", current
        while at in snapshots and not commit:
            commit = snapshots[at]["summary"].get(OURS + "commit-id", "")
            at = snapshots[at].get("parent-snapshot-id")
        prefix = OURS + "txn."
        return Member(
            metadata.get("last-sequence-number", 0),
            commit,
            metadata["table-uuid"],
            metadata["last-updated-ms"],
            files,
            snapshots,
            current,
            {key.removeprefix(prefix): json.loads(v) for key, v in told.items() if key.startswith(prefix)},
            told,
            _pending(told),
            frozenset(ref["snapshot-id"] for name, ref in refs.items() if name != _MAIN),
            {},
            metadata.get("last-sequence-number", 0),
        )


def main_of(member: Member) -> set[int]:
    """Return the ids of the snapshots of main that are in the metadata."""
    found, at = set[int](), member.current
    while at in member.snapshots:
        found.add(at)
        at = member.snapshots[at].get("parent-snapshot-id")
    return found


def _pending(told: dict[str, str]) -> dict[str, tuple[int, int]]:
    stated = [value for key, value in told.items() if key.startswith(OURS + "pending-plans.")]
    found = (value.split("@") for value in stated)
    return {plan: (int(version), int(time_ms)) for plan, version, time_ms in found}


def _is_ours(key: str) -> bool:
    return key.startswith(OURS) or key in ("by", "schema.name-mapping.default")
