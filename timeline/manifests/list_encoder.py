"""Manifest lists as bytes: what a list has in common with the one before it is copied as it was encoded.

A list of n manifests differs from its parent's by a few entries, and its blocks are cut by what is in them,
so that most of these come out as before: encoding costs what is new, and not what the table has.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from pyiceberg.manifest import UNASSIGNED_SEQ, ManifestFile

from timeline.manifests.manifest_format import LIST_FORMAT

_CUT_ONE_IN = 16
_MOST_BLOCKS = 4_096
"""In memory: some 5 MB."""
_Key = tuple[object, ...]


@dataclass
class ListEncoder:
    """Encodes the lists of one table."""

    _blocks: dict[tuple[_Key, ...], bytes] = field(default_factory=dict)
    encoded: int = 0
    """How many entries were encoded, and not copied."""

    def encode(self, manifests: Sequence[ManifestFile], metadata: Mapping[str, str]) -> bytes:
        """Return the bytes of a list of these manifests."""
        sync = blake2b(repr(sorted(metadata.items())).encode(), digest_size=16).digest()
        blocks = [self._block(run) for run in _runs(manifests)]
        return LIST_FORMAT.header(metadata, sync) + b"".join(block + sync for block in blocks)

    def _block(self, run: Sequence[ManifestFile]) -> bytes:
        key = tuple(map(_key, run))
        if (known := self._blocks.pop(key, None)) is None:
            known = LIST_FORMAT.block(run)
            self.encoded += len(run)
        self._blocks[key] = known
        if len(self._blocks) > _MOST_BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        return known


def _runs(manifests: Sequence[ManifestFile]) -> Iterator[Sequence[ManifestFile]]:
    """Yield the entries of each block: one ends where the digest of a manifest's path says so, at any place
    of the list.
    """
    start = 0
    for place, manifest in enumerate(manifests, 1):
        if zlib.crc32(manifest.manifest_path.encode()) % _CUT_ONE_IN == 0 or place == len(manifests):
            yield manifests[start:place]
            start = place


def _key(manifest: ManifestFile) -> _Key:
    """Return what an entry is known by. A manifest never changes; its numbers are those of its commit."""
    return (
        manifest.manifest_path,
        manifest.sequence_number,
        manifest.min_sequence_number,
        manifest.added_snapshot_id,
        manifest.added_files_count,
        manifest.existing_files_count,
        manifest.deleted_files_count,
    )


def numbered(manifest: ManifestFile, sequence_number: int) -> ManifestFile:
    """Return a manifest with its sequence numbers, those that this commit gives to its own included. A copy
    of its fields, whose values never change: a retry must find the numbers unassigned.
    """
    if manifest.sequence_number != UNASSIGNED_SEQ:
        return manifest
    copied = ManifestFile(*(manifest[position] for position in range(len(manifest))))
    copied.sequence_number = sequence_number
    if manifest.min_sequence_number == UNASSIGNED_SEQ:
        copied.min_sequence_number = sequence_number
    return copied
