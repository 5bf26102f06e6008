"""The contents of manifests, and those that a process keeps in memory, within a bound."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile

from timeline.manifests.entries import LiveFile

_CACHED_ENTRIES = 256
"""A manifest of at most so many live entries is kept parsed in whole; it is the kind that fills rewrite."""

KEPT_FILES = 65_536
"""Live files that are kept as objects: some 50 MiB. What was not used for longest is dropped."""
_IN_WHOLE = 5
"""An entry that is kept parsed in whole counts as so many files."""


def is_data(manifest: ManifestFile) -> bool:
    """Return whether a manifest lists data files; the others list delete files."""
    return manifest.content == ManifestContent.DATA


def is_large(manifest: ManifestFile) -> bool:
    """Return whether a manifest of data files has so many that they are kept packed."""
    return is_data(manifest) and count_live(manifest) > _CACHED_ENTRIES


def count_live(manifest: ManifestFile) -> int:
    """Return how many live entries a manifest has, as its list says."""
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


@dataclass(frozen=True)
class ManifestContents:
    """The live entries of one immutable manifest."""

    sequence_number: int
    files: dict[str, LiveFile]
    entries: tuple[ManifestEntry, ...] | None = None
    """The whole entries, where they are few."""
    is_copy: bool = False
    """Whether a copy beside the manifest was read, and not the manifest."""
    _below: dict[int, tuple[LiveFile, ...]] = field(default_factory=dict)

    @property
    def weight(self) -> int:
        """What it counts for among the `KEPT_FILES`."""
        return len(self.files) * (1 if self.entries is None else _IN_WHOLE)

    def below(self, size: int) -> tuple[LiveFile, ...]:
        """Return the live files smaller than `size` bytes. Computed once: planning asks at every batch."""
        if size not in self._below:
            self._below[size] = tuple(file for file in self.files.values() if file.bytes < size)
        return self._below[size]


_NOTHING = ManifestContents(0, {})


@dataclass
class ContentsCache:
    """The contents of manifests that were used last, by their paths.

    Above the bound, whole entries go first, which a merge of manifests reads again; then the files of what
    was not used for longest, which stay in memory packed.
    """

    _contents: dict[str, ManifestContents] = field(default_factory=dict)
    """In the order of their last use."""
    _whole: dict[str, None] = field(default_factory=dict)
    """The paths of those with whole entries, in the order in which they came."""
    _weight: int = 0

    def get(self, manifest: ManifestFile) -> ManifestContents | None:
        path = manifest.manifest_path
        known = self._contents.get(path)
        # A manifest that a lost attempt listed may be listed again under another sequence number, which its
        # entries inherit.
        if known is None or known.sequence_number != manifest.sequence_number:
            return None
        self._contents[path] = self._contents.pop(path)
        return known

    def put(self, path: str, contents: ManifestContents) -> None:
        """Keep what was read or written."""
        self._drop(path)
        self._add(path, contents)
        while self._weight > KEPT_FILES and len(self._whole) > (path in self._whole):
            oldest = next(each for each in self._whole if each != path)
            files = self._drop(oldest)
            self._add(oldest, replace(files, entries=None))
        while self._weight > KEPT_FILES and len(self._contents) > 1:
            self._drop(next(each for each in self._contents if each != path))

    def keep_only(self, paths: Collection[str]) -> None:
        """Forget all manifests but these."""
        for path in self._contents.keys() - paths:
            self._drop(path)

    def _add(self, path: str, contents: ManifestContents) -> None:
        self._contents[path] = contents
        self._weight += contents.weight
        if contents.entries is not None:
            self._whole[path] = None

    def _drop(self, path: str) -> ManifestContents:
        self._whole.pop(path, None)
        dropped = self._contents.pop(path, _NOTHING)
        self._weight -= dropped.weight
        return dropped
