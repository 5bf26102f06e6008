"""Compares the pages of a row group, as bytes, with what headers, checksums and the footer say of them."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, field

from streaming_sink.tasks.row_groups.footer import FooterError, StoredGroup
from streaming_sink.tasks.row_groups.page_headers import PageHeader, decode_header

_VALUES, _PLAIN, _ENCODINGS = 5, 6, 13
"""Fields of the metadata of a column chunk."""


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
        self.encodings[header.kind, header.encoding] += 1


def stated_totals(group: StoredGroup) -> PageTotals:
    """Return what a footer says of a row group's pages. FooterError where it does not."""
    totals = PageTotals()
    try:
        for meta in (chunk.fields[3].value for chunk in group.chunks):
            totals.values += meta[_VALUES].value
            totals.plain_bytes += meta[_PLAIN].value
            for each in meta[_ENCODINGS].value.items:
                totals.encodings[each[1].value, each[2].value] += each[3].value
    except (LookupError, TypeError, AttributeError) as lack:
        raise FooterError(f"it does not say how its pages are encoded: {lack}") from lack
    return totals


def check_page(data: bytes, at: int, size: int, needs_checksum: bool) -> PageHeader:
    """Return the header of a page that begins here, and has so many bytes. FooterError where it does not, or
    is not that of its checksum.
    """
    header = decode_header(data, at)
    if header.end - at + header.bytes != size:
        stated = header.end - at + header.bytes
        raise FooterError(f"a page has {size:,} bytes by its index, and {stated:,} by its header")
    if header.checksum is None:
        if needs_checksum:
            raise FooterError("a page has no checksum, and lists are not copied without")
    elif zlib.crc32(memoryview(data)[header.end : at + size]) != header.checksum & 0xFFFFFFFF:
        raise FooterError(f"a page of {size:,} bytes is damaged: its checksum is another one")
    return header
