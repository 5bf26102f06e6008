"""Decide which snapshots expire from the metadata (R7), and which version files are deleted (R19). Pure.

Ages are differences of times within the table's own lineage, never against a local clock (R12).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot

from timeline import properties
from timeline.versions.past import SOURCE_SNAPSHOT_ID
from timeline.versions.version_file import stated_by
from timeline.versions.work_items import STAGED_TAG_PREFIX

VERSIONS_ALWAYS_KEPT = 100
VERSIONS_MOST = 900
VERSION_AGE_MS = 3_600_000
SAFE_DISTANCE = 100
"""Nothing expires, and no file of what expired goes, until so many later versions exist, or commits in a
catalog: a writer whose clock is a day ahead must not expire everything.
"""
MAINTAIN_EVERY = 20
"""Snapshots expire, and files are deleted, at every so many versions: most commits do neither."""
_MEMORIES = ("flink.", "kafka.connect.", "spark.sql.streaming.")
"""What other engines remember of their own commits, in the summaries of snapshots, begins so."""
_EXPIRE_AT_MOST = 200
"""Snapshots that one version expires, so that the deletion of what they reached is bounded too."""

_SLACK = 20
"""When snapshots exceed their greatest number, a twentieth more leaves with them: so most commits expire
none.
"""


@dataclass(frozen=True, slots=True)
class Expiry:
    """The snapshots that a commit removes from the metadata. Their files stay; deleting is another act."""

    snapshot_ids: frozenset[int]
    cut_by_number: bool
    """The bound on their number removed snapshots that are younger than the age that the table promises."""


NOTHING_EXPIRED = Expiry(frozenset(), False)


def snapshots_to_expire(
    snapshots: Sequence[Snapshot],
    refs: Mapping[str, SnapshotRef],
    table_properties: Mapping[str, str],
    version: int,
    now_ms: int,
) -> Expiry:
    """Return which snapshots version `version`, committed at `now_ms` of the table's time, leaves out.

    Only a prefix of main goes, commit by commit, so that a fill's append stays as long as its replace, and
    what a branch or tag pinned of an earlier one; snapshots that one pins, or that another engine has beside
    main, stay where they are; main's newest snapshot that changed rows stays, since a stream reader's offset
    names it, and so does the newest with the memory of each other engine, which walks main to find it, and
    one by which another engine has brought to main what a tag still holds as staged (R27). `snapshots` are in
    the order of their commits. One too many takes a twentieth of the greatest number with it. At most 200 go
    at once. What is staged beside main does not count: it would make main's history shorter while it waits.

    In a catalog, where numbers have gaps, the distance is in commits of main, of any writer.
    """
    main = _find_main(snapshots, refs)
    if not main:
        return NOTHING_EXPIRED
    staged = {ref.snapshot_id for name, ref in refs.items() if name.startswith(STAGED_TAG_PREFIX)}
    picked = (s.snapshot_id for s in main if _source_of(s) in staged)
    needed = {next((s for s in main if _changes_rows(s)), main[0]).snapshot_id, *find_memories(main), *picked}
    places: dict[Hashable, int] = {}
    for snapshot in main:
        places.setdefault(commit_of(snapshot), len(places))
    max_age = properties.number(table_properties, properties.MAX_SNAPSHOT_AGE_MS)
    most = max(properties.number(table_properties, properties.MAX_SNAPSHOTS), 1)
    least = max(properties.number(table_properties, properties.MIN_SNAPSHOTS_TO_KEEP), 1)
    expirable: frozenset[int] = frozenset()
    expired: set[int] = set()
    cut_by_number = False
    counted = len(snapshots) - len(staged.difference(s.snapshot_id for s in main))
    for group in _group_by_commit(snapshots):
        if not snapshot_version(group[0]) and commit_of(group[0]) not in places:
            continue  # another engine has it beside main
        kept = counted - len(expired)
        old = now_ms - group[-1].timestamp_ms > max_age and kept - len(group) >= least
        too_many = kept > (most - most // _SLACK if expired else most)
        near = _later_commits(group[-1], version, places) < SAFE_DISTANCE
        enough = len(expired) + len(group) > _EXPIRE_AT_MOST
        if near or enough or any(s.snapshot_id in needed for s in group) or not (old or too_many):
            break
        expirable = expirable or _find_unpinned(snapshots, main, refs, max_age, least, now_ms)
        # A tag on a replace keeps its append too (R7).
        if all(s.snapshot_id in expirable for s in group):
            cut_by_number |= not old
            expired.update(s.snapshot_id for s in group)
    return Expiry(frozenset(expired), cut_by_number)


def snapshot_version(snapshot: Snapshot) -> int:
    """Return the number of the version that added a snapshot; 0 where its summary does not say."""
    return int(stated_by(snapshot).get(properties.VERSION, 0))


def number_of(snapshot: Snapshot) -> int:
    """Return the version of a snapshot; of another engine's in a catalog its sequence number."""
    return snapshot_version(snapshot) or snapshot.sequence_number or 0


def commit_of(snapshot: Snapshot) -> Hashable:
    """Return what the snapshots of one commit have in common. A commit of another engine has one."""
    stated = stated_by(snapshot)
    return stated.get(properties.COMMIT_ID) or stated.get(properties.VERSION) or snapshot.snapshot_id


def versions_to_delete(
    listed: Iterable[int],
    log: Mapping[int, int],
    highest: int,
    now_ms: int,
    held: AbstractSet[int] = frozenset(),
) -> list[int]:
    """Return the version files to delete, oldest first: beyond the last 100, those older than an hour; and
    all beyond 900. Those that are `held`, since mirrors name them, stay.

    `log` has the time of each version in the head's metadata-log; a version that is missing there is old.
    Only numbers below the listed highest are returned.
    """
    return [
        number
        for number in sorted(listed)
        if number <= highest - VERSIONS_ALWAYS_KEPT
        and number not in held
        and (number <= highest - VERSIONS_MOST or now_ms - log.get(number, 0) > VERSION_AGE_MS)
    ]


def lineage(tip: int | None, snapshots: Iterable[Snapshot]) -> list[Snapshot]:
    """Return a snapshot and its ancestors as far as the metadata holds them, newest first.

    Ends on damaged metadata too, where an ancestor names its descendant as its parent.
    """
    found: list[Snapshot] = []
    by_id = {snapshot.snapshot_id: snapshot for snapshot in snapshots}
    while tip is not None and tip in by_id and len(found) < len(by_id):
        found.append(by_id[tip])
        tip = by_id[tip].parent_snapshot_id
    return found


def cut_off(snapshots: Iterable[Snapshot], main: Sequence[Snapshot]) -> list[Snapshot]:
    """Return this sink's snapshots from before main's lineage, which has the newest first: those that a tag
    kept when their neighbours expired.
    """
    start = main[-1].sequence_number or 0 if main else 0
    return [s for s in snapshots if snapshot_version(s) and (s.sequence_number or 0) < start]


def _group_by_commit(snapshots: Sequence[Snapshot]) -> Iterable[Sequence[Snapshot]]:
    start = 0
    for end in range(1, len(snapshots) + 1):
        if end == len(snapshots) or commit_of(snapshots[end]) != commit_of(snapshots[start]):
            yield snapshots[start:end]
            start = end


def _find_main(snapshots: Iterable[Snapshot], refs: Mapping[str, SnapshotRef]) -> list[Snapshot]:
    ref = refs.get("main")
    return lineage(None if ref is None else ref.snapshot_id, snapshots)


def _later_commits(snapshot: Snapshot, version: int, places: Mapping[Hashable, int]) -> int:
    """Return how many commits are later than a snapshot's: by its version, or by its place on main."""
    stated = stated_by(snapshot)
    if properties.VERSION in stated and properties.COMMIT_ID not in stated:
        return version - int(stated[properties.VERSION])
    return places.get(commit_of(snapshot), len(places))


def find_memories(main: Sequence[Snapshot]) -> list[int]:
    """Return the newest snapshot that each other engine has left its memory in."""
    theirs = [s for s in main if s.summary is not None and not snapshot_version(s)]
    newest = (
        next((s for s in theirs if any(key.startswith(memory) for key in stated_by(s))), None)
        for memory in _MEMORIES
    )
    return [s.snapshot_id for s in newest if s is not None]


def _source_of(snapshot: Snapshot) -> int | None:
    text = stated_by(snapshot).get(SOURCE_SNAPSHOT_ID, "")
    return int(text) if text.isdecimal() else None


def _changes_rows(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and snapshot.summary.operation != Operation.REPLACE


def _find_unpinned(
    snapshots: Sequence[Snapshot],
    main: Sequence[Snapshot],
    refs: Mapping[str, SnapshotRef],
    max_age: int,
    least: int,
    now_ms: int,
) -> frozenset[int]:
    """Return the snapshots of main's lineage, and this sink's from before it, that no tag and no other
    branch pins.

    A branch pins of its lineage what is young, and its newest few, as Iceberg's own expiry has it.
    """
    pinned = set[int]()
    for ref in (ref for name, ref in refs.items() if name != "main"):
        pinned.add(ref.snapshot_id)
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH:
            age, few = ref.max_snapshot_age_ms or max_age, ref.min_snapshots_to_keep or least
            for position, snapshot in enumerate(lineage(ref.snapshot_id, snapshots)):
                if position >= few and now_ms - snapshot.timestamp_ms > age:
                    break
                pinned.add(snapshot.snapshot_id)
    return frozenset(s.snapshot_id for s in [*cut_off(snapshots, main), *main]) - pinned
