"""Dropping columns and encrypting by Spark's workers, on a table that a stream goes on writing to."""

from __future__ import annotations

from collections import Counter

import duckdb
import pyarrow.parquet as pq
import pytest

from planners import All
from streaming_sink import Clustering, IcebergSink, clustering
from tests.spark.streams import add_files, drain, ids_of, metadata_file, source_ids
from tests.unit.streaming_sink.small_tables import (
    append,
    drop_columns,
    entries,
    make_table,
    multiset,
    path_of,
    read,
    rows_of,
)
from tests.unit.streaming_sink.vault import Vault
from timeline.table import open_table

pytestmark = pytest.mark.spark

LAKE = "lake-master-key!"


@pytest.fixture
def vault(tmp_path):
    return Vault(str(tmp_path / "keys.json")).put(lake=LAKE)


def test_a_table_is_sorted_loses_columns_and_is_encrypted_and_keeps_its_rows(spark, location, vault):
    table = make_table(location)
    for batch in range(2):
        append(table, batch)
    clustering.schedule_and_execute(spark, location, sort_by=["key"], select=All(), overlap_at_least=2)
    table.refresh()
    drop_columns(table)
    dropped = clustering.schedule_and_execute(spark, location, strategy="drop_columns", checksum=True)
    assert len(dropped.committed) == 2
    assert dropped.saved_bytes > 0
    how = {"strategy": "encrypt", "parameters": {"footer_key": "lake"}}
    encrypted = clustering.schedule_and_execute(spark, location, keys=vault, checksum=True, **how)
    assert len(encrypted.committed) == 2
    assert clustering.plan(location, **how).groups == ()

    table.refresh()
    found = [read(path, decryption_properties=vault.decryption()) for path in entries(table)]
    assert {tuple(each.column_names) for each in found} == {("id", "p", "key", "place")}
    assert all(each.schema.field("place").type.num_fields == 1 for each in found)
    expected = [rows_of(batch).select(["id", "p", "key"]) for batch in range(2)]
    assert multiset(each.select(["id", "p", "key"]) for each in found) == multiset(expected)
    assert {file.sort_order_id for file in entries(table).values()} == {1}
    with duckdb.connect() as connection, pytest.raises(duckdb.Error):
        connection.execute("SELECT * FROM read_parquet($1)", [list(entries(table))])


def test_a_stream_that_encrypts_inline_goes_on_beside_its_encrypted_files(spark, location, tmp_path, vault):
    add_files(tmp_path / "source", range(4))
    asked = Clustering(every_commits=2, strategy="encrypt", parameters={"footer_key": "lake"}, keys=vault)
    sink = IcebergSink(location, clustering=asked)
    drain(spark, tmp_path / "source", sink, str(tmp_path / "checkpoint"))
    files = entries(open_table(location))
    assert all(file.key_metadata for file in files.values())
    decryption = vault.decryption()
    ids = [pq.ParquetFile(path_of(path), decryption_properties=decryption).read()["id"] for path in files]
    assert Counter(it for each in ids for it in each.to_pylist()) == source_ids(4)
    assert metadata_file(location)
    with pytest.raises(OSError, match="no decryption found"):
        ids_of(location)


def test_a_group_that_lacks_a_key_is_told_and_the_table_stays(spark, location, vault):
    table = make_table(location)
    append(table, 0)
    vault.put(other=LAKE)
    before = set(entries(table))
    report = clustering.schedule_and_execute(
        spark, location, strategy="encrypt", parameters={"footer_key": "lake"}, keys=vault
    )
    assert {group.outcome for group in report.groups} == {"failed"}
    assert "the keys could not wrap a key by 'lake': LookupError" in report.line()
    assert LAKE not in report.line()
    table.refresh()
    assert set(entries(table)) == before
