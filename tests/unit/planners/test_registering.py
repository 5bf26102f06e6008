"""Which files are registered as they are: one that fits, and everything that keeps a file from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planners.ingestion.registering import FileColumn, FileFooter, TableColumn, is_large_enough, why_rewritten
from planners.sizing import FileSizing

SIZING = FileSizing(max_file_bytes="12MiB", small_file_bytes="10MiB")
TABLE = (
    TableColumn("id", "INT64", 1, required=True),
    TableColumn("day", "BYTE_ARRAY String", 2, required=False),
    TableColumn("ok", "BOOLEAN", 3, required=False),
    TableColumn("tags", "", 4, required=False),
)
_ID, _DAY, _OK = (
    FileColumn(name, kind, None, 0, frozenset({"SNAPPY"}), frozenset({"PLAIN", "RLE"}))
    for name, kind in (("id", "INT64"), ("day", "BYTE_ARRAY String"), ("ok", "BOOLEAN"))
)
FILE = FileFooter(11 << 20, 1, (1000, 500), (_DAY, _ID))


def with_column(column: FileColumn, **given: object) -> FileFooter:
    changed = replace(column, **given)  # type: ignore[arg-type]
    others = tuple(each for each in FILE.columns if each.name != column.name)
    return replace(FILE, columns=(*others, changed))


@pytest.mark.parametrize(
    "file",
    [
        FILE,
        replace(FILE, columns=(_ID,)),
        with_column(_DAY, nulls=1500, codecs=frozenset({"ZSTD", "GZIP", "UNCOMPRESSED"})),
        with_column(_ID, encodings=frozenset({"PLAIN_DICTIONARY", "BIT_PACKED"})),
        with_column(_OK),
        replace(FILE, columns=tuple(replace(it, field_id=at) for it, at in ((_DAY, 2), (_ID, 1)))),
    ],
)
def test_a_file_that_every_reader_reads_as_one_of_the_tables_own_is_registered(file: FileFooter) -> None:
    assert why_rewritten(file, TABLE, SIZING) is None


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (replace(FILE, bytes=(10 << 20) - 1), "size"),
        (replace(FILE, bytes=(12 << 20) + 1), "size"),
        (replace(FILE, partitions=2), "2 partitions"),
        (replace(FILE, partitions=0), "0 partitions"),
        (replace(FILE, absent=("day",)), "lacks a column by which it is partitioned: day"),
        (replace(FILE, group_rows=()), "without rows"),
        (replace(FILE, group_rows=(1000, 0)), "without rows"),
        (replace(FILE, group_rows=(1,) * 12), "12 row groups"),
        (replace(FILE, columns=(_ID, _ID)), "one name"),
        (with_column(_DAY, name="Day"), "does not have a column of it: Day"),
        (with_column(_ID, kind="INT32"), "stored as INT32, and the table's is not: id"),
        (with_column(_DAY, kind="BYTE_ARRAY"), "the table's is not: day"),
        (with_column(_DAY, name="tags", kind=""), "nested values"),
        (with_column(_DAY, name="tags"), "the table's is not: tags"),
        (with_column(_ID, nulls=1), "required column has nulls: id"),
        (with_column(_ID, nulls=None), "no statistics: id"),
        (replace(FILE, columns=(_DAY,)), "lacks a required column: id"),
        (with_column(_ID, codecs=frozenset({"SNAPPY", "BROTLI"})), "compressed by BROTLI: id"),
        (with_column(_ID, encodings=frozenset({"DELTA_BINARY_PACKED"})), "encoded as DELTA_BINARY_PACKED"),
        (with_column(_OK, encodings=frozenset({"RLE"})), "booleans"),
        (with_column(_ID, field_id=1), "field ids"),
        (
            replace(FILE, columns=tuple(replace(it, field_id=at) for it, at in ((_DAY, 1), (_ID, 2)))),
            "field ids",
        ),
    ],
)
def test_any_other_file_is_rewritten(file: FileFooter, why: str) -> None:
    assert why in (why_rewritten(file, TABLE, SIZING) or "")


def test_a_file_is_large_enough_where_a_fill_would_leave_it_alone() -> None:
    assert [is_large_enough(size << 20, SIZING) for size in (9, 10, 12, 13)] == [False, True, True, False]
    unfilled = FileSizing(max_file_bytes="12MiB", small_file_bytes=0)
    assert [is_large_enough(size << 20, unfilled) for size in (5, 6)] == [False, True]
