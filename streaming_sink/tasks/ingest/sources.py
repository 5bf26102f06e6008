"""Source files: where they may lie, which a folder holds, and what identifies their bytes."""

from __future__ import annotations

import fnmatch
import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from planners.ingestion.buffering import BufferedFile
from timeline.stores import StorageOptions, open_store
from timeline.stores.base import Store

_LOG = logging.getLogger("streaming_sink")

_REPLAYS = re.compile(r"(@\d+)+$")
_FEW = 10
"""Files of a folder that are looked up one by one: a LIST is a request for each thousand of its objects."""
_SCHEMES = {"s3a": "s3", "gcs": "gs", "abfs": "az", "abfss": "az"}
"""Of one service. A source keeps the spelling that it has: its entries in the zone have that one."""
_ENDINGS = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".avro": "avro",
}


def format_of(path: str) -> str | None:
    """Return the format that a file's name ends in; None for another ending."""
    return next((kind for ending, kind in _ENDINGS.items() if path.lower().endswith(ending)), None)


def folder_partition(path: str) -> str:
    """Return the Hive-style folders of a path, such as "day=2026-11-23/region=eu"; "" where it has none."""
    return "/".join(part for part in path.split("/")[:-1] if "=" in part)


def folder_values(path: str) -> dict[str, str]:
    """Return what the Hive-style folders of a path say, by the name of the column; values stay escaped."""
    parts = (part.partition("=") for part in path.split("/")[:-1] if "=" in part)
    return {unquote(name): text for name, _, text in parts if name}


def folder_of(path: str) -> tuple[str, str]:
    """Return the folder and the name of a file."""
    folder, _, name = path.rpartition("/")
    return folder or "/", name


def is_local(path: str) -> bool:
    """Return whether a name is of this machine's disk."""
    return "://" not in path or path.startswith("file:")


def spell_path(path: str) -> str:
    """Return the one spelling of a name, so that a file lands once however it is called: on a disk absolute,
    without symbolic links, and no URL. A "/" at the end stays.
    """
    end = "/" if path.endswith("/") else ""
    if not is_local(path):
        scheme, _, rest = path.partition("://")
        return f"{scheme}://{re.sub('/+', '/', rest).rstrip('/')}{end}"
    if path.startswith("file:"):
        path = open_store(path).location
    return f"{_real(path)}{end}"


def overlap(one: str, other: str) -> bool:
    """Return whether one of two places holds the other, or is it, by whichever scheme each is called."""
    first, second = map(_place, (one, other))
    return first.startswith(second) or second.startswith(first)


def _place(path: str) -> str:
    scheme, separator, rest = f"{spell_path(path).rstrip('/')}/".partition("://")
    return f"{_SCHEMES.get(scheme, scheme)}{separator}{rest}"


def local_identity(identity: str) -> str:
    """Return the identity of a local file without its device, whose number may be another one once the
    machine has started anew.
    """
    return identity.partition("-")[2]


def replayed_identity(identity: str, item: int) -> str:
    """Return the identity under which a file is announced again that a work item has rejected."""
    return f"{identity}@{item}"


def identity_of_bytes(identity: str) -> str:
    """Return what identifies the bytes of a file, however often it was announced again."""
    return _REPLAYS.sub("", identity)


def _real(path: str) -> str:
    return "/" + os.path.realpath(path).lstrip("/")


@dataclass(frozen=True)
class Sources:
    """Where source files may lie, and how they are read."""

    roots: tuple[str, ...]
    """Absolute folders. A file that is below none of them is refused, so that a right to announce files is no
    right to read any file that the workers may read.
    """
    storage_options: StorageOptions | None = None
    _stores: dict[str, Store] = field(default_factory=dict, compare=False, repr=False)
    _folders: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)
    """Of local folders that a task has met: whether they lie below a root."""

    def __getstate__(self) -> Mapping[str, object]:
        return {"roots": self.roots, "storage_options": self.storage_options, "_stores": {}, "_folders": {}}

    def store(self, folder: str) -> Store:
        """Return the store of a folder. ValueError where it lies outside the roots."""
        if folder not in self._stores:
            if not self.allows(f"{folder}/"):
                raise ValueError(
                    f"the buffer zone takes files from {', '.join(self.roots)} alone; add the folder to its"
                    f" sources if its files are meant: {folder}"
                )
            self._stores[folder] = open_store(folder, None if is_local(folder) else self.storage_options)
        return self._stores[folder]

    def stated(self, path: str) -> dict[str, str]:
        """Return what the folders of a path say, by the name of the column, as `folder_values`. Folders above
        the innermost of the roots say nothing of its rows.
        """
        if "=" not in path:
            return {}
        above = [root.rstrip("/") for root in self.roots if path.startswith(f"{root.rstrip('/')}/")]
        return folder_values(path[max(map(len, above), default=0) :])

    def allows(self, path: str) -> bool:
        """Return whether a path lies below one of the roots, also where symbolic links lead."""
        if ".." in path.split("/"):
            return False
        if not is_local(path):
            return any(path.startswith(f"{root.rstrip('/')}/") for root in self.roots)
        return self._is_below(f"{_real(path).rstrip('/')}/")

    def allows_file(self, path: str) -> bool:
        """As `allows`, for the many files of few folders that a task reads: where a folder's links lead is
        looked up once.
        """
        if not is_local(path) or os.path.islink(path):
            return self.allows(path)
        folder, _ = folder_of(path)
        if folder not in self._folders:
            self._folders[folder] = self.allows(f"{folder}/")
        return self._folders[folder]

    def is_folder(self, path: str) -> bool:
        """Return whether a name can be no file's: it ends in "/", or is a bucket's or a root's own, and what
        is beside that may not be looked at.
        """
        folder, name = folder_of(path)
        is_root = not self.allows(f"{folder}/") and self.allows(f"{path}/")
        return not name or folder.endswith(":/") or is_root

    def _is_below(self, found: str) -> bool:
        return any(found.startswith(f"{_real(root).rstrip('/')}/") for root in self.roots if is_local(root))

    def look(self, path: str) -> tuple[int, str] | None:
        """Return the size and the identity of a file now; None where there is none."""
        folder, name = folder_of(path)
        store = self.store(folder)
        if not is_local(path):
            try:
                found = store.look(name)
            except FileNotFoundError:
                return None
            return found.size, found.identity
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return status.st_size, f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"

    def sync(self, path: str) -> None:
        """Make a file that its owner has written outlive power cuts, before a table names it. An object store
        shows no object before it does.
        """
        if not is_local(path):
            return
        for each in (path, os.path.dirname(path)):
            descriptor = os.open(each, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def find(self, paths: Iterable[str], now_ms: int) -> tuple[list[BufferedFile], list[str]]:
        """Return the files of these names, and the names of which there is none. Each of a few files of a
        folder is a HEAD; more are one LIST of the folder.

        ValueError for a file outside the roots, or whose name does not end in a format.
        """
        wanted: dict[str, dict[str, str]] = {}
        for path in paths:
            folder, name = folder_of(path)
            wanted.setdefault(folder, {})[name] = path
        found, missing = [], []
        for folder, by_name in wanted.items():
            store, one_by_one = self.store(folder), is_local(folder) or len(by_name) <= _FEW
            listed = {} if one_by_one else {each.path: each for each in store.list_folder("")}
            for name, path in by_name.items():
                if is_local(folder) and not self.allows(path):
                    raise ValueError(f"the file is a link out of {', '.join(self.roots)}: {path}")
                seen = (listed[name].size, listed[name].identity) if name in listed else None
                seen = self.look(path) if one_by_one else seen
                if seen is None:
                    missing.append(path)
                else:
                    found.append(_file(path, *seen, now_ms))
        return found, missing

    def below(
        self, folder: str, pattern: str, now_ms: int, unknown: list[str] | None = None
    ) -> Iterator[BufferedFile]:
        """Yield the files below a folder whose names fit a pattern such as "*.parquet" and whose format is
        known. As with Spark, hidden files and those in hidden folders are left out: names that begin with "."
        or "_", but for "_column=value". So are symbolic links. What is left out of a known format, and names
        of no known format that are not hidden, are added to `unknown`.
        """
        folder = folder.rstrip("/")
        local = is_local(folder)
        for each in self.store(folder).list_below(""):
            name, path = each.path.rpartition("/")[2], f"{folder}/{each.path}"
            hidden = any(map(_is_hidden, each.path.split("/")))
            if not fnmatch.fnmatchcase(name, pattern):
                continue
            if hidden or format_of(name) is None:
                # Hidden files of other formats are marks and checksums that Spark and Hadoop write.
                if unknown is not None and hidden != (format_of(name) is None):
                    unknown.append(path)
                continue
            if local and os.path.islink(path):
                _LOG.warning("a symbolic link is left out; push the file that it leads to: %s", path)
                if unknown is not None:
                    unknown.append(path)
                continue
            seen = self.look(path) if local else (each.size, each.identity)
            if seen is not None:
                yield _file(path, *seen, now_ms)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _file(path: str, size: int, identity: str, now_ms: int) -> BufferedFile:
    kind = format_of(path)
    if kind is None:
        raise ValueError(f"the name of a source file ends in {', '.join(_ENDINGS)}, not: {path}")
    return BufferedFile(path, identity, size, now_ms, kind, folder_partition(path))
