"""Small files of one partition: which of them a merge may take, and which it takes. Shared by the planners of
fills, inline (`planners/inserts.py`) and beside the stream (`planners/fills.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from planners.model import TableFile, describe_deletes
from planners.sizing import FileSizing

SMALL_FILES_AT_MOST = 8
"""The bound on small files in a partition under `FillPolicy.AMORTIZED`."""


class FillPolicy(str, Enum):
    """Which small files are filled: see `planners/inserts.py` for what each promises."""

    ALWAYS = "always"
    AMORTIZED = "amortized"
    NEVER = "never"


def aim_bytes(sizing: FileSizing) -> int:
    """Return the bytes from which files are sealed: so far above the small limit that an estimate a little
    too high does not leave the merged file just below it.
    """
    return sizing.small_file_bytes + (sizing.max_file_bytes - sizing.small_file_bytes) // 8


def refusal(file: TableFile, small_bytes: int) -> str | None:
    """Return why no fill takes this file, or None if it is small, as it was written, and may be taken."""
    if small_bytes == 0:
        return "filling is off"
    if (reason := why_untouchable(file)) is not None:
        return reason
    if file.bytes + file.deleted_bytes >= small_bytes:
        return f"at or above the small limit of {small_bytes:,} bytes"
    return "carries a sort order" if file.sorted else None


def why_untouchable(file: TableFile) -> str | None:
    """Return why no fill and no fold rewrites this file, of any size, or None if they may."""
    if (deletes := describe_deletes(file)) is not None:
        return deletes
    if file.reserved_by is not None:
        return f"reserved by plan {file.reserved_by}"
    return None if file.encryption is None else "is encrypted"


def by_size(file: TableFile) -> tuple[int, str]:
    """The order of the files that the functions below take."""
    return file.bytes, file.path


def largest_that_fit(small: Sequence[TableFile], most_bytes: int) -> tuple[list[TableFile], int]:
    """Return the files, largest first, that have no more than so many bytes together, and their bytes."""
    together: list[TableFile] = []
    have = 0
    for file in reversed(small):
        if have + file.bytes <= most_bytes:
            together.append(file)
            have += file.bytes
    return together, have
