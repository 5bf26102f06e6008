"""The judge: what the table must hold, from the store's raw bytes and from what was said to the callers.

Everything that is compared was declared by an actor before it committed: which rows a file holds, and whose
they are.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.deletes_judge import DeletesJudge
from tests.simulation.partition_judge import PartitionJudge
from tests.simulation.plan_judge import PlanJudge
from tests.simulation.raw import ADDED, OURS, Member, RawTable, SnapshotFiles, ViolationError
from tests.simulation.ref_judge import RefJudge
from tests.simulation.schema_judge import SchemaJudge
from tests.simulation.staged_judge import StagedJudge

_VERSION_FILE = re.compile(r"^metadata/v([0-9]+)\.metadata\.json$")
_HINT = "metadata/version-hint.text"
_NOTE = re.compile(r"^_timeline/expired/v[0-9]+-([0-9A-Z]{26})\.json$")
_INSTANT = re.compile(r"^_timeline/clustering/([0-9A-Z]{26})-")


@dataclass(frozen=True)
class Work:
    """Rows that are to become live once: one batch of a query, or one append without a transaction."""

    app: str
    query: str | None
    batch: int
    rows: tuple[int, ...]
    deletes: tuple[int, ...] = ()
    """Rows that leave the table with it."""

    def __str__(self) -> str:
        return f"{self.app}/{self.query}/{self.batch}"


@dataclass
class _Application:
    """What the lineage says about one application."""

    query: str | None = None
    batch: int = -1
    run: str = ""
    former_runs: set[str] = field(default_factory=set)


@dataclass
class Oracle:
    """Holds the invariants after every effect on the store, and against everything that a caller was told."""

    location: str
    versions_kept: int
    safe_distance: int
    lineage: list[Member] = field(default_factory=list)
    rows: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Every data file that any actor ever wrote → its rows."""
    owner: dict[int, Work] = field(default_factory=dict)
    """Every row that was ever made → whose it is."""
    committed: dict[tuple[str, Work | None], int] = field(default_factory=dict)
    """Table's uuid, work → the version that made its rows live."""
    forbidden: dict[str, str] = field(default_factory=dict)
    """Files of commits that were declared failed → as what."""
    takeovers: set[tuple[str, str | None, str | None]] = field(default_factory=set)
    """(app, new query, old query) that a user has allowed."""
    met: Counter[str] = field(default_factory=Counter)
    now: float = 0.0
    _dropped: set[str] = field(default_factory=set)
    """Files of a table that was dropped."""
    _fence_before: str = ""
    """The highest cutoff of tables that were dropped: their orphans go behind it, and no later file is."""
    _bytes: dict[int, bytes] = field(default_factory=dict)
    """Version → its bytes, as the lineage has them."""
    _removed: set[int] = field(default_factory=set)
    """Versions that were deleted."""
    _hint_seen: dict[str, int] = field(default_factory=dict)
    """Actor → what the hint was when it last read or wrote it."""
    plans: PlanJudge = field(init=False)
    staged: StagedJudge = field(init=False)
    refs: RefJudge = field(init=False)
    never: set[Work] = field(default_factory=set)
    """What was discarded, and never lands."""
    schemas: SchemaJudge = field(default_factory=SchemaJudge)
    partitions: PartitionJudge = field(default_factory=PartitionJudge)
    deletes: DeletesJudge = field(default_factory=DeletesJudge)
    _lost_notes: set[str] = field(default_factory=set)
    """Commits whose note of what they expired somebody has deleted."""
    damaged_notes: set[str] = field(default_factory=set)
    """The paths of those that somebody has damaged."""
    _once_pinned: set[int] = field(default_factory=set)
    """Snapshots that a tag has named; those of one version stay and go together."""
    _left_on_purpose: Counter[int] = field(default_factory=Counter)
    """How often each row came or left by rollbacks."""
    _raw: RawTable = field(init=False)
    _applications: dict[str, _Application] = field(default_factory=dict)
    _tables: dict[str, str] = field(default_factory=dict)
    """File → uuid of the table that it was written for."""
    _expired_by: dict[str, Member] = field(default_factory=dict)
    """File that only expired snapshots reach → the version that expired the last of them."""

    def __post_init__(self) -> None:
        self._raw = RawTable(self.location)
        self.plans = PlanJudge(self.safe_distance, self.met)
        self.staged = StagedJudge(self.met, self._raw.files_of, self._exists)
        self.refs = RefJudge(self.met)

    # ------------------------------------------------------------------------------------ the lineage

    @property
    def head(self) -> Member:
        return self.lineage[-1]

    def member(self, number: int) -> Member:
        return self.lineage[number - 1]

    def member_with(self, work: Work | None, number: int, outputs: Collection[str]) -> Member:
        """Return the version of a number that has a work, of the table that the outputs were written for."""
        return self.member(number)

    def columns_at(self, number: int, seen: Iterable[str]) -> set[str]:
        """Return the columns of a version, of which a later one was seen with these."""
        return set(seen)

    def has_member(self, number: int) -> bool:
        return number <= len(self.lineage)

    def created(self, path: str, data: bytes) -> None:
        self._raw.objects[path] = data
        match = _VERSION_FILE.match(path)
        if match is None:
            return
        number = int(match.group(1))
        if number <= len(self.lineage):
            self.met["fork below the head"] += 1
        elif number > len(self.lineage) + 1:
            raise ViolationError(f"version {number} was created, and {len(self.lineage)} is the highest")
        else:
            self._extend(number, json.loads(data))
            self._bytes[number] = data

    def overwritten(self, path: str, data: bytes, by: str) -> None:
        if _VERSION_FILE.match(path):
            if path in self._raw.objects:
                raise ViolationError(f"{by} overwrote a version file (R20): {path}")
            self.created(path, data)
        self._raw.objects[path] = data
        if by.startswith("vandal"):
            self.spoiled(path, damaged=True)

    def sent(self, verb: str, path: str, data: bytes | None, by: str) -> None:
        """The hint never goes back knowingly, and is looked at before a version file goes (R5, R19)."""
        if path == _HINT and data is not None:
            if not data.isdigit():
                raise ViolationError(f"{by} writes a hint that other readers choke on (R5): {data!r}")
            if by not in self._hint_seen or self._hint_seen[by] > int(data):
                raise ViolationError(f"{by} sets the hint back, or without a look: {data!r} (R5)")
            self._hint_seen[by] = int(data)
        elif verb == "delete" and (match := _VERSION_FILE.match(path)) is not None:
            number = int(match.group(1))
            # One that has gone may come back: its writer never had an answer, and finds an empty slot.
            member = number not in self._removed and self._raw.objects.get(path) == self._bytes.get(number)
            if member and self._hint_seen.get(by, 0) <= number:
                raise ViolationError(f"{by} deletes version {number}, which the hint may name (R19)")

    def answered(self, path: str, data: bytes | None, to: str) -> None:
        if path == _HINT:
            self._hint_seen[to] = 0 if data is None else int(data)

    def deleted(self, path: str, by: str) -> None:
        self._raw.objects.pop(path, None)
        match = _VERSION_FILE.match(path)
        if match is not None:
            self._check_deleted_version(int(match.group(1)), by)
            self._removed.add(int(match.group(1)))
        elif path.startswith("zone/plans/index/"):
            self.met["part of the plan index deleted"] += 1
        elif path == _HINT:
            raise ViolationError(f"{by} deleted the version hint")
        else:
            self._check_deleted_file(f"{self.location}/{path}", path, by)

    def _check_deleted_file(self, uri: str, path: str, by: str) -> None:
        head = self.head
        if "://" in path:
            raise ViolationError(f"{by} deleted a file by reference (R28): {path}")
        if path.startswith("_timeline/"):
            self._check_deleted_note(path, by)
            return
        if uri in self.reachable(head):
            raise ViolationError(f"{by} deleted a file that version {head.number} needs (R6, R7): {path}")
        expired = self._expired_by.get(uri)
        if expired is not None and expired.commit_id in self._lost_notes:
            self.met["deleted too early, since the note was lost"] += 1
        elif expired is not None:
            grace_ms = int(head.properties[OURS + "history.deletion-grace-ms"])
            if (
                head.number - expired.number < self.safe_distance
                or head.updated_ms - expired.updated_ms
                < grace_ms - 1  # B is a millisecond after its commit's id
            ):
                raise ViolationError(
                    f"{by} deleted a file in its grace period: version {expired.number} expired it, and"
                    f" {head.number} is {head.updated_ms - expired.updated_ms} ms later (R7): {path}"
                )
            self.met["expired file deleted"] += 1
        elif uri in self.forbidden or uri in self._dropped:
            self.met["file of a failed commit deleted"] += 1
        elif path.rpartition("/")[2][:26] >= max(
            head.properties.get(OURS + "gc-cutoff", ""), self._fence_before
        ):
            raise ViolationError(f"{by} deleted a file that is not behind the fence (R6): {path}")
        else:
            self.met["orphan deleted"] += 1

    def _check_deleted_note(self, path: str, by: str) -> None:
        if path.startswith("_timeline/clustering/") and not by.startswith(("clusterer", "vandal", "nobody")):
            raise ViolationError(f"{by} deleted an instant (R11): {path}")
        if by.startswith("vandal"):
            self.spoiled(path)

    def spoiled(self, path: str, *, damaged: bool = False) -> None:
        """Somebody deleted or damaged a file of the timeline: who leans on it may err, but for rows.

        A damaged note shows that it was there: who cannot read it waits.
        """
        if match := _NOTE.match(path):
            if damaged:
                self.damaged_notes.add(path)
            else:
                self._lost_notes.add(match.group(1))
        elif match := _INSTANT.match(path):
            self.plans.spoiled.add(match.group(1))

    def _check_deleted_version(self, number: int, by: str) -> None:
        if number > self.head.number - self.versions_kept:
            raise ViolationError(
                f"{by} deleted version {number}, and {self.head.number} is the highest of which the last"
                f" {self.versions_kept} stay (R19)"
            )
        self.met["version deleted"] += 1

    def reachable(self, member: Member) -> set[str]:
        return {
            uri
            for snapshot in member.snapshots.values()
            for uri in self._raw.files_of(snapshot["manifest-list"]).objects
        }

    def _extend(self, number: int, metadata: dict[str, Any]) -> None:
        told = metadata["properties"]
        before = self.lineage[-1] if self.lineage else None
        parent = (0, "") if before is None else (before.number, before.commit_id)
        stated = int(told[OURS + "parent-version"]), told[OURS + "parent-commit-id"]
        if stated != parent:
            raise ViolationError(f"version {number} continues {stated}, and its predecessor is {parent}")
        if told[OURS + "version"] != str(number):
            raise ViolationError(f"version {number} says that it is {told[OURS + 'version']}")
        member = self._raw.member(number, metadata)
        self.schemas.check(number, metadata)
        self.partitions.check(number, metadata)
        self.partitions.check_files(number, member.files.live)
        self.deletes.check(member)
        if before is not None and before.is_dropped and member.uuid == before.uuid:
            raise ViolationError(f"version {number} goes on in a table that was dropped (R17)")
        if before is not None and before.is_dropped:
            self._check_times(before, member)
            self.met["made again where it was dropped"] += 1
        if before is not None and member.is_dropped:
            self._check_dropped(before, member)
        elif before is not None and member.uuid == before.uuid:
            self._check_times(before, member)
            self._check_snapshots(before, member, metadata)
            self._check_fence(before, member)
            self._check_rows(before, member)
            self.plans.check(before, member)
            self.refs.check(before, member)
        elif before is not None:
            self.met["table made again"] += 1
            self._applications.clear()
            self._dropped |= self.reachable(before)
            if member.files.live:
                raise ViolationError(f"version {number} is a new table, and holds files")
        self.lineage.append(member)
        pinned = member.pinned | self._pinned_by_branches(member)
        tagged = {self._version_of(member.snapshots[key]) for key in pinned & member.snapshots.keys()}
        self._once_pinned |= {k for k, s in member.snapshots.items() if self._version_of(s) in tagged}
        self._check_live_files_exist(before, member)

    def _pinned_by_branches(self, member: Member) -> set[int]:
        """A branch pins of its lineage what is young."""
        found = set[int]()
        for at in (snapshot for _, snapshot, kind in member.refs if kind == "branch"):
            while at in member.snapshots and at not in found:
                found.add(at)
                at = member.snapshots[at].get("parent-snapshot-id") or 0
        return found

    def _check_dropped(self, before: Member, member: Member) -> None:
        """A drop is later than what it drops, and has nothing of it."""
        self._check_times(before, member)
        if member.uuid != before.uuid or member.snapshots or member.current is not None:
            raise ViolationError(f"version {member.number} drops another table, or not all of it (R17)")
        self._dropped |= self.reachable(before)
        self._fence_before = max(self._fence_before, before.properties.get(OURS + "gc-cutoff", ""))
        self.met["dropped"] += 1

    def _check_times(self, before: Member, member: Member) -> None:
        if member.updated_ms <= before.updated_ms:
            raise ViolationError(
                f"version {member.number} is not later than its predecessor (R12): {member.updated_ms} after"
                f" {before.updated_ms}"
            )

    def _check_snapshots(self, before: Member, member: Member, metadata: dict[str, Any]) -> None:
        made = [s for key, s in member.snapshots.items() if key not in before.snapshots]
        new = [s for s in made if "wap.id" not in s["summary"]]
        beside = [s for s in made if "wap.id" in s["summary"]]
        for snapshot in beside:
            self._check_append_is_pure(member.number, snapshot)
        self.staged.check(before, member, beside)
        if made and member.last_sequence != before.last_sequence + len(made):
            raise ViolationError(f"sequence numbers skip in version {member.number} (R22)")
        sequence = before.last_sequence
        gone = before.snapshots.keys() - member.snapshots.keys()
        previous = None if before.current is None else before.snapshots[before.current]
        for snapshot in new:
            operation = snapshot["summary"]["operation"]
            if self._target(before, snapshot) is not None:
                operation = "rollback"  # which `_check_rows` judges
            if previous is not None:
                if snapshot.get("parent-snapshot-id") != previous["snapshot-id"]:
                    raise ViolationError(
                        f"a snapshot of version {member.number} does not continue its parent"
                    )
                if snapshot["sequence-number"] != sequence + 1:
                    raise ViolationError(f"sequence numbers skip in version {member.number} (R22)")
                if snapshot["timestamp-ms"] <= previous["timestamp-ms"]:
                    raise ViolationError(f"snapshot times do not rise in version {member.number} (R12)")
            if operation in ("append", "overwrite"):
                self._check_append_is_pure(member.number, snapshot)
            elif operation == "replace":
                self._check_replace_keeps_rows(member.number, previous, snapshot)
            previous = snapshot
            sequence = snapshot["sequence-number"]
        logged = [entry["snapshot-id"] for entry in metadata.get("snapshot-log") or []]
        for a, b in itertools.pairwise(new):
            if a["snapshot-id"] in logged or b["snapshot-id"] not in logged:
                raise ViolationError(f"the snapshot log of version {member.number} shows A, or not B (R22)")
        if new and member.current != new[-1]["snapshot-id"]:
            raise ViolationError(f"version {member.number} does not end with its newest snapshot")
        if gone:
            self.met["snapshot expired"] += len(gone)
            self._check_expired(before, member, gone)
            for uri in self.reachable(before) - self.reachable(member):
                self._expired_by[uri] = member

    def _check_expired(self, before: Member, member: Member, gone: set[int]) -> None:
        dropped = set(before.staged.values())  # a tag of something staged may go with its version
        if gone & (before.pinned - dropped | member.pinned):
            raise ViolationError(f"version {member.number} expires a snapshot that a tag names (R7)")
        order = sorted(before.snapshots.values(), key=lambda s: s["sequence-number"])
        main, at = set(), before.current
        while at in before.snapshots:
            main.add(at)
            at = before.snapshots[at].get("parent-snapshot-id")
        # What a tag pinned stands before what is gone, and off main once its tag has gone too.
        kept = [s["snapshot-id"] not in gone for s in order if s["snapshot-id"] in main - before.pinned]
        if gone - main - self._once_pinned:
            raise ViolationError(f"version {member.number} expires a snapshot that is not on main (R7)")
        self.met["once pinned, then expired"] += bool(gone - main)
        named = member.pinned - set(
            member.staged.values()
        )  # a version may set a name, and expire what has none
        if kept != sorted(kept) and not before.pinned | named:
            raise ViolationError(f"version {member.number} expires from the middle of the lineage (R7)")
        changes = (s for s in order if s["summary"]["operation"] != "replace")
        appends = [s["snapshot-id"] for s in changes if s["snapshot-id"] in main]
        if appends and appends[-1] in gone and appends[-1] not in member.snapshots:
            newer = [
                s for k, s in member.snapshots.items() if k not in before.snapshots
                and s["summary"]["operation"] != "replace"
            ]  # fmt: skip
            if not newer:
                raise ViolationError(f"version {member.number} expires the newest change of rows (R7)")
        versions = {k: self._version_of(s) for k, s in {**before.snapshots, **member.snapshots}.items()}
        for snapshot_id in gone:
            if any(versions[k] == versions[snapshot_id] for k in member.snapshots):
                raise ViolationError(
                    f"version {member.number} expires half of what version {versions[snapshot_id]} added (R7)"
                )
        youngest = max(int(versions[k] or 0) for k in gone)
        if member.number - youngest < self.safe_distance:
            raise ViolationError(
                f"version {member.number} expires what version {youngest} added, too near to it (R12)"
            )

    def _version_of(self, snapshot: dict[str, Any]) -> str | None:
        stated: str | None = snapshot["summary"].get(OURS + "version")
        return stated

    def _check_append_is_pure(self, number: int, snapshot: dict[str, Any]) -> None:
        added = 0
        for manifest in self._raw.read(snapshot["manifest-list"]):
            if manifest["added_snapshot_id"] != snapshot["snapshot-id"]:
                continue
            statuses = {entry["status"] for entry in self._raw.read(manifest["manifest_path"])}
            if statuses != {ADDED}:
                raise ViolationError(f"the append of version {number} is not pure (R21): {statuses}")
            if manifest["content"] == 0:
                added += len(self._raw.read(manifest["manifest_path"]))
            elif snapshot["summary"]["operation"] == "append":
                raise ViolationError(f"the append of version {number} deletes rows (R21)")
        if int(snapshot["summary"].get("added-data-files", 0)) != added:
            raise ViolationError(f"the summary of version {number} counts its added files wrongly (R21)")

    def _check_replace_keeps_rows(
        self, number: int, before: dict[str, Any] | None, snapshot: dict[str, Any]
    ) -> None:
        was = SnapshotFiles({}, [], frozenset())
        if before is not None:
            was = self._raw.files_of(before["manifest-list"])
        now = self._raw.files_of(snapshot["manifest-list"])
        old, new = was.live, now.live
        change = self._change(was, now)
        if any(change.values()):
            raise ViolationError(f"a replace of version {number} changes rows: {+change}, {-change}")
        removed, put = old.keys() - new.keys(), new.keys() - old.keys()
        self.schemas.check_replace(number, removed, put, self.rows)
        self.partitions.check_replace(number, removed, put, self.rows)

    def _change(self, old: SnapshotFiles, new: SnapshotFiles) -> Counter[int]:
        """Return how often each row is live in one snapshot more than in another."""
        changed = self.deletes.changed(old, new)
        change = self.deletes.live_rows(changed & new.live.keys(), new, self.rows)
        change.subtract(self.deletes.live_rows(changed & old.live.keys(), old, self.rows))
        return change

    def _check_fence(self, before: Member, member: Member) -> None:
        """No version adds a file whose id is below the cutoff of the version before (R6)."""
        cutoff = before.properties.get(OURS + "gc-cutoff", "")
        if member.properties.get(OURS + "gc-cutoff", "") < cutoff:
            raise ViolationError(f"version {member.number} lowers the fence (R6)")
        staged = {uri for at in before.staged.values() for uri in self.staged.own_files(before.snapshots[at])}
        target = self._target(before, member.snapshots.get(member.current or 0))
        back = frozenset() if target is None else target.objects
        for uri in member.files.objects - before.files.objects - staged - back:
            if re.match(r"[0-7][0-9A-Z]{25}-", name := uri.rpartition("/")[2]) and name[:26] < cutoff:
                raise ViolationError(f"version {member.number} adds a file from below the fence (R6): {uri}")

    # ------------------------------------------------------------------------------------ the rows

    def _check_files(self, before: Member, member: Member) -> None:
        """A version adds files of its own table alone, and none of a commit that was told to have failed."""
        old, new = before.files.live, member.files.live
        removed, added = old.keys() - new.keys(), new.keys() - old.keys()
        if removed or added:
            self.deletes.check_removed(before, member, removed)
        for uri in added:
            if uri in self.forbidden:
                raise ViolationError(f"version {member.number} adds a file of {self.forbidden[uri]}: {uri}")
            if self._tables[uri] != member.uuid:
                raise ViolationError(f"version {member.number} adds a file of the dropped table (R17): {uri}")
        if removed:
            self.met["replace committed"] += 1

    def _check_rows(self, before: Member, member: Member) -> None:
        """A version adds whole batches, each once and in order, and moves all other rows without change."""
        target = self._target(before, member.snapshots.get(member.current or 0))
        if target is not None and member.current not in before.snapshots:
            self._check_rolled_back(before, member, target)
            return
        self._check_files(before, member)
        change = self._change(before.files, member.files)
        gained = sorted(row for row, count in change.items() if count > 0)
        works = {self.owner[row] for row in gained}
        lost = sorted(row for row, count in change.items() for _ in range(-count))
        if lost != (deleted := sorted(row for work in works for row in work.deletes)):
            raise ViolationError(
                f"version {member.number} loses rows {self._whose(lost)}, and {self._whose(deleted)} of"
                f" {[str(work) for work in works]} are to leave"
            )
        for work in sorted(works, key=str):
            if work in self.never:
                raise ViolationError(f"version {member.number} adds {work}, which was discarded (R27)")
            if (member.uuid, work) in self.committed:
                raise ViolationError(
                    f"version {member.number} adds {work}, which version"
                    f" {self.committed[member.uuid, work]} has added"
                )
        if any(count > 1 for count in change.values()) or gained != sorted(
            row for work in works for row in work.rows
        ):
            raise ViolationError(
                f"version {member.number} adds rows twice or in part: {self._whose(gained)}; expected all of"
                f" {[str(work) for work in works]}"
            )
        for work in works:
            self.committed[member.uuid, work] = member.number
        self._check_transactions(before, member, [work for work in works if work.query is not None])

    def _target(self, before: Member, snapshot: dict[str, Any] | None) -> SnapshotFiles | None:
        """Return what the snapshot has whose content a rollback gives to main again; None for others."""
        stated = None if snapshot is None else snapshot["summary"].get(OURS + "rolled-back-to")
        target = before.snapshots.get(int(stated or 0))
        return None if target is None else self._raw.files_of(target["manifest-list"])

    def _check_rolled_back(self, before: Member, member: Member, target: SnapshotFiles) -> None:
        """A rollback has what its target has, each file as old as it was; no application forgets a batch."""
        if member.files.live != target.live:
            raise ViolationError(f"version {member.number} has not the content that it was set back to")
        if member.properties.get(OURS + "rolled-back") != str(member.last_sequence):
            raise ViolationError(f"version {member.number} does not say that files are live again (R7)")
        self._left_on_purpose.update(self._change(before.files, member.files))
        self._check_transactions(before, member, [])
        self.met["rolled back"] += 1
        self.met["a file is live again"] += bool(member.files.live.keys() - before.files.live.keys())

    def _check_transactions(self, before: Member, member: Member, works: list[Work]) -> None:
        changed = {
            app
            for app in before.transactions.keys() | member.transactions.keys()
            if before.transactions.get(app) != member.transactions.get(app)
        }
        if changed != {work.app for work in works}:
            raise ViolationError(
                f"version {member.number} changes the state of {sorted(changed)} and adds batches of"
                f" {[str(work) for work in works]} (R16)"
            )
        for work in works:
            known = self._applications.setdefault(work.app, _Application(batch=self._first_batch(work)))
            state = member.transactions[work.app]
            if (state["query_id"], state["batch"]) != (work.query, work.batch):
                raise ViolationError(f"version {member.number} adds {work} and states {state} (R16)")
            if known.query not in (None, work.query):
                if (work.app, work.query, known.query) not in self.takeovers:
                    raise ViolationError(
                        f"version {member.number} adds {work}, and the application ran as {known.query} (R16)"
                    )
                self.met["takeover"] += 1
            elif not self._follows(work, known.batch):
                raise ViolationError(f"version {member.number} adds {work} after batch {known.batch} (R16)")
            if state["run_id"] in known.former_runs:
                raise ViolationError(
                    f"version {member.number} is a commit of run {state['run_id']}, which run {known.run} had"
                    " superseded (R16)"
                )
            if known.run and state["run_id"] != known.run:
                known.former_runs.add(known.run)
                self.met["another run took over"] += 1
            known.query, known.batch, known.run = work.query, work.batch, state["run_id"]

    def _follows(self, work: Work, batch: int) -> bool:
        """Return whether a work may be the next of its application after a batch."""
        return work.batch == batch + 1

    def _first_batch(self, work: Work) -> int:
        """What the batch before an application's first must be: a table made again knows no application."""
        return -1 if self.lineage[0].uuid == self.head.uuid else work.batch - 1

    def _exists(self, uri: str) -> bool:
        return uri.removeprefix(f"{self.location}/") in self._raw.objects

    def _check_live_files_exist(self, before: Member | None, member: Member) -> None:
        new = member.files.objects if before is None else member.files.objects - before.files.objects
        for uri in new:
            if uri.removeprefix(f"{self.location}/") not in self._raw.objects:
                raise ViolationError(f"version {member.number} refers to a file that does not exist: {uri}")

    def check_the_end(self) -> None:
        """What is live in the end is what was committed, each row once."""
        if self.head.is_dropped:
            raise ViolationError("in the end nobody can make a table where one was dropped (R17)")
        files = self.head.files
        live = self.deletes.live_rows(files.live, files, self.rows)
        works = [work for uuid, work in self.committed if uuid == self.head.uuid]
        wanted = Counter(row for work in works for row in work.rows)
        wanted.subtract(row for work in works for row in work.deletes)
        wanted.update(self._left_on_purpose)
        wanted = +wanted
        if live != wanted:
            raise ViolationError(f"in the end {live} is live, and {wanted} was committed")

    def _whose(self, rows: list[int]) -> list[str]:
        return sorted({str(self.owner[row]) for row in rows})

    # ------------------------------------------------------------------------- what actors declare

    def wrote(
        self, uri: str, rows: tuple[int, ...], table_uuid: str, columns: frozenset[str], spec_id: int = 0
    ) -> None:
        self.rows[uri] = rows
        self.partitions.written_under[uri] = spec_id
        self.schemas.columns[uri] = columns
        self._tables[uri] = table_uuid

    def acknowledged(self, work: Work | None, outputs: Iterable[str], version: int) -> None:
        """A commit was acknowledged: it stands in the lineage, at that version."""
        if not self.has_member(version):
            raise ViolationError(f"version {version} was acknowledged and does not exist")
        outputs = tuple(outputs)
        member = self.member_with(work, version, outputs)
        if work is not None and self.committed.get((member.uuid, work)) != version:
            raise ViolationError(
                f"{work} was acknowledged at version {version}, and is in"
                f" {self.committed.get((member.uuid, work))}"
            )
        live = member.files.live
        for uri in outputs:
            if uri not in live:
                raise ViolationError(f"a file was acknowledged at version {version} and is not live: {uri}")
        self.met["acknowledged"] += 1

    def skipped(self, work: Work, version: int) -> None:
        """A batch was skipped as committed already: it stands in the lineage."""
        versions = [at for (_, each), at in self.committed.items() if each == work]
        if not versions:
            raise ViolationError(f"{work} was skipped as committed, and is nowhere (R16)")
        if min(versions) > version:
            raise ViolationError(f"{work} was skipped at version {version}: before it was committed")
        self.met["batch skipped"] += 1

    def gave_up_nothing(self, plan: str, version: int) -> None:
        """An executor whose groups were all dropped was told that it committed: so it withdrew the plan."""
        if plan not in self.member(version - 1).pending:
            raise ViolationError(f"version {version} was acknowledged to an executor, and does nothing (R13)")

    def failed(self, outputs: Iterable[str], said: str) -> None:
        """A commit was declared failed: its files are not live, and never will be."""
        for uri in outputs:
            if any(uri in member.files.live for member in self.lineage if member.uuid == self.head.uuid):
                raise ViolationError(f"{said}, and its file is live: {uri}")
            self.forbidden[uri] = said
        self.met[f"failed: {said.split(':')[0]}"] += 1
