"""What the suites of expiry and orphan removal share: tables whose data files exist, and a look at each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyiceberg.manifest import DataFile, ManifestEntryStatus

from tests.unit.timeline.world import Clock, Lake
from timeline import properties
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.errors import StoreUnavailableError
from timeline.retention.expired import pending_notes, read_expiry_notes
from timeline.stores import MemoryStore
from timeline.table import Committed, Table
from timeline.versions.head import Head

MINUTE_MS = 60_000
BRIEF = {
    properties.MAX_SNAPSHOT_AGE_MS: str(30 * MINUTE_MS),
    properties.MIN_SNAPSHOTS_TO_KEEP: "1",
    properties.DELETION_GRACE_MS: str(30 * MINUTE_MS),
}
"""Snapshots leave as soon as a hundred later versions exist, and their files after a hundred more."""


class Shore(Lake):
    """A lake whose data files are objects of the store, and whose time runs a minute a commit."""

    def __init__(
        self, table_properties: Mapping[str, str] = BRIEF, clock: Clock | None = None, seed: int = 0
    ) -> None:
        super().__init__(table_properties=table_properties, clock=clock, seed=seed)

    def file(self, *args: object, **kwargs: object) -> DataFile:
        file = super().file(*args, **kwargs)  # type: ignore[arg-type]
        self.objects.overwrite(self.store.relative(file.file_path), b"x" * 10)
        return file

    @property
    def objects(self) -> MemoryStore:
        """The same objects, looked at without being counted or failed."""
        return MemoryStore(self.name)

    def append(self, table: Table | None = None) -> Committed:
        return self._commit(table or self.table, [self.file()], [])

    def fill(self, table: Table | None = None) -> Committed:
        """Append a file, and merge it with the smallest live one."""
        table = table or self.table
        new = self.file()
        small = [file.location for file in table.head.files_below(5000)][:1]
        rows = [row for location in [new.file_path, *small] for row in self.rows[location]]
        merged = self.file(rows, size=1000 * len(rows) // 10)
        return self._commit(table, [new], [Replace(frozenset([new.file_path, *small]), (merged,))])

    def _commit(self, table: Table, files: list[DataFile], replaces: list[Replace]) -> Committed:
        self.clock.now_ms += MINUTE_MS
        committed = table.commit([Append(tuple(files)), *replaces], open_below_bytes=5000)
        assert isinstance(committed, Committed)
        return committed

    def pass_versions(self, count: int, table: Table | None = None) -> list[Committed]:
        """Commit so many versions that change no data."""
        passed = []
        for _ in range(count):
            self.clock.now_ms += MINUTE_MS
            committed = (table or self.table).commit([SetProperties({"a": "b"})])
            assert isinstance(committed, Committed)
            passed.append(committed)
        return passed

    def paths(self) -> set[str]:
        return {listed.path for listed in self.objects.list_below("")}

    def needed(self, head: Head | None = None) -> set[str]:
        """The path of every file that a snapshot of the head needs."""
        return needed(self.objects, head or self.open().head)

    def in_grace(self) -> set[str]:
        """The path of every file that an expired snapshot needs, while the note of its expiry is there."""
        head = self.open().head
        found = set[str]()
        notes, _ = read_expiry_notes(self.objects, pending_notes(self.objects))
        for note in notes.values():
            for record in note.gone:
                found |= reached(self.objects, head, record.manifest_list)
        return found

    def check_nothing_is_missing(self) -> None:
        assert not self.needed() - self.paths()

    def leftover(self) -> set[str]:
        """Files below data/ and metadata/m/ that neither a snapshot nor a pending deletion needs."""
        files = {path for path in self.paths() if path.startswith(("data/", "metadata/m/"))}
        return files - self.needed() - self.in_grace()


def needed(store: MemoryStore, head: Head) -> set[str]:
    return set().union(*(reached(store, head, s.manifest_list) for s in head.metadata.snapshots))


def reached(store: MemoryStore, head: Head, manifest_list: str) -> set[str]:
    found = {store.relative(manifest_list)}
    for manifest in head.manifest_files.find_list(manifest_list) or ():
        found.add(store.relative(manifest.manifest_path))
        for entry in head.manifest_files.find_entries(manifest) or ():
            if entry.status != ManifestEntryStatus.DELETED:
                found.add(store.relative(entry.data_file.file_path))
    return found


class Saved:
    """A table's objects as they were, to be put back again and again."""

    def __init__(self, shore: Shore) -> None:
        self._contents = shore.objects._contents
        self._objects = dict(self._contents.objects)

    def restore(self) -> None:
        self._contents.objects = dict(self._objects)


def fail_at(shore: Shore, request: int, side: str, do: Callable[[], object]) -> bool:
    """Do it with all requests from this one on failing, on the way there or back; False if it got through."""
    count = 0

    def fail(verb: str, path: str) -> None:
        nonlocal count
        count += 1
        if count > request:
            raise ConnectionError("gone")

    def fail_after(verb: str, path: str) -> None:
        if count == request + 1:
            raise ConnectionError("gone")

    def enter(verb: str, path: str) -> None:
        nonlocal count
        count += 1
        if count > request + 1:
            raise ConnectionError("gone")

    shore.store.before, shore.store.after = (fail, None) if side == "lost" else (enter, fail_after)
    try:
        do()
    except StoreUnavailableError:
        return True
    finally:
        shore.store.before = shore.store.after = None
    return False
