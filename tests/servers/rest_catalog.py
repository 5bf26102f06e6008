"""Iceberg's own REST test server, Java handlers over a catalog in sqlite, on a free port of this machine."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.servers import binaries, launch

_FOLDER = Path(__file__).with_name("iceberg_rest")
_SOURCE = _FOLDER / "org" / "apache" / "iceberg" / "rest" / "Loopback.java"
_JARS = _FOLDER / "jars.txt"
"""Group, artifact, version, classifier and SHA-256, of the newest release whose fixtures are to be had."""


@dataclass(frozen=True)
class RestCatalog:
    """A running REST catalog."""

    uri: str
    warehouse: Path
    """A folder of this machine, where its tables are."""

    @property
    def properties(self) -> dict[str, str]:
        return {"type": "rest", "uri": self.uri}


@contextlib.contextmanager
def rest_catalog(folder: Path, *, registers_over: bool = False) -> Iterator[RestCatalog]:
    """Run a server of an empty catalog till the block is left. `registers_over`: it registers metadata over a
    table that is there, which Iceberg's own does not.
    """
    made, port = _made(), launch.free_port()
    warehouse = folder / "warehouse"
    warehouse.mkdir()
    command = [binaries.java(), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", _class_path(made)]
    command += ["org.apache.iceberg.rest.Loopback", str(port), f"warehouse={warehouse}", "clients=4"]
    command += [f"uri=jdbc:sqlite:file:{folder / 'catalog.db'}?busy_timeout=10000"]
    if registers_over:
        command += ["catalog-impl=org.apache.iceberg.rest.Loopback$RegisteringOver"]
    uri = f"http://127.0.0.1:{port}"
    with launch.running(command, folder, {}, f"{uri}/v1/config"):
        yield RestCatalog(uri, warehouse)


def sqlite_driver() -> Path:
    """Return the JAR by which Java reaches a file of sqlite."""
    return next(_made().glob("sqlite-jdbc-*.jar"))


def _made() -> Path:
    """Return the folder of the server's JARs and its class, fetched and compiled once."""
    digest = hashlib.sha256(_SOURCE.read_bytes() + _JARS.read_bytes()).hexdigest()[:12]
    wanted = dict(line.split(" = ") for line in _JARS.read_text().splitlines())

    def make(made: Path) -> None:
        binaries.retrieve_jars(wanted, made)
        binaries.run([binaries.javac(), "-cp", _class_path(made), "-d", str(made), str(_SOURCE)])

    return binaries.cached(f"iceberg-rest-{digest}", make)


def _class_path(made: Path) -> str:
    # Jackson, Avro, Hadoop and the loggers are those that PySpark brings.
    return f"{made}:{made}/*:{Path(pyspark.__file__).parent}/jars/*"
