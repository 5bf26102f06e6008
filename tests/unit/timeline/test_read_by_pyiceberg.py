"""A reader that we did not write reads what the timeline committed to a local disk."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.table import StaticTable
from pyiceberg.typedef import Record

from tests.unit.timeline.world import BY_P, SCHEMA, data_file
from timeline import names
from timeline.changes.changes import Append, Replace
from timeline.stores import LocalStore
from timeline.table import Table

ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        pa.field("p", pa.int32(), metadata={"PARQUET:field_id": "2"}),
    ]
)


def test_pyiceberg_reads_the_rows_of_every_snapshot(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "table")
    table = Table.create(store, SCHEMA, BY_P)
    counter = iter(range(100))

    def write(rows: list[int], p: int) -> DataFile:
        file_id = names.ulid(table.head.metadata.last_updated_ms + 1, next(counter))
        path = f"data/p={p}/{names.data_file_name(file_id, 'app', 0, 0, 0)}"
        with store.open_output(path) as file:
            pq.write_table(
                pa.table({"id": rows, "p": [p] * len(rows)}, schema=ARROW), pa.PythonFile(file, mode="w")
            )
        written = data_file(
            store.uri(path), len(rows), partition=Record(p), size=(Path(store.uri(path))).stat().st_size
        )
        # The bounds of `data_file` are made up; a reader would prune by them.
        written._data[10] = written._data[11] = None
        return written

    a, b = write([1, 2], 0), write([3], 1)
    table.commit([Append((a, b))], open_below_bytes=10**9)
    new = write([4], 0)
    table.commit(
        [Append((new,)), Replace(frozenset({a.file_path, new.file_path}), (write([1, 2, 4], 0),))],
        open_below_bytes=10**9,
    )
    read = StaticTable.from_metadata(store.uri(names.version_path(table.head.number)))
    assert sorted(read.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]
    assert sorted(read.scan("p = 1").to_arrow()["id"].to_pylist()) == [3]
    at = [sorted(read.scan(snapshot_id=s.snapshot_id).to_arrow()["id"].to_pylist()) for s in read.snapshots()]
    assert at == [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4]]
    assert read.inspect.files().num_rows == 2
    by_hint = StaticTable.from_metadata(str(tmp_path / "table"))
    assert by_hint.metadata.last_updated_ms == table.head.metadata.last_updated_ms
