"""What the name of a manifest states of its live files: it spares reading the manifest.

All of it is advice (R11): a name that is wrong costs work, or leaves some undone, and never a row. Where a
row depends on what a manifest holds, the manifest is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile

from timeline import names

_SIZE = "([0-9a-f]+|none)"
_TIME = "([0-9A-Z]{10})"
_NAME = re.compile(rf"^[0-9A-Z]{{26}}-([0-9a-f]+)-{_SIZE}-{_SIZE}-{_TIME}-{_TIME}-manifest\.avro$")
_TIME_LETTERS = 10
_LEAST, _GREATEST = "0" * _TIME_LETTERS, "Z" * _TIME_LETTERS
_NONE = "none"


@dataclass(frozen=True, slots=True)
class StatedFiles:
    """The live data files of one manifest, as far as its name states them."""

    open: int
    """How many were open (`manifest_policy`) to the writer of the manifest. All other writers take its word:
    two with different sizings would sort the same files apart and together again.
    """
    smallest_open: int | None
    """The bytes of the smallest file without a sort order; None where there is none."""
    smallest: int | None
    """The bytes of the smallest file; None where there is none."""
    first: str
    """The time that begins the least id in the names of the files."""
    last: str
    """The same of the greatest id."""

    @classmethod
    def of(cls, files: Sequence[DataFile], open_below_bytes: int) -> StatedFiles:
        """Return what is to be stated of these files. A smaller one is open, for a fill may take it."""
        times = [it for file in files if (it := id_time(file.file_path)) is not None]
        # A name of another form may be in any manifest that has one.
        is_whole = bool(times) and len(times) == len(files)
        return cls(
            sum(is_open(file, open_below_bytes) for file in files),
            min((it.file_size_in_bytes for it in files if not it.sort_order_id), default=None),
            min((it.file_size_in_bytes for it in files), default=None),
            min(times) if is_whole else _LEAST,
            max(times) if is_whole else _GREATEST,
        )

    @property
    def text(self) -> str:
        """As a part of a manifest's name, which goes on behind it."""
        sizes = (_NONE if it is None else f"{it:x}" for it in (self.smallest_open, self.smallest))
        return "-".join([f"{self.open:x}", *sizes, self.first, self.last, ""])

    def may_hold(self, time: str | None) -> bool:
        """Return whether a data file may be among them, by its `id_time`."""
        if time is None:
            return (self.first, self.last) == (_LEAST, _GREATEST)
        return self.first <= time <= self.last


def id_time(location: str) -> str | None:
    """Return the time that begins the id in a data file's name; None for a name of another form."""
    file_id = names.file_id(location)
    return None if file_id is None else file_id[:_TIME_LETTERS]


def last_time(manifest: ManifestFile) -> int:
    """Return the time of the last id in the names of a manifest's files, in milliseconds, or a later one."""
    stated = stated_files(manifest.manifest_path)
    return names.ulid_time_ms(_GREATEST if stated is None else stated.last)


def is_open(file: DataFile, below_bytes: int) -> bool:
    """Return whether a data file is small and has no sort order, so that a fill may take it."""
    return file.file_size_in_bytes < below_bytes and not file.sort_order_id


def state_files(content: ManifestContent, files: Sequence[DataFile], open_below_bytes: int) -> str:
    """Return what the name of a manifest of these live files states; nothing of delete files."""
    return StatedFiles.of(files, open_below_bytes).text if content == ManifestContent.DATA else ""


@lru_cache(maxsize=20_000)
def stated_files(manifest_path: str) -> StatedFiles | None:
    """Return what a manifest's name states; None for a name of another engine, or of delete files."""
    match = _NAME.match(manifest_path.rpartition("/")[2])
    if match is None:
        return None
    opened, smallest_open, smallest, first, last = match.groups()
    return StatedFiles(int(opened, 16), _size(smallest_open), _size(smallest), first, last)


def _size(text: str) -> int | None:
    return None if text == _NONE else int(text, 16)
