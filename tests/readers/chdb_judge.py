"""ClickHouse, embedded. These functions run in its own process (`processes.py`), never in the test's."""

from __future__ import annotations

import chdb
import pyarrow as pa


def read(location: str, snapshot_id: int | None, columns: list[str]) -> pa.Table:
    """Read a table by its folder, or by the metadata file that its catalog names."""
    folder, _, stated = location.partition("/metadata/")
    metadata = stated and f", SETTINGS iceberg_metadata_file_path = 'metadata/{stated}'"
    names = ", ".join(f"`{name}`" for name in columns)
    settings = (
        "output_format_arrow_string_as_string = 0"  # strings as bytes: a binary column need not be UTF-8
    )
    if snapshot_id is not None:
        settings += f", iceberg_snapshot_id = {snapshot_id}"
    query = f"SELECT {names} FROM icebergLocal('{folder}/'{metadata}) SETTINGS {settings}"
    return pa.ipc.open_stream(chdb.query(query, "ArrowStream").bytes()).read_all()


def count(folder: str, condition: str) -> int:
    """Return how many rows of a table meet the condition."""
    query = f"SELECT count() FROM icebergLocal('{folder}/') WHERE {condition}"
    return int(chdb.query(query, "TabSeparated").bytes())
