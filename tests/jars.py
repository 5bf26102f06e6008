"""Where tests and benchmarks get the one JAR that they need: the Iceberg runtime, as a judge and as a peer.

The product itself needs no JAR.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pyspark
import pytest

_GROUP = "org.apache.iceberg"
_ARTIFACT = "iceberg-spark-runtime-4.1_2.13"
_VERSION = "1.12.0"
_SHA256 = "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82"
_DOWNLOAD_TIMEOUT_SECONDS = 300


class JarUnavailableError(Exception):
    """The JAR is neither in the cache nor to be had from Maven Central now."""


def iceberg_runtime() -> Path:
    """Return the path of the Iceberg Spark runtime, downloaded once into the user's cache folder.

    Ivy does the work (PySpark ships it), so nothing but Python and the JDK is needed. Processes that start
    together may each download; the file appears under its name in one step and is the same for all.
    """
    jar = _cache_folder() / f"{_ARTIFACT}-{_VERSION}.jar"
    if not jar.exists():
        jar.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jar.parent) as scratch:
            os.replace(_download(Path(scratch)), jar)
    return jar


def require_iceberg_runtime() -> Path:
    """Return the JAR's path; where it cannot be had, skip the test, but fail it in CI."""
    try:
        return iceberg_runtime()
    except JarUnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "streaming-sink-tests"


def _download(scratch: Path) -> Path:
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home, "bin", "java")) if java_home else shutil.which("java")
    if java is None:
        raise JarUnavailableError("no java found: install a JDK of version 17 or later")
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    command = [java, "-jar", str(ivy), "-cache", str(scratch / "cache"), "-confs", "default"]
    command += ["-dependency", _GROUP, _ARTIFACT, _VERSION]
    command += ["-retrieve", str(scratch / "[artifact]-[revision].[ext]")]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise JarUnavailableError(f"downloading {_ARTIFACT} took over {error.timeout:.0f} s") from error
    jar = scratch / f"{_ARTIFACT}-{_VERSION}.jar"
    if run.returncode != 0 or not jar.exists():
        raise JarUnavailableError(
            f"could not download {_ARTIFACT} {_VERSION} from Maven Central: {run.stdout[-800:]}"
        )
    found = hashlib.sha256(jar.read_bytes()).hexdigest()
    if found != _SHA256:
        raise JarUnavailableError(f"{jar.name} has another checksum than expected: {found}")
    return jar
