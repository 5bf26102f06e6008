"""File sizes: the limits of files, the estimate of bytes per row, all integers; and which small files of a
partition a merge may take, and takes. Shared by the planners of fills, inline (`planners/inserts.py`) and
beside the stream (`planners/fills.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from statistics import median_low

from planners.model import TableFile, describe_deletes
from planners.values import BYTES, Value, one_of

DEFAULT_BYTES_PER_ROW = 128
"""The estimate while the table has no history, low on purpose: an estimate that is too low makes files that
outgrow the maximum, which a writer notices and ends; one that is too high makes many small files, which go
unnoticed until readers are slow."""

TINY_FILE_BYTES = 256 * 1024
"""Below this a Parquet file says little about its rows: footer, dictionaries and page headers dominate it."""

HISTORY_COMMITS = 16
"""The number of latest commits that `bytes_per_row` looks at."""

FOLD_ABOVE = 0.2
"""The default share: below four bytes are written per byte deleted, and readers skip a fifth of a file."""

WARN_SMALL_FILES = 100
"""Filling leaves at most eight small files in a partition, so ten times as many need attention."""

FILLS = ("beside", "inline", "never")
FILL_POLICIES = ("amortized", "always")
_MAX_FILE_BYTES = 120 * 1024 * 1024
_SMALL_FILE_BYTES = 100 * 1024 * 1024
_STEP = 2
_CONFIRMING = 3

_UNITS = {"": 1, "b": 1} | {
    f"{prefix}{infix}b": base ** (power + 1)
    for power, prefix in enumerate("kmgt")
    for infix, base in (("", 1000), ("i", 1024))
}
_SIZE = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", re.ASCII)


def parse_bytes(size: int | str) -> int:
    """Return a size in bytes from an integer or from text such as "120MiB", "16 MB", "1.5 GiB" or "4096".

    KB, MB, GB and TB are powers of 1000, KiB, MiB, GiB and TiB powers of 1024, in any case of letters;
    parts of a byte are dropped. A size that cannot be read raises ValueError. Signs are read, not judged.
    """
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise ValueError(f"not a size in bytes: {size!r}")
    return int(Fraction(match[1]) * unit)


def size_text(count: int) -> str:
    """Return a number of bytes for people, as "1.5 MiB"."""
    size, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def count_text(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not one: "1,200 files"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class FileSizing(Value):
    """The sizes of files, and how small ones are merged: frozen, checked together, and integers once made.

    `max_file_bytes`: what a planned file may reach. It is exceeded by no more than the estimate of bytes
    per row is wrong. `small_file_bytes`: a file strictly below it may be filled; 0 turns filling off.
    `rows_per_new_file`: where new files are cut; None cuts where `max_file_bytes` is expected, and the
    smaller of both always wins.

    `fill` says where small files are merged: "beside" the stream, after the commit, in a commit of its own;
    "inline", by the tasks of a batch, in its commit, together with new rows; or "never". `fill_policy` says
    which: "amortized", so that each row is rewritten a few times, or "always" all. Beside the stream, a file
    of whose rows more than the share `fold_above` is deleted is rewritten without them. A batch after which a
    partition holds more than `warn_small_files` small files warns in its report and in the log; 0 for never.

    Leave a sixteenth or more between the two sizes: a file that is cut at the maximum comes out a little
    above or below it, and below the small limit it is filled again. Impossible values raise ValueError.
    """

    max_file_bytes: int = field(default=_MAX_FILE_BYTES, metadata=BYTES)
    small_file_bytes: int = field(default=_SMALL_FILE_BYTES, metadata=BYTES)
    rows_per_new_file: int | None = None
    fill: str = "beside"
    fill_policy: str = "amortized"
    fold_above: float = FOLD_ABOVE
    warn_small_files: int = WARN_SMALL_FILES

    def __init__(
        self,
        *,
        max_file_bytes: int | str = "120MiB",
        small_file_bytes: int | str = "100MiB",
        rows_per_new_file: int | None = None,
        fill: str = "beside",
        fill_policy: str = "amortized",
        fold_above: float = FOLD_ABOVE,
        warn_small_files: int = WARN_SMALL_FILES,
    ) -> None:
        given = f"max_file_bytes={max_file_bytes!r}, small_file_bytes={small_file_bytes!r}"
        try:
            largest, small = parse_bytes(max_file_bytes), parse_bytes(small_file_bytes)
        except ValueError as error:
            raise ValueError(
                f'{error}; give bytes as an integer or as text such as "120MiB" or "16 MB": {given}'
            ) from error
        if largest <= 0:
            raise ValueError(
                f"max_file_bytes must be above 0, or no file could hold a row; raise it: {given}"
            )
        if small < 0:
            raise ValueError(f"small_file_bytes must not be negative; give 0 to turn filling off: {given}")
        if small > largest:
            raise ValueError(
                "small_file_bytes must not exceed max_file_bytes, or full files would stay small for ever; "
                f"lower small_file_bytes (0 turns filling off) or raise max_file_bytes: {given}"
            )
        rows: object = rows_per_new_file
        if rows is not None and not (isinstance(rows, int) and rows > 0):
            raise ValueError(
                "rows_per_new_file must be an integer above 0; leave it None to cut by max_file_bytes: "
                f"rows_per_new_file={rows_per_new_file!r}, {given}"
            )
        _check_merges(fill, fill_policy, fold_above, warn_small_files)
        for name, value in (
            ("fill", fill),
            ("fill_policy", fill_policy),
            ("fold_above", fold_above),
            ("warn_small_files", warn_small_files),
        ):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "max_file_bytes", largest)
        object.__setattr__(self, "small_file_bytes", small)
        object.__setattr__(self, "rows_per_new_file", rows_per_new_file)


def _check_merges(fill: object, fill_policy: object, fold_above: object, warn_small_files: object) -> None:
    for name, value, known in (("fill", fill, FILLS), ("fill_policy", fill_policy, FILL_POLICIES)):
        one_of(name, value, known)
    if isinstance(fold_above, bool) or not isinstance(fold_above, int | float) or not 0 < fold_above <= 1:
        raise ValueError(
            "fold_above must be a share of a file's rows, above 0 and at most 1: a file of which more are"
            f" deleted is rewritten without them; it is {fold_above!r}"
        )
    if type(warn_small_files) is not int or warn_small_files < 0:
        raise ValueError(
            "warn_small_files must be a whole number of files in a partition, or 0 for no warning; it is"
            f" {warn_small_files!r}"
        )


@dataclass(frozen=True, slots=True)
class CommitSize:
    """What one commit put on disk: the rows and bytes of the data files that it added.

    A merged file may be given as a commit of its own. A clustered one (`clustered`) never counts, and may be
    left out.
    """

    rows: int
    bytes: int
    files: int = 1
    clustered: bool = False


def bytes_per_row(history: Sequence[CommitSize], *, max_file_bytes: int = 16 * TINY_FILE_BYTES) -> int:
    """Return the bytes that a row takes on disk, from the table's commits, oldest first; never less than 1.

    Counted are the last 16 commits that are not clustered (sorted data compresses better and misleads) and
    whose files are not tiny: on average below `TINY_FILE_BYTES`, or below a sixteenth of `max_file_bytes` in
    a table whose files are meant to be that small. With none of them the answer is `DEFAULT_BYTES_PER_ROW`.
    The first sets the estimate; after each later one it moves towards the median of the latest three, by at
    most a factor of two. So one odd commit among others that are alike changes nothing, and rows that are
    from now on 100 times as wide are followed within eight commits, the first of which changes nothing.
    """
    tiny = min(TINY_FILE_BYTES, max_file_bytes // 16)
    widths = [
        max(1, (commit.bytes + commit.rows // 2) // commit.rows)
        for commit in history[-HISTORY_COMMITS:]
        if commit.rows > 0 and not commit.clustered and commit.bytes >= tiny * max(1, commit.files)
    ]
    if not widths:
        return DEFAULT_BYTES_PER_ROW
    estimate = widths[0]
    for end in range(2, len(widths) + 1):
        target = median_low(widths[max(0, end - _CONFIRMING) : end])
        estimate = max(-(-estimate // _STEP), min(target, estimate * _STEP))
    return estimate


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


def full_file_bytes(sizing: FileSizing) -> int:
    """Return the bytes from which a file is no small one, also where none is filled."""
    return sizing.small_file_bytes or sizing.max_file_bytes // 2


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
