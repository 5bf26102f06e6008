"""The contents of manifests, and those that a process keeps in memory, within a bound."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from pyiceberg.manifest import ManifestEntry, ManifestFile

from timeline.manifests.entries import LiveFile

KEPT_FILES = 65_536
"""Live files that are kept as objects: some 50 MiB. What was not used for longest is dropped."""
_IN_WHOLE = 5
"""An entry that is kept parsed in whole counts as so many files."""


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


@dataclass
class ContentsCache:
    """The contents of manifests that were used last, by their paths."""

    _contents: dict[str, ManifestContents] = field(default_factory=dict)
    """In the order of their last use."""

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
        """Keep what was read or written. Large manifests go first: their files are in memory packed, too."""
        self._contents.pop(path, None)
        self._contents[path] = contents
        weight = sum(each.weight for each in self._contents.values())
        for oldest in sorted(self._contents, key=lambda it: self._contents[it].entries is not None):
            if weight <= KEPT_FILES:
                break
            if oldest != path:
                weight -= self._contents.pop(oldest).weight

    def keep_only(self, paths: Collection[str]) -> None:
        """Forget all manifests but these."""
        for path in self._contents.keys() - paths:
            del self._contents[path]
