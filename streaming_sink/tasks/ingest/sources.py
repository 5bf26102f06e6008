"""Source files: where they may lie, which a folder holds, and what identifies their bytes."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from planners.buffering import BufferedFile
from timeline.stores import StorageOptions, open_store
from timeline.stores.base import Listed, Store

FORMATS = ("parquet", "json", "csv", "avro")
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


def partition_of(path: str) -> str:
    """Return the Hive-style folders of a path, such as "day=2026-11-23/region=eu"; "" where it has none."""
    return "/".join(part for part in path.split("/")[:-1] if "=" in part)


def folder_of(path: str) -> tuple[str, str]:
    """Return the folder and the name of a file."""
    folder, _, name = path.rpartition("/")
    return folder or "/", name


@dataclass(frozen=True)
class Sources:
    """Where source files may lie, and how they are read."""

    roots: tuple[str, ...]
    """Absolute folders. A file that is below none of them is refused, so that a right to announce files is no
    right to read any file that the workers may read.
    """
    storage_options: StorageOptions | None = None
    _stores: dict[str, Store] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> Mapping[str, object]:
        return {"roots": self.roots, "storage_options": self.storage_options, "_stores": {}}

    def store(self, folder: str) -> Store:
        """Return the store of a folder. ValueError where it lies outside the roots."""
        if folder not in self._stores:
            if not self.allows(f"{folder}/"):
                raise ValueError(
                    f"the buffer zone takes files from {', '.join(self.roots)} alone; add the folder to its"
                    f" sources if its files are meant: {folder}"
                )
            local = "://" not in folder or folder.startswith("file://")
            self._stores[folder] = open_store(folder, None if local else self.storage_options)
        return self._stores[folder]

    def allows(self, path: str) -> bool:
        """Return whether a path lies below one of the roots."""
        parts = path.split("/")
        return ".." not in parts and any(path.startswith(f"{root.rstrip('/')}/") for root in self.roots)

    def find(self, paths: Iterable[str], now_ms: int) -> tuple[list[BufferedFile], list[str]]:
        """Return the files of these names, and the names of which there is none. One LIST a folder.

        ValueError for a file outside the roots, or whose name does not end in a format.
        """
        wanted: dict[str, dict[str, str]] = {}
        for path in paths:
            folder, name = folder_of(path)
            wanted.setdefault(folder, {})[name] = path
        found, missing = [], []
        for folder, by_name in wanted.items():
            listed = {each.path: each for each in self.store(folder).list_folder("")}
            for name, path in by_name.items():
                if name in listed:
                    found.append(_file(path, listed[name], now_ms))
                else:
                    missing.append(path)
        return found, missing

    def below(self, folder: str, pattern: str, now_ms: int) -> Iterator[BufferedFile]:
        """Yield the files below a folder whose names fit a pattern such as "*.parquet" and whose format is
        known. Names that begin with "_" or "." are left out, as Spark does.
        """
        folder = folder.rstrip("/")
        for each in self.store(folder).list_below(""):
            name = each.path.rpartition("/")[2]
            hidden = any(part.startswith(("_", ".")) for part in each.path.split("/"))
            if not hidden and fnmatch.fnmatchcase(name, pattern) and format_of(name) is not None:
                yield _file(f"{folder}/{each.path}", each, now_ms)


def _file(path: str, listed: Listed, now_ms: int) -> BufferedFile:
    kind = format_of(path)
    if kind is None:
        raise ValueError(f"the name of a source file ends in {', '.join(_ENDINGS)}, not: {path}")
    return BufferedFile(path, listed.identity, listed.size, now_ms, kind, partition_of(path))
