"""The live data files of a manifest as columns, compressed: read in a hundredth of the manifest's time.

A large manifest has a copy of this form (`copies.copy_path`). It is derived, and may be deleted at
any time: it names the manifest that it is of, and has a digest, so that one that is damaged, cut off or of
another manifest is not taken for it.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any

from pyiceberg.manifest import DataFileContent, ManifestFile

from timeline.manifests.entries import LiveFile
from timeline.manifests.partition_values import read_value, spell_value

_MAGIC = b"files-1\n"
_DIGEST_BYTES = 16
_FASTEST = 1


@dataclass(frozen=True)
class PackedFiles:
    """The live data files of one manifest, as columns of one length."""

    spec_id: int
    partitions: Sequence[tuple[Any, ...]]
    """Each partition once."""
    partition: Sequence[int]
    """The place of each file's in `partitions`."""
    locations: Sequence[str]
    bytes: Sequence[int]
    rows: Sequence[int]
    sort_orders: Sequence[int]
    sequence_numbers: Sequence[int]

    @classmethod
    def of(cls, manifest: ManifestFile, files: Iterable[LiveFile]) -> PackedFiles:
        """Return the columns of these files, which are live in a manifest."""
        files, places = list(files), dict[tuple[object, ...], int]()
        partition = [places.setdefault(it.partition, len(places)) for it in files]
        return cls(
            manifest.partition_spec_id,
            list(places),
            partition,
            [it.location for it in files],
            [it.bytes for it in files],
            [it.rows for it in files],
            [it.sort_order_id for it in files],
            [it.sequence_number for it in files],
        )

    def files(self) -> Iterator[LiveFile]:
        """Yield the files, each with all that is known of it: none is encrypted."""
        spec_id, partitions = self.spec_id, self.partitions
        columns = self.locations, self.partition, self.bytes, self.rows, self.sort_orders
        for location, place, size, rows, order, number in zip(*columns, self.sequence_numbers, strict=True):
            yield LiveFile(location, spec_id, partitions[place], size, rows, order, number)


def pack_files(manifest: ManifestFile, files: Iterable[LiveFile]) -> bytes | None:
    """Return the live files of a manifest as bytes; None where they are more than columns hold: delete files,
    encrypted files.
    """
    files = list(files)
    if any(it.content != DataFileContent.DATA or it.key_metadata is not None for it in files):
        return None
    columns = vars(PackedFiles.of(manifest, files)).copy()
    columns["partitions"] = [[spell_value(value) for value in values] for values in columns["partitions"]]
    stated = {**columns, **_identity(manifest)}
    data = zlib.compress(json.dumps(stated, separators=(",", ":")).encode(), _FASTEST)
    return _MAGIC + _digest(data) + data


def unpack_files(manifest: ManifestFile, data: bytes) -> PackedFiles | None:
    """Return the columns of a manifest; None where the bytes are damaged, or of another manifest."""
    head, body = len(_MAGIC), len(_MAGIC) + _DIGEST_BYTES
    if data[:head] != _MAGIC or data[head:body] != _digest(data[body:]):
        return None
    stated = json.loads(zlib.decompress(data[body:]))
    if any(stated.get(name) != value for name, value in _identity(manifest).items()):
        return None
    columns = {it.name: stated[it.name] for it in fields(PackedFiles)}
    columns["partitions"] = [tuple(map(_value, values)) for values in columns["partitions"]]
    return PackedFiles(**columns)


def _identity(manifest: ManifestFile) -> dict[str, object]:
    return {
        "manifest": manifest.manifest_path.rpartition("/")[2],
        "sequence_number": manifest.sequence_number,
        "spec_id": manifest.partition_spec_id,
    }


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _value(spelled: Any) -> object:
    value = read_value(spelled)
    return math.nan if value != value else value  # as `entry_partition`, so that two that hold NaN are equal
