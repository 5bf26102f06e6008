"""What it costs to evolve a table's schema or partitioning for a batch, in requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as spark

from streaming_sink import PathTable, SchemaContract
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.table.spec import partition_spec
from streaming_sink.writing.target import Destination
from tests.unit.timeline.world import Lake
from timeline.changes.schema_changes import SetPartitioning
from timeline.versions.transactions import Transaction

if TYPE_CHECKING:
    import pytest


def test_a_schema_evolves_in_two_puts_one_list_and_one_get(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake()
    destination = Destination(
        SinkOptions(table=PathTable(lake.store.location), contract=SchemaContract.evolving())
    )
    monkeypatch.setattr(destination, "_table", lake.table)
    batch = spark.StructType([spark.StructField("note", spark.StringType())])
    known = destination.target(batch, fresh=True)
    lake.store.count()
    fitted = destination.fit(known, batch, Transaction("app", "query", "run", 0))
    assert lake.store.count() == {"PUT": 2, "LIST": 1, "GET": 1}
    assert fitted.evolved == "the table's schema has evolved: note added as string"
    assert fitted.schema == lake.open().head.schema


def test_a_partitioning_evolves_in_two_puts_one_list_and_one_get(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake()
    options = SinkOptions(
        table=PathTable(lake.store.location),
        partition_by=("p", "bucket(4, id)"),
        contract=SchemaContract(partitioning="evolve"),
    )
    destination = Destination(options)
    monkeypatch.setattr(destination, "_table", lake.table)
    batch = spark.StructType([spark.StructField("id", spark.LongType())])
    known = destination.target(batch, fresh=True)
    lake.store.count()
    fitted = destination.fit(known, batch, Transaction("app", "query", "run", 0))
    assert lake.store.count() == {"PUT": 2, "LIST": 1, "GET": 1}
    assert fitted.evolved == "the table's partitioning has changed from p to p, bucket(4, id)"
    assert fitted.spec == lake.open().head.spec
    again = destination.fit(fitted, batch, Transaction("app", "query", "run", 0))
    assert (lake.store.count(), again.evolved) == ({}, "")


def test_a_target_that_lost_the_race_takes_the_spec_of_the_winner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = Lake()
    asked = ("bucket(4, id)",)
    options = SinkOptions(
        table=PathTable(lake.store.location),
        partition_by=asked,
        contract=SchemaContract(partitioning="evolve"),
    )
    destination = Destination(options)
    monkeypatch.setattr(destination, "_table", lake.table)
    batch = spark.StructType([spark.StructField("id", spark.LongType())])
    known = destination.target(batch, fresh=True)
    lake.open().commit([SetPartitioning(partition_spec(asked, lake.table.head.schema), "other")])
    fitted = destination.fit(known, batch, Transaction("app", "query", "run", 0))
    assert (fitted.spec.spec_id, lake.open().head.number) == (1, 2)
