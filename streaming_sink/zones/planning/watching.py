"""Watches folders that fill, and announces the files in them once they are whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from planners.ingestion.buffering import BufferedFile, FileKey
from streaming_sink.zones.stored_zone import StoredZone

_AT_ONCE = 5_000


class FolderWatch:
    """Looks at the folders that a zone watches. On a disk a file is announced once two looks have found the
    same bytes, since it may still be written; an object store shows whole objects only.
    """

    def __init__(self, zone: StoredZone, known: Callable[[Sequence[FileKey]], set[FileKey]]) -> None:
        self._zone, self._known = zone, known
        self._seen: Mapping[str, str] = {}
        self._announced: set[FileKey] = set()

    def look(self) -> int:
        """Announce the files that are new and whole; return how many. A listing of every watched folder."""
        seen, whole = {}, []
        for folder, pattern in self._zone.watched():
            at_once = "://" in folder and not folder.startswith("file://")
            for file in self._new(self._zone.below(folder, pattern)):
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
        self._announced -= self._known(list(self._announced))

    def _new(self, files: Iterable[BufferedFile]) -> Iterator[BufferedFile]:
        """Yield the files that are neither announced nor known to the planner, which is asked for many."""
        left = (file for file in files if file.key not in self._announced)
        while some := list(islice(left, _AT_ONCE)):
            known = self._known([file.key for file in some])
            yield from (file for file in some if file.key not in known)
