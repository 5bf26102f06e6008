"""The key task: appends partition key fields to rows, if Spark has no expression that computes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from streaming_sink.tasks.batches import RESERVED_PREFIX, conform, conform_valid
from streaming_sink.tasks.job import PartitionSource
from streaming_sink.tasks.partitioning import key_texts, source_columns
from streaming_sink.tasks.rows.failures import each_that_fits, split_failing, use_all


class KeyTask:
    """The function that `DataFrame.mapInArrow` runs to append key fields as text, in columns `names`."""

    """`skips_unfit` says that a row whose values do not fit is kept out of the table, and has no key."""

    def __init__(
        self, table: pa.Schema, fields: tuple[PartitionSource, ...], skips_unfit: bool = False
    ) -> None:
        self._skips_unfit = skips_unfit
        self.names = [f"{RESERVED_PREFIX}key_{index}" for index in range(len(fields))]
        self._fields = fields
        self._sources = pa.schema([table.field(name) for name in source_columns(fields)])

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            passing, failing = split_failing(batch)
            if self._skips_unfit:
                whole = conform(passing, passing.schema)  # so that it may be cut
                for part, keys in each_that_fits(whole, self._keys):
                    yield self._with_keys(part, keys if isinstance(keys, list) else self._no_keys(part))
            else:
                yield self._with_keys(passing, use_all(passing, self._keys))
            if failing is not None:
                yield self._with_keys(failing, self._no_keys(failing))

    def _keys(self, rows: pa.RecordBatch) -> list[pa.Array]:
        sources = conform_valid(rows, self._sources)
        return [key_texts(sources, field) for field in self._fields]

    def _no_keys(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return [pa.nulls(rows.num_rows, pa.string()) for _ in self._fields]

    def _with_keys(self, rows: pa.RecordBatch, keys: list[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*rows.columns, *keys], names=[*rows.schema.names, *self.names])
