"""What is found in the bytes of JSON before Arrow's parser reads them, since it would end the process."""

from __future__ import annotations

import re

import numpy as np

_BLANKS = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FIRST_VALUE = 1 << 16
"""Bytes among which the first value begins; all before it would be blanks."""
_MOST_LEVELS = 1000
"""The parser calls itself for each level: 5,000 of them it reads, by 30,000 its stack overflows."""
_PART = 1 << 24
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def why_unparsable(data: bytes | memoryview) -> str | None:
    """Return why the parser must not read JSON lines; None where it may."""
    # It reads past its buffer where the first value is null.
    if bytes(data[:_FIRST_VALUE]).removeprefix(_BYTE_ORDER_MARK).lstrip(_BLANKS).startswith(b"null"):
        return "the first value is null, and rows of JSON are objects"
    # Brackets in text count as others at first; without the texts only where it may be deep.
    if _deepest(data) > _MOST_LEVELS and _deepest(_STRING.sub(b"", data)) > _MOST_LEVELS:
        return f"objects and lists are in each other, more than {_MOST_LEVELS:,} levels deep"
    return None


def _deepest(data: bytes | memoryview) -> int:
    """Return how many brackets are open at once, at most."""
    deepest = level = 0
    for begin in range(0, len(data), _PART):
        part = np.frombuffer(data[begin : begin + _PART], np.uint8)
        # { and [ differ by one bit, as } and ] do.
        opens, closes = ((part | 0x20) == each for each in b"{}")
        levels = np.cumsum(opens.astype(np.int8) - closes.astype(np.int8), dtype=np.int32)
        deepest = max(deepest, level + int(levels.max(initial=0)))
        level += int(levels[-1])
    return deepest
