"""The live files of a table that a caller can use, by their sizes and partitions: no others become objects.

Manifests are left out by what their names and their list say (R35), and of large ones columns are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import ManifestFile

from timeline.manifests.contents import is_data, is_large
from timeline.manifests.entries import LiveFile
from timeline.manifests.manifests import ManifestFiles
from timeline.manifests.packed import PackedFiles
from timeline.manifests.pruning import Partition, PartitionPruning
from timeline.manifests.stated_files import stated_files

FieldValues = Sequence[Collection[Any] | None]
"""Of each field of a partition spec the values that are asked for; None for any."""


@dataclass(frozen=True)
class Selection:
    """Which live data files are asked for. What is not given excludes none."""

    below_bytes: int | None = None
    holds: Callable[[Partition], bool] | None = None
    """Whether files of a partition are. It is asked once for each partition of a manifest."""
    partitions: Collection[Partition] | None = None
    """All partitions that may be."""
    values: Mapping[int, FieldValues] | None = None
    """The values that may be, by the ids of specs; none of a spec that is missing."""

    def manifests(
        self, manifests: Iterable[ManifestFile], pruning: PartitionPruning
    ) -> Iterator[ManifestFile]:
        """Yield the manifests that may hold such files, by their names and their list."""
        found: Iterable[ManifestFile] = filter(is_data, manifests)
        if self.partitions is not None:
            found = pruning.near(found, self.partitions)
        if self.values is not None:
            found = pruning.with_values(found, self.values)
        return (it for it in found if self._may_be_small(it))

    def _may_be_small(self, manifest: ManifestFile) -> bool:
        stated = stated_files(manifest.manifest_path)
        if stated is None or self.below_bytes is None:
            return True
        return stated.smallest is not None and stated.smallest < self.below_bytes

    def of_columns(self, columns: PackedFiles) -> Iterator[LiveFile]:
        """Yield those of the files of one manifest."""
        held, below = [self._takes(columns.spec_id, it) for it in columns.partitions], self.below_bytes
        wanted = [held[it] for it in columns.partition]
        if below is not None:
            wanted = [it and size < below for it, size in zip(wanted, columns.bytes, strict=True)]
        return columns.files_where(wanted) if any(wanted) else iter(())

    def takes(self, file: LiveFile) -> bool:
        """Return whether a file is asked for."""
        is_small = self.below_bytes is None or file.bytes < self.below_bytes
        return is_small and self._takes(file.spec_id, file.partition)

    def _takes(self, spec_id: int, partition: tuple[Any, ...]) -> bool:
        return self.holds is None or self.holds((spec_id, partition))


def select_files(
    files: ManifestFiles, manifests: Iterable[ManifestFile], wanted: Selection
) -> Iterator[tuple[ManifestFile, LiveFile]]:
    """Yield the files of these manifests that are asked for, each with its manifest, and others of manifests
    that are in memory as objects, or are read so. Large ones are not.
    """
    for manifest in files.ahead(manifests):
        packed = None
        if files.known(manifest) is None:
            packed = files.packed.find(manifest, may_have_copy=is_large(manifest))
        if packed is None:
            selected: Iterable[LiveFile] = files.contents(manifest).files.values()
        else:
            selected = wanted.of_columns(packed[0])
        yield from ((manifest, file) for file in selected)
