"""`drop`: a table ends, and no writer of it goes on in what is made in its place."""

from __future__ import annotations

from streaming_sink.options.values.tables import AnyTable, as_table


def drop(table: AnyTable) -> int:
    """Drop a table, and return the last version that it had.

    At a location a version says so: readers see no row from then on, writers raise TableDroppedError, and a
    table that is made there again has the numbers above it, so that no writer of the dropped one, however
    late, adds to it. In a catalog the table is dropped through the catalog, without purge, and its writers
    stop as if another engine had dropped it.

    What waits for second tables is delivered, and these stay. No file is deleted: `remove_orphan_files` of a
    table that is made there again does so, or you delete all but `metadata/v*.metadata.json`, once nothing
    reads them. A stream that is started again makes a new, empty table, so stop it first.

    TableNotFoundError where there is no table; else as a batch raises. A call that failed is completed by the
    next one.
    """
    return as_table(table).drop()
