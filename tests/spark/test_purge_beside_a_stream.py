"""A purge to its end beside a stream that goes on: nothing of the key is found, and no other row is lost."""

from __future__ import annotations

import json
import random
import shutil
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streaming_sink import check_gone, purge
from streaming_sink.commands.cli import DONE, main
from streaming_sink.removal import table_purge, until
from tests.readers import judges
from tests.sinks import flat_sink
from tests.spark.changes import CHANGES, KEYED, Change, Judge, random_changes, rows_of
from tests.spark.children import last_batch
from tests.spark.streams import SMALL
from tests.spark.test_purge import ALICE, PLAIN, files_that_say, pass_versions
from timeline import names
from timeline.clock import SYSTEM
from timeline.maintenance import orphans

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PURGES = 8
"""At most, of which each makes the versions that the next one waits for."""
_ORPHAN_AGE = timedelta(seconds=3)
"""In the place of a day. A purge and a batch that race leave a manifest of the loser, which may state her key
as a bound, and is an orphan until then.
"""
_NAMES = ("user_id", "at", "region", "name", "op")


class Feed:
    """A thread that gives a stream new changes until it is told to end: of all keys but hers, and late ones
    of hers.
    """

    def __init__(self, folder: Path, location: str) -> None:
        self.judge, self.batches = Judge(), 0
        self._folder, self._location, self._rng = folder, location, random.Random(3)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def add(self, changes: list[Change]) -> None:
        lines = (json.dumps(dict(zip(_NAMES, change, strict=True))) for change in changes)
        hidden = self._folder / f".{self.batches:05}"
        hidden.write_text("\n".join(lines))
        hidden.rename(self._folder / f"{self.batches:05}.json")
        self.batches += 1
        self.judge.take(change for change in changes if change[0] != 42)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(0.3):
            if self.batches > last_batch(self._location, "u") + 3:
                continue  # the stream is busy
            changes = random_changes(self._rng, 60, 40, self.batches * 50, 120)
            late = (42, 2, "a", "person 42 late", "U")
            self.add([change for change in changes if change[0] != 42] + [late])


def lose_races(table: Path) -> None:
    """Leave the manifests that are there a second time, as attempts that lost a race would have."""
    manifests = list((table / names.MANIFEST_FOLDER).glob("*-manifest.avro"))
    for manifest in manifests:
        loser = SYSTEM.new_id(SYSTEM.now_ms())
        shutil.copy(manifest, manifest.with_name(manifest.name.replace(manifest.name[:26], loser, 1)))


def test_a_purge_comes_to_its_end_beside_a_stream_that_goes_on(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (table_purge, until, orphans):
        monkeypatch.setattr(module, "LEAST_AGE", _ORPHAN_AGE)
    location, source = str(tmp_path / "t"), tmp_path / "source"
    source.mkdir()
    sink = flat_sink(
        location,
        app_id="u",
        expectations={"region <> 'x'": "quarantine"},
        table_properties=PLAIN,
        sizing=SMALL,
        fill_policy="always",
        **KEYED,
    )
    feed = Feed(source, location)
    feed.add([(key, 1, "a", f"person {key}", "I") for key in range(30, 60)])
    feed.add([(42, 2, "b", "person 42 moved", "U"), (43, 2, "b", "other", "U")])
    feed.add([(42, 3, "x", "person 42 refused", "U")])
    stream = spark.readStream.schema(CHANGES).option("maxFilesPerTrigger", 1).json(str(source))
    writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start()
    try:
        query.processAllAvailable()
        assert not check_gone(location, [ALICE]).healthy
        lose_races(tmp_path / "t")
        feed.start()
        for _ in range(PURGES):
            report = purge(location, [ALICE])
            if report.is_gone:
                break
            pass_versions(location, f"{location}__quarantine")
        assert query.isActive
        assert report.is_gone, [str(it) for table in report.tables for it in table.left]
        committed = len(sink.reports)
        left = check_gone(location, [ALICE])
        assert left.healthy, left.text()
        assert main(["doctor", location, "--gone", "user_id=42"]) == DONE, capsys.readouterr().out
        assert files_that_say(tmp_path / "t", b"person 42") == []
        assert files_that_say(tmp_path / "t__quarantine", b"person 42") == []
        feed.end()
        query.processAllAvailable()
        assert len(sink.reports) > committed
    finally:
        query.stop()
    sink.finish()
    assert rows_of(location) == feed.judge.rows
    columns = zip(*feed.judge.rows, strict=True)
    expected = pa.table(dict(zip(("user_id", "at", "region", "name"), columns, strict=True)))
    judges.assert_all_readers_agree(location, expected, readers=("pyiceberg", "duckdb"))
