"""What these suites share: a clock that tests move, a store that fails on cue, files that know their rows."""

from __future__ import annotations

import itertools
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField

from timeline import names, properties
from timeline.changes.changes import Replace
from timeline.clock import Environment
from timeline.commit.attempts import Candidate
from timeline.commit.log import Standing
from timeline.commit.publish import publish_version
from timeline.commit.version_log import VersionLog
from timeline.drafts import succession, summaries
from timeline.errors import StoreUnavailableError
from timeline.manifests import entries, manifest_format, manifests
from timeline.manifests.avro import AvroFormat
from timeline.manifests.entries import DeleteFile, position_deletes, shared_deletes
from timeline.stores import Created, CreateOutcome, Exists, Listed, MemoryStore, Store, Stored, Unknown
from timeline.table import Table
from timeline.versions.head import Head
from timeline.versions.version_file import Version, encode_metadata, parse_version

NOON = 1_750_000_000_000
DAY_MS = 24 * 3600 * 1000

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "p", IntegerType(), required=False),
)
BY_P = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="p"))

_names = itertools.count(1)


class Clock:
    """A wall clock that stands still until a test moves it, and a stopwatch that only sleeping moves."""

    def __init__(self, now_ms: int = NOON) -> None:
        self.now_ms = now_ms
        self.seconds = 0.0
        self.sleeps: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.seconds += seconds

    def environment(self, seed: int = 0) -> Environment:
        return Environment(lambda: self.now_ms, lambda: self.seconds, self.sleep, random.Random(seed))


class FaultyStore(MemoryStore):
    """A memory store that counts requests, and whose version files are created, read and listed by script.

    Each request consumes one entry of its script; an empty script means that all is well. Of `creates`:

    - created, exists-ours, exists-absent, refused
    - unknown-applied, unknown-absent, and unknown-late: applied once the next create has been answered

    Of `reads` and `lists`: ok, fails. A callable runs before the request, which then goes on well.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, before=lambda verb, path: self.requests.append((verb, path)))
        self.requests: list[tuple[str, str]] = []
        self.creates: deque[str | Callable[[], Any]] = deque()
        self.reads: deque[str | Callable[[], Any]] = deque()
        self.lists: deque[str | Callable[[], Any]] = deque()
        self._late: tuple[str, bytes] | None = None

    def create(self, path: str, data: bytes) -> CreateOutcome:
        if names.version_number(path) is None or not (self.creates or self._late):
            return super().create(path, data)
        late, self._late = self._late, None
        outcome = self._scripted_create(path, data)
        if late is not None:
            super().create(*late)
        return outcome

    def _scripted_create(self, path: str, data: bytes) -> CreateOutcome:
        entry = self.creates.popleft() if self.creates else "created"
        if callable(entry):
            entry()
            return super().create(path, data)
        if entry == "created":
            return super().create(path, data)
        if entry in ("exists-ours", "unknown-applied"):
            super().create(path, data)
            return Exists() if entry == "exists-ours" else Unknown("the reply was lost")
        self.requests.append(("create", path))
        if entry == "refused":
            raise StoreUnavailableError("no access")
        if entry == "exists-absent":
            return Exists()
        if entry == "unknown-late":
            self._late = path, data
        return Unknown("the request was lost")

    def read(self, path: str) -> Stored:
        if names.version_number(path) is not None:
            self._fail_by(self.reads)
        return super().read(path)

    def list_folder(self, folder: str) -> list[Listed]:
        if folder == names.VERSION_FOLDER:
            self._fail_by(self.lists)
        return super().list_folder(folder)

    def _fail_by(self, script: deque[str | Callable[[], Any]]) -> None:
        entry = script.popleft() if script else "ok"
        if callable(entry):
            entry()
        elif entry == "fails":
            raise StoreUnavailableError("it does not answer")

    def count(self) -> Counter[str]:
        """How many requests of each kind were sent since the last count."""
        kinds = {"read": "GET", "open": "GET", "list": "LIST", "delete": "DELETE"}
        counted = Counter(kinds.get(verb, "PUT") for verb, _ in self.requests)
        self.requests.clear()
        return counted


class Lake:
    """One table on a memory store, its clock, and which rows each of its files holds."""

    def __init__(
        self,
        *,
        spec: PartitionSpec = BY_P,
        table_properties: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        seed: int = 0,
    ) -> None:
        self.name = f"lake-{next(_names):06}"
        self.clock = clock or Clock()
        self.store = FaultyStore(self.name)
        self.rows: dict[str, tuple[int, ...]] = {}
        self.positions: dict[str, frozenset[int]] = {}
        """Which positions each of the lake's own delete files of one data file deletes."""
        self.shared: dict[str, dict[str, frozenset[int]]] = {}
        """Which positions of which data files each shared one deletes."""
        self._row = itertools.count(1)
        self._seeds = itertools.count(1 + 1000 * seed)
        self.table = Table.create(
            self.store,
            SCHEMA,
            spec,
            table_properties=table_properties,
            environment=self.clock.environment(seed),
        )
        self.store.count()

    def open(self, store: Store | None = None, clock: Clock | None = None) -> Table:
        """Another process's view of the table, with nothing cached."""
        return Table.open(
            store or MemoryStore(self.name), (clock or self.clock).environment(next(self._seeds))
        )

    def file(
        self, rows: int | Iterable[int] = 10, *, p: int | None = 0, size: int = 1000, id_ms: int | None = None
    ) -> DataFile:
        """A file of fresh rows, or of the rows given; it exists in manifests only."""
        held = tuple(next(self._row) for _ in range(rows)) if isinstance(rows, int) else tuple(rows)
        file_id = names.ulid(self.clock.now_ms if id_ms is None else id_ms, next(self._seeds))
        location = self.store.uri(f"data/p={p}/{names.data_file_name(file_id, 'app', 1, 0, 0)}")
        self.rows[location] = held
        return data_file(location, len(held), partition=Record() if p is None else Record(p), size=size)

    def merged(self, *files: DataFile, size: int = 10_000) -> DataFile:
        """A file of all the rows of others, in the partition of the first."""
        rows = [row for file in files for row in self.rows[file.file_path]]
        return self.file(rows, p=files[0].partition[0], size=size)

    def deletes(self, file: DataFile, *positions: int) -> DeleteFile:
        """A delete file of these positions of a data file; it exists in manifests only."""
        file_id = names.ulid(self.clock.now_ms, next(self._seeds))
        p = file.partition[0] if len(file.partition) else None
        location = self.store.uri(f"data/p={p}/{names.delete_file_name(file_id, 'app', 1, 0, 0)}")
        self.positions[location] = frozenset(positions)
        return position_deletes(
            location,
            file.file_path,
            rows=len(positions),
            size=500,
            spec_id=file.spec_id,
            partition=file.partition,
        )

    def share(self, positions: Mapping[str, Iterable[int]], *, p: int = 0) -> DeleteFile:
        """One delete file of positions in these data files of a partition."""
        file_id = names.ulid(self.clock.now_ms, next(self._seeds))
        location = self.store.uri(f"data/p={p}/{names.delete_file_name(file_id, 'app', 1, 0, 0)}")
        self.shared[location] = {path: frozenset(these) for path, these in positions.items()}
        rows_of = {path: len(these) for path, these in self.shared[location].items()}
        return shared_deletes(location, rows_of, size=500, spec_id=0, partition=Record(p))

    def gone(self, data_file: str, delete: str) -> frozenset[int]:
        """The positions that a delete file of the lake's deletes of a data file that it may name."""
        return self.positions.get(delete) or self.shared.get(delete, {}).get(data_file, frozenset())

    def folded(self, file: DataFile, *deletes: DeleteFile) -> Replace:
        """The replace of a file by one of the rows that these deletes leave."""
        gone = frozenset[int]().union(*(self.gone(file.file_path, each.file_path) for each in deletes))
        kept = [row for at, row in enumerate(self.rows[file.file_path]) if at not in gone]
        added = self.file(kept, p=file.partition[0])
        applied = frozenset(each.file_path for each in deletes)
        return Replace(frozenset({file.file_path}), (added,), applied, len(gone))

    def live_rows(self) -> Counter[int]:
        """The multiset of rows that a reader with nothing cached sees; all of a foreign writer's deletes are
        taken to match none.
        """
        head = self.open().head
        live = Counter[int]()
        deletes = list(head.delete_files())
        for file in head.live_files():
            gone = {
                position
                for delete in deletes
                if delete.refers_to in (None, file.location)
                and delete.sequence_number >= file.sequence_number
                for position in self.gone(file.location, delete.location)
            }
            live.update(row for at, row in enumerate(self.rows[file.location]) if at not in gone)
        return live

    def rows_of(self, *files: DataFile) -> Counter[int]:
        return Counter(row for file in files for row in self.rows[file.file_path])

    def live(self) -> set[str]:
        return {file.location for file in self.open().head.live_files()}

    def change_metadata(self, update: Callable[[TableMetadataV2], dict[str, Any]]) -> None:
        """Commit a version that only changes metadata, as a later schema evolution or expiry will."""
        change_metadata(self.open(), update)

    def add_delete_file(
        self,
        p: int,
        *,
        paths: tuple[str, str] | None = None,
        rows: int = 1,
        content: DataFileContent = DataFileContent.POSITION_DELETES,
    ) -> str:
        """Commit a delete file for a partition, in a snapshot of its own, and return its location. `paths`:
        the bounds of the data files that it names.
        """
        table = self.open()
        location = self.store.uri(
            f"data/p={p}/{names.ulid(self.clock.now_ms, next(self._seeds))}-deletes.parquet"
        )
        delete = data_file(location, rows, partition=Record(p), content=content)
        if paths is not None:
            bound_paths(delete, *paths)

        def build(head: Head | None) -> Candidate:
            assert head is not None
            return _with_deletes(table, head, delete)

        publish_version(table.log, table.head, build, lambda head, candidate: Standing.UNKNOWN)
        return location


def change_metadata(table: Table, update: Callable[[TableMetadataV2], dict[str, Any]]) -> None:
    """Commit a version that only changes metadata. `table` itself knows nothing of it."""

    def build(head: Head | None) -> Candidate:
        assert head is not None
        return _next_version(table, head, head.manifests, update(head.metadata))

    publish_version(table.log, table.head, build, lambda head, candidate: Standing.UNKNOWN)


def dropping(metadata: TableMetadataV2, column: int, *, is_remembered: bool = True) -> dict[str, Any]:
    """Return what another engine changes that drops a column, and perhaps all schemas that had it."""
    kept = (it for it in metadata.schema().fields if it.field_id != column)
    now = Schema(*kept, schema_id=metadata.current_schema_id + 1)
    return {
        "schemas": [*metadata.schemas, now] if is_remembered else [now],
        "current_schema_id": now.schema_id,
    }


def data_file(
    location: str,
    rows: int,
    *,
    partition: Record,
    size: int = 1000,
    content: DataFileContent = DataFileContent.DATA,
    sort_order_id: int = 0,
    key_metadata: bytes | None = None,
) -> DataFile:
    file = DataFile.from_args(
        content=content,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=rows,
        file_size_in_bytes=size,
        column_sizes={1: 100},
        value_counts={1: rows},
        null_value_counts={1: 0},
        nan_value_counts={},
        lower_bounds={1: bytes(8)},
        upper_bounds={1: b"\1" * 8},
        split_offsets=[4],
        sort_order_id=sort_order_id,
        key_metadata=key_metadata,
    )
    file.spec_id = 0
    return file


def bound_paths(delete: DataFile, lower: str, upper: str) -> None:
    """State the bounds of the paths in a position-delete file; equal ones for deletes of one file."""
    delete.lower_bounds[2147483546] = lower.encode()
    delete.upper_bounds[2147483546] = upper.encode()


def versions_of(store: Store) -> dict[int, Version]:
    """Every version file that the store lists, parsed."""
    log = VersionLog(store, manifests.ManifestFiles(store), Clock().environment())
    return {number: version_of(store, number) for number in sorted(log.list().versions)}


def version_of(store: Store, number: int) -> Version:
    return parse_version(number, store.read(names.version_path(number)).data, store.location)


def raw_entries(store: Store, manifest: ManifestFile) -> list[Any]:
    """The entries of a manifest as its file holds them, deleted ones included; sequence numbers inherited."""
    files = manifests.ManifestFiles(store)
    return list(manifest_format.decode_entries(manifest, files._read(manifest.manifest_path, "manifest")))


class Audit:
    """Recounts a table from its files. Keeps what it has proved of a snapshot, which never changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: dict[int, dict[str, tuple[int, int]]] = {}
        self._entries: dict[tuple[str, int], list[Any]] = {}

    def check(self) -> None:
        """Every listed version continues the one before, and every snapshot says what its manifests hold."""
        versions = versions_of(self._store)
        previous: Version | None = None
        for number, version in versions.items():
            stated = version.metadata.properties
            assert stated[properties.VERSION] == str(number)
            assert stated[properties.PARENT_VERSION] == str(number - 1)
            if previous is not None and previous.number == number - 1:
                assert stated[properties.PARENT_COMMIT_ID] == previous.commit_id
                assert version.metadata.last_updated_ms > previous.metadata.last_updated_ms
                assert version.recent_commits[-2] == previous.commit_id
            assert version.recent_commits[-1] == version.commit_id
            previous = version
        assert previous is not None
        assert sorted(versions) == list(range(min(versions), max(versions) + 1))
        self.check_snapshots(previous.metadata)

    def check_snapshots(self, metadata: TableMetadataV2) -> None:
        by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        assert [s.sequence_number for s in metadata.snapshots] == sorted(
            {s.sequence_number for s in metadata.snapshots}
        )
        assert len(by_id) == len(metadata.snapshots)
        if metadata.snapshots:
            assert metadata.snapshots[-1].sequence_number == metadata.last_sequence_number
            assert metadata.snapshots[-1].snapshot_id == metadata.current_snapshot_id
        for before, snapshot in itertools.pairwise(metadata.snapshots):
            assert snapshot.parent_snapshot_id == before.snapshot_id
            assert snapshot.sequence_number == (before.sequence_number or 0) + 1
            assert snapshot.timestamp_ms > before.timestamp_ms
        for snapshot in metadata.snapshots:
            self._check_snapshot(snapshot, by_id.get(snapshot.parent_snapshot_id or 0))

    def _entries_of(self, manifest: ManifestFile) -> list[Any]:
        key = manifest.manifest_path, manifest.sequence_number
        if key not in self._entries:
            self._entries[key] = raw_entries(self._store, manifest)
        return self._entries[key]

    def _check_snapshot(self, snapshot: Snapshot, parent: Snapshot | None) -> None:
        if snapshot.snapshot_id in self._snapshots:
            return
        files = manifests.ManifestFiles(self._store)
        live: dict[str, tuple[int, int]] = {}
        positions: dict[str, tuple[int, int]] = {}
        added: list[Any] = []
        deleted: list[Any] = []
        shares = False
        for manifest in files.read_list(snapshot.manifest_list):
            assert names.file_id(manifest.manifest_path) is not None
            entries = self._entries_of(manifest)
            mine = manifest.added_snapshot_id == snapshot.snapshot_id
            if mine:
                assert manifest.sequence_number == snapshot.sequence_number
                if snapshot.summary is not None and snapshot.summary.operation != Operation.REPLACE:
                    assert {entry.status for entry in entries} == {ManifestEntryStatus.ADDED}
            sequence = [e.sequence_number for e in entries if e.status != ManifestEntryStatus.DELETED]
            if sequence:
                assert manifest.min_sequence_number == min(sequence)
            for status, count, rows in (
                (ManifestEntryStatus.ADDED, manifest.added_files_count, manifest.added_rows_count),
                (ManifestEntryStatus.EXISTING, manifest.existing_files_count, manifest.existing_rows_count),
                (ManifestEntryStatus.DELETED, manifest.deleted_files_count, manifest.deleted_rows_count),
            ):
                chosen = [entry for entry in entries if entry.status == status]
                assert (count, rows) == (len(chosen), sum(e.data_file.record_count for e in chosen))
            for entry in entries:
                location, file = entry.data_file.file_path, entry.data_file
                assert (file.content == DataFileContent.DATA) is (manifest.content == ManifestContent.DATA)
                if entry.status == ManifestEntryStatus.DELETED:
                    if mine:
                        deleted.append(entry)
                    continue
                assert not any(location in known for known in (live, positions)), f"live twice: {location}"
                found = live if file.content == DataFileContent.DATA else positions
                found[location] = file.record_count, file.file_size_in_bytes
                shares |= found is positions and _is_shared(file)
                if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id:
                    assert entry.sequence_number == snapshot.sequence_number
                    added.append(entry)
        shares |= any(_is_shared(entry.data_file) for entry in deleted)
        self._check_summary(snapshot, parent, live, positions, added, deleted, shares)
        self._snapshots[snapshot.snapshot_id] = live | positions

    def _check_summary(
        self,
        snapshot: Snapshot,
        parent: Snapshot | None,
        live: dict[str, tuple[int, int]],
        positions: dict[str, tuple[int, int]],
        added: list[Any],
        deleted: list[Any],
        shares: bool,
    ) -> None:
        assert snapshot.summary is not None
        told = snapshot.summary.additional_properties
        new_data, new_deletes = _by_content(added)
        old_data, old_deletes = _by_content(deleted)
        counts = {
            "added-data-files": len(new_data),
            "deleted-data-files": len(old_data),
            "added-records": sum(new_data),
            "deleted-records": sum(old_data),
            "added-delete-files": len(new_deletes),
            "removed-delete-files": len(old_deletes),
            "added-files-size": sum(e.data_file.file_size_in_bytes for e in added),
            "removed-files-size": sum(e.data_file.file_size_in_bytes for e in deleted),
        }
        assert {key: int(told.get(key, 0)) for key in counts} == counts
        if snapshot.summary.operation == Operation.REPLACE:
            folded = sum(old_deletes) - sum(new_deletes)
            added_records, deleted_records = counts["added-records"], counts["deleted-records"]
            # How many rows a shared delete file deletes of which data file is in no manifest.
            assert added_records == deleted_records - folded or (shares and added_records <= deleted_records)
        assert int(told["total-data-files"]) == len(live)
        assert int(told["total-delete-files"]) == len(positions)
        assert int(told["total-records"]) == sum(rows for rows, _ in live.values())
        everything = live | positions
        assert int(told["total-files-size"]) == sum(size for _, size in everything.values())
        known = self._snapshots.get(parent.snapshot_id) if parent is not None else None
        if known is not None:
            gone = {entry.data_file.file_path for entry in deleted}
            new = {entry.data_file.file_path for entry in added}
            assert everything.keys() == (known.keys() - gone) | new


def _is_shared(file: DataFile) -> bool:
    """Whether a position-delete file may name several data files."""
    bounds = [(each or {}).get(2147483546) for each in (file.lower_bounds, file.upper_bounds)]
    return file.content == DataFileContent.POSITION_DELETES and (bounds[0] is None or bounds[0] != bounds[1])


def _by_content(entries: Iterable[Any]) -> tuple[list[int], list[int]]:
    """The rows of each data file, and of each delete file."""
    files = [entry.data_file for entry in entries]
    return tuple(  # type: ignore[return-value]
        [file.record_count for file in files if (file.content == DataFileContent.DATA) is is_data]
        for is_data in (True, False)
    )


def _next_version(
    table: Table, head: Head, listed: tuple[ManifestFile, ...], update: dict[str, Any]
) -> Candidate:
    environment = table.log.environment
    now_ms = succession.commit_time(environment, head)
    stated = succession.lineage_properties(environment.new_id(now_ms), head.version, None)
    log = succession.metadata_log(
        head.metadata, table.store.uri(names.version_path(head.number)), head.properties
    )
    given = update.pop("properties", head.properties)
    metadata = head.metadata.model_copy(
        update={"properties": {**given, **stated}, "last_updated_ms": now_ms, "metadata_log": log, **update}
    )
    return Candidate(
        Head(Version(head.number + 1, metadata), listed, head.manifest_files), encode_metadata(metadata)[0]
    )


class _DeleteManifestWriter(manifest_format.DeleteManifestWriter):
    """As a writer before Iceberg 1.7, which does not state the data file that a delete file refers to."""

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        form = AvroFormat(self._with_partition(2), "manifest_entry")
        return manifest_format._EncodedOnce(self._output_file, form, self._meta)


def _with_deletes(table: Table, head: Head, delete: DataFile) -> Candidate:
    environment = table.log.environment
    now_ms = succession.commit_time(environment, head)
    snapshot_id = succession.new_snapshot_id(environment)
    path = names.manifest_path(environment.new_id(now_ms))
    output = manifest_format.WrittenBytes(table.store.uri(path))
    spec = head.metadata.specs()[0]
    with _DeleteManifestWriter(spec, head.schema, output, snapshot_id, "deflate") as writer:
        writer.add_entry(entries.added_entry(snapshot_id, delete))
    assert isinstance(table.store.create(path, output.data), Created)
    sequence_number = head.metadata.last_sequence_number + 1
    location, listed = table.log.manifest_files.write_list(
        names.manifest_list_path(environment.new_id(now_ms)),
        snapshot_id,
        head.metadata.current_snapshot_id,
        sequence_number,
        [writer.to_manifest_file(), *head.manifests],
    )
    counts = summaries.summarise(
        Operation.DELETE, [delete], [], head.snapshot, head.schema, head.metadata.specs()
    )
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.metadata.current_snapshot_id,
        sequence_number=sequence_number,
        timestamp_ms=now_ms,
        manifest_list=location,
        summary=summaries.with_extra(counts, {properties.VERSION: str(head.number + 1)}),
        schema_id=head.schema.schema_id,
    )
    main = SnapshotRef(snapshot_id=snapshot_id, snapshot_ref_type=SnapshotRefType.BRANCH)
    return _next_version(
        table,
        head,
        listed,
        {
            "snapshots": [*head.metadata.snapshots, snapshot],
            "current_snapshot_id": snapshot_id,
            "refs": {**head.metadata.refs, "main": main},
            "last_sequence_number": sequence_number,
            "snapshot_log": [
                *head.metadata.snapshot_log,
                SnapshotLogEntry(snapshot_id=snapshot_id, timestamp_ms=now_ms),
            ],
        },
    )


class OneFile(FileIO):
    """A FileIO that holds one file in memory, as pyiceberg's manifest reader requires one."""

    def __init__(self, source: InputFile) -> None:
        super().__init__()
        self._source = source

    def new_input(self, location: str) -> InputFile:
        return self._source

    def new_output(self, location: str) -> OutputFile:
        raise PermissionError(f"this reads one manifest and writes nothing: {location}")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise PermissionError(f"this reads one manifest and deletes nothing: {location}")
