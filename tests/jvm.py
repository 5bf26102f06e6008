"""How the tests start their JVMs, dozens of them: most of a start is loading and compiling classes.

    python -m tests.jvm    # make the archive of classes that the next starts share

A start with the archive and one compiler takes half the time of one without (7.5 s instead of 14 s on two
cores, the first job included). Without the archive everything works, only slower.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark.jsa"
_ROOT = Path(__file__).resolve().parents[1]
# With one compiler the JVM reserves 48 MB for compiled code. A session of many tests fills that, and then
# runs interpreted.
_ONE_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xlog:disable"

# Hadoop starts a process for each link that it looks at, nine hundred in the tests of one file: checkpoints
# are renamed by the interface that looks at none.
_FEWER_PROCESSES = (
    "--conf spark.sql.streaming.checkpointFileManagerClass="
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    " pyspark-shell"
)

_STREAM = """
import sys
from pyspark.sql import SparkSession
from streaming_sink import IcebergSink
from tests.spark.streams import add_files, drain
folder = sys.argv[1]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
add_files(f"{folder}/source", range(3))
drain(spark, f"{folder}/source", IcebergSink(f"{folder}/table", partition_by=["p"]), f"{folder}/checkpoint")
spark.stop()
"""


def start_quickly() -> None:
    """Let every JVM that Spark starts from now on, here and in processes of ours, start quickly."""
    shared = f"{_ONE_COMPILER} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else _ONE_COMPILER
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _ONE_COMPILER)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", shared)
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", _FEWER_PROCESSES)


def executor_options() -> dict[str, str]:
    """Return the setting by which executors of their own start as quickly."""
    return {"spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", "")}


def _make_archive() -> None:
    """Run a small stream in a JVM that leaves the archive when it ends."""
    unfinished = ARCHIVE.with_suffix(".unfinished")
    told = {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_SUBMIT_ARGS": _FEWER_PROCESSES,
        "SPARK_SUBMIT_OPTS": f"{_ONE_COMPILER} -XX:ArchiveClassesAtExit={unfinished}",
    }
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _STREAM, folder]
        run = subprocess.run(
            command, env=told, cwd=folder, capture_output=True, text=True, timeout=300, check=False
        )
    if unfinished.exists():
        unfinished.rename(ARCHIVE)
    else:
        sys.stderr.write(f"no archive of classes, so the tests take longer: {run.stdout}{run.stderr}\n")


if __name__ == "__main__":
    _make_archive()
