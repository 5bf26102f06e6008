"""One version of the table with its live files, its deletes, and the state of each application."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property

from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import SortOrder

from timeline import properties
from timeline.errors import CorruptTableError, Where
from timeline.manifests.contents import is_data
from timeline.manifests.deletes import DeleteIndex
from timeline.manifests.entries import LiveFile
from timeline.manifests.lookup import find_files
from timeline.manifests.manifests import ManifestFiles
from timeline.manifests.packed import PackedFiles
from timeline.manifests.pruning import Partition, PartitionPruning
from timeline.manifests.selected_files import Selection, select_files
from timeline.manifests.stated_files import last_time, stated_files
from timeline.names import version_path
from timeline.versions.outbox import OutboxEntry, outbox_of
from timeline.versions.transactions import TransactionState, state_of
from timeline.versions.version_file import Version


@dataclass(frozen=True)
class Head:
    """A version with the manifests of its current snapshot. Immutable."""

    version: Version
    manifests: tuple[ManifestFile, ...]
    manifest_files: ManifestFiles

    @property
    def number(self) -> int:
        return self.version.number

    @property
    def where(self) -> Where:
        """What errors say of the head."""
        return {"location": self.metadata.location, "version": self.number}

    @property
    def metadata(self) -> TableMetadataV2:
        return self.version.metadata

    @property
    def properties(self) -> dict[str, str]:
        return self.metadata.properties

    @cached_property
    def schema(self) -> Schema:
        return self.metadata.schema()

    def schema_at(self, sequence_number: int) -> Schema:
        """Return a schema that has every field of now which is in the files that were added by this sequence
        number.

        Where schemas only grow, it is that of the first snapshot from there on which has not expired. Where
        others drop columns, and set schemas back, nothing but the present one is sure to have them all.
        """
        is_sure = sequence_number and not self.version.is_shared
        for snapshot in self.metadata.snapshots if is_sure else ():
            if (snapshot.sequence_number or 0) >= sequence_number:
                known = None if snapshot.schema_id is None else self.metadata.schema_by_id(snapshot.schema_id)
                return self.schema if known is None else known
        return self.schema

    @cached_property
    def spec(self) -> PartitionSpec:
        return self.metadata.spec()

    @cached_property
    def snapshot(self) -> Snapshot | None:
        """The current snapshot, or None while the table has never had rows."""
        if self.metadata.current_snapshot_id is None:
            return None
        # The newest snapshot is the last of the list, so this looks from the end.
        current = self.metadata.current_snapshot_id
        snapshot = next((s for s in reversed(self.metadata.snapshots) if s.snapshot_id == current), None)
        if snapshot is None:
            raise CorruptTableError(
                f"version {self.number} names snapshot {current} as current and does not hold it; nothing was"
                f" changed. Restore {version_path(self.number)} from a copy: {self.metadata.location}",
                **self.where,
            )
        return snapshot

    def main_snapshots(self) -> Iterator[Snapshot]:
        """Yield the snapshots of main that the head holds, newest first; staged ones are beside it."""
        wanted = self.metadata.current_snapshot_id
        for snapshot in reversed(self.metadata.snapshots):
            if snapshot.snapshot_id == wanted:
                yield snapshot
                wanted = snapshot.parent_snapshot_id

    def follows(self, snapshot_id: int | None) -> bool:
        """Return whether main is a snapshot, or descends from it; not of one that has expired."""
        return snapshot_id is None or any(each.snapshot_id == snapshot_id for each in self.main_snapshots())

    @property
    def counted_commits(self) -> int:
        """How many commits have counted themselves in this lineage; 0 where the count was damaged."""
        text = self.properties.get(properties.CLUSTERING_COUNT, "0")
        return int(text) if text.isdecimal() else 0

    def transaction(self, app_id: str) -> TransactionState | None:
        return state_of(self.properties, app_id)

    def outbox(self, app_id: str) -> OutboxEntry | None:
        """Return the files that the last commit of an application left to deliver, delivered since or not."""
        return outbox_of(self.properties, app_id)

    def sort_order_id(self, order: SortOrder) -> int | None:
        """Return the id of the table's sort order of these fields, or None if it has none such."""
        same = (each.order_id for each in self.metadata.sort_orders if each.fields == order.fields)
        return next(same, None)

    @cached_property
    def pruning(self) -> PartitionPruning:
        return PartitionPruning(self.metadata.partition_specs, self.schema)

    def live_files(self) -> Iterator[LiveFile]:
        """Yield every live data file. Reads all manifests of data files that are not in memory."""
        yield from self.files_in(self._data_manifests())

    def write_copies(self) -> None:
        """Write copies of large manifests that have none, some at a time, unless no file of the table may be
        deleted. Raises as the store does.
        """
        if not self.version.keeps_files:
            self.manifest_files.write_copies(self.manifests)

    def columns(self, partitions: Collection[Partition] | None = None) -> Iterator[PackedFiles]:
        """Yield the live data files as columns, manifest by manifest, which is less work than objects are:
        those of some partitions at least, where these are given.
        """
        manifests = self.manifest_files.ahead(self._data_manifests(partitions))
        return map(self.manifest_files.columns, manifests)

    def files_near(self, partitions: Collection[Partition]) -> Iterator[LiveFile]:
        """Yield the live data files of these partitions, and others of the manifests that hold some."""
        yield from self.files_in(self._data_manifests(partitions))

    def files_below(
        self, below_bytes: int, partitions: Collection[Partition] | None = None, *, fillable: bool = False
    ) -> Iterator[LiveFile]:
        """Yield the live data files that are smaller than so many bytes: at least those of some partitions,
        where these are given, and with `fillable` those without a sort order. A manifest is not read where
        its name states that it has none.
        """

        def may_have_some(manifest: ManifestFile) -> bool:
            if (stated := stated_files(manifest.manifest_path)) is None:
                return True
            smallest = stated.smallest_open if fillable else stated.smallest
            return smallest is not None and smallest < below_bytes

        manifests = filter(may_have_some, self._data_manifests(partitions))
        for manifest in self.manifest_files.ahead(manifests):
            yield from self.manifest_files.contents(manifest).below(below_bytes)

    def select(
        self, wanted: Selection, *, newest_first: bool = False
    ) -> Iterator[tuple[ManifestFile, LiveFile]]:
        """Yield the live data files that are asked for, each with its manifest, those that their deletes may
        have brought below the size, and some others. One may be missed where its manifest's name is wrong.

        A manifest is read when its files are asked for, with `newest_first` in the order of their last names.
        """
        shrunk = set() if wanted.below_bytes is None else set(self._deletes.named_files(wanted.partitions))
        manifests: Iterable[ManifestFile] = wanted.manifests(self.manifests, self.pruning)
        if newest_first:
            manifests = sorted(manifests, key=last_time, reverse=True)
        for manifest, file in select_files(self.manifest_files, manifests, wanted):
            shrunk.discard(file.location)
            yield manifest, file
        of_any_size = replace(wanted, below_bytes=None)
        manifests = of_any_size.manifests(self.manifests, self.pruning)
        found = find_files(self.manifest_files, manifests, shrunk, likely=True, once=True)
        yield from (it for it in found.values() if of_any_size.takes(it[1]))

    def find_live(self, location: str) -> LiveFile | None:
        """Return a live data file by its location, or None if it is not live."""
        return self.find_all_live([location]).get(location)

    def find_all_live(
        self, locations: Iterable[str], *, likely: bool = False, once: bool = False
    ) -> dict[str, LiveFile]:
        """Return those of these data files that are live. With `likely` one is missed where the name of its
        manifest is wrong: for callers that then plan their work again. `once` is as `find_files` has it.
        """
        # The newest manifests come first, and callers look for new files.
        found = find_files(self.manifest_files, self._data_manifests(), locations, likely=likely, once=once)
        return {location: file for location, (_, file) in found.items()}

    def find_entries(self, locations: Iterable[str]) -> dict[str, DataFile]:
        """Return what the manifests state of those of these data files that are live, with all statistics.
        Large manifests are read again.
        """
        found = find_files(self.manifest_files, self._data_manifests(), locations)
        manifests = {manifest.manifest_path: manifest for manifest, _ in found.values()}
        entries = (it.data_file for each in manifests.values() for it in self.manifest_files.entries(each))
        return {file.file_path: file for file in entries if file.file_path in found}

    def files_in(self, manifests: Iterable[ManifestFile]) -> Iterator[LiveFile]:
        """Yield the live files of these manifests. Reads those that are not in memory."""
        for manifest in self.manifest_files.ahead(manifests):
            yield from self.manifest_files.contents(manifest).files.values()

    def _data_manifests(self, partitions: Collection[Partition] | None = None) -> Iterable[ManifestFile]:
        manifests = filter(is_data, self.manifests)
        return manifests if partitions is None else self.pruning.near(manifests, partitions)

    def delete_files(self) -> Iterator[LiveFile]:
        """Yield every live delete file. Reads the manifests that were not read before."""
        yield from self.files_in(manifest for manifest in self.manifests if not is_data(manifest))

    def has_deletes(self, file: LiveFile) -> bool:
        """Return whether a delete file may apply to a data file."""
        return bool(self.deletes_of(file))

    def deletes_of(self, file: LiveFile) -> list[LiveFile]:
        """Return the delete files that may apply to a data file."""
        return self._deletes.find(file)

    def files_with_deletes(self, partitions: Collection[Partition] | None = None) -> Iterator[LiveFile]:
        """Yield the live data files that delete files may apply to: those of some partitions at least, where
        these are given.
        """
        if self._deletes.all_name_one_file:
            manifests, named = self._data_manifests(partitions), self._deletes.named_files(partitions)
            found = find_files(self.manifest_files, manifests, named, likely=True)
            yield from (file for _, file in found.values())
        else:
            files = self.live_files() if partitions is None else self.files_near(partitions)
            yield from (file for file in files if self._deletes.find(file))

    def files_with_own_deletes(self) -> AbstractSet[str]:
        """Return the locations that position-delete files name alone, of files that are live or not."""
        return set(self._deletes.named_files())

    def files_with_shared_deletes(self) -> Iterator[LiveFile]:
        """Yield the live data files that other delete files may apply to."""
        partitions = self._deletes.shared_in()
        files = self.live_files() if partitions is None else self.files_near(partitions)
        yield from (file for file in files if self._deletes.find(file))

    @cached_property
    def _deletes(self) -> DeleteIndex:
        return DeleteIndex(self.delete_files(), self.pruning.partitioned)
