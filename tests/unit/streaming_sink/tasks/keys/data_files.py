"""Data files of a small table whose key has two columns, and probes of its keys."""

from __future__ import annotations

import io
from collections.abc import Sequence
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streaming_sink.tasks.keys.hashing import coarse_words, hash_keys
from streaming_sink.tasks.keys.probing import KeyFilter, KeyProbe
from streaming_sink.tasks.keys.scanning import TABLE_SALT, KeyColumns, KeyedFile, salted
from timeline.stores import Store

TABLE = UUID(int=7)
PATH = "data/a.parquet"


def field(name: str, kind: pa.DataType, number: int, required: bool = False) -> pa.Field:
    return pa.field(name, kind, not required, {"PARQUET:field_id": str(number)})


ID, NAME, AT = field("id", pa.int64(), 1, True), field("name", pa.string(), 2), field("at", pa.int64(), 3)
COLUMNS = KeyColumns(TABLE, pa.schema([ID, NAME]), AT)


def put_file(store: Store, table: pa.Table, path: str = PATH, **options: int) -> KeyedFile:
    written = io.BytesIO()
    pq.write_table(table, written, **options)
    with store.open_output(path) as output:
        output.write(written.getvalue())
    return KeyedFile(store.uri(path), table.num_rows)


def put_rows(store: Store, rows: list[tuple[int, str | None, int | None]], **options: int) -> KeyedFile:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return put_file(store, pa.table([*map(list, columns)], pa.schema([ID, NAME, AT])), **options)


def probe_of(keys: list[tuple[int, str]], scopes: Sequence[bytes] = (TABLE_SALT,)) -> KeyProbe:
    """Return the probe of all keys in the first scope, then of all in the next one."""
    hashes = hash_keys(_columns_of(keys), COLUMNS.seed)
    return KeyProbe(np.concatenate([salted(hashes, scope) for scope in scopes]))


def filter_of(keys: list[tuple[int, str]]) -> KeyFilter:
    return KeyFilter(coarse_words(_columns_of(keys)))


def _columns_of(keys: list[tuple[int, str]]) -> list[pa.Array]:
    return [pa.array([it[0] for it in keys], pa.int64()), pa.array([it[1] for it in keys], pa.string())]
