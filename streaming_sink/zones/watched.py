"""The folders that a zone watches: a file for each, so that processes which add some at once lose none."""

from __future__ import annotations

import json
import logging
import os
from hashlib import blake2b

from streaming_sink.tasks.ingest.sources import is_local
from timeline.clock import Environment
from timeline.errors import CorruptTableError
from timeline.slots.settling import create_settled
from timeline.stores.base import Store

_LOG = logging.getLogger("streaming_sink")
_FOLDER = "watched"


def warn_if_empty(folder: Store) -> None:
    """Log it where a folder that is to be watched holds nothing: it may be misspelled. One LIST.

    ValueError where a disk has no such folder. In an object store there are no folders, only their files.
    """
    if is_local(folder.location) and not os.path.isdir(folder.location):
        raise ValueError(
            "there is no such folder on this machine; make it before it is watched, or watch the right one:"
            f" {folder.location}"
        )
    if next(iter(folder.list_below("")), None) is None:
        _LOG.warning(
            "nothing is in this folder, or there is none: files that come are announced; if it is misspelled,"
            " watch the right one: %s",
            folder.location,
        )


def write_watched(store: Store, entry: tuple[str, str], environment: Environment) -> None:
    """Store a folder and the pattern of its files' names. StoreUnavailableError where that is not known."""
    data = json.dumps(entry).encode()
    path = f"{_FOLDER}/{blake2b(data, digest_size=16).hexdigest()}.json"
    create_settled(store, path, data, environment)


def read_watched(store: Store) -> list[tuple[str, str]]:
    """Return the folders, each with its pattern, in order. One LIST, and a GET for each."""
    return sorted(_decoded(store, each.path) for each in store.list_folder(_FOLDER))


def _decoded(store: Store, path: str) -> tuple[str, str]:
    try:
        folder, pattern = json.loads(store.read(path).data)
    except (ValueError, TypeError) as damaged:
        raise CorruptTableError(
            f"which folder is watched cannot be read; delete the file, and watch it again: {store.uri(path)}",
            location=store.location,
        ) from damaged
    return str(folder), str(pattern)
