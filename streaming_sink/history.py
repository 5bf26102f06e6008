"""What landed in a table, read back from the table itself: from any client, Spark Connect's included."""

from __future__ import annotations

from streaming_sink.options import StorageOptions
from streaming_sink.report import BatchReport, reports_of
from timeline.stores import open_store
from timeline.table import Table


def history(location: str, storage_options: StorageOptions | None = None) -> list[BatchReport]:
    """Return the reports of the batches whose snapshots the table still has, oldest first.

    Raises TableNotFoundError where there is no table, StoreUnavailableError where it cannot be read.
    """
    return list(reports_of(Table.open(open_store(location, storage_options)).head))
