"""What others have at a location where a table is about to be created."""

from __future__ import annotations

import logging
import re
from itertools import islice

from timeline.errors import CorruptTableError, StoreUnavailableError
from timeline.names import DATA_FOLDER, VERSION_FOLDER, version_number, written_id
from timeline.stores.base import Store

_LOG = logging.getLogger("streaming_sink")
_LOGS = {"_delta_log/": "a Delta table", ".hoodie/": "a Hudi table"}
_PLAIN = re.compile(r"(?:[^/=]+=[^/]*/)*[^/]+\.parquet")
"""A Parquet file of the folder itself, or of Hive-style partitions below it."""
_IN_DATA = re.compile(rf"{DATA_FOLDER}/(?:[^/]+/)*[^/._][^/]*\.parquet")
"""One of the folder that would be the table's own. Other folders are not the table's concern."""
_LOOKED_AT = 1_000
"""Objects: a page of an object store's listing."""


def check_no_foreign_table(store: Store) -> None:
    """Raise CorruptTableError if the location of a table that is not there yet holds one of another writer,
    or plain Parquet files: readers of these would take in the new table's files, and cleaners of the table
    would not know theirs. What a first batch of this sink has left that was not committed is its own, by its
    name. Two LISTs, one of them of the first 1,000 objects alone.
    """
    for listed in store.list_folder(VERSION_FOLDER):
        if listed.path.endswith(".metadata.json") and version_number(listed.path) is None:
            raise CorruptTableError(
                f"{listed.path} was not written by this sink: it is a table of another writer, and this"
                f" protocol cannot commit to it. Use a separate location for the stream: {store.location}",
                location=store.location,
                files=[listed.path],
            )
    if (found := _first_foreign(store)) is not None:
        path, what = found
        raise CorruptTableError(
            f"there is no table of this sink here, and {path} is of {what}; nothing was written. Use a"
            " separate location for the stream, or move these files away; a buffer zone lands files from"
            f" elsewhere in a table: {store.location}",
            location=store.location,
            files=[path],
        )


def _first_foreign(store: Store) -> tuple[str, str] | None:
    """Return a file of another writer, and of what it is."""
    try:
        for listed in islice(store.list_below(""), _LOOKED_AT):
            if what := _foreign(listed.path):
                return listed.path, what
    except StoreUnavailableError as failure:
        # On a disk some other folder may be closed to this process, as `lost+found` is. Nothing relies on it.
        _LOG.info("whether others have files here is not known: %s: %s", store.location, failure)
    return None


def _foreign(path: str) -> str:
    for folder, what in _LOGS.items():
        if path.startswith(folder):
            return what
    others = _PLAIN.fullmatch(path) or (_IN_DATA.fullmatch(path) and written_id(path) is None)
    return "other Parquet files" if others else ""
