"""Envelopes as connectors of Debezium write them, for tests: JSON, parsed with the type of a connector."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRANSACTION = "struct<id: string, total_order: bigint, data_collection_order: bigint>"
MYSQL = "struct<file: string, pos: bigint, row: int, ts_ms: bigint, gtid: string, snapshot: string>"
POSTGRESQL = "struct<lsn: bigint, sequence: string, txId: bigint, snapshot: string>"
Envelope = Mapping[str, Any]


def envelope(op: str | None, before: Any, after: Any, source: Any, **more: Any) -> Envelope:
    return {"op": op, "before": before, "after": after, "source": source, **more}


def parsed(
    spark: SparkSession,
    envelopes: Iterable[Envelope],
    source: str,
    row: str = "struct<id: bigint, name: string>",
    transaction: str = TRANSACTION,
) -> DataFrame:
    """Return envelopes as a user's `from_json` makes columns of them."""
    kind = f"op string, before {row}, after {row}, source {source}, transaction {transaction}"
    texts = [(json.dumps(each),) for each in envelopes]
    batch = spark.createDataFrame(texts, "value string")
    return batch.selectExpr(f"from_json(value, '{kind}') AS m").select("m.*")
