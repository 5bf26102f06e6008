"""What the store holds, by one listing: compared with what is needed as it comes, and kept as sums."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from timeline import names
from timeline.diagnosis.findings import Few
from timeline.diagnosis.reachable import Reachable
from timeline.stores.base import Store
from timeline.stores.local import is_unfinished
from timeline.versions.version_file import Version

_YOUNG_MS = 3 * 24 * 3600 * 1000
"""A file this much younger than the head may belong to a batch that is still being written."""
_FOLDERS = (f"{names.DATA_FOLDER}/", f"{names.MANIFEST_FOLDER}/")


@dataclass
class StoredFiles:
    """The files of the store, by their paths; the first of some kinds by name."""

    every: Few = field(default_factory=Few)
    unfinished: Few = field(default_factory=Few)
    """What a create left unfinished."""
    left: Few = field(default_factory=Few)
    """Files of this protocol that nothing refers to."""
    old_left: Few = field(default_factory=Few)
    """Those of them that are three days older than the newest version."""
    strange: Few = field(default_factory=Few)
    """Other files beside them."""
    of_metadata: set[str] = field(default_factory=set)
    """The paths of manifests and lists, of other engines too."""

    def add(self, path: str, size: int, fence: str, is_needed: bool) -> None:
        """Count a file. `fence`: the id that begins the last three days."""
        self.every.add(path, size)
        if path.endswith(".avro"):
            self.of_metadata.add(path)
        if is_unfinished(path):
            self.unfinished.add(path, size)
        elif not is_needed and path.startswith(_FOLDERS):
            file_id = names.written_id(path)
            (self.strange if file_id is None else self.left).add(path, size)
            if file_id is not None and file_id < fence:
                self.old_left.add(path, size)


def read_stored(store: Store, found: Reachable | None, head: Version | None) -> StoredFiles:
    """List the store, and mark what of it is needed; and where there are files by reference, one folder after
    the other (R28).

    The head was read before: so all files that it refers to had been written.
    """
    stored = StoredFiles()
    fence = "" if head is None else names.ulid_floor(max(head.metadata.last_updated_ms - _YOUNG_MS, 0))
    for listed in store.list_below(""):
        size = listed.size
        stored.add(listed.path, size, fence, found is not None and found.mark(listed.path, size))
    if found is not None:
        _mark_references(found, sorted(found.folders))
    return stored


def _mark_references(found: Reachable, folders: Iterable[str]) -> None:
    for folder in folders:
        with suppress(ValueError):  # another kind of store, which nothing of this table reads
            for each in found.store.at(folder).list_folder(""):
                found.mark(f"{folder}/{each.path}", each.size)
