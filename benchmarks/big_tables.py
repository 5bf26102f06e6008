"""Tables of very many files, made by commits of the timeline itself, of files that do not exist."""

from __future__ import annotations

import gc
import itertools
import random
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StringType

from benchmarks.commits import EVENTS, event_file
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.tasks.key_index.index import KeyIndex
from streaming_sink.tasks.key_index.upkeep import write_run
from streaming_sink.tasks.keys.scanning import KeyColumns, KeyedFile
from timeline.changes.changes import Append
from timeline.names import data_file_name, ulid
from timeline.stores import open_store
from timeline.table import Table

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1024 * 1024
SMALL_FILE_BYTES = 100 * MIB
SMALL_FILES = 9_000
"""How many files of a large table are small: some nine in each of a thousand partitions."""
SCHEMA = Schema(*EVENTS.fields, NestedField(11, "shop", StringType()))
SPEC = PartitionSpec(PartitionField(11, 1000, IdentityTransform(), "shop"))
KEY = ("event_id",)
_A_COMMIT = 4_096
_A_BATCH = 100
_BOUNDS = 1_000
"""Files have bounds of one of so many kinds."""
_A_RUN = 65_536


def partition_count(files: int) -> int:
    """Return how many partitions a table of so many files has."""
    return max(1, min(10_000, files // 1_000)) if files > 1_000 else 10


def partition_values(number: int) -> tuple[str]:
    """Return the values of a partition by its number."""
    return (f"shop-{number:05d}",)


def make_table(location: Path, files: int, small_files: int = SMALL_FILES) -> None:
    """Create a table of so many live files: full ones by large commits, then small ones, at most so many and
    a tenth of all, by batches; and write the copies that maintenance would write by and by. A million take
    two minutes of processor time.
    """
    gc.disable()  # nothing here is in cycles, and looking for some takes a third of the time
    try:
        _fill(Table.create(open_store(str(location)), SCHEMA, SPEC), files, min(files // 10, small_files))
    finally:
        gc.enable()


def _fill(table: Table, files: int, small: int) -> None:
    numbers, partitions = itertools.count(), partition_count(files)
    left = files - small
    while left:
        count = min(left, _A_COMMIT)
        _append(table, [big_file(table, next(numbers), partitions, small=False) for _ in range(count)])
        left -= count
    for start in range(0, small, _A_BATCH):
        batch = range(start, min(small, start + _A_BATCH))
        _append(table, [big_file(table, next(numbers), partitions, small=True) for _ in batch])
    for _ in table.head.manifests:
        table.head.write_copies()


def make_young_table(location: Path, old: Path, files: int) -> None:
    """Create a table of so many files, and append one at a time until it has as many versions as an old one:
    a commit has to know those that have not expired, however few files there are.
    """
    make_table(location, files)
    table, versions = Table.open(open_store(str(location))), Table.open(open_store(str(old))).head.number
    for number in range(files, files + versions - table.head.number):
        _append(table, [big_file(table, number, partition_count(files), small=True)])


def key_index(table: Table) -> KeyIndex:
    """Return the index of the table's key."""
    keys = pa.schema([arrow_schema(table.head.schema).field(name) for name in KEY])
    return KeyIndex(table.store, KeyColumns(table.head.metadata.table_uuid, keys))


def make_index(location: Path) -> None:
    """Write runs of the table's key index that cover its full files, and have no entry."""
    table = Table.open(open_store(str(location)))
    full = (KeyedFile(it.location, it.rows) for it in table.head.live_files() if it.bytes >= SMALL_FILE_BYTES)
    for number in itertools.count():
        if not (files := list(itertools.islice(full, _A_RUN))):
            return
        write_run(key_index(table), files, (), ulid(table.head.metadata.last_updated_ms, number))


def _append(table: Table, files: list[DataFile]) -> None:
    table.commit([Append(tuple(files))], open_below_bytes=SMALL_FILE_BYTES)


def big_file(table: Table, number: int, partitions: int, *, small: bool) -> DataFile:
    """Return a data file of ten columns with bounds, in the partition that follows from its number."""
    rng = random.Random(number)
    values = partition_values(number % partitions)
    size = rng.randrange(MIB, 60 * MIB) if small else rng.randrange(105 * MIB, 120 * MIB)
    rows = size // 100
    name = data_file_name(
        ulid(table.head.metadata.last_updated_ms, rng.getrandbits(80)), "scale", number, 0, 0
    )
    location = f"{table.store.location}/data/shop={values[0]}/{name}"
    return event_file(location, Record(*values), number % _BOUNDS, rows, size)
