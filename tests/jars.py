"""Where tests and benchmarks get the JARs that they need: Iceberg's as a judge and a peer, Delta's as a peer.

The product itself needs no JAR.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

_DOWNLOAD_TIMEOUT_SECONDS = 300


@dataclass(frozen=True)
class _Jar:
    """One artifact of Maven Central, by its exact bytes."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


_ICEBERG = _Jar(
    "org.apache.iceberg",
    "iceberg-spark-runtime-4.1_2.13",
    "1.12.0",
    "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
)
_DELTA = (
    _Jar(
        "io.delta",
        "delta-spark_4.1_2.13",
        "4.4.0",
        "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
    ),
    _Jar(
        "io.delta",
        "delta-storage",
        "4.4.0",
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
)


class JarUnavailableError(Exception):
    """The JAR is neither in the cache nor to be had from Maven Central now."""


def iceberg_runtime() -> Path:
    """Return the path of the Iceberg Spark runtime, downloaded once into the user's cache folder.

    Ivy does the work (PySpark ships it), so nothing but Python and the JDK is needed. Processes that start
    together may each download; the file appears under its name in one step and is the same for all.
    """
    return _cached(_ICEBERG)


def delta_runtime() -> tuple[Path, ...]:
    """Return the paths of Delta for Spark and of what it needs, downloaded as `iceberg_runtime`."""
    return tuple(map(_cached, _DELTA))


def require_iceberg_runtime() -> Path:
    """Return the JAR's path; where it cannot be had, skip the test, but fail it in CI."""
    try:
        return iceberg_runtime()
    except JarUnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def _cached(wanted: _Jar) -> Path:
    jar = _cache_folder() / wanted.file_name
    if not jar.exists():
        jar.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jar.parent) as scratch:
            os.replace(_download(wanted, Path(scratch)), jar)
    return jar


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "streaming-sink-tests"


def _download(wanted: _Jar, scratch: Path) -> Path:
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home, "bin", "java")) if java_home else shutil.which("java")
    if java is None:
        raise JarUnavailableError("no java found: install a JDK of version 17 or later")
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    command = [java, "-jar", str(ivy), "-cache", str(scratch / "cache"), "-confs", "default"]
    command += ["-notransitive", "-dependency", wanted.group, wanted.artifact, wanted.version]
    command += ["-retrieve", str(scratch / "[artifact]-[revision].[ext]")]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise JarUnavailableError(
            f"downloading {wanted.file_name} took over {error.timeout:.0f} s"
        ) from error
    jar = scratch / wanted.file_name
    if run.returncode != 0 or not jar.exists():
        raise JarUnavailableError(
            f"could not download {wanted.file_name} from Maven Central: {run.stdout[-800:]}"
        )
    found = hashlib.sha256(jar.read_bytes()).hexdigest()
    if found != wanted.sha256:
        raise JarUnavailableError(f"{jar.name} has another checksum than expected: {found}")
    return jar
