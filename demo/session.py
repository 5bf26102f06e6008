"""A quiet local Spark session for the demo."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Mapping

_QUIET = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # Spark's default, 200, is for clusters.
    "spark.sql.shuffle.partitions": str(os.cpu_count()),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def quiet_session(name: str, settings: Mapping[str, str]) -> SparkSession:
    """Return a session on all cores of this machine that says nothing unless something fails.

    Workers run this very Python: PySpark would take the first `python3` on the PATH, which may lack pyarrow.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log4j2 = Path(__file__).with_name("log4j2.properties").as_uri()
    builder = (
        SparkSession.builder.appName(name)
        .master("local[*]")
        # In a run of a minute the JVM's second compiler costs more than it gains. Without it the JVM reserves
        # so little for compiled code that the run would fill it, and end interpreted.
        .config(
            "spark.driver.extraJavaOptions",
            f"-Dlog4j2.configurationFile={log4j2} -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
        )
    )
    for key, value in {**_QUIET, **settings}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
