from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from streaming_sink.tasks.clustering.external_sort import SortCounts, join_pieces, sort
from streaming_sink.tasks.clustering.few_values import decode_values, encode_few_values
from streaming_sink.tasks.clustering.ordering import Key

MIB = 1024 * 1024
_POOLS: list[pa.MemoryPool] = []
"""Those of tests, which live as long as their arrays."""
POOL = pa.proxy_memory_pool(pa.default_memory_pool())
"""One that no other test allocates from, and that lives as long as its arrays."""
ROWS = 3_000
FEW = [None if row % 11 == 0 else f"region {row * row % 7}" for row in range(ROWS)]
TABLE = pa.table(
    {
        "row": pa.array(range(ROWS)),
        "few": FEW,
        "raw": pa.array(FEW, pa.string()).cast(pa.binary()),
        "none": pa.nulls(ROWS, pa.string()),
        "many": [f"{row:05d}" for row in range(ROWS)],
        # The sample has one value of it.
        "late": ["common" if row < ROWS - 1 else "seldom" for row in range(ROWS)],
        "list": [["a"]] * ROWS,
    },
    pa.schema(
        [
            pa.field("row", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "7"}),
            pa.field("few", pa.string(), metadata={"PARQUET:field_id": "8"}),
            ("raw", pa.binary()),
            ("none", pa.string()),
            ("many", pa.string()),
            ("late", pa.string()),
            ("list", pa.list_(pa.string())),
        ]
    ),
)


def _encoded(table: pa.Table) -> pa.Table:
    columns = table.columns
    encode_few_values(columns)
    return pa.Table.from_arrays(columns, table.schema.names)


def test_text_of_few_values_is_encoded_and_all_rows_come_back_as_they_were() -> None:
    encoded = _encoded(TABLE)
    chosen = [field.name for field in encoded.schema if pa.types.is_dictionary(field.type)]
    assert chosen == ["few", "raw", "late"]
    assert decode_values(encoded, TABLE.schema).equals(TABLE, check_metadata=True)
    backwards = pa.array(range(ROWS - 1, -1, -1))
    taken = decode_values(encoded.take(backwards), TABLE.schema)
    assert taken.equals(TABLE.take(backwards), check_metadata=True)


def test_few_rows_are_left_as_they_are() -> None:
    few = TABLE.slice(0, 512)
    assert _encoded(few).schema.types == few.schema.types


def test_one_long_text_among_short_ones_reserves_no_memory_for_each_row() -> None:
    """Arrow reserved 150 GB for half a million rows of "ok" and one of 300 KiB, and their group failed."""
    texts = ["ok"] * 20_000 + ["x" * 300_000]
    schema = pa.schema([("row", pa.int64()), ("text", pa.string())])
    batch = pa.RecordBatch.from_pydict({"row": [*range(len(texts))], "text": texts}, schema)
    usual, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        found = [*sort([batch], schema, lambda rows: [Key(rows.column("row"), True)], 8 * MIB, SortCounts())]
    finally:
        pa.set_memory_pool(usual)
    assert [text for each in found for text in each["text"].to_pylist()] == texts[::-1]
    assert pool.max_memory() < 8 * MIB


@pytest.mark.parametrize("values", ["abc", [None]], ids=["short texts", "nulls"])
def test_numbers_take_the_place_of_texts_and_are_not_held_beside_them(values: Sequence[str | None]) -> None:
    texts = pa.array(list(values) * (60_000 // len(values)), pa.string())
    schema = pa.schema([("row", pa.int64()), *((f"text{at}", pa.string()) for at in range(40))])
    batch = pa.RecordBatch.from_arrays(
        [pa.array(range(len(texts))), *(pa.concat_arrays([texts]) for _ in range(40))], schema=schema
    )
    size, counts = batch.nbytes, SortCounts()
    usual, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        pieces = [batch.slice(start, 15_000) for start in range(0, 60_000, 15_000)]
        for _ in sort(pieces, schema, lambda rows: [Key(rows.column("row"), True)], 32 * MIB, counts):
            pass
    finally:
        pa.set_memory_pool(usual)
    assert counts.runs == 0
    assert pool.max_memory() < 1.4 * size  # the rows, which the caller holds too, are of another pool


@pytest.mark.parametrize("memory_bytes", [64 * 1024, 64 * 1024 * 1024])
def test_a_sort_keeps_them_in_memory_and_on_disk(memory_bytes: int) -> None:
    counts = SortCounts()
    batches = [batch for start in range(0, ROWS, 600) for batch in TABLE.slice(start, 600).to_batches()]
    found = sort(batches, TABLE.schema, lambda rows: [Key(rows.column("many"), True)], memory_bytes, counts)
    in_order = pa.Table.from_batches(found, TABLE.schema).combine_chunks()
    assert in_order.equals(TABLE.take(pa.array(range(ROWS - 1, -1, -1))))
    assert (counts.runs > 0) == (memory_bytes < 1024 * 1024)


def test_rows_are_not_held_twice_while_their_pieces_are_joined() -> None:
    names, count = "abcdefgh", 20_000
    schema = pa.schema([(name, pa.int64()) for name in names])

    def batches() -> list[pa.RecordBatch]:
        columns = [[pa.array(range(count)) for _ in names] for _ in range(5)]
        return [pa.RecordBatch.from_arrays(each, schema=schema) for each in columns]

    usual = pa.default_memory_pool()
    pa.set_memory_pool(POOL)
    try:
        rows = join_pieces(batches(), schema)
    finally:
        pa.set_memory_pool(usual)
    assert [(column.num_chunks, len(column)) for column in rows.columns] == [(1, 5 * count)] * len(names)
    assert POOL.max_memory() < 1.3 * rows.nbytes
