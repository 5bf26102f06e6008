"""Changes of a database that move keys, before readers that we did not write."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streaming_sink import IcebergSink, cdc
from tests.readers import judges
from tests.spark.envelopes import MYSQL, Envelope, envelope, parsed

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

READERS = ("pyiceberg", "duckdb", "chdb", "polars")
ROW = "struct<item: string, list: int, position: int>"
FIRST = {1: "a", 2: "b", 3: "c"}
KEY = ["list", "position"]
SHIFTS = {
    "the key of the source": (True, True),
    "another key": (False, True),
    "another key, which a source moves that checks it at the end of the statement": (False, False),
}
"""Whether a change comes as two halves, and whether each row leaves its place before the next takes it."""


def _item(number: int, position: int, item: str) -> dict[str, Any]:
    return {"item": item, "list": number, "position": position}


def _at(pos: int, row: int) -> dict[str, Any]:
    return {"file": "binlog.000003", "pos": pos, "row": row}


def _shift(number: int, keeps_halves: bool, descends: bool) -> list[Envelope]:
    """Return what a list of three items sends, and then `UPDATE items SET position = position + 1 WHERE list
    = … ORDER BY position DESC`: one event of the binlog, of three rows. Debezium sends two changes for a row
    whose key changes; one, where the key of the source is another. In the other order a row takes a place
    before the row that has it has left.
    """
    sent = [
        envelope("c", None, _item(number, position, item), _at(400, row))
        for row, (position, item) in enumerate(FIRST.items())
    ]
    for row, (position, item) in enumerate(sorted(FIRST.items(), reverse=descends)):
        old, new = _item(number, position, item), _item(number, position + 1, item)
        if keeps_halves:
            sent += [envelope("d", old, None, _at(900, row)), envelope("c", None, new, _at(900, row))]
        else:
            sent.append(envelope("u", old, new, _at(900, row)))
    return sent


@pytest.mark.parametrize("shift", SHIFTS)
def test_rows_that_move_to_the_keys_of_each_other_are_all_there(
    spark: SparkSession, tmp_path: Path, shift: str
) -> None:
    """The delete of a key and its insert, by another row of one event, tied, and the delete won. Each list
    splits its changes over two batches at another place, in the order of the log and in the other one; then
    all of them come again.
    """
    location, (halves, descends) = str(tmp_path / "t"), SHIFTS[shift]
    key = KEY if halves else [*KEY, "item"]
    sink = IcebergSink(location, cdc.upsert(key=key), app_id="a")
    batches: list[list[Envelope]] = [[], [], []]
    places = len(_shift(0, halves, descends)) + 1
    for number in range(2 * places):
        sent = _shift(number, halves, descends)
        early, late = sent[: number % places], sent[number % places :]
        first, second = (early, late) if number < places else (late, early)
        batches[0] += first
        batches[1] += second[::-1]
        batches[2] += sent
    options: dict[str, Sequence[str]] = {} if halves else {"key": key, "source_key": ["item"]}
    for number, sent in enumerate(batches):
        sink(cdc.debezium(parsed(spark, sent, MYSQL, ROW), **options), number)
    sink.finish()
    rows = [
        {
            **_item(number, position + 1, item),
            "_sequence": _sequence(3 - position if descends else position - 1),
        }
        for number in range(2 * places)
        for position, item in FIRST.items()
    ]
    kinds = [("item", pa.string()), ("list", pa.int32()), ("position", pa.int32())]
    schema = pa.schema([*kinds, ("_sequence", pa.decimal128(38, 0))])
    judges.assert_all_readers_agree(location, pa.Table.from_pylist(rows, schema), readers=READERS)
    assert sink.reports[-1].rows == 0


def _sequence(row: int) -> Any:
    return Decimal(f"{3:010}{900:014}{row:010}2")
