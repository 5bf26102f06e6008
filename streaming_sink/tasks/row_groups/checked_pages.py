"""Compares the pages of a row group, as bytes, with what headers, checksums and the footer say of them."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from streaming_sink.tasks.row_groups.footer import FooterError, StoredGroup
from streaming_sink.tasks.row_groups.page_headers import PageHeader, decode_header

_VALUES, _PLAIN, _ENCODINGS = 5, 6, 13
"""Fields of the metadata of a column chunk."""
_LARGEST_DICTIONARY = 16 * 1024 * 1024
"""pyarrow ends one at a megabyte, if it is not asked for more."""
_CODECS: Mapping[int, str] = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_LENGTH = struct.Struct("<I")
_COUNTED_AS = {3: 0}
"""Arrow counts data pages of version 2 among those of version 1."""


@dataclass
class PageTotals:
    """What the headers of pages say, added up."""

    values: int = 0
    plain_bytes: int = 0
    """With those of the headers."""
    encodings: Counter[tuple[int, int]] = field(default_factory=Counter)
    """How many pages there are of each kind and encoding."""

    def add(self, header: PageHeader, size: int) -> None:
        """Add a page of so many bytes with its header."""
        self.values += header.values
        self.plain_bytes += size - header.bytes + header.plain_bytes
        self.encodings[_COUNTED_AS.get(header.kind, header.kind), header.encoding] += 1


def stated_totals(group: StoredGroup) -> PageTotals:
    """Return what a footer says of a row group's pages. FooterError where it does not."""
    totals = PageTotals()
    try:
        for meta in (chunk.fields[3].value for chunk in group.chunks):
            totals.values += meta[_VALUES].value
            totals.plain_bytes += meta[_PLAIN].value
            for each in meta[_ENCODINGS].value.items:
                kind = each[1].value
                totals.encodings[_COUNTED_AS.get(kind, kind), each[2].value] += each[3].value
    except (LookupError, TypeError, AttributeError) as lack:
        raise FooterError(f"it does not say how its pages are encoded: {lack}") from lack
    return totals


def check_dictionary(page: memoryview, header: PageHeader, codec: int, width: int) -> None:
    """Check that a dictionary has the entries of its header, which no checksum covers: else its file cannot
    be read. `width`: the bytes of an entry, 0 of texts. FooterError. One that is very large is not looked at.
    """
    if header.plain_bytes > _LARGEST_DICTIONARY:
        return
    data = page if codec == 0 else _decompressed(page, header.plain_bytes, codec)
    if width:
        entries, rest = divmod(len(data), width)
        entries = -1 if rest else entries
    else:
        entries = _count_texts(data)
    if entries != header.entries:
        raise FooterError(f"a dictionary states {header.entries:,} entries, and has others")


def _count_texts(data: bytes | memoryview) -> int:
    """Return how many texts there are, each behind its length; -1 where they do not fill the bytes."""
    at, entries, last = 0, 0, len(data) - _LENGTH.size
    while at <= last:
        at += _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
        entries += 1
    return entries if at == len(data) else -1


def _decompressed(page: memoryview, size: int, codec: int) -> bytes:
    if size < 0:
        raise FooterError(f"a dictionary has {size:,} bytes")
    try:
        plain: bytes = pa.decompress(page, size, _CODECS[codec], asbytes=True)
    except (pa.ArrowException, OSError, LookupError, ValueError) as damage:
        raise FooterError(f"a dictionary cannot be decompressed: {damage}") from damage
    return plain


def check_page(data: bytes, at: int, size: int, rows: int | None, needs_checksum: bool) -> PageHeader:
    """Return the header of a page that begins here, and has so many bytes, and rows where these are known.
    FooterError where it does not, or is not that of its checksum.
    """
    header = decode_header(data, at)
    if rows is not None and header.rows != rows:
        raise FooterError(f"a page has {rows:,} rows by its index, and {header.rows:,} by its header")
    if header.end - at + header.bytes != size:
        stated = header.end - at + header.bytes
        raise FooterError(f"a page has {size:,} bytes by its index, and {stated:,} by its header")
    if header.checksum is None:
        if needs_checksum:
            raise FooterError("a page has no checksum, and lists are not copied without")
    elif zlib.crc32(memoryview(data)[header.end : at + size]) != header.checksum & 0xFFFFFFFF:
        raise FooterError(f"a page of {size:,} bytes is damaged: its checksum is another one")
    return header
