"""JARs of Maven Central, by their exact bytes: Iceberg's runtime for Spark, which brings the demo's peer.

The product itself needs no JAR. The tests and the benchmarks take theirs by the same way.
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

_DOWNLOAD_TIMEOUT_SECONDS = 300


@dataclass(frozen=True)
class Jar:
    """One artifact of Maven Central."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


ICEBERG = Jar(
    "org.apache.iceberg",
    "iceberg-spark-runtime-4.1_2.13",
    "1.12.0",
    "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
)


class JarUnavailableError(Exception):
    """The JAR is neither in the cache nor can Maven Central be reached now."""


def cached_path(wanted: Jar) -> Path:
    """Return where the JAR is once it has been downloaded."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "streaming-sink-tests" / wanted.file_name


def cached(wanted: Jar, timeout_seconds: float = _DOWNLOAD_TIMEOUT_SECONDS) -> Path:
    """Return the JAR's path in the user's cache folder, to which it is downloaded once.

    Ivy does the work (PySpark ships it), so nothing but Python and the JDK is needed. Processes that start
    together may each download; the file appears under its name in one step and is the same for all.
    JarUnavailableError where it cannot be downloaded, or not in so many seconds.
    """
    jar = cached_path(wanted)
    if not jar.exists():
        jar.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jar.parent) as scratch:
            os.replace(_download(wanted, Path(scratch), timeout_seconds), jar)
    return jar


def _download(wanted: Jar, scratch: Path, timeout_seconds: float) -> Path:
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home, "bin", "java")) if java_home else shutil.which("java")
    if java is None:
        raise JarUnavailableError("no java found: install a JDK of version 17 or later")
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    command = [java, "-jar", str(ivy), "-cache", str(scratch / "cache"), "-confs", "default"]
    command += ["-notransitive", "-dependency", wanted.group, wanted.artifact, wanted.version]
    command += ["-retrieve", str(scratch / "[artifact]-[revision].[ext]")]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)
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
