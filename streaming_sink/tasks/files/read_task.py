"""The read task: rows of data files, for Spark without an Iceberg reader; a row of its input is a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from streaming_sink.tasks import fast_workers
from streaming_sink.tasks.files.data_file_reader import open_data_file
from streaming_sink.tasks.spark_task import start_task
from timeline.stores.base import Store


class ReadTask:
    """The function that `DataFrame.mapInArrow` runs over numbers of files. DataFileError as `open_data_file`.

    `schema` has field ids; the rows come in its columns, a column that a file lacks as nulls.
    """

    def __init__(self, store: Store, paths: Sequence[str], schema: pa.Schema) -> None:
        self._store, self._paths, self._schema = store, tuple(paths), schema
        self._fast_workers = fast_workers.is_enabled()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        start_task(self._fast_workers)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with open_data_file(self._store, self._paths[number], "a file of the quarantine") as file:
                    yield from file.read(self._schema)
