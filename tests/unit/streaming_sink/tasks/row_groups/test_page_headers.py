"""Page headers and footers whose fields are of other types than Parquet's: found by a fuzzer, and refused."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink.tasks.job import ParquetSettings
from streaming_sink.tasks.row_groups.choosing import choose_row_groups
from streaming_sink.tasks.row_groups.compact import BINARY, I32, LIST, STRUCT, Field, Values, encode_struct
from streaming_sink.tasks.row_groups.conditions import layout_of
from streaming_sink.tasks.row_groups.footer import FooterError, read_row_groups
from streaming_sink.tasks.row_groups.page_headers import with_pages

_SCHEMA = pa.schema([pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "1"})])
_LIST = Field(LIST, Values(I32, []))


def _file() -> bytes:
    written = io.BytesIO()
    table = pa.table({"a": [*range(40)]})
    pq.write_table(table, written, compression="zstd", use_dictionary=False, write_page_index=True)
    return written.getvalue()


_FILE = _file()


@pytest.mark.parametrize(
    "header",
    [
        {1: _LIST, 3: Field(I32, 1)},
        {1: Field(I32, 0), 3: _LIST},
        {1: Field(I32, 0), 3: Field(I32, 1), 5: _LIST},
        {1: Field(I32, 0), 3: Field(I32, 1), 5: Field(STRUCT, {1: _LIST})},
        {1: Field(I32, 0), 3: Field(I32, 1), 5: Field(STRUCT, {1: Field(BINARY, b"")})},
        {1: Field(I32, 0), 3: Field(I32, 1), 8: Field(STRUCT, {3: Field(I32, 40)})},
        {1: Field(I32, 9), 3: Field(I32, 1)},
        {3: Field(I32, 1)},
        {},
    ],
)
def test_headers_of_other_types_lead_nowhere(header):
    spoiled = encode_struct(header)
    with pytest.raises(FooterError, match="a page has no header"):
        with_pages(read_row_groups(io.BytesIO(_FILE[:4] + spoiled + _FILE[4 + len(spoiled) :])))


@pytest.mark.parametrize("size", [-(2**31), -1, 2**31 - 1])
def test_a_page_that_ends_outside_of_its_column_is_refused(size):
    own = Field(STRUCT, {1: Field(I32, 40), 2: Field(I32, 0), 3: Field(I32, 3), 4: Field(I32, 3)})
    header = encode_struct({1: Field(I32, 0), 2: Field(I32, 9), 3: Field(I32, size), 5: own})
    with pytest.raises(FooterError, match="a page ends at"):
        with_pages(read_row_groups(io.BytesIO(_FILE[:4] + header + _FILE[4 + len(header) :])))


@pytest.mark.parametrize("number", [1, 2])
def test_kinds_of_pages_that_are_no_numbers_exclude_a_row_group(number):
    stored = with_pages(read_row_groups(io.BytesIO(_FILE)))
    layout = layout_of(_SCHEMA, ParquetSettings(), by_names=True)
    assert choose_row_groups(stored, layout, 1).copied == (0,)
    stored.footer.groups[0].chunks[0].fields[3].value[13].value.items[0][number] = _LIST
    assert "not every reader" in choose_row_groups(stored, layout, 1).reasons[0]


def test_a_row_group_that_states_a_dictionary_and_has_none_is_not_copied():
    """pyarrow reads it: it looks for a dictionary only before the first data page."""
    stored = with_pages(read_row_groups(io.BytesIO(_FILE)))
    meta = stored.footer.groups[0].chunks[0].fields[3].value
    meta[11] = meta[9]
    layout = layout_of(_SCHEMA, ParquetSettings(), by_names=True)
    assert "a page is not where" in choose_row_groups(stored, layout, 1).reasons[0]
