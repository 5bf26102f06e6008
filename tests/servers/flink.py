"""PyFlink with Iceberg's sink, fetched once: a job of one row each twentieth of a second, in a process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark

from demo.jars import Jar, JarUnavailableError, cached
from tests.servers import binaries
from tests.servers.binaries import ServerUnavailableError

FLINK = "2.1.3"
_RUNTIME = Jar(
    "org.apache.iceberg",
    "iceberg-flink-runtime-2.1",
    "1.11.0",
    "39e658d876f253815b4b17c6676bebf6a24d517afe93a21298106d1d7fa97331",
)
_TIMEOUT_SECONDS = 400
_PROGRAM = """
import sys
from pyflink.table import EnvironmentSettings, TableEnvironment
uri, table, first, last, options, columns = sys.argv[1:]
flink = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
for name, value in {"parallelism.default": "1", "execution.checkpointing.interval": "1s"}.items():
    flink.get_config().set(name, value)
lake = f"'type'='iceberg', 'catalog-type'='rest', 'uri'='{uri}'"
flink.execute_sql(f"CREATE CATALOG lake WITH ({lake})")
source = f"'fields.id.kind'='sequence', 'fields.id.start'='{first}', 'fields.id.end'='{last}'"
source += ", 'connector'='datagen', 'rows-per-second'='20'"
flink.execute_sql(f"CREATE TEMPORARY TABLE source (id BIGINT) WITH ({source})")
flink.execute_sql(f"INSERT INTO lake.{table} /*+ OPTIONS({options}) */ SELECT {columns} FROM source").wait()
"""


@contextlib.contextmanager
def job(
    uri: str, table: str, ids: range, options: str, columns: str, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a job that writes to a table of a REST catalog, with a commit each second, and await its end.
    ServerUnavailableError where PyFlink can neither be found in the cache nor be had now.
    """
    # Its functions in Python, of which there are none, would want Apache Beam here.
    environment = {**os.environ, "_python_worker_execution_mode": "process"}
    environment |= {"PYTHONPATH": str(_pyflink()), "HADOOP_CLASSPATH": _class_path()}
    command = [sys.executable, "-c", _PROGRAM, uri, table, str(ids[0]), str(ids[-1]), options, columns]
    with log.open("wb") as said:
        process = subprocess.Popen(command, env=environment, cwd=log.parent, stdout=said, stderr=said)
    try:
        yield process
        assert process.wait(_TIMEOUT_SECONDS) == 0, log.read_text()[-2000:]
    finally:
        process.kill()
        process.wait()


def _pyflink() -> Path:
    """Return a folder with PyFlink, without what only its functions in Python need."""
    install = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    wanted = [f"apache-flink=={FLINK}", f"apache-flink-libraries=={FLINK}", "py4j==0.10.9.7"]
    wanted += ["ruamel.yaml==0.19.1"]
    return binaries.cached(
        f"pyflink-{FLINK}",
        lambda made: binaries.run([*install, "--no-compile", "--target", str(made), *wanted]),
    )


def _class_path() -> str:
    try:
        runtime = cached(_RUNTIME)
    except JarUnavailableError as error:
        raise ServerUnavailableError(str(error)) from error
    # Iceberg's catalogs want Hadoop's classes, which PySpark brings.
    return ":".join(
        map(str, [runtime, *(Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")])
    )
