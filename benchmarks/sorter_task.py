"""One process of `benchmarks.sorters`: a group task by one of the sorters, or a sorter on odd values."""

from __future__ import annotations

import json
import struct
import sys
import tempfile
import time
from decimal import Decimal
from itertools import chain, count, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from planners.clustering.sort_fields import SortField
from streaming_sink.tasks.clustering import external_sort
from streaming_sink.tasks.clustering.group_task import rewrite_group
from streaming_sink.tasks.clustering.job import GroupJob, GroupWritten, Input
from streaming_sink.tasks.clustering.ordering import order_by_columns
from streaming_sink.tasks.job import FileIds, ParquetSettings, TaskBuckets, WorkerJob
from streaming_sink.tasks.leaves import FIELD_ID, as_integers
from timeline.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streaming_sink.tasks.clustering.row_strategy import Group

    Batches = Iterable[pa.RecordBatch]

_MIB = 1024 * 1024
_ROW = "#row"
"""A last key that makes every order a stable one: no library promises that."""
_BATCH_ROWS = 16 * 1024


def ours(batches: Batches, schema: pa.Schema, sort_by: Sequence[SortField], memory: int) -> Batches:
    order = order_by_columns(schema, sort_by)
    return external_sort.sort(batches, schema, order, memory, external_sort.SortCounts())


def duckdb_table(batches: Batches, schema: pa.Schema, sort_by: Sequence[SortField], memory: int) -> Batches:
    """DuckDB, which takes the rows batch by batch into a temporary table."""
    with tempfile.TemporaryDirectory() as folder, _duckdb(memory, folder) as connection:
        insert = "CREATE TEMP TABLE given AS SELECT * FROM batch"
        for batch in _numbered(batches):
            connection.register("batch", pa.Table.from_batches([_without_extensions(batch)]))
            connection.execute(insert)
            connection.unregister("batch")
            insert = "INSERT INTO given SELECT * FROM batch"
        ordered = connection.sql(f'SELECT * EXCLUDE ("{_ROW}") FROM given ORDER BY {_terms(sort_by)}')
        for found in ordered.to_arrow_reader(_BATCH_ROWS):
            yield _conform(found, schema)


def duckdb_stream(batches: Batches, schema: pa.Schema, sort_by: Sequence[SortField], memory: int) -> Batches:
    """DuckDB, which takes the rows as one Arrow stream."""
    numbered = map(_without_extensions, _numbered(batches))
    first = next(numbered)
    stream = pa.RecordBatchReader.from_batches(first.schema, chain([first], numbered))
    with tempfile.TemporaryDirectory() as folder, _duckdb(memory, folder) as connection:
        connection.register("given", stream)
        ordered = connection.sql(f'SELECT * EXCLUDE ("{_ROW}") FROM given ORDER BY {_terms(sort_by)}')
        for found in ordered.to_arrow_reader(_BATCH_ROWS):
            yield _conform(found, schema)


def datafusion(batches: Batches, schema: pa.Schema, sort_by: Sequence[SortField], memory: int) -> Batches:
    """DataFusion, which takes the rows from a file: of a stream it holds all rows before it sorts them."""
    from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext

    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder, "given.arrow")
        numbered = _numbered(batches)
        first = next(numbered)
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(str(given), first.schema, options=options) as file:
            for batch in chain([first], numbered):
                file.write_batch(batch)
        runtime = RuntimeEnvBuilder().with_temp_file_path(folder).with_fair_spill_pool(memory)
        context = SessionContext(SessionConfig().with_target_partitions(1), runtime)
        context.register_arrow("given", str(given), file_extension=".arrow")
        names = ", ".join(f'"{name}"' for name in schema.names)
        # A struct's field is an index here, and not a name with a dot.
        terms = _terms(sort_by, lambda path: f'"{path[0]}"' + "".join(f"['{name}']" for name in path[1:]))
        for found in context.sql(f"SELECT {names} FROM given ORDER BY {terms}").execute_stream():
            yield _conform(found.to_pyarrow(), schema)


SORTERS = {
    "none": lambda batches, *_: batches,
    "ours": ours,
    "duckdb": duckdb_table,
    "duckdb stream": duckdb_stream,
    "datafusion": datafusion,
}


def _duckdb(memory: int, folder: str) -> Any:
    import duckdb

    limit: Any = {"memory_limit": f"{memory // 1024}KiB", "temp_directory": folder, "threads": "1"}
    connection = duckdb.connect(config=limit)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _numbered(batches: Batches) -> Iterator[pa.RecordBatch]:
    start = 0
    for batch in batches:
        rows = pa.array(np.arange(start, start + batch.num_rows))
        start += batch.num_rows
        yield batch.append_column(_ROW, rows)


def _quoted(path: Sequence[str]) -> str:
    return ".".join(f'"{name}"' for name in path)


def _terms(sort_by: Sequence[SortField], spell: Any = _quoted) -> str:
    fields = [
        f"{spell(field.column.split('.'))} {'DESC' if field.descending else 'ASC'}"
        f" NULLS {'FIRST' if field.nulls_first else 'LAST'}"
        for field in sort_by
    ]
    return ", ".join([*fields, f'"{_ROW}"'])


def _without_extensions(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return UUIDs as their bytes: DuckDB returns them as text."""
    columns = [each.storage if isinstance(each, pa.ExtensionArray) else each for each in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows in the schema of the table: field ids are lost, and some types come back as others."""
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        kind = field.type
        if column.type == kind:
            columns.append(column)
        elif isinstance(kind, pa.BaseExtensionType):
            columns.append(pa.ExtensionArray.from_storage(kind, column.cast(kind.storage_type)))
        else:
            columns.append(column.cast(kind))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class Sorter:
    """A strategy of clustering by one of the sorters."""

    def __init__(self, name: str) -> None:
        self._sort = SORTERS[name]

    def rewrite(self, group: Group, /) -> Batches:
        return self._sort(group.read(), group.schema, group.sort_by, group.memory_bytes)


def rewrite(folder: Path, sorter: str, sort_by: Sequence[str], memory_bytes: int) -> None:
    """Run the group task over the files of the folder. It checks that no row is lost."""
    import pyarrow.parquet as pq

    files = sorted(folder.glob("*.parquet"))
    schema = with_ids(pq.read_schema(files[0]))
    pa.set_memory_pool(pa.system_memory_pool())  # as the tasks of a cluster do
    worker = WorkerJob(
        store=open_store(str(folder)),
        schema=schema,
        partition_by=(),
        parquet=ParquetSettings(),
        metrics={},
        ids=FileIds(time.time_ns() // 1_000_000, "sorters", 0),
        tasks={},
        shared=TaskBuckets(),
        rows_per_new_file=1_000_000_000,
        max_file_bytes=1 << 40,
    )
    job = GroupJob(
        index=0,
        worker=worker,
        inputs=tuple(Input(worker.store.uri(file.name), pq.read_metadata(file).num_rows) for file in files),
        partition=(),
        sort_by=tuple(map(SortField.parse, sort_by)),
        strategy_name=sorter,
        strategy=Sorter(sorter),
        rows_per_file=1_000_000_000,
        memory_bytes=memory_bytes,
        checksum=False,
    )
    result = rewrite_group(job, attempt=0)
    if not isinstance(result, GroupWritten):
        raise ValueError(result.reason)


def with_ids(schema: pa.Schema) -> pa.Schema:
    """Return the schema with an id for each field, nested ones too."""
    numbers = count(1)
    return pa.schema([_with_id(field, numbers) for field in schema])


def _with_id(field: pa.Field, numbers: Iterator[int]) -> pa.Field:
    kind, number = field.type, str(next(numbers))
    if pa.types.is_struct(kind):
        kind = pa.struct([_with_id(each, numbers) for each in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_with_id(kind.value_field, numbers))
    elif pa.types.is_map(kind):
        kind = pa.map_(_with_id(kind.key_field, numbers), _with_id(kind.item_field, numbers))
    return pa.field(field.name, kind, field.nullable, {FIELD_ID: number})


def odd_columns() -> dict[str, pa.Array]:
    """Return values of every type at the ends of its range, and some that few engines keep."""
    long, wide = [0, None, -(2**63), 2**63 - 1, -(2**62), 2**62, 7, 7], 10**38 - 1
    nans = (0x7FF8000000000000, 0x7FF8000000000123, 0x8000000000000000, 0, 0x7FF0000000000000, 1, 0)
    bits = np.frombuffer(struct.pack("<7Q", *nans), "<f8")
    raw = [b"", None, b"\xff\0", b"\xff", b"a\0", b"a", b"b" * 20, b"b" * 19]
    fixed = pa.array(
        [b"\xff" * 16, None, b"\0" * 16, b"\x80" * 16, *(bytes(15) + b"%d" % n for n in range(4))]
    )
    fixed = fixed.cast(pa.binary(16))
    text = ["a", None, "", "\0b", "é" * 30, "a\0", "😀", "ﬀ"]
    required = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    return {
        "long": pa.array(long),
        "double": pa.concat_arrays([pa.array([None], pa.float64()), pa.array(bits)]),
        "date": pa.array([it and it >> 32 for it in long], pa.int32()).cast(pa.date32()),
        "time": pa.array([0, None, 86_399_999_999, 5, 5, 3, 2, 1], pa.time64("us")),
        "timestamp": pa.array(long).cast(pa.timestamp("us")),
        "timestamptz": pa.array(long).cast(pa.timestamp("us", "UTC")),
        "decimal": pa.array([*map(Decimal, (wide, -wide, 0, 1, 1, -1, 2)), None], pa.decimal128(38, 0)),
        "string": pa.array(text),
        "binary": pa.array(raw),
        "fixed": fixed,
        "uuid": pa.ExtensionArray.from_storage(pa.uuid(), fixed),
        "boolean": pa.array([True, None, False, True, False, True, None, False]),
        "struct": pa.array([{"a": 1}, None, {"a": None}, {"a": -1}] * 2, pa.struct([("a", pa.int32())])),
        "struct with a required field": pa.array([{"a": 1}, None] * 4, required),
        "list": pa.array([[1, None], None, [], [2]] * 2, pa.list_(pa.int32())),
        "list of uuid": pa.ListArray.from_arrays(
            list(range(9)), pa.ExtensionArray.from_storage(pa.uuid(), fixed)
        ),
        "map": pa.array([[("a", 1)], None, [], [("b", None)]] * 2, pa.map_(pa.string(), pa.int32())),
        "map with a key twice": pa.array([[("a", 1), ("a", 2)]] * 8, pa.map_(pa.string(), pa.int32())),
    }


def differences(sorter: str) -> Iterator[str]:
    """Yield the types whose values the sorter orders in another way than ours, changes, or does not take."""
    for name, values in odd_columns().items():
        places = pa.array(range(len(values)))
        rows = pa.RecordBatch.from_arrays([values, places], ["odd", "place"])
        rows = pa.RecordBatch.from_arrays(rows.columns, schema=with_ids(rows.schema))
        nested = "odd.a" if pa.types.is_struct(values.type) else "place"
        key = nested if pa.types.is_nested(values.type) else "odd"
        for direction, nulls in product(("asc", "desc"), ("first", "last")):
            sort_by = [SortField.parse(f"{key} {direction} nulls {nulls}")]
            expected, found = (_sorted(each, rows, sort_by) for each in ("ours", sorter))
            if expected != found:
                yield f"{name}, by {sort_by[0]}: {found if isinstance(found, str) else 'other rows'}"
                break


def _sorted(sorter: str, rows: pa.RecordBatch, sort_by: Sequence[SortField]) -> list[Any] | str:
    """Return the rows twice, in order, as values that compare bit by bit; or the error of the sorter."""
    try:
        found = list(SORTERS[sorter]([rows, rows], rows.schema, sort_by, 64 * _MIB))
    except Exception as error:  # noqa: BLE001 - the finding
        return f"{type(error).__name__}: {error}".partition("\n")[0][:160]
    columns: list[Any] = []
    for column in pa.Table.from_batches(found, rows.schema).columns:
        plain = as_integers(column)
        is_double = pa.types.is_floating(plain.type)
        values = plain.combine_chunks().drop_null().view(pa.int64()) if is_double else plain
        columns.append((values.to_pylist(), column.is_null().to_pylist()))
    return columns


def main() -> None:
    """Print what one process has measured, as JSON."""
    sorter, *rest = sys.argv[1:]
    if not rest:
        print(json.dumps(list(differences(sorter))))
        return
    folder, memory, *sort_by = rest
    rewrite(Path(folder), sorter, sort_by, int(memory))
    status = Path("/proc/self/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"processor_seconds": time.process_time(), "peak_mib": peak // 1024}))


if __name__ == "__main__":
    main()
