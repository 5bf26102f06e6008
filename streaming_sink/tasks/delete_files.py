"""Writes position-delete files: which rows of one data file are deleted, as Parquet (Iceberg spec)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_sink.tasks.job import ParquetSettings
from timeline.stores.base import Store

_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)


def write_position_deletes(
    store: Store, path: str, data_file: str, positions: pa.Array, parquet: ParquetSettings
) -> tuple[int, int]:
    """Write the positions of deleted rows of the data file at the location `data_file`, durably, under a
    path that no other writer uses. Return how many rows they are, each counted once, and the file's bytes.

    `positions` are 64-bit integers from 0, in any order. ValueError for none, and for a negative one.
    """
    ordered = pc.unique(positions).sort()
    if not len(ordered) or ordered[0].as_py() < 0:
        raise ValueError(f"not the positions of deleted rows: {ordered[:3].to_pylist()} of {data_file}")
    deletes = pa.table([pa.repeat(pa.scalar(data_file), len(ordered)), ordered], schema=_SCHEMA)
    written = pa.BufferOutputStream()
    pq.write_table(
        deletes,
        written,
        compression=parquet.compression,
        compression_level=parquet.compression_level,
        use_dictionary=["file_path"],
        store_schema=False,
    )
    data = written.getvalue()
    with store.open_output(path) as output:
        output.write(data)
    return len(ordered), len(data)
