"""Where tests and benchmarks get the JARs that they need: Iceberg's as a judge and a peer, Delta's as a peer.

The product itself needs no JAR.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from demo.jars import ICEBERG, Jar, JarUnavailableError, cached

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["JarUnavailableError", "delta_runtime", "iceberg_runtime", "require_iceberg_runtime"]

_DELTA = (
    Jar(
        "io.delta",
        "delta-spark_4.1_2.13",
        "4.4.0",
        "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
    ),
    Jar(
        "io.delta",
        "delta-storage",
        "4.4.0",
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
)


def iceberg_runtime() -> Path:
    """Return the path of the Iceberg Spark runtime, downloaded once into the user's cache folder."""
    return cached(ICEBERG)


def delta_runtime() -> tuple[Path, ...]:
    """Return the paths of Delta for Spark and of what it needs, downloaded as `iceberg_runtime`."""
    return tuple(map(cached, _DELTA))


def require_iceberg_runtime() -> Path:
    """Return the JAR's path; where it cannot be downloaded, skip the test, but fail it in CI."""
    try:
        return iceberg_runtime()
    except JarUnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
