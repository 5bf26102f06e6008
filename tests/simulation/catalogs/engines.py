"""What other engines do to a table in a catalog, each in one step: the races are with our commits.

Their files and metadata are written as the engines write them, and nothing of this protocol plans them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

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
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StringType

from tests.simulation.catalogs.expiry_judge import MEMORY
from tests.simulation.catalogs.judge import EDITED, REPLACED, CatalogOracle
from tests.simulation.catalogs.server import ENGINE, Server
from tests.simulation.key_files import delete_content
from tests.simulation.oracle import Work
from tests.simulation.simulation import PARTITIONS, Simulation, content
from timeline.manifests.contents import is_data
from timeline.manifests.entries import shared_deletes
from timeline.manifests.manifests import ManifestFiles
from timeline.versions.head import Head
from timeline.versions.version_file import Version

_RECENT = 4


@dataclass
class Engine:
    """Another engine: it sees the newest table, and its commits succeed at once."""

    sim: Simulation
    server: Server
    oracle: CatalogOracle
    name: str = ENGINE
    branches: int = 0
    _files: ManifestFiles = field(init=False)

    def __post_init__(self) -> None:
        self._files = ManifestFiles(self.sim.store(None))

    @property
    def metadata(self) -> TableMetadataV2:
        metadata = self.server.metadata
        assert isinstance(metadata, TableMetadataV2)
        return metadata

    def head(self) -> Head:
        """Return the table as a head, to look at its files."""
        metadata = self.metadata
        snapshot = metadata.current_snapshot()
        manifests = () if snapshot is None else self._files.read_list(snapshot.manifest_list)
        return Head(Version(metadata.last_sequence_number, metadata), manifests, self._files)

    # ------------------------------------------------------------------------------------ rows

    def append(self) -> None:
        """INSERT."""
        file = self._write(self._rows(), self.sim.random.randrange(PARTITIONS))
        self.sim.meet("theirs: append")
        memory = {MEMORY: str(self.sim.number())} if self.sim.random.random() < 0.3 else {}
        self._commit(Operation.APPEND, [self._added(file)], memory=memory)

    def delete_by_copy(self) -> None:
        """DELETE or UPDATE, copy-on-write: files are written again without some rows, or leave."""
        chosen = self._choose(1, 2)
        added = []
        for entry in chosen:
            rows = self._live_rows(entry.data_file.file_path)
            left = [row for row in rows if self.sim.random.random() < 0.5]
            if self.sim.random.random() < 0.3:
                left += self._rows()
            if left:
                added.append(self._added(self._write(tuple(left), self._p(entry))))
        if chosen:
            self.sim.meet("theirs: delete by copy")
            gone = {entry.data_file.file_path for entry in chosen}
            self._commit(Operation.OVERWRITE if added else Operation.DELETE, added, removed=gone)

    def delete_by_position(self) -> None:
        """DELETE, merge-on-read: a file of positions, of one data file or of all in a partition."""
        chosen = self._choose(1, 1)
        if not chosen:
            return
        p, spec_id = self._p(chosen[0]), chosen[0].data_file.spec_id
        if self.sim.random.random() < 0.4:
            chosen = [it for it in self._live() if self._p(it) == p and it.data_file.spec_id == spec_id]
        positions: dict[str, frozenset[int]] = {}
        for entry in chosen:
            path = entry.data_file.file_path
            rows, live = self.oracle.rows[path], set(self._live_rows(path))
            left = [at for at, row in enumerate(rows) if row in live]
            if left:
                positions[path] = frozenset({self.sim.random.choice(left)})
        if positions:
            self.sim.meet("theirs: delete by position")
            self._delete(positions, p, spec_id, equality=False)

    def delete_by_value(self) -> None:
        """An upsert of Flink: equality deletes, which apply to all older files of a partition."""
        chosen = self._choose(1, 1)
        if not chosen:
            return
        p, spec_id = self._p(chosen[0]), chosen[0].data_file.spec_id
        rows = self._live_rows(chosen[0].data_file.file_path)
        if rows:
            row = self.sim.random.choice(rows)
            positions = {
                chosen[0].data_file.file_path: frozenset(
                    {self.oracle.rows[chosen[0].data_file.file_path].index(row)}
                )
            }
            self.sim.meet("theirs: delete by value")
            self._delete(positions, p, spec_id, equality=True)

    def compact(self) -> None:
        """rewrite_data_files: the rows of some files in one, at the sequence number that they had."""
        by_place = defaultdict(list)
        for entry in self._live():
            by_place[entry.data_file.spec_id, self._p(entry)].append(entry)
        places = sorted(place for place, found in by_place.items() if len(found) > 1)
        if not places:
            return
        place = self.sim.random.choice(places)
        chosen = self.sim.random.sample(by_place[place], 2)
        rows = tuple(row for entry in chosen for row in self._live_rows(entry.data_file.file_path))
        if not rows or self._equality_deletes():
            return
        added = self._added(self._write(rows, place[1]))
        if self.sim.random.random() < 0.5:
            number = self.metadata.last_sequence_number
            added.sequence_number = number
            added.file_sequence_number = None
        self.sim.meet("theirs: compaction")
        gone = {entry.data_file.file_path for entry in chosen}
        self._commit(Operation.REPLACE, [added], removed=gone)

    def rewrite_manifests(self) -> None:
        """rewrite_manifests: all live entries in one manifest."""
        if self._live():
            self.sim.meet("theirs: rewrite_manifests")
            self._commit(Operation.REPLACE, [])

    # ------------------------------------------------------------------------------------ history

    def roll_back(self) -> None:
        """rollback_to_snapshot, or set_current_snapshot: main is at an ancestor again."""
        line = self._line()[1 : 1 + _RECENT]
        if line:
            self.sim.meet("theirs: rollback")
            self._send([ref_update(MAIN_BRANCH, self.sim.random.choice(line).snapshot_id)])

    def branch(self) -> None:
        """A commit to a branch from main as it is, or one that is staged."""
        if self.metadata.current_snapshot_id is None:
            return
        self.branches += 1
        file = self._write(self._rows(), self.sim.random.randrange(PARTITIONS))
        self.sim.meet("theirs: branch")
        self._commit(Operation.APPEND, [self._added(file)], ref=f"b{self.branches}")

    def fast_forward(self) -> None:
        """fast_forward, where main is an ancestor of the branch; else cherry-pick of its snapshot."""
        branches = sorted(name for name in self.metadata.refs if name.startswith("b"))
        if not branches:
            return
        name = self.sim.random.choice(branches)
        snapshot = self.metadata.snapshot_by_id(self.metadata.refs[name].snapshot_id)
        assert snapshot is not None
        drop = RemoveSnapshotRefUpdate(ref_name=name)
        if snapshot.parent_snapshot_id == self.metadata.current_snapshot_id:
            self.sim.meet("theirs: fast-forward")
            self._send([ref_update(MAIN_BRANCH, snapshot.snapshot_id), drop])
            return
        added = [
            self._added(entry.data_file)
            for manifest in self._files.read_list(snapshot.manifest_list)
            for entry in self._files.entries(manifest)
            if entry.snapshot_id == snapshot.snapshot_id and is_data(manifest)
        ]
        live = {entry.data_file.file_path for entry in self._live()}
        if added and not any(entry.data_file.file_path in live for entry in added):
            self.sim.meet("theirs: cherry-pick")
            self._commit(Operation.APPEND, added, more=[drop])

    def tag(self) -> None:
        """A tag is set, or removed."""
        tags = sorted(name for name in self.metadata.refs if name.startswith("t"))
        current = self.metadata.current_snapshot_id
        if tags and self.sim.random.random() < 0.5:
            self._send([RemoveSnapshotRefUpdate(ref_name=self.sim.random.choice(tags))])
        elif current is not None:
            self.branches += 1
            self.sim.meet("theirs: tag")
            self._send([ref_update(f"t{self.branches}", current, kind="tag")])

    def move_tag(self) -> None:
        """REPLACE TAG: a tag names what main is now. No number and no main says so."""
        tags = sorted(name for name in self.metadata.refs if name.startswith("t"))
        current = self.metadata.current_snapshot_id
        if tags and current is not None:
            self.sim.meet("theirs: tag moved")
            self._send([ref_update(self.sim.random.choice(tags), current, kind="tag")])

    def expire(self) -> None:
        """expire_snapshots: all but the last ones that no ref names, and what only they reach."""
        kept = {snapshot.snapshot_id for snapshot in self._line()[: self.sim.random.randrange(1, 4)]}
        for ref in self.metadata.refs.values():
            kept |= {it.snapshot_id for it in self._line(ref.snapshot_id)[:1]}
        gone = sorted(it.snapshot_id for it in self.metadata.snapshots if it.snapshot_id not in kept)
        if not gone:
            return
        before = self.oracle.reachable(self.oracle.head)
        parents = {it.snapshot_id: it.parent_snapshot_id for it in self.metadata.snapshots}
        self.sim.meet("theirs: expiry")
        keeps_links = self.sim.random.random() < 0.5
        self._send([RemoveSnapshotsUpdate(snapshot_ids=gone)], parents if keeps_links else None)
        for uri in sorted(before - self.oracle.reachable(self.oracle.head)):
            self.sim.objects.delete(self.sim.store(None).key(uri), self.name)

    # ------------------------------------------------------------------------------------ the table

    def add_column(self) -> None:
        """ALTER TABLE ADD COLUMN."""
        schema = self.metadata.schema()
        name = f"theirs{self.sim.number()}"
        added = NestedField(self.metadata.last_column_id + 1, name, StringType(), required=False)
        self.sim.meet("theirs: column added")
        self._set_schema((*schema.fields, added))

    def drop_or_rename_column(self) -> None:
        """ALTER TABLE DROP COLUMN, or RENAME COLUMN, of one that no partition is made of."""
        schema = self.metadata.schema()
        columns = [it for it in schema.fields if it.name not in ("id", "p")]
        if not columns:
            return self.add_column()
        chosen = self.sim.random.choice(columns)
        if self.sim.random.random() < 0.5:
            self.sim.meet("theirs: column dropped")
            return self._set_schema(tuple(it for it in schema.fields if it is not chosen))
        self.sim.meet("theirs: column renamed")
        name = f"renamed{self.sim.number()}"
        renamed = NestedField(chosen.field_id, name, chosen.field_type, required=chosen.required)
        return self._set_schema(tuple(renamed if it is chosen else it for it in schema.fields))

    def add_and_drop_column(self) -> None:
        """A column comes and goes: only the last field id says so."""
        self.add_column()
        fields = self.metadata.schema().fields
        self._set_schema(fields[:-1])

    def partition(self) -> None:
        """ALTER TABLE ADD PARTITION FIELD, or DROP of it."""
        metadata = self.metadata
        kept = metadata.spec().fields[:1]
        wanted = [PartitionField(1, 0, BucketTransform(self.sim.random.choice([2, 3])), "theirs")]
        fields = kept if len(metadata.spec().fields) > 1 else (*kept, *wanted)
        same = next((it for it in metadata.partition_specs if _means(it.fields) == _means(fields)), None)
        self.sim.meet("theirs: partitioning")
        if same is not None:
            return self._send([SetDefaultSpecUpdate(spec_id=same.spec_id)])
        last, taken = (
            metadata.last_partition_id or 999,
            {it.name for each in metadata.partition_specs for it in each.fields},
        )
        fields = (*kept, *(
            PartitionField(it.source_id, last + 1, it.transform, f"theirs{len(taken)}") for it in wanted
        ))  # fmt: skip
        spec = PartitionSpec(*fields, spec_id=max(metadata.specs()) + 1)
        return self._send([AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=-1)])

    def _set_schema(self, fields: tuple[NestedField, ...]) -> None:
        known = next((it for it in self.metadata.schemas if it.fields == fields), None)
        if known is not None:
            self._send([SetCurrentSchemaUpdate(schema_id=known.schema_id)])
            return
        newest = max(schema.schema_id for schema in self.metadata.schemas)
        schema = Schema(*fields, schema_id=newest + 1)
        self._send([AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=-1)])

    def set_property(self) -> None:
        self.sim.meet("theirs: properties")
        self._send([SetPropertiesUpdate(updates={"theirs": str(self.sim.number())})])

    def replace_table(self) -> None:
        """CREATE OR REPLACE TABLE, with or without rows: uuid, location and properties stay."""
        self._stop_streams(REPLACED)
        self.sim.meet("theirs: table replaced")
        drop = [RemoveSnapshotRefUpdate(ref_name=MAIN_BRANCH)] if MAIN_BRANCH in self.metadata.refs else []
        if self.sim.random.random() < 0.5:
            file = self._write(self._rows(), 0)
            self._commit(Operation.APPEND, [self._added(file)], more=drop, parent=None, fresh=True)
        elif drop:
            self._send(drop)

    def edit_memory(self) -> None:
        """Somebody removes or changes what the table remembers of its writers."""
        ours = sorted(key for key in self.metadata.properties if key.startswith("streaming-sink.txn."))
        if not ours:
            return
        key = self.sim.random.choice(ours)
        self._stop_streams(EDITED)
        self.oracle.edited = self.metadata.current_snapshot_id, key
        self.sim.meet("theirs: memory edited")
        kept = {name: value for name, value in self.metadata.properties.items() if name != key}
        self.server.put(self.metadata.model_copy(update={"properties": kept}), self.name)

    def recreate(self) -> None:
        """DROP and CREATE TABLE: another table has the name."""
        self.sim.meet("theirs: table dropped and created")
        uuid = UUID(int=self.sim.random.getrandbits(128), version=4)
        kept = {k: v for k, v in self.metadata.properties.items() if not k.startswith("streaming-sink.")}
        fresh = {
            "table_uuid": uuid, "snapshots": [], "snapshot_log": [], "refs": {}, "current_snapshot_id": None,
            "last_sequence_number": 0, "properties": kept,
        }  # fmt: skip
        self.server.put(self.metadata.model_copy(update=fresh), self.name)

    def rename(self) -> None:
        """RENAME TABLE: nobody finds it under its name any more."""
        self.sim.meet("theirs: table renamed")
        self.server.name = ("db", "renamed")

    def _stop_streams(self, why: str) -> None:
        if any(_is_memory(key) for key in self.metadata.properties):
            self.oracle.stops, self.oracle.stopped_at = why, self.metadata.last_sequence_number

    # ------------------------------------------------------------------------------------ how

    def _rows(self) -> tuple[int, ...]:
        rows = tuple(self.sim.row() for _ in range(self.sim.random.randrange(1, 3)))
        for row in rows:
            self.oracle.owner[row] = Work(self.name, None, row, (row,))
        return rows

    def _write(self, rows: Sequence[int], p: int) -> DataFile:
        metadata = self.metadata
        location = f"{metadata.location}/data/p={p}/00000-{self.sim.number()}-theirs.parquet"
        columns = frozenset(field.field_id for field in metadata.schema().fields)
        spec = metadata.spec()
        self.oracle.wrote(location, tuple(rows), str(metadata.table_uuid), columns, spec.spec_id)
        self.sim.store(None).overwrite(location.removeprefix(f"{metadata.location}/"), content(tuple(rows)))
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=location,
            file_format=FileFormat.PARQUET,
            partition=Record(*(p for _ in spec.fields)),
            record_count=len(rows),
            file_size_in_bytes=1000 * len(rows),
            sort_order_id=0,
        )
        file.spec_id = spec.spec_id
        return file

    def _delete(
        self, positions: Mapping[str, frozenset[int]], p: int, spec_id: int, *, equality: bool
    ) -> None:
        location = f"{self.metadata.location}/data/p={p}/00000-{self.sim.number()}-deletes.parquet"
        declared = self.oracle.deletes.by_value if equality else self.oracle.deletes.positions
        declared[location] = positions
        self.sim.store(None).overwrite(
            location.removeprefix(f"{self.metadata.location}/"), delete_content(positions).encode()
        )
        counts = {path: len(these) for path, these in positions.items()}
        partition = Record(*(p for _ in self.metadata.specs()[spec_id].fields))
        delete = shared_deletes(location, counts, size=100, spec_id=spec_id, partition=partition)
        if equality:
            delete._data[0] = DataFileContent.EQUALITY_DELETES
            delete._data[10] = delete._data[11] = None
        self._commit(Operation.DELETE, [], deletes=[self._added(delete)])

    def _live(self) -> list[ManifestEntry]:
        """Return the live data files of main, by name."""
        manifests = self.head().manifests
        found = (entry for manifest in manifests if is_data(manifest) for entry in self._entries(manifest))
        return sorted(found, key=lambda entry: str(entry.data_file.file_path))

    def _entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        return self._files.entries(manifest)

    def _choose(self, least: int, most: int) -> list[ManifestEntry]:
        live = [] if self._equality_deletes() else self._live()
        return self.sim.random.sample(live, min(len(live), self.sim.random.randint(least, most)))

    def _equality_deletes(self) -> bool:
        return any(it.content == DataFileContent.EQUALITY_DELETES for it in self.head().delete_files())

    def _live_rows(self, path: str) -> list[int]:
        files = self.oracle.head.files
        return list(self.oracle.deletes.live_rows([path], files, self.oracle.rows).elements())

    def _p(self, entry: ManifestEntry) -> int:
        p = entry.data_file.partition[0]
        assert isinstance(p, int)
        return p

    def _added(self, file: DataFile) -> ManifestEntry:
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED, snapshot_id=None, sequence_number=None, data_file=file
        )

    def _line(self, snapshot_id: int | None = None) -> list[Snapshot]:
        """Return main, or the line of another snapshot, newest first."""
        known = {it.snapshot_id: it for it in self.metadata.snapshots}
        at = self.metadata.current_snapshot_id if snapshot_id is None else snapshot_id
        line = []
        while at is not None and at in known:
            line.append(known[at])
            at = known[at].parent_snapshot_id
        return line

    def _commit(
        self,
        operation: Operation,
        added: Sequence[ManifestEntry],
        *,
        removed: Iterable[str] = (),
        deletes: Sequence[ManifestEntry] = (),
        ref: str = MAIN_BRANCH,
        more: Sequence[TableUpdate] = (),
        parent: int | None = -1,
        fresh: bool = False,
        memory: Mapping[str, str] | None = None,
    ) -> None:
        """Commit a snapshot of what is live and not removed, and of what is added; `fresh`: of the latter."""
        metadata, random = self.metadata, self.sim.random
        snapshot_id = random.getrandbits(62)
        gone = set(removed)
        manifests: list[ManifestFile] = []
        for number, manifest in enumerate(() if fresh else self.head().manifests):
            kept = [entry for entry in self._entries(manifest) if entry.data_file.file_path not in gone]
            whole = len(kept) == len(self._entries(manifest))
            whole &= operation != Operation.REPLACE or self._has_to_stay(manifest)
            if whole and kept:
                manifests.append(manifest)
            elif kept:
                manifests.append(self._manifest(snapshot_id, f"k{number}", manifest, kept))
        for spec_id in sorted({entry.data_file.spec_id for entry in added}):
            these = [entry for entry in added if entry.data_file.spec_id == spec_id]
            manifests.append(
                self._new_manifest(snapshot_id, f"a{spec_id}", spec_id, these, ManifestContent.DATA)
            )
        if deletes:
            spec_id = deletes[0].data_file.spec_id
            manifests.append(self._new_manifest(snapshot_id, "d", spec_id, deletes, ManifestContent.DELETES))
        sequence_number = metadata.last_sequence_number + 1
        parent = metadata.current_snapshot_id if parent == -1 else parent
        location, _ = self._files.write_list(
            f"metadata/snap-{snapshot_id}-1-theirs.avro", snapshot_id, parent, sequence_number, manifests
        )
        newest = max((it.timestamp_ms for it in metadata.snapshots), default=0)
        snapshot = Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent,
            sequence_number=sequence_number,
            timestamp_ms=max(self.server.now_ms(), newest),
            manifest_list=location,
            summary=Summary(operation, **{"engine-name": "spark", **(memory or {})}),
            schema_id=metadata.current_schema_id,
        )
        kind = "branch"
        self._send([*more, AddSnapshotUpdate(snapshot=snapshot), ref_update(ref, snapshot_id, kind)])

    def _has_to_stay(self, manifest: ManifestFile) -> bool:
        """Return whether a manifest cannot be written again."""
        return False

    def _manifest(
        self, snapshot_id: int, name: str, manifest: ManifestFile, kept: Sequence[ManifestEntry]
    ) -> ManifestFile:
        """Write the live entries of a manifest again."""
        entries = [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.EXISTING,
                snapshot_id=entry.snapshot_id,
                sequence_number=entry.sequence_number,
                file_sequence_number=entry.file_sequence_number,
                data_file=entry.data_file,
            )
            for entry in kept
        ]
        return self._new_manifest(
            snapshot_id, name, manifest.partition_spec_id, entries, manifest.content, added=False
        )

    def _new_manifest(
        self,
        snapshot_id: int,
        name: str,
        spec_id: int,
        entries: Sequence[ManifestEntry],
        kind: ManifestContent,
        *,
        added: bool = True,
    ) -> ManifestFile:
        for entry in entries if added else ():
            entry.snapshot_id = snapshot_id
        path, spec = f"metadata/theirs-{snapshot_id}-{name}.avro", self.metadata.specs()[spec_id]
        return self._files.write_manifest(path, spec, self._schema_of(spec_id), snapshot_id, entries, kind)

    def _schema_of(self, spec_id: int) -> Any:
        """Return the schema that manifests of a spec state."""
        return self.metadata.schema()

    def _send(self, updates: Sequence[TableUpdate], parents: Mapping[int, int | None] | None = None) -> None:
        self.sim.tell(self.name, " ".join(type(update).__name__ for update in updates))
        if parents is None:
            self.server.commit(self.server.name, (), updates, self.name)
            return
        # Java keeps the link to a parent that has expired.
        after = update_table_metadata(self.metadata, tuple(updates))
        linked = [
            it.model_copy(update={"parent_snapshot_id": parents[it.snapshot_id]}) for it in after.snapshots
        ]
        self.server.put(after.model_copy(update={"snapshots": linked}), self.name)


def ref_update(name: str, snapshot_id: int, kind: Any = "branch") -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=kind,
        snapshot_id=snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def _means(fields: Sequence[PartitionField]) -> list[tuple[int, str]]:
    return [(it.source_id, str(it.transform)) for it in fields]


def _is_memory(key: str) -> bool:
    return key == "streaming-sink.witness" or key.startswith("streaming-sink.txn.")
