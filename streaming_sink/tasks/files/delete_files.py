"""Writes and reads position-delete files: which rows of data files are deleted, as Parquet (Iceberg spec),
and which rows live.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from planners.model import InputFile
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.job import ParquetSettings
from streaming_sink.tasks.numpy_arrays import numbers_array
from streaming_sink.tasks.whole_reads import read_columns
from timeline.names import DATA_FOLDER
from timeline.stores.base import Store, open_by_name, paths_below

if TYPE_CHECKING:
    from streaming_sink.tasks.files.data_file_reader import DataFileReader
    from timeline.stores.base import Store


_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)


def folder_of_deletes(store: Store, data_file: str) -> str:
    """Return the folder for delete files of a data file: its own, or the table's for a file by reference."""
    below = paths_below(store, [data_file])
    return below[0].rpartition("/")[0] if below else DATA_FOLDER


_TEXTS = (pa.string(), pa.large_string(), pa.string_view())


def write_position_deletes(
    store: Store, path: str, data_file: str, positions: pa.Array, parquet: ParquetSettings
) -> tuple[int, int]:
    """Write the positions of deleted rows of the data file at the location `data_file`, as
    `write_shared_deletes` does. Return how many rows they are, each counted once, and the file's bytes.
    """
    rows, size = write_shared_deletes(store, path, {data_file: positions}, parquet)
    return rows[data_file], size


def write_shared_deletes(
    store: Store, path: str, positions: Mapping[str, pa.Array], parquet: ParquetSettings
) -> tuple[dict[str, int], int]:
    """Write the positions of deleted rows of data files, by their locations, durably, under a path that no
    other writer uses. Return how many rows of each they are, each counted once, and the file's bytes.

    Positions are 64-bit integers from 0, in any order. ValueError for none of a data file, and for a negative
    one.
    """
    ordered = {data_file: pc.unique(positions[data_file]).sort() for data_file in sorted(positions)}
    for data_file, these in ordered.items():
        if not len(these) or these[0].as_py() < 0:
            raise ValueError(f"not the positions of deleted rows: {these[:3].to_pylist()} of {data_file}")
    rows = {data_file: len(these) for data_file, these in ordered.items()}
    numbers = np.repeat(np.arange(len(rows), dtype=np.int32), list(rows.values()))
    paths = pa.DictionaryArray.from_arrays(numbers, pa.array(list(rows), pa.string()))
    deletes = pa.table(
        [paths.cast(pa.string()), pa.concat_arrays(ordered.values()).cast(pa.int64())], schema=_SCHEMA
    )
    written = pa.BufferOutputStream()
    pq.write_table(
        deletes,
        written,
        compression=parquet.compression,
        compression_level=parquet.compression_level,
        use_dictionary=["file_path"],
        store_schema=False,
        write_page_checksum=True,  # other positions would delete other rows
    )
    data = written.getvalue()
    with store.open_output(path) as output:
        output.write(data)
    return rows, len(data)


def read_position_deletes(store: Store, paths: Iterable[str], data_file: str) -> np.ndarray:
    """Return the positions of the rows of `data_file` that the delete files at `paths` delete: 64-bit
    integers, ascending, each once. Both are spelled as manifests spell them, and a delete file may name
    other data files too. DataFileError if one is missing or damaged.
    """
    return read_deletes_of(store, {data_file: paths})[data_file]


def read_deletes_of(store: Store, deletes: Mapping[str, Iterable[str]]) -> dict[str, np.ndarray]:
    """Return the same of several data files, each with the delete files that may apply to it. A delete file
    is read once.
    """
    wanted: dict[str, list[str]] = defaultdict(list)
    for data_file, paths in deletes.items():
        for path in paths:
            wanted[path].append(data_file)
    parts: dict[str, list[np.ndarray]] = {data_file: [] for data_file in deletes}
    for path, data_files in wanted.items():
        found = read_deletes_in(store, path)
        for data_file in data_files:
            if data_file in found:
                parts[data_file].append(found[data_file])
    return {
        data_file: np.unique(np.concatenate(arrays)) if arrays else np.empty(0, np.int64)
        for data_file, arrays in parts.items()
    }


def read_deletes_in(store: Store, path: str) -> dict[str, np.ndarray]:
    """Return the positions in one delete file by the data files that it names, as they are there.
    DataFileError as above.
    """
    try:
        with open_by_name(store, path) as source:
            # By name: writers of other engines may leave the field ids out.
            deletes = read_columns(source, ["file_path", "pos"], dictionaries=["file_path"])
        paths = deletes.schema.field("file_path").type
        paths = paths.value_type if pa.types.is_dictionary(paths) else paths
        if paths not in _TEXTS or not pa.types.is_integer(deletes.schema.field("pos").type):
            raise pa.ArrowInvalid(f"its columns are not paths and positions: {deletes.schema.types}")
    except FileNotFoundError as missing:
        raise DataFileError(f"a delete file is missing: {path}") from missing
    except (pa.ArrowException, OSError, ValueError) as damage:
        raise DataFileError(f"a delete file cannot be read: {path}: {damage}") from damage
    named = deletes.unify_dictionaries()["file_path"].combine_chunks()
    positions = deletes["pos"].combine_chunks().to_numpy(zero_copy_only=False)
    numbers = named.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(len(named.dictionary)), side="right")
    by_number = np.split(positions[order], ends[:-1]) if len(ends) else []
    return dict(zip(named.dictionary.to_pylist(), by_number, strict=True))


def deleted_positions(store: Store, given: InputFile) -> np.ndarray:
    """Return the positions of the deleted rows of a data file, ascending, each once.

    DataFileError if a delete file is missing or damaged, or if they delete other rows than the table says:
    rows beyond the end, or more or fewer than it counts. (Two files of another engine may delete one row.)
    """
    if not given.deletes:
        return np.empty(0, np.int64)
    positions = read_position_deletes(store, [each.path for each in given.deletes], given.path)
    least = max((each.rows for each in given.deletes if each.run is None), default=0)
    most = sum(each.rows for each in given.deletes)
    if not least <= len(positions) <= most:
        said = f"{len(positions)} rows, not {least} to {most} as the table says"
        raise DataFileError(f"the delete files of a data file delete {said}: {given.path}")
    if len(positions) and not 0 <= positions[0] <= positions[-1] < given.rows:
        said = f"positions {positions[0]} to {positions[-1]} of {given.rows} rows"
        raise DataFileError(
            f"a delete file deletes rows that its data file does not hold: {said}: {given.path}"
        )
    return positions


def check_rows(file: DataFileReader, given: InputFile, what: str) -> None:
    """Raise DataFileError unless an open file holds as many rows as the table says."""
    if file.rows != given.rows:
        counts = f"{file.rows} != {given.rows}"
        raise DataFileError(f"{what} holds more or fewer rows than the table says: {counts}: {given.path}")


def leave_out(batches: Iterable[pa.RecordBatch], deleted: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data file, which come in its order, without those at the deleted positions."""
    end = 0
    for batch in batches:
        start, end = end, end + batch.num_rows
        first, last = np.searchsorted(deleted, (start, end))
        if first < last:
            lives = np.ones(batch.num_rows, dtype=bool)
            lives[deleted[first:last] - start] = False
            batch = batch.take(numbers_array(np.flatnonzero(lives)))
        if batch.num_rows:
            yield batch
