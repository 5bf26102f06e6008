"""Writes and reads position-delete files: which rows of data files are deleted, as Parquet (Iceberg spec)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_sink.tasks.errors import DataFileError
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


def read_position_deletes(store: Store, paths: Iterable[str], data_file: str) -> np.ndarray:
    """Return the positions of the rows of `data_file` that the delete files at `paths` delete: 64-bit
    integers, ascending, each once. Both are spelled as manifests spell them, and a delete file may name
    other data files too. DataFileError if one is missing or damaged.
    """
    found = [_positions_in(store, path, data_file) for path in paths]
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def _positions_in(store: Store, path: str, data_file: str) -> np.ndarray:
    try:
        with store.open_input(store.relative(path)) as source:
            # By name: writers of other engines may leave the field ids out.
            deletes = pq.read_table(pa.PythonFile(source, mode="r"), columns=["file_path", "pos"])
    except FileNotFoundError as missing:
        raise DataFileError(f"a delete file is missing: {path}") from missing
    except (pa.ArrowException, OSError) as damage:
        raise DataFileError(f"a delete file cannot be read: {path}: {damage}") from damage
    of_file = deletes.filter(pc.equal(deletes["file_path"], data_file))
    positions: np.ndarray = of_file["pos"].combine_chunks().to_numpy(zero_copy_only=False)
    return positions
