"""Hive's metastore on a free port of this machine, over a database in its own process."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.servers import binaries, launch

_FOLDER = Path(__file__).with_name("hive")
_JARS = _FOLDER / "jars.txt"
"""Group, artifact, version and SHA-256 of what 3.1.3 needs beside the JARs that PySpark brings."""
_OPENED = ("lang", "net", "nio", "util", "util.concurrent", "util.regex")


@dataclass(frozen=True)
class HiveMetastore:
    """A running metastore."""

    uri: str
    warehouse: Path
    """A folder of this machine, where its tables are."""

    @property
    def properties(self) -> dict[str, str]:
        return {"type": "hive", "uri": self.uri}


@contextlib.contextmanager
def hive_3(folder: Path) -> Iterator[HiveMetastore]:
    """Run Hive 3.1.3, which compares nothing by itself and ends no lock, till the block is left."""
    digest = hashlib.sha256(_JARS.read_bytes()).hexdigest()[:12]
    wanted = dict(line.split(" = ") for line in _JARS.read_text().splitlines())
    made = binaries.cached(f"hive-{digest}", lambda made: binaries.retrieve_jars(wanted, made))
    # Hive's storage API is of its own numbers; the rest is of 2.3.
    others = [it for it in _of_pyspark() if not it.name.startswith("hive-") or "storage-api" in it.name]
    yield from _run(folder, [*made.glob("*.jar"), *others])


@contextlib.contextmanager
def hive_2(folder: Path) -> Iterator[HiveMetastore]:
    """Run Hive 2.3.10, as PySpark brings it, which compares by itself if it is asked to."""
    yield from _run(folder, _of_pyspark())


def _of_pyspark() -> list[Path]:
    return sorted(Path(pyspark.__file__).parent.glob("jars/*.jar"))


def _run(folder: Path, class_path: list[Path]) -> Iterator[HiveMetastore]:
    port, warehouse = launch.free_port(), folder / "warehouse"
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:{folder}/derby;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "datanucleus.connectionPoolingType": "HikariCP",
        "derby.stream.error.file": f"{folder}/derby.log",
        "hive.async.log.enabled": "false",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": str(warehouse),
        "metastore.event.db.notification.api.auth": "false",
        "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
        "metastore.schema.verification": "false",
        "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
        "metastore.warehouse.dir": str(warehouse),
        "metastore.warehouse.external.dir": str(warehouse),
    }
    command = [binaries.java(), "-Xmx512m", "-XX:TieredStopAtLevel=1"]
    for package in _OPENED:
        command += ["--add-opens", f"java.base/java.{package}=ALL-UNNAMED"]
    command += [f"-D{name}={value}" for name, value in settings.items()]
    command += ["-cp", ":".join(map(str, class_path)), str(_FOLDER / "Loopback.java"), str(port)]
    with launch.running(command, folder, {}, f"tcp://127.0.0.1:{port}"):
        yield HiveMetastore(f"thrift://127.0.0.1:{port}", warehouse)
