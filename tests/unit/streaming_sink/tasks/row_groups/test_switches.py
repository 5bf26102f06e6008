"""Each rule of copying row groups, switched off, is caught: by the commit, or by what is in the file.

Conditions under which none is copied have tests of their own in `test_copying.py`.
"""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from planners import row_groups as planner
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.tasks.files import data_file_writer, merged_rows
from streaming_sink.tasks.row_groups import copying
from tests.simulation.switch import Switch
from tests.unit.streaming_sink.small_tables import append_rows, delete_rows, entries, merge_all, path_of
from tests.unit.streaming_sink.tasks.row_groups.joined_files import walk
from timeline.properties import COPIED_FROM_BYTES
from timeline.stores import LocalStore
from timeline.table import Table

_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "x", DoubleType(), required=False),
    NestedField(3, "s", StringType(), required=False),
)
_FILTERED = {"write.parquet.bloom-filter-enabled.column.s": "true", "write.parquet.page-row-limit": "10"}
_STATED = ("record_count", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds")

_SWITCHES = (
    Switch("places", "a chunk's data page is where it was", copying, "_moved_chunk", "for number in (9, 11)",
           "for number in (11,)"),
    Switch("places", "a chunk's dictionary is where it was", copying, "_moved_chunk", "for number in (9, 11)",
           "for number in (9,)"),
    Switch("places", "a chunk is one byte beside", copying, "moved_group", "begin - group.extent.begin",
           "begin - group.extent.begin + 1"),
    Switch("places", "an offset index is as it was", copying, "_moved_pages", "page[1].value + shift",
           "page[1].value"),
    Switch("places", "an index is one byte beside", copying, "_placed", "begin + len(out), len(data)",
           "begin + len(out) + 1, len(data)"),
    Switch("places", "the filters of a row group are another's", copying, "_with_places",
           '("bloom_filter", meta, (14, 15))', '("column_index", meta, (14, 15))'),
    Switch("rows", "a row group is left out", data_file_writer.DataFileWriter, "copy",
           "for number in numbers:", "for number in numbers[1:]:"),
    Switch("rows", "the first row group is copied for each", data_file_writer.DataFileWriter, "copy",
           "stored.footer.groups[number]", "stored.footer.groups[numbers[0]]"),
    Switch("rows", "an input with deletes is copied", planner, "_why_decoded", "if group.deleted:",
           "if False:"),
    Switch("rows", "deleted positions are those of another row group", merged_rows, "_positions_among",
           "(own_end - end)", "0"),
    Switch("statistics", "the NaNs of an input count twice", merged_rows.MergedRows, "_nans_left",
           "count - decoded.get(leaf.field_id, 0)", "count"),
)  # fmt: skip


def _rows(start, count, schema):
    ids = range(start, start + count)
    xs = [math.nan if it % 7 == 0 else it / 4 for it in ids]
    return pa.table({"id": [*ids], "x": xs, "s": [f"text {it % 9}" for it in ids]}, schema)


def _merged(folder, copied_from):
    """Merge files twice, rows deleted in between; return the file's bytes, its rows, and what is stated."""
    properties = {COPIED_FROM_BYTES: str(copied_from), **_FILTERED}
    table = Table.create(LocalStore(str(folder)), _SCHEMA, table_properties=properties, store_is_checked=True)
    for number in range(4):
        append_rows(table, _rows(number * 40, 40, arrow_schema(table.head.schema)), number)
        if number == 2:
            merge_all(table)
            [joined] = table.head.live_files()
            ids = pq.ParquetFile(path_of(joined.location)).read()["id"].to_pylist()
            delete_rows(table, {joined.location: [at for at, it in enumerate(ids) if it in (49, 51)]})
    merge_all(table)
    [(location, stated)] = entries(table).items()
    data = path_of(location).read_bytes()
    rows = pq.ParquetFile(pa.BufferReader(data)).read().to_pylist()
    in_order = [repr(row) for row in sorted(rows, key=lambda row: row["id"])]
    return data, in_order, [getattr(stated, it) for it in _STATED]


def _check_places(data):
    assert all(walked == indexed for walked, indexed in walk(data))
    footer = pq.read_metadata(pa.BufferReader(data))
    assert footer.num_row_groups == 4
    for group in map(footer.row_group, range(4)):
        filters = data[group.column(2).bloom_filter_offset :][: group.column(2).bloom_filter_length]
        assert filters[0] == 0x15  # a header, of whole blocks
        assert len(filters) % 32


@pytest.fixture(scope="module")
def by_decoding(tmp_path_factory):
    _, *found = _merged(tmp_path_factory.mktemp("decoded"), 1 << 40)
    return found


def _judge(folder, by_decoding):
    data, *found = _merged(folder, 1)
    _check_places(data)
    assert found == by_decoding


def test_a_joined_file_is_as_a_decoded_one(tmp_path, by_decoding):
    _judge(tmp_path, by_decoding)


@pytest.mark.parametrize("switch", _SWITCHES, ids=lambda it: it.what)
def test_a_switch_is_caught(switch, tmp_path, by_decoding):
    with switch.thrown(), pytest.raises(Exception):  # noqa: B017, PT011 - wherever it is caught
        _judge(tmp_path, by_decoding)
