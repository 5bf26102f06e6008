"""Flink's Iceberg sink, which commits each second, beside a stream: appends, and equality deletes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog as PyIcebergCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from streaming_sink import FileSizing
from tests.servers import binaries, flink
from tests.servers.catalog_case import Case, tens
from tests.tiers import only_in_soak

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spark,
    pytest.mark.slow,
    only_in_soak,  # PyFlink has 330 MB, and starts slowly
]

IDS = range(1_000_000, 1_000_800)
_BATCHES = 10


def run_beside(case: Case, key: list[int], options: str, columns: str, log: Path) -> int:
    """Land batches from 1 on while Flink writes to a new table, and return how many."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "by", StringType()),
        identifier_field_ids=key,
    )
    PyIcebergCatalog("test", **case.catalog.properties).create_table(case.name, schema)
    sink = case.new_sink(sizing=FileSizing(max_file_bytes="64KiB", small_file_bytes="48KiB"))
    number = 0
    with binaries.or_skip(), flink.job(case.catalog.uri, case.name, IDS, options, columns, log) as process:
        while process.poll() is None or number < _BATCHES:
            number += 1
            assert case.land(number, sink).outcome == "committed"
    sink.finish()
    assert case.land(number, case.new_sink()).outcome == "skipped"
    by_flink = ["flink.job-id" in it.summary.additional_properties for it in case.loaded().snapshots()]
    first, last = by_flink.index(True), len(by_flink) - by_flink[::-1].index(True)
    assert by_flink[first:last].count(True) > 1
    assert by_flink[first:last].count(False) > 1, "the stream wrote before or after it alone"
    return number


def test_appends_of_both_are_there_once(case: Case, tmp_path: Path) -> None:
    landed = run_beside(case, [], "'upsert-enabled'='false'", "id, 'flink'", tmp_path / "log")
    assert case.ids() == [*tens(*range(1, landed + 1)), *IDS]


def test_beside_changes_by_equality_deletes_each_row_counts_once(case: Case, tmp_path: Path) -> None:
    """By Spark, since pyiceberg reads no equality deletes."""
    options = "'upsert-enabled'='true', 'equality-field-columns'='id'"
    landed = run_beside(case, [1], options, "1000000 + MOD(id, 10), 'flink'", tmp_path / "log")
    rows = case.do("SELECT id, count(*) FROM {t} GROUP BY id ORDER BY id")
    assert rows == [[each, 1] for each in (*tens(*range(1, landed + 1)), *IDS[:10])]
    totals = (it.summary.additional_properties for it in case.loaded().snapshots())
    assert any(int(it.get("total-equality-deletes", 0)) for it in totals)
