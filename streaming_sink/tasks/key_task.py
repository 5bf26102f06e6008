"""The key task: appends partition key fields to rows, if Spark has no expression that computes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from streaming_sink.tasks.batches import RESERVED_PREFIX, conform
from streaming_sink.tasks.job import PartitionSource
from streaming_sink.tasks.partitioning import key_texts


class KeyTask:
    """The function that `DataFrame.mapInArrow` runs to append key fields as text, in columns `names`."""

    def __init__(self, table: pa.Schema, fields: tuple[PartitionSource, ...]) -> None:
        self.names = [f"{RESERVED_PREFIX}key_{index}" for index in range(len(fields))]
        self._fields = fields
        self._sources = pa.schema(
            [table.field(name) for name in dict.fromkeys(field.source[0] for field in fields)]
        )

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sources = conform(batch, self._sources)
            keys = [key_texts(sources, field) for field in self._fields]
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, *keys], names=[*batch.schema.names, *self.names]
            )
