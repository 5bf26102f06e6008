"""The delete files of a batch of changes: one for each data file that rows leave, written by the driver."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pyarrow as pa
from pyiceberg.typedef import Record

from streaming_sink.tasks.delete_files import write_position_deletes
from streaming_sink.tasks.job import FileIds, ParquetSettings
from timeline import names
from timeline.errors import StoreUnavailableError
from timeline.stores.base import Store
from timeline.versions.entries import DeleteFile, LiveFile, position_deletes

_WRITERS = 16
"""Files that are written at once: each takes a request or two, and little else."""


class RowDeletes:
    """Writes delete files, and keeps those that a later call asks for again."""

    def __init__(self, store: Store, ids: FileIds, parquet: ParquetSettings) -> None:
        self._store = store
        self._ids = ids
        self._parquet = parquet
        self._written: dict[str, tuple[np.ndarray, DeleteFile]] = {}
        self._count = 0

    def write(self, files: Mapping[str, LiveFile], positions: Mapping[str, np.ndarray]) -> list[DeleteFile]:
        """Return a durable delete file for each data file of `positions`; `files` are the live ones. What the
        last call wrote and this one does not need is deleted, best effort: nothing of it may be live.
        """
        kept = {
            path: held
            for path, held in self._written.items()
            if path in positions and np.array_equal(held[0], positions[path])
        }
        useless = [held[1].file_path for path, held in self._written.items() if path not in kept]
        with suppress(StoreUnavailableError):
            self._store.delete([self._store.relative(path) for path in useless])
        missing = sorted(positions.keys() - kept.keys())
        first, self._count = self._count, self._count + len(missing)

        def write(number: int) -> DeleteFile:
            path = missing[number]
            return self._write(files[path], positions[path], first + number)

        if len(missing) < 2:
            made = [write(number) for number in range(len(missing))]
        else:
            with ThreadPoolExecutor(min(_WRITERS, len(missing)), thread_name_prefix="deletes") as pool:
                made = list(pool.map(write, range(len(missing))))
        kept |= {path: (positions[path], file) for path, file in zip(missing, made, strict=True)}
        self._written = kept
        return [file for _, file in kept.values()]

    def _write(self, of: LiveFile, positions: np.ndarray, number: int) -> DeleteFile:
        ids = self._ids
        file_id = names.ulid(ids.time_ms, int.from_bytes(os.urandom(10), "big"))
        folder = self._store.relative(of.location).rpartition("/")[0]
        path = f"{folder}/{names.delete_file_name(file_id, ids.app_id, ids.batch, number, 0)}"
        rows, size = write_position_deletes(
            self._store, path, of.location, pa.array(positions), self._parquet
        )
        return position_deletes(
            self._store.uri(path),
            of.location,
            rows=rows,
            size=size,
            spec_id=of.spec_id,
            partition=Record(*of.partition),
        )
