"""What is found in the bytes of JSON before Arrow's parser reads them, since it would end the process."""

from __future__ import annotations

import numpy as np

_BLANKS = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FIRST_VALUE = 1 << 16
"""Bytes among which the first value begins; all before it would be blanks."""
_MOST_LEVELS = 1000
"""The parser calls itself for each level: 5,000 of them it reads, by 30,000 its stack overflows."""
_PART = 1 << 24


def why_unparsable(data: bytes) -> str | None:
    """Return why the parser must not read JSON lines; None where it may."""
    # It reads past its buffer where the first value is null.
    if data[:_FIRST_VALUE].removeprefix(_BYTE_ORDER_MARK).lstrip(_BLANKS).startswith(b"null"):
        return "the first value is null, and rows of JSON are objects"
    if _deepest(data) > _MOST_LEVELS:
        return f"objects and lists are in each other, more than {_MOST_LEVELS:,} levels deep"
    return None


def _deepest(data: bytes) -> int:
    """Return how many brackets are open at once, at most; those in texts are none."""
    # Without what is escaped each quote begins or ends a text. Both replacements go from left to right.
    data = data.replace(rb"\\", b"").replace(rb"\"", b"")
    deepest = level = 0
    in_text = False
    for begin in range(0, len(data), _PART):
        part = np.frombuffer(data[begin : begin + _PART], np.uint8)
        texts = np.logical_xor.accumulate(part == ord('"')) ^ in_text
        # { and [ differ by one bit, as } and ] do.
        opens, closes = (((part | 0x20) == each) & ~texts for each in b"{}")
        levels = np.cumsum(opens.astype(np.int8) - closes.astype(np.int8), dtype=np.int32)
        deepest = max(deepest, level + int(levels.max(initial=0)))
        level, in_text = level + int(levels[-1]), bool(texts[-1])
    return deepest
