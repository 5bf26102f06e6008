"""Commits of files that exist in manifests only, from this process or, run as a program, from another."""

from __future__ import annotations

import json
import sys
import time

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from timeline.changes.changes import Append
from timeline.clock import SYSTEM
from timeline.names import data_file_name, ulid
from timeline.stores import Store
from timeline.stores.object import ObjectStore
from timeline.table import Committed, Table
from timeline.versions.transactions import Transaction

SCHEMA = Schema(NestedField(1, "id", LongType()))


def one_file(store: Store, batch: int = 0, rows: int = 1) -> DataFile:
    """Return a new file of so many rows."""
    file_id = ulid(time.time_ns() // 1_000_000, SYSTEM.random.getrandbits(80))
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=store.uri(f"data/{data_file_name(file_id, 'writer', batch, 0, 0)}"),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows,
        file_size_in_bytes=1000,
    )
    file.spec_id = 0
    return file


def write(store: Store, name: str, commits: int) -> None:
    """Commit one file after another as application `name`; print the path of each acknowledged one."""
    table, epoch = Table.open(store), None
    for batch in range(commits):
        file = one_file(store, batch)
        committed = table.commit([Append((file,))], transaction=Transaction(name, name, name, batch, epoch))
        assert isinstance(committed, Committed)
        epoch = committed.epoch
        sys.stdout.write(f"{file.file_path}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    write(ObjectStore(settings["location"], settings["options"]), settings["name"], settings["commits"])
