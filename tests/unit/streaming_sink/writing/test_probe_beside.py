"""The probe of a new table's store beside its first batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as spark

from streaming_sink import PathTable
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.writing.target import Destination
from timeline.errors import StoreUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from timeline.stores.base import Store


def test_a_probe_that_failed_beside_an_empty_batch_is_made_again_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty batch publishes nothing, so nothing says that the store failed, and it may work by now."""
    probes: list[Store] = []

    def fail_once(store: Store) -> None:
        probes.append(store)
        if len(probes) == 1:
            raise StoreUnavailableError("no answer")

    monkeypatch.setattr("streaming_sink.writing.target.check_store", fail_once)
    destination = Destination(SinkOptions(table=PathTable(str(tmp_path))))
    batch = spark.StructType([spark.StructField("note", spark.StringType())])
    for _ in range(3):
        target = destination.target(batch, fresh=True)
        destination.await_probe()
    assert destination.create(target).head.number == 1
    assert len(probes) == 2, "a probe that succeeded is good for the process"
