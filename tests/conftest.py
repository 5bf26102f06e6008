"""What all tests share: one quiet Spark session, and places for tables."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.jvm import start_quickly
from tests.tiers import IN_SOAK, only_in_soak

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

# Workers and the processes that tests start run this very Python, and stay off the network.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
start_quickly()

# No test judges by the time that it takes: machines are busy.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


_OF_ONE_WORKER = ("tests/readers/", "tests/servers/test_catalog_")
"""Files that share what is slow to start and grows fast as it runs: the readers' Spark, or a catalog's."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give a worker a file at a time, as `--dist=loadfile`, but all of such files to one."""
    from xdist.scheduler import LoadFileScheduling

    class FileScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            together = (each for each in _OF_ONE_WORKER if nodeid.startswith(each))
            return next(together, nodeid.split("::", 1)[0])

    return FileScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to the soak what it alone has."""
    for item in items:
        if not IN_SOAK and item.get_closest_marker(only_in_soak.name):
            item.add_marker(pytest.mark.skip(reason="a long one: make soak"))


def pytest_collection_finish() -> None:
    """Leave what was imported and collected, half a million objects, out of each search for garbage: these
    took a fifth of the time of tests that make many objects.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One classic session on two cores for the whole run; a test that changes its settings puts them back."""
    from pyspark.sql import SparkSession  # the tests without Spark must not pay for this import

    session = (
        SparkSession.builder.appName("streaming-sink tests")
        .master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.python.daemon.module", "tests.worker_daemon")
        # Else PySpark notes in the JVM where each of its functions is called: an eighth of the tests' time.
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def noted_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's errors say where in Python they come from, as they do unless it is switched off."""
    monkeypatch.setattr("pyspark.errors.utils._enable_debugging_cache", True)


@pytest.fixture
def location(tmp_path: Path) -> str:
    """Where a test may put its table; nothing is there yet."""
    return str(tmp_path / "table")


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """Where a test's streaming query may keep its progress; nothing is there yet."""
    return str(tmp_path / "checkpoint")
