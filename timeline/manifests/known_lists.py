"""The manifest lists that a process keeps in memory. A list has most of its manifests in common with the one
before it, so those that are equal are kept once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.manifest import ManifestFile, read_manifest_list

from timeline.manifests.manifest_format import ReadBytes

_KEPT_LISTS = 4_000
"""Of a history of 2,000 snapshots and those whose files wait for their deletion: 20 MB where each
has 500 manifests.
"""

Manifests = tuple[ManifestFile, ...]


@dataclass
class KnownLists:
    """The last lists that were written or read; never what a version states of a list, since deletions depend
    on these. A sweep reads a hundred of them: 0.4 s of processor time, and 3 s at 30 ms a request.
    """

    _lists: dict[str, Manifests] = field(default_factory=dict)
    _last_read: Mapping[str, ManifestFile] = field(default_factory=dict)
    """The manifests of the last one by their paths."""

    def get(self, location: str) -> Manifests | None:
        """Return the manifests of a list that was seen before, and is still in memory."""
        return self._lists.get(location)

    def parse(self, location: str, data: bytes) -> Manifests:
        """Return the manifests of a list that was read. Raises as the Avro reader does."""
        found = tuple(map(self._kept_once, read_manifest_list(ReadBytes(location, data))))
        self._last_read = {manifest.manifest_path: manifest for manifest in found}
        return self.remember(location, found)

    def remember(self, location: str, manifests: Manifests) -> Manifests:
        """Keep what a list holds, and return it."""
        self._lists[location] = manifests
        while len(self._lists) > _KEPT_LISTS:
            del self._lists[next(iter(self._lists))]
        return manifests

    def _kept_once(self, manifest: ManifestFile) -> ManifestFile:
        known = self._last_read.get(manifest.manifest_path)
        is_same = known is not None and _fields(known) == _fields(manifest)  # `==` compares paths alone
        return known if known is not None and is_same else manifest


def _fields(manifest: ManifestFile) -> list[object]:
    return [manifest[position] for position in range(len(manifest))]
