"""What of wanted keys is left below one table's location: rows, deletes, hashes, bounds. Reads every file."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import IdentityTransform

from streaming_sink.removal.bounds import bounds_of_missing_files
from streaming_sink.removal.holders import HeldFiles, How, read_holders
from streaming_sink.removal.matching import RowMatcher
from streaming_sink.removal.places import is_elsewhere, location_of, path_of
from streaming_sink.tasks.errors import DataFileError, UnusableRunError
from streaming_sink.tasks.files.delete_files import read_position_deletes
from streaming_sink.tasks.key_index.open_runs import OpenRuns
from streaming_sink.tasks.keys.probing import KeyProbe
from streaming_sink.tasks.keys.scanning import TABLE_SALT, KeyColumns, salted, scope_salt
from streaming_sink.tasks.keys.tombstones import read_tombstones
from timeline import names
from timeline.stores.local import is_unfinished
from timeline.table import Table
from timeline.versions.head import Head
from timeline.versions.keys import PARTITION_SCOPE, key_of

READERS = 4
"""Files that are read at a time."""
_PARQUET = ".parquet"
_TOMBSTONES = "-tombstones.parquet"
_NOT_PARQUET = (".orc", ".avro")
"""Data files of other engines end so, below the table's folder for these."""


class LeftoverKind(str, Enum):
    """What is left of a key, worst first."""

    LIVE = "row-live"
    DELETED = "row-deleted"
    """A position-delete file deletes the row, and it is in the bytes of a live file."""
    REF = "row-tagged"
    STAGED = "row-staged"
    HISTORY = "row-in-history"
    EXPIRED = "row-expired"
    UNDELIVERED = "row-undelivered"
    """An outbox names the file."""
    ORPHAN = "row-orphaned"
    FOREIGN = "row-foreign"
    REFERENCE = "row-by-reference"
    """The table has, or had, the file by reference (R28)."""
    DELETE_FILE = "key-in-deletes"
    INDEX = "key-in-index"
    BOUNDS = "key-in-bounds"
    NOT_CHECKED = "not-checked"
    TOMBSTONE = "key-in-tombstones"


_BY_HOLDER = {
    How.REF: LeftoverKind.REF,
    How.STAGED: LeftoverKind.STAGED,
    How.HISTORY: LeftoverKind.HISTORY,
    How.EXPIRED: LeftoverKind.EXPIRED,
}


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """One place where something of a key is left."""

    kind: LeftoverKind
    path: str
    """Of the file, below the table's location; of a file by reference its whole name."""
    rows: int = 0
    """Rows, or hashes."""
    holders: tuple[str, ...] = ()
    """What keeps the file, for people; why it was not checked."""
    newest: int = 0
    """The sequence number of the newest snapshot in the metadata that has the file; 0 for none."""


@dataclass
class SeenFiles:
    """What files hold of the keys, by path: none of them ever changes."""

    positions: dict[str, np.ndarray] = field(default_factory=dict)
    hashes: dict[str, int] = field(default_factory=dict)
    """Runs of the key index → hashes of the keys."""
    bounds: dict[str, list[str]] = field(default_factory=dict)
    """Manifests → the files of which they state a key as a bound."""


@dataclass
class Leftovers:
    """What is left of the keys below one table's location."""

    table: Table
    role: str
    """What the table is to the one that was asked about: "table", "quarantine" or "change log"."""
    found: list[Leftover] = field(default_factory=list)
    live: dict[str, np.ndarray] = field(default_factory=dict)
    """Location of a live data file, as manifests spell it → the positions of its live rows of the keys."""
    with_rows: set[str] = field(default_factory=set)
    """Locations of all files that have such rows, as the store spells them."""
    held: HeldFiles = field(default_factory=HeldFiles)
    files: int = 0
    """Files with rows that were read."""

    def of(self, *kinds: LeftoverKind) -> list[Leftover]:
        return [each for each in self.found if each.kind in kinds]


def find_leftovers(
    table: Table,
    role: str,
    matcher: RowMatcher,
    own_key: KeyColumns | None,
    undelivered: Collection[str] = (),
    seen: SeenFiles | None = None,
) -> Leftovers:
    """Look into every file below a table's location for wanted keys.

    `own_key` are the columns of the table's key, where the wanted keys are of it: only then its index and its
    files of deleted keys can be looked up. `undelivered`: locations that an outbox names. Each file with rows
    is read: its columns of the key; once, where calls share `seen`. Raises StoreUnavailableError.
    """
    held = read_holders(table)
    # Listed after the metadata was read, so that no file which it names was written later.
    paths = dict.fromkeys(sorted(listed.path for listed in table.store.list_below("")))
    found = Leftovers(table, role, held=held)
    seen = SeenFiles() if seen is None else seen
    rows = [path for path in paths if path.endswith(_PARQUET) and not path.endswith(_TOMBSTONES)]
    rows += [it for it in paths if it.startswith(f"{names.DATA_FOLDER}/") and it.endswith(_NOT_PARQUET)]
    rows += [path_of(table.store, it) for it in sorted(held.known)]  # by any name
    rows = list(dict.fromkeys(rows))
    found.files, specs = len(rows), table.head.metadata.specs()

    def in_path(path: str) -> Collection[int]:
        known = held.known.get(location_of(table.store, path))
        if known is None or known.content != DataFileContent.DATA:
            return ()
        spec = specs.get(known.spec_id)  # another engine removes those that expired snapshots alone have
        return table.head.schema.field_ids if spec is None else _identity_sources(spec)

    def look(path: str) -> list[Leftover]:
        if path.endswith(_NOT_PARQUET):
            why = "it is no Parquet file; have the engine that wrote it rewrite it as one"
            return [Leftover(kind=LeftoverKind.NOT_CHECKED, path=path, holders=(why,))]
        try:
            if path not in seen.positions:
                seen.positions[path] = matcher.find(table.store, path, in_path(path))
            return _in_file(found, path, seen.positions[path], undelivered)
        except FileNotFoundError:
            if not held.of(location_of(table.store, path), How.CURRENT):
                return []  # deleted since; the doctor's other checks report it where a snapshot needs it
            why = "the newest version needs it, and it is missing; restore it from a copy"
            return [Leftover(kind=LeftoverKind.NOT_CHECKED, path=path, holders=(why,))]
        except DataFileError as unreadable:
            return [Leftover(kind=LeftoverKind.NOT_CHECKED, path=path, holders=(str(unreadable),))]

    def look_into(some: Collection[str]) -> Iterator[Leftover]:
        with ThreadPoolExecutor(READERS, thread_name_prefix="gone") as pool:
            for leftovers in pool.map(look, [path for path in rows if path in some]):
                yield from leftovers
        if own_key is not None:
            stones = [path for path in some if path.endswith(_TOMBSTONES)]
            yield from _in_tombstones(table, stones, matcher, _salts(held, table.head))
            runs = [path for path in some if names.key_run_id(path)]
            yield from _in_index(table, runs, matcher, own_key, seen.hashes)

    found.found += look_into(dict.fromkeys([*paths, *rows]))
    there = paths.keys() | set(filter(is_elsewhere, rows))
    for path, count in bounds_of_missing_files(table.store, there, matcher, seen.bounds):
        newest = held.newest.get(table.store.uri(path), 0)
        found.found.append(Leftover(kind=LeftoverKind.BOUNDS, path=path, rows=count, newest=newest))
    # Beside a stream, what was being written in the first look is whole in the second, or has its name.
    unread = dict.fromkeys(each.path for each in found.found if each.kind is LeftoverKind.NOT_CHECKED)
    found.found = [each for each in found.found if each.path not in unread] + list(look_into(unread))
    unfinished = [path for path in paths if is_unfinished(path)]
    there = {listed.path for listed in table.store.list_below("")} if unfinished else set()
    for path in unfinished:
        if path in there:
            why = "a create that was cut off, or is in progress"
            found.found.append(Leftover(kind=LeftoverKind.NOT_CHECKED, path=path, holders=(why,)))
    return found


def _identity_sources(spec: PartitionSpec) -> set[int]:
    """Return the ids of the columns whose values are partitions, so that a file may have them in its path."""
    return {it.source_id for it in spec.fields if isinstance(it.transform, IdentityTransform)}


def _in_file(
    left: Leftovers, path: str, positions: np.ndarray, undelivered: Collection[str]
) -> list[Leftover]:
    if not len(positions):
        return []
    table, held, location = left.table, left.held, location_of(left.table.store, path)
    left.with_rows.add(location)
    known, newest = held.known.get(location), held.newest.get(location, 0)
    if known is not None and known.content != DataFileContent.DATA:
        return [Leftover(kind=LeftoverKind.DELETE_FILE, path=path, rows=len(positions))]
    found = []
    if held.of(location, How.CURRENT) and known is not None:
        deletes = [each.location for each in table.head.deletes_of(known)]
        gone = np.isin(positions, read_position_deletes(table.store, deletes, known.location))
        if not gone.all():
            left.live[known.location] = positions[~gone]
            found.append(Leftover(kind=LeftoverKind.LIVE, path=path, rows=int((~gone).sum())))
        if gone.any():
            found.append(Leftover(kind=LeftoverKind.DELETED, path=path, rows=int(gone.sum())))
    for how, kind in _BY_HOLDER.items():
        if names_of := held.of(location, how):
            if how in (How.HISTORY, How.EXPIRED) and found:
                break  # an older snapshot of a file that is live, or is kept otherwise
            found.append(
                Leftover(kind=kind, path=path, rows=len(positions), holders=tuple(names_of), newest=newest)
            )
    if path == location:
        found.append(Leftover(kind=LeftoverKind.REFERENCE, path=path, rows=len(positions)))
    if found:
        return found
    if location in undelivered:
        kind = LeftoverKind.UNDELIVERED
    else:
        kind = LeftoverKind.FOREIGN if names.written_id(path) is None else LeftoverKind.ORPHAN
    return [Leftover(kind=kind, path=path, rows=len(positions))]


def _salts(held: HeldFiles, head: Head) -> set[bytes]:
    """Return the scopes in which keys of the table are unique, of all partitions that snapshots know."""
    key = key_of(head.properties)
    in_partitions = key is not None and key.scope == PARTITION_SCOPE
    return {scope_salt(in_partitions, file.partition) for file in held.known.values()} or {TABLE_SALT}


def _probe(matcher: RowMatcher, salts: Iterable[bytes]) -> KeyProbe:
    hashes = [salted(matcher.hashes, salt) for salt in salts]
    return KeyProbe(np.concatenate([np.empty((0, 2), np.uint64), *hashes]))


def _in_tombstones(
    table: Table, paths: list[str], matcher: RowMatcher, salts: Collection[bytes]
) -> Iterator[Leftover]:
    probe = _probe(matcher, salts)
    for path in paths:
        try:
            hashes = read_tombstones(table.store, table.store.uri(path)).hashes
        except DataFileError as unreadable:
            yield Leftover(kind=LeftoverKind.NOT_CHECKED, path=path, holders=(str(unreadable),))
            continue
        if found := len(np.unique(probe.match_rows(hashes)[0])):
            yield Leftover(kind=LeftoverKind.TOMBSTONE, path=path, rows=found)


def _in_index(
    table: Table, paths: list[str], matcher: RowMatcher, columns: KeyColumns, seen: dict[str, int]
) -> Iterator[Leftover]:
    folder = names.key_run_folder(columns.digest)
    # Copies of runs that an object store sends are removed with the folder, and not left on this machine.
    with tempfile.TemporaryDirectory(prefix="streaming-sink-gone-") as copies:
        runs = OpenRuns(copies)
        for path in paths:
            try:
                if not path.startswith(f"{folder}/"):
                    raise UnusableRunError("it is of another key")
                if path not in seen:
                    run = runs.open(table.store, path, columns.digest)
                    _, rows = run.find(_probe(matcher, run.footer.files.scopes))
                    seen[path] = len(rows.indexes)
                    runs.discard(table.store, path)
            except FileNotFoundError:
                continue  # deleted since
            except UnusableRunError as unreadable:
                yield Leftover(kind=LeftoverKind.NOT_CHECKED, path=path, holders=(str(unreadable),))
                continue
            if seen[path]:
                yield Leftover(kind=LeftoverKind.INDEX, path=path, rows=seen[path])
