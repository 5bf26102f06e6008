"""The files of large manifests in a form that is read fast: in memory, and in copies beside the manifests.

A copy is derived, and advice: it may be missing, late or damaged, and then the manifest is read. No decision
to delete a file rests on one. Maintenance writes some at a time; a copy is deleted with its manifest.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyiceberg.manifest import ManifestFile

from timeline import names
from timeline.errors import StoreUnavailableError
from timeline.manifests.entries import LiveFile
from timeline.manifests.packed import PackedFiles, pack_files, unpack_files
from timeline.manifests.read_ahead import ReadAhead
from timeline.stores.base import Store

_LOG = logging.getLogger("timeline")
KEPT_BYTES = 64 * 1024 * 1024
"""Of packed files in memory: some one and a half million. They are made objects again in a twentieth of the
time that their manifests take.
"""


class _Packed(NamedTuple):
    data: bytes
    is_copy: bool


def copy_path(manifest_path: str) -> str:
    """Return the path of the copy of a manifest, by its path or location."""
    return f"{names.COPY_FOLDER}/{manifest_path.rpartition('/')[2].removesuffix('.avro')}.files"


@dataclass
class PackedManifests:
    """The packed files of large manifests of one table: those in memory, and the copies in the store."""

    store: Store
    reads: ReadAhead
    _kept: dict[str, _Packed] = field(default_factory=dict)
    """By the paths of the manifests, in the order of their last use."""
    _size: int = 0
    _copies: set[str] | None = None
    _unpackable: set[str] = field(default_factory=set)
    """The paths of manifests that hold more than columns do. Known to this process alone: a later release may
    pack them.
    """

    def find(
        self, manifest: ManifestFile, *, may_have_copy: bool, keep: bool = True
    ) -> tuple[PackedFiles, bool] | None:
        """Return the files of a manifest, and whether they are from a copy; None where neither memory nor a
        copy has them, as far as this process knows. A copy that is read is kept in memory, if `keep`.
        """
        kept = self._kept.get(manifest.manifest_path)
        if kept is None and may_have_copy:
            kept = self._read_copy(manifest)
        files = None if kept is None else unpack_files(manifest, kept.data)
        if kept is None or files is None:
            if kept is not None and kept.is_copy:
                # Damaged, or of another release: maintenance writes it anew.
                self._known_copies().discard(copy_path(manifest.manifest_path))
            return None
        if keep or manifest.manifest_path in self._kept:
            self._keep(manifest, kept)
        return files, kept.is_copy

    def keeps(self, manifest: ManifestFile) -> bool:
        """Return whether the files of a manifest are in memory."""
        return manifest.manifest_path in self._kept

    def put(self, manifest: ManifestFile, files: Iterable[LiveFile]) -> None:
        """Keep the files of a manifest that was read or written."""
        if (data := pack_files(manifest, files)) is not None:
            self._keep(manifest, _Packed(data, is_copy=False))
        else:
            self._unpackable.add(manifest.manifest_path)

    def keep_only(self, paths: Collection[str]) -> None:
        """Forget what is in memory of all manifests but these."""
        for path in self._kept.keys() - paths:
            self._size -= len(self._kept.pop(path).data)
        self._unpackable.intersection_update(paths)

    def find_copy(self, manifest: ManifestFile) -> str | None:
        """Return the path of the copy of a manifest; None where it has none, as far as this process knows."""
        path = copy_path(manifest.manifest_path)
        try:
            return path if path in self._known_copies() else None
        except StoreUnavailableError as failure:
            _LOG.info("copies of manifests are not used: %s", failure)
            return None

    def without_copy(self, manifests: Iterable[ManifestFile]) -> Sequence[ManifestFile]:
        """Return the manifests of these that have no copy and may get one, as far as this process knows."""
        packable = (it for it in manifests if it.manifest_path not in self._unpackable)
        return [it for it in packable if copy_path(it.manifest_path) not in self._known_copies()]

    def write_copy(self, manifest: ManifestFile) -> bool:
        """Write the copy of a manifest whose files are in memory, and return whether they are. Raises as the
        store does.
        """
        if (kept := self._kept.get(manifest.manifest_path)) is None:
            return False
        path = copy_path(manifest.manifest_path)
        self.store.overwrite(path, kept.data)
        self._known_copies().add(path)
        return True

    def _keep(self, manifest: ManifestFile, packed: _Packed) -> None:
        self._size -= len(self._kept.pop(manifest.manifest_path, _Packed(b"", is_copy=False)).data)
        self._kept[manifest.manifest_path] = packed
        self._size += len(packed.data)
        while self._size > KEPT_BYTES:
            self._size -= len(self._kept.pop(next(iter(self._kept))).data)

    def _read_copy(self, manifest: ManifestFile) -> _Packed | None:
        path = self.find_copy(manifest)
        try:
            data = None if path is None else self.reads.read(path)
        except StoreUnavailableError as failure:
            _LOG.info("the copy of a manifest is not used: %s", failure)
            return None
        return None if data is None else _Packed(data, is_copy=True)

    def _known_copies(self) -> set[str]:
        """Return the paths of the copies that were there when this process first asked, and of its own."""
        if self._copies is None:
            self._copies = {listed.path for listed in self.store.list_folder(names.COPY_FOLDER)}
        return self._copies
