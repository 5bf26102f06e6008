"""A process on the Spark that Hudi runs on, which `benchmarks.keyed_hudi` starts and asks.

It takes one JSON object a line on its standard input, and answers each by one on its standard output.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

_DELETED = "_hoodie_is_deleted"


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the JVM prints to standard output too
    builder = SparkSession.builder.master("local[2]").appName("hudi")
    for key, value in json.loads(sys.stdin.readline()).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(_answer(spark, **asked)), file=answers, flush=True)
    spark.stop()


def _answer(
    spark: SparkSession,
    do: str,
    location: str,
    columns: str = "",
    files: list[str] | None = None,
    options: dict[str, str] | None = None,
    select: list[str] | None = None,
    condition: str = "true",
) -> Any:
    if do == "select":
        rows = spark.read.format("hudi").load(location).where(condition).selectExpr(*(select or ["*"]))
        return [[str(value) for value in row] for row in rows.collect()]
    rows = spark.read.schema(columns).parquet(*(files or []))
    deleted = sf.expr("op = 'D'" if "op" in rows.columns else "false")
    _write(rows.withColumn(_DELETED, deleted).drop("op"), location, do, options or {})
    return "written"


def _write(rows: DataFrame, location: str, operation: str, options: dict[str, str]) -> None:
    writer = (
        rows.write.format("hudi").options(**options).option("hoodie.datasource.write.operation", operation)
    )
    writer.mode("append" if operation == "upsert" else "overwrite").save(location)


if __name__ == "__main__":
    main()
