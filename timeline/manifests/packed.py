"""The live data files of a manifest as columns, compressed: read in a hundredth of the manifest's time.

A large manifest has a copy of this form (`copies.copy_path`). It is derived, and may be deleted at
any time: it names the manifest that it is of, and has a digest, so that one that is damaged, cut off or of
another manifest is not taken for it.
"""

from __future__ import annotations

import json
import math
import struct
import sys
import zlib
from array import array
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate, chain, compress, pairwise, repeat
from typing import Any, cast

from pyiceberg.manifest import DataFileContent, ManifestFile

from timeline.location_hashes import hash_locations
from timeline.manifests.entries import LiveFile
from timeline.manifests.partition_values import read_value, spell_value

_MAGIC = b"files-3\n"
_WITHOUT_HASHES = b"files-2\n"
"""Copies of earlier releases, which are read: they leave with their manifests."""
_DIGEST_BYTES = 16
_FASTEST = 1
_SECTIONS = {_MAGIC: struct.Struct("<4I"), _WITHOUT_HASHES: struct.Struct("<3I")}
"""The bytes of what follows: what is stated of the files, their numbers, their locations, hashes of these."""
_NUMBERS = 5
"""Columns of numbers, each of 64 bits."""


@dataclass(frozen=True)
class PackedFiles:
    """The live data files of one manifest, as columns of one length."""

    spec_id: int
    partitions: Sequence[tuple[Any, ...]]
    """Each partition once."""
    partition: Sequence[int]
    """The place of each file's in `partitions`."""
    bytes: Sequence[int]
    rows: Sequence[int]
    sort_orders: Sequence[int]
    sequence_numbers: Sequence[int]
    spelled: _Spelled
    """The locations; those that were packed are unpacked when they are asked for."""
    hashed: _Bytes | None = None
    """The hashes of the locations, where they were packed."""

    @classmethod
    def of(cls, manifest: ManifestFile, files: Iterable[LiveFile]) -> PackedFiles:
        """Return the columns of these files, which are live in a manifest."""
        files, places = list(files), dict[tuple[object, ...], int]()
        partition = [places.setdefault(it.partition, len(places)) for it in files]
        return cls(
            manifest.partition_spec_id,
            list(places),
            partition,
            [it.bytes for it in files],
            [it.rows for it in files],
            [it.sort_order_id for it in files],
            [it.sequence_number for it in files],
            [it.location for it in files],
        )

    @cached_property
    def locations(self) -> Sequence[str]:
        """The locations of the files."""
        if isinstance(self.spelled, _Bytes):
            return cast("list[str]", json.loads(zlib.decompress(self.spelled)))
        return self.spelled

    @cached_property
    def hashes(self) -> _Bytes:
        """The hashes of the locations, by `hash_locations`."""
        return hash_locations(self.locations) if self.hashed is None else self.hashed

    def files(self, locations: Container[str] | None = None) -> Iterator[LiveFile]:
        """Yield the files, or those at some locations, with all that is known of them: none is encrypted."""
        return self.files_where(
            repeat(True) if locations is None else (it in locations for it in self.locations)
        )

    def files_where(self, wanted: Iterable[bool]) -> Iterator[LiveFile]:
        """Yield the files that are wanted, by a truth value for each."""
        spec_id, partitions = self.spec_id, self.partitions
        columns = self.locations, self.partition, self.bytes, self.rows, self.sort_orders
        files = compress(zip(*columns, self.sequence_numbers, strict=True), wanted)
        for location, place, size, rows, order, number in files:
            yield LiveFile(location, spec_id, partitions[place], size, rows, order, number)


_Bytes = bytes
"""`PackedFiles.bytes` hides the builtin's name."""
_Spelled = Sequence[str] | _Bytes


def pack_files(manifest: ManifestFile, files: Iterable[LiveFile]) -> bytes | None:
    """Return the live files of a manifest as bytes; None where they are more than columns hold: delete files,
    encrypted files.
    """
    files = list(files)
    if any(it.content != DataFileContent.DATA or it.key_metadata is not None for it in files):
        return None
    columns = PackedFiles.of(manifest, files)
    partitions = [[spell_value(value) for value in values] for values in columns.partitions]
    sizes = columns.bytes, columns.rows
    numbers = array("q", chain(columns.partition, *sizes, columns.sort_orders, columns.sequence_numbers))
    sections = [
        _compress(_json({"partitions": partitions, **_identity(manifest)})),
        _compress(_little_endian(numbers).tobytes()),
        _compress(_json(columns.locations)),
        columns.hashes,
    ]
    data = _SECTIONS[_MAGIC].pack(*map(len, sections)) + b"".join(sections)
    return _MAGIC + _digest(data) + data


def unpack_files(manifest: ManifestFile, data: bytes) -> PackedFiles | None:
    """Return the columns of a manifest; None where the bytes are damaged, or of another manifest."""
    start, body = len(_MAGIC), len(_MAGIC) + _DIGEST_BYTES
    sizes_of = _SECTIONS.get(data[:start])
    if sizes_of is None or data[start:body] != _digest(data[body:]):
        return None
    ends = list(accumulate(sizes_of.unpack_from(data, body), initial=body + sizes_of.size))
    if ends[-1] != len(data):
        return None  # the magic is damaged: no digest is of it, and one bit makes another of it
    head, numbers, locations, *hashes = (data[start:end] for start, end in pairwise(ends))
    stated = json.loads(zlib.decompress(head), object_hook=_read_object)
    if any(stated.get(name) != value for name, value in _identity(manifest).items()):
        return None
    every = _little_endian(array("q", zlib.decompress(numbers)))
    count = len(every) // _NUMBERS
    columns = (every[column * count : (column + 1) * count] for column in range(_NUMBERS))
    partition, sizes, rows, orders, sequence_numbers = columns
    partitions = list(map(tuple, stated["partitions"]))
    of = manifest.partition_spec_id
    hashed = hashes[0] if hashes else None
    return PackedFiles(of, partitions, partition, sizes, rows, orders, sequence_numbers, locations, hashed)


def _identity(manifest: ManifestFile) -> dict[str, object]:
    return {
        "manifest": manifest.manifest_path.rpartition("/")[2],
        "sequence_number": manifest.sequence_number,
        "spec_id": manifest.partition_spec_id,
    }


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _compress(data: bytes) -> bytes:
    return zlib.compress(data, _FASTEST)


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _read_object(found: dict[str, Any]) -> object:
    """Return an object of JSON: what is stated of the files, or a value of a partition."""
    if "partitions" in found:
        return found
    value = read_value(found)
    return math.nan if value != value else value  # as `entry_partition`, so that two that hold NaN are equal
