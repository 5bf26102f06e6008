"""A quiet local Spark session for the demo and the notebook."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def quiet_session(name: str) -> SparkSession:
    """Return a session on all cores of this machine that says nothing unless something fails.

    Workers run this very Python: PySpark would take the first `python3` on the PATH, which may lack pyarrow.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log4j2 = Path(__file__).with_name("log4j2.properties").as_uri()
    spark = (
        SparkSession.builder.appName(name)
        .master("local[*]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log4j2}")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
