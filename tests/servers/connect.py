"""A Spark Connect server on a free port of this machine; its clients may be killed, and it goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyspark

from tests.servers import launch

ROOT = Path(__file__).resolve().parents[2]
_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextlib.contextmanager
def server(folder: Path, cores: int = 2) -> Iterator[str]:
    """Run a server whose logs lie in the folder; yield what `SPARK_REMOTE` is for its clients."""
    folder.mkdir(parents=True, exist_ok=True)
    port = launch.free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": cores,
    }
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-submit"), "--class", _SERVICE, "--master", f"local[{cores}]"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    environment = {"SPARK_HOME": str(home), "PYTHONPATH": str(ROOT)}
    with launch.running([*command, "spark-internal"], folder, environment, f"tcp://127.0.0.1:{port}"):
        yield f"sc://127.0.0.1:{port}"
