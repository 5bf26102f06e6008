"""The Spark session that a benchmark measures in."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Mapping

QUIET = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "4g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Workers that Spark ends count in `benchmarks.measure.processor_seconds`.
    "spark.python.daemon.module": "benchmarks.waiting_daemon",
}


def local_session(name: str, settings: Mapping[str, str]) -> SparkSession:
    """Return a session on two cores and 4 GiB with these settings; its workers run this Python."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName(name)
    for key, value in {**QUIET, **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
