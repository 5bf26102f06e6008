"""Changes by key in the simulation: what they are, the files that hold their rows, and what a task writes.

The code that looks for keys and decides is the real one, from the tasks' to the commit's. The files
are those of the simulation: their rows, positions and keys were declared when they were written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IntegerType, LongType, NestedField, StringType

from planners.shared_deletes import share_delete_files
from streaming_sink.keyed import by_key, key_resolution, row_deletes
from streaming_sink.keyed import row_deletes as tombstones
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.spec import partition_sources
from streaming_sink.tasks.changes import change_writer, finding, live_positions
from streaming_sink.tasks.changes.change_writer import ChangeWriter
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.job import DELETES, KeyJob
from streaming_sink.tasks.key_index import scanned_keys
from streaming_sink.tasks.keys import scanning
from streaming_sink.tasks.keys import tombstones as tombstone_files
from streaming_sink.tasks.keys.hashing import hash_keys
from streaming_sink.tasks.keys.tombstones import Tombstones
from streaming_sink.tasks.results import ChangeCounts, DeletedKeys, DeletedRows, TaskReport, WrittenFile
from streaming_sink.writing.writer import WriteResult
from tests.simulation.raw import ViolationError
from tests.simulation.simulation import Process, Simulation, content
from timeline.clock import Environment
from timeline.stores.base import Store
from timeline.versions.head import Head

LEAST_AT = 1 - 10**38
"""No change of a schedule has a smaller sequence."""
_NAMES = {1: "id", 2: "p", 3: "at", 4: "v"}
FILES_A_TIER = 3
LOOKS = 4


def has_wide_sequences(seed: int) -> bool:
    """Return whether the sequences of a schedule's table are decimals."""
    return Random(f"wide {seed}").random() < 0.3


def keyed_schema(seed: int) -> Schema:
    """Return the columns of a schedule's table with a key."""
    return Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "p", IntegerType(), required=False),
        NestedField(3, "at", DecimalType(38, 0) if has_wide_sequences(seed) else LongType(), required=False),
        NestedField(4, "v", StringType(), required=False),
    )


def sequence_of(seed: int, at: int) -> int:
    """Return a small number as a sequence of the table. Of wide ones each word decides, and the sign."""
    return (at - 6) << 62 if has_wide_sequences(seed) else at


class Change(NamedTuple):
    """What one row of a batch does to its key."""

    row: int
    """The simulation's own number of the row; 0 for a delete."""
    id: int
    p: int
    at: int
    v: str
    deletes: bool = False

    @property
    def values(self) -> tuple[int, int, int, str]:
        return self.id, self.p, self.at, self.v

    @property
    def rank(self) -> tuple[int, bool, str]:
        """Of two changes of a key the one of the larger rank counts, where a sequence orders them."""
        row = {"id": self.id, "p": self.p, "at": self.at, "v": self.v}
        return self.at, self.deletes, "" if self.deletes else repr(row)


@dataclass
class RowsOfTask:
    """In the place of a `TaskWriter`: one file for each partition."""

    sim: Simulation
    process: Process
    head: Head
    changes: Sequence[Change]
    time_ms: int
    what: str
    files: list[DataFile] = field(default_factory=list)
    spilled_bytes: int = 0
    _rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def job(self) -> Any:
        schema, spec = self.head.schema, self.head.spec
        return SimpleNamespace(
            store=self.process.store,
            schema=arrow_schema(schema),
            partition_by=partition_sources(schema, spec),
            sieve=None,
        )

    def write(self, rows: pa.RecordBatch) -> None:
        self._rows += rows.to_pylist()

    def finish(self) -> list[WrittenFile]:
        numbers = {change.values: change.row for change in self.changes if not change.deletes}
        parts: dict[int, list[int]] = {}
        for row in self._rows:
            parts.setdefault(row["p"], []).append(numbers[row["id"], row["p"], row["at"], row["v"]])
        made = []
        for p, rows in sorted(parts.items()):
            file = self.sim.new_file(self.process, self.head, tuple(rows), p, self.time_ms, self.what)
            self.files.append(file)
            partition = tuple(file.partition[place] for place in range(len(file.partition)))
            size = file.file_size_in_bytes
            made.append(
                WrittenFile(file.file_path, partition, 0, len(rows), size, {}, {}, {}, {}, {}, {}, ())
            )
        return made

    def abort(self) -> None:
        pass


def write_changes(
    sim: Simulation,
    process: Process,
    head: Head,
    keys: KeyJob,
    changes: Sequence[Change],
    time_ms: int,
    what: str,
) -> tuple[WriteResult, tuple[DataFile, ...]]:
    """Write the changes of a batch as its tasks do, those of a key in one of them."""
    results: list[Any] = []
    files: list[DataFile] = []
    tasks = sim.random.choice([1, 1, 2])
    for task in range(tasks):
        mine = [change for change in changes if change.id % tasks == task]
        rows = RowsOfTask(sim, process, head, mine, time_ms, what)
        writer = ChangeWriter(rows, keys)  # type: ignore[arg-type]
        columns = (
            zip(*((*change.values, change.deletes) for change in mine), strict=True) if mine else [()] * 5
        )
        schema = arrow_schema(keyed_schema(sim.seed)).append(pa.field(DELETES, pa.bool_()))
        arrays = [pa.array(list(column), kind) for column, kind in zip(columns, schema.types, strict=True)]
        writer.write(pa.RecordBatch.from_arrays(arrays, schema=schema))
        results += [*writer.finish(), TaskReport(task, 0, len(mine), 0.0, 0.0)]
        files += rows.files

    def of(kind: type) -> tuple[Any, ...]:
        return tuple(each for each in results if isinstance(each, kind))

    written = WriteResult(
        of(WrittenFile), (), (), of(TaskReport), (), of(DeletedRows), of(DeletedKeys), ChangeCounts()
    )
    return written, tuple(files)


class _Reader:
    """In the place of a `DataFileReader`."""

    def __init__(self, held: Sequence[Change]) -> None:
        self._held = held
        self.rows = len(held)

    def read(self, schema: pa.Schema, batch_rows: int) -> Iterator[pa.RecordBatch]:
        yield _as_batch(self._held, schema)

    def read_at(self, schema: pa.Schema, positions: np.ndarray) -> Iterator[pa.RecordBatch]:
        yield _as_batch([self._held[position] for position in positions], schema)


def _as_batch(held: Sequence[Change], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows in a schema of the table's, whose columns are known by their field ids, as in files."""
    names = [_NAMES.get(int((column.metadata or {}).get(b"PARQUET:field_id", 0))) for column in schema]
    values = ([None if name is None else getattr(change, name) for change in held] for name in names)
    arrays = [pa.array(each, column.type) for each, column in zip(values, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@contextmanager
def read_and_written(sim: Simulation, change_of: Callable[[int], Change]) -> Iterator[None]:
    """Have the code that looks for keys read this simulation's files, for as long as its schedule runs."""

    deletes, dead = sim.oracle.deletes.positions, dict[str, Tombstones]()

    def read(store: Store, location: str, what: str) -> bytes:
        try:
            return store.read(store.relative(location)).data
        except FileNotFoundError as missing:
            raise DataFileError(f"{what} is missing: {location}") from missing

    @contextmanager
    def open_data_file(
        store: Store, path: str, what: str, cipher: object = None, *, needs_ids: bool = False
    ) -> Iterator[_Reader]:
        rows = sim.oracle.rows[path]
        if read(store, path, what) != content(rows):
            raise ViolationError(f"a data file holds other rows than were written: {path}")
        yield _Reader([change_of(row) for row in rows])

    def write_shared_deletes(
        store: Store, path: str, positions: Mapping[str, pa.Array], parquet: object
    ) -> tuple[dict[str, int], int]:
        made = {data_file: frozenset(these.to_pylist()) for data_file, these in positions.items()}
        deletes[store.uri(path)] = made
        size = _write(store, path, delete_content(made))
        return {data_file: len(these) for data_file, these in made.items()}, size

    def read_deletes_of(store: Store, wanted: Mapping[str, Iterable[str]]) -> dict[str, np.ndarray]:
        for path in sorted({path for paths in wanted.values() for path in paths} & deletes.keys()):
            if read(store, path, "a delete file").decode() != delete_content(deletes[path]):
                raise ViolationError(f"a delete file holds other positions than were written: {path}")
        return {
            data_file: np.array(sorted(sim.oracle.deletes.gone(data_file, paths)), np.int64)
            for data_file, paths in wanted.items()
        }

    def read_deletes_in(store: Store, path: str) -> dict[str, np.ndarray]:
        named = deletes.get(path, {})  # another engine's are not declared, and match no row
        read_deletes_of(store, {data_file: [path] for data_file in named})
        return {data_file: np.array(sorted(these), np.int64) for data_file, these in named.items()}

    def write_tombstones(store: Store, path: str, tombstones: Tombstones) -> None:
        dead[store.uri(path)] = tombstones
        _write(store, path, str(len(tombstones.sequences)))

    def read_tombstones(store: Store, location: str) -> Tombstones:
        read(store, location, "a file of deleted keys")
        return dead[location]

    known: dict[Any, np.ndarray] = {}

    def hashed(columns: Sequence[Any], seed: bytes) -> np.ndarray:
        key = seed, tuple(tuple(column.to_pylist()) for column in columns)
        if key not in known:
            known[key] = hash_keys(columns, seed)
        return known[key]

    most = Random(f"share {sim.seed}").choice([1, 1, 2, 99])
    drawn = Environment(random=sim.random)
    with ExitStack() as stack:
        for module, name, value in (
            (scanning, "open_data_file", open_data_file),
            (finding, "open_data_file", open_data_file),
            (scanning, "hash_keys", hashed),
            (change_writer, "hash_keys", hashed),
            (finding, "are_live", partial(live_positions.are_live, known=live_positions.DeletedPositions())),
            (live_positions, "read_deletes_in", read_deletes_in),
            (live_positions, "ThreadPoolExecutor", OneAfterTheOther),
            (scanned_keys, "ThreadPoolExecutor", OneAfterTheOther),
            (finding, "SCANNED_KEYS", scanned_keys.ScannedKeys()),
            (key_resolution, "read_deletes_of", read_deletes_of),
            (row_deletes, "write_shared_deletes", write_shared_deletes),
            (row_deletes, "share_delete_files", partial(share_delete_files, at_most=most)),
            (tombstones, "write_tombstones", write_tombstones),
            (tombstones, "read_tombstones", read_tombstones),
            (tombstone_files, "read_tombstones", read_tombstones),
            (row_deletes, "ThreadPoolExecutor", OneAfterTheOther),
            (row_deletes, "SYSTEM", drawn),
            (tombstones, "SYSTEM", drawn),
            (tombstones, "FILES_A_TIER", FILES_A_TIER),
            (by_key, "_LOOKS", LOOKS),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield


def bounds_of(changes: Sequence[Change]) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Return the least and the greatest values of the columns of keys, by field id."""
    lower, upper = (
        {
            number: to_bytes(kind, end(getattr(each, name) for each in changes))
            for number, name, kind in ((1, "id", LongType()), (2, "p", IntegerType()))
        }
        for end in (min, max)
    )
    return lower, upper


def delete_content(positions: Mapping[str, frozenset[int]]) -> str:
    """Return what a delete file holds."""
    return str(sorted((data_file, sorted(these)) for data_file, these in positions.items()))


def _write(store: Store, path: str, text: str) -> int:
    with store.open_output(path) as output:
        return output.write(text.encode())


class OneAfterTheOther:
    """In the place of an executor: an actor waits in its own stack only."""

    def __init__(self, *given: object, **named: object) -> None:
        pass

    def __enter__(self) -> OneAfterTheOther:
        return self

    def __exit__(self, *failure: object) -> None:
        pass

    def map(self, do: Callable[..., Any], *these: Iterable[Any]) -> Iterable[Any]:
        return [do(*each) for each in zip(*these, strict=False)]
