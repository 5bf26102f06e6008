"""Files whose row groups were copied, of every type, and merges of such files, before five readers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink.table.arrow_types import arrow_schema
from tests.readers import judges
from tests.readers.reference_tables import every_type, rows_of_every_type
from tests.unit.streaming_sink.small_tables import append_rows, delete_rows, merge_all
from timeline.properties import COPIED_FROM_BYTES
from timeline.stores import LocalStore
from timeline.table import Table

_SPARK = pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.jar])
_STATED = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


def _made(folder: Path, without: tuple[str, ...], copied_from: str) -> Table:
    """Return a table of one file: joined of one that was joined before, less one row, and of two others."""
    properties = {
        COPIED_FROM_BYTES: copied_from,
        "write.metadata.metrics.default": "full",
        "write.parquet.page-row-limit": "2",
    }
    schema = every_type(without)
    table = Table.create(LocalStore(str(folder)), schema, table_properties=properties, store_is_checked=True)
    rows = rows_of_every_type(schema).cast(arrow_schema(table.head.schema))
    for number in range(5):
        append_rows(table, rows.slice(2) if number == 4 else rows, number)
        if number == 2:
            merge_all(table)
            [joined] = table.head.live_files()
            delete_rows(table, {joined.location: [4]})
    merge_all(table)
    return table


@pytest.mark.parametrize("reader", ["pyiceberg", "duckdb", "chdb", "polars", _SPARK])
def test_readers_see_the_rows_of_a_joined_file(reader: str, tmp_path: Path) -> None:
    without = ("a_time",) if reader == "spark" else ()
    table = _made(tmp_path, without, "1")
    [file] = table.head.live_files()
    footer = pq.read_metadata(file.location)
    groups = [footer.row_group(at).num_rows for at in range(footer.num_row_groups)]
    assert sorted(groups) == [1, 2, 3, 3, 3]  # one of them was decoded, since one of its rows is deleted
    rows = rows_of_every_type(every_type(without))
    expected = pa.concat_tables([rows, rows.slice(0, 1), rows.slice(2), rows, rows, rows.slice(2)])
    judges.assert_reader_agrees(reader, tmp_path, expected)


def test_the_manifest_states_what_it_states_of_a_decoded_file(tmp_path: Path) -> None:
    stated = []
    for copied_from in ("1", str(1 << 40)):
        head = _made(tmp_path / copied_from, (), copied_from).head
        [entry] = head.find_entries(file.location for file in head.live_files()).values()
        stated.append({name: getattr(entry, name) for name in _STATED} | {"rows": entry.record_count})
    assert stated[0] == stated[1]
