"""Watches folders that fill, and announces the files in them once they are whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from planners.buffering import FileKey
from streaming_sink.ingest.zone import BufferZone


class FolderWatch:
    """Looks at the folders that a zone watches. On a disk a file is announced once two looks have found the
    same bytes, since it may still be written; an object store shows whole objects only.
    """

    def __init__(self, zone: BufferZone, is_known: Callable[[FileKey], bool]) -> None:
        self._zone, self._is_known = zone, is_known
        self._seen: Mapping[str, str] = {}
        self._announced: set[FileKey] = set()

    def look(self) -> int:
        """Announce the files that are new and whole; return how many. A listing of every watched folder."""
        seen, whole = {}, []
        for folder, pattern in self._zone.watched():
            at_once = "://" in folder and not folder.startswith("file://")
            for file in self._zone.below(folder, pattern):
                if file.key in self._announced or self._is_known(file.key):
                    continue
                seen[file.path] = file.identity
                if file.bytes and (at_once or self._seen.get(file.path) == file.identity):
                    whole.append(file)
        self._seen = seen
        if whole:
            self._zone.announce(whole)
            self._announced |= {file.key for file in whole}
        return len(whole)

    def forget_known(self) -> None:
        """Forget the files that the planner knows by now, so that memory is bounded by what waits."""
        self._announced = {key for key in self._announced if not self._is_known(key)}
