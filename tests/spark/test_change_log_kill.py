"""kill -9 around an append to the change log, and restarts: no change is lost or doubled."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from pyiceberg.table import StaticTable

import streaming_sink
from tests.spark.changes import Judge, random_changes, rows_of
from tests.spark.children import ROOT
from tests.spark.streams import metadata_file
from tests.tiers import only_in_soak

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, only_in_soak]

_CHILD = """
import os, signal, sys
from pyspark.sql import SparkSession
from streaming_sink.seconds.change_log import ChangeLog
from tests.sinks import flat_sink
from tests.spark.changes import CHANGES, KEYED
from tests.spark.streams import SMALL
folder, dies, at = sys.argv[1:]
append, commit, calls = ChangeLog._append, ChangeLog._commit, [0]
def dying(self, *given):
    calls[0] += 1
    if dies == "before" and calls[0] == int(at):
        os.killpg(0, signal.SIGKILL)
    return append(self, *given)
def committing(self, *given):
    commit(self, *given)
    if dies == "after" and calls[0] == int(at):
        os.killpg(0, signal.SIGKILL)
ChangeLog._append, ChangeLog._commit = dying, committing
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
sink = flat_sink(f"{folder}/t", app_id="a", sizing=SMALL, changelog_table=f"{folder}/log", **KEYED)
stream = spark.readStream.schema(CHANGES).option("maxFilesPerTrigger", 1).json(f"{folder}/source")
writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", f"{folder}/checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()
sink.finish()
"""
_COLUMNS = ("user_id", "at", "region", "name", "_change_type", "_commit_version")


def _run(folder: Path, dies: str = "never", at: int = 0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _CHILD, str(folder), dies, str(at)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )


def _logged(folder: Path) -> Counter[tuple[object, ...]]:
    path = metadata_file(str(folder / "log"))
    read = [] if path is None else StaticTable.from_metadata(path).scan().to_arrow().to_pylist()
    return Counter(tuple(row[name] for name in _COLUMNS) for row in read)


def test_killed_before_and_after_an_append_no_change_is_lost_or_doubled(
    spark: SparkSession, tmp_path: Path
) -> None:
    judge, rng = Judge(), random.Random(4)
    (tmp_path / "source").mkdir()
    for number in range(4):
        changes = random_changes(rng, 100, 60, number * 50, 120)
        judge.take(changes)
        names = ("user_id", "at", "region", "name", "op")
        lines = (json.dumps(dict(zip(names, change, strict=True))) for change in changes)
        (tmp_path / "source" / f"{number}.json").write_text("\n".join(lines))
    killed = _run(tmp_path, dies="before", at=2)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    once = _logged(tmp_path)
    assert {row[-1] for row in once} < {
        row["_commit_version"] for row in streaming_sink.changes(spark, str(tmp_path / "t"), 1).collect()
    }  # the second batch is committed, and its changes are in no log
    killed = _run(tmp_path, dies="after", at=2)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    ended = _run(tmp_path)
    assert ended.returncode == 0, ended.stderr[-2000:]
    changed = streaming_sink.changes(spark, str(tmp_path / "t"), 1).select(*_COLUMNS).collect()
    assert _logged(tmp_path) == Counter(tuple(row) for row in changed)
    assert rows_of(str(tmp_path / "t")) == judge.rows
