"""Files that another engine has written: whether a pass can read them, by a look at each one's footer."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.files.data_file_reader import open_data_file
from timeline import names
from timeline.stores.base import Store

_AT_ONCE = 8


def is_foreign(location: str) -> bool:
    """Return whether a data file has a name that this protocol does not write."""
    return names.file_id(location) is None


def find_unfit(store: Store, locations: Sequence[str]) -> dict[str, str | None]:
    """Return, of each file, why a pass must leave it alone; None where it is a Parquet file that can be read,
    and whose columns have field ids.

    StoreUnavailableError where the store does not answer.
    """

    def look(location: str) -> str | None:
        try:
            with open_data_file(store, location, "it", needs_ids=True):
                return None
        except DataFileError as unfit:
            return str(unfit)

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="footers") as pool:
        return dict(zip(locations, pool.map(look, locations), strict=True))
