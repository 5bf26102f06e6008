"""Doubles in partitions keep all their digits, however often their manifests are rewritten."""

from __future__ import annotations

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, IcebergType, NestedField, StringType

from tests.unit.timeline.world import data_file
from timeline.changes.changes import Append, Replace
from timeline.stores import MemoryStore
from timeline.table import Table

VALUES = (0.1, 1e300, -0.30000000000000004, float("inf"), 1.5, None)


def _table(name: str) -> Table:
    fields: list[tuple[str, IcebergType]] = [("x", DoubleType()), ("s", StringType())]
    schema = Schema(*(NestedField(i, n, kind, required=False) for i, (n, kind) in enumerate(fields, 1)))
    spec = PartitionSpec(
        *(
            PartitionField(source_id=i, field_id=999 + i, transform=IdentityTransform(), name=n)
            for i, (n, _) in enumerate(fields, 1)
        )
    )
    return Table.create(MemoryStore(name), schema, spec)


@pytest.mark.parametrize("rewritten", [False, True])
def test_another_process_reads_and_rewrites_them_exactly(rewritten: bool) -> None:
    table = _table(f"doubles-{rewritten}")
    files = [
        data_file(table.store.uri(f"data/{number}.parquet"), 10, partition=Record(value, "s"))
        for number, value in enumerate((*VALUES, 0.1))
    ]
    table.commit([Append(tuple(files))])
    if rewritten:
        merged = data_file(table.store.uri("data/merged.parquet"), 20, partition=Record(0.1, "s"))
        inputs = frozenset({files[0].file_path, files[-1].file_path})
        other = Table.open(MemoryStore(f"doubles-{rewritten}"))
        other.commit([Replace(inputs, (merged,))])
    live = Table.open(MemoryStore(f"doubles-{rewritten}")).head.live_files()
    assert {file.partition for file in live} == {(value, "s") for value in VALUES}
