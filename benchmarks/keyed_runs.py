"""The runs of `benchmarks.upserts`: all writers land each batch in turn, then readers look at the tables."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from pyspark.sql import functions as sf

from benchmarks.keyed_data import DELETES, FILE_ROWS, KEY, REGION, SEQUENCE, UPDATES
from benchmarks.keyed_results import OURS, Result
from benchmarks.keyed_writers import OursInsert
from benchmarks.measure import processor_seconds
from benchmarks.peers import Contents, contents_of
from benchmarks.tables import newest_metadata
from demo.duck import Connection, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.keyed_data import Workload
    from benchmarks.keyed_writers import Writer

_ROUNDS = 3
_POINTS = 5


class Run:
    """The runs of some writers on one workload, whose rows are in `source`."""

    def __init__(
        self,
        spark: SparkSession,
        work: Path,
        load: Workload,
        source: Path,
        limit_seconds: float,
        batches_only: bool = False,
    ) -> None:
        self._spark = spark
        self._work = work
        self._load = load
        self._source = source
        self._limit_seconds = limit_seconds
        self._batches_only = batches_only
        self._expected: dict[int, Contents] = {}

    def of(self, kinds: Sequence[type[Writer]], slow_batches: int) -> list[Result]:
        """Land all batches by each writer, those that are slow so many at most, and remove their tables.
        RuntimeError where one does not hold the rows that it should hold.
        """
        writers = [kind(self._spark, self._work, self._load, "run") for kind in kinds]
        try:
            return self._figures(writers, slow_batches)
        finally:
            for writer in writers:
                writer.close()
                shutil.rmtree(writer.location, ignore_errors=True)

    def _figures(self, writers: Sequence[Writer], slow_batches: int) -> list[Result]:
        results = []
        for writer in writers:
            most = min(slow_batches, self._load.batches) if writer.is_slow else self._load.batches
            results.append(Result(writer.name, self._load.name, self._load.order, most))
            print(f"{self._load.name}: {writer.name} gets its rows", file=sys.stderr)
            writer.fill(base_rows(self._spark, self._load, self._source))
        sizes = [bytes_in(writer.location) for writer in writers]
        self._stream("changes", writers, results)
        for writer, result, before in zip(writers, results, sizes, strict=True):
            if not result.cut_off:
                writer.finish()
                result.written_bytes = bytes_in(writer.location) - before
                if not self._batches_only:
                    self._read(writer, result)
        return results

    def _stream(self, folder: str, writers: Sequence[Writer], results: Sequence[Result]) -> None:
        """Land all batches of a folder, each by one writer after the other, until all have enough or were
        cut off. What a writer does beside the stream ends before the next one begins.
        """
        files = sorted((self._source / folder).iterdir())

        def land(changes: DataFrame, number: int) -> None:
            pairs = list(zip(writers, results, strict=True))
            turn = number % len(pairs)  # so that none always follows the same one
            for writer, result in pairs[turn:] + pairs[:turn]:
                if not result.is_complete:
                    self._land(writer, result, changes, number, files[number])

        stream = self._spark.readStream.schema(self._load.changes_columns).option("maxFilesPerTrigger", 1)
        output = stream.parquet(str(self._source / folder)).writeStream.foreachBatch(land)
        checkpoint = self._work / "checkpoint"
        query = output.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start()
        query.awaitTermination()
        shutil.rmtree(checkpoint)

    def _land(self, writer: Writer, result: Result, changes: DataFrame, number: int, file: Path) -> None:
        result.load.append(os.getloadavg()[0])
        before, started = processor_seconds(), time.perf_counter()
        with self._limit(writer) as at_limit:
            writer.land(changes, number, file)
        landed = time.perf_counter()
        if at_limit:
            result.cut_off = f"batch {number + 1} took more than {self._limit_seconds:.0f} s"
        else:
            writer.wait()
        ended = time.perf_counter()
        result.milliseconds.append((landed - started) * 1000)
        result.beside_ms.append((ended - landed) * 1000)
        result.processor_seconds.append((at_limit[0] if at_limit else processor_seconds()) - before)
        print(
            f"{result.workload}: batch {number + 1}, {writer.name}: {result.milliseconds[-1]:,.0f} ms,"
            f" {result.processor_seconds[-1]:.2f} processor s {result.cut_off}",
            file=sys.stderr,
        )

    @contextmanager
    def _limit(self, writer: Writer) -> Iterator[list[float]]:
        """Stop the writer after the limit. Its failure is no error then, and the list has the processor
        seconds of that moment.
        """
        at_limit: list[float] = []

        def stop() -> None:
            at_limit.append(processor_seconds())
            writer.stop()

        timer = threading.Timer(self._limit_seconds, stop)
        timer.start()
        try:
            yield at_limit
        except Exception:
            if not at_limit:
                raise
        finally:
            timer.cancel()

    def _read(self, writer: Writer, result: Result) -> None:
        files = writer.files()
        result.files, result.delete_files = files.data, files.deletes
        self._check(writer, result.batches)
        clean = without_deletes(writer, self._spark, self._work, self._load) if writer.name == OURS else None
        scans = [_scans(writer, clean) for _ in range(_ROUNDS)]
        result.scan_ms = _medians([ours for ours, _ in scans])
        result.clean_scan_ms = _medians([plain for _, plain in scans])
        if writer.keeps_keys_once:
            result.point_ms = self._points(writer, result.batches)
        if clean is not None:
            shutil.rmtree(clean.location)
            self._million(writer, result)

    def _check(self, writer: Writer, batches: int) -> None:
        if not writer.keeps_keys_once:
            found = writer.contents().rows
            wanted = self._load.rows + batches * self._load.changes
            if found != wanted:
                raise RuntimeError(f"{writer.name}: {found} rows, not {wanted}")
            return
        if batches not in self._expected:
            rows = rows_that_should_be(self._spark, self._load, self._source, batches)
            self._expected[batches] = contents_of(rows)
        landed = writer.contents()
        if landed != self._expected[batches]:
            raise RuntimeError(f"{writer.name}: {landed}, not {self._expected[batches]}")

    def _points(self, writer: Writer, batches: int) -> dict[str, float]:
        """Ask for keys that the last batch has brought or changed."""
        last = sorted((self._source / "changes").iterdir())[batches - 1]
        changes = pq.read_table(last, filters=[("op", "=", "U")]).slice(0, _POINTS)
        runs = []
        for key in changes[KEY].to_pylist():
            condition = f"{KEY} = {key!r}"
            runs.append(_read(writer, partial(writer.read_key, condition), _one_row_by_duckdb, condition))
        return _medians(runs)

    def _million(self, writer: Writer, result: Result) -> None:
        """Measure a batch of a million changes, or of as many as the table had rows."""
        [changes] = (self._source / "million").iterdir()
        rows = pq.read_metadata(changes).num_rows
        before = writer.contents().rows
        measured = Result(writer.name, self._load.name, self._load.order, 1)
        self._stream("million", [writer], [measured])
        if measured.cut_off:
            return
        added = rows - int(rows * UPDATES) - 2 * int(rows * DELETES)
        if (found := writer.contents().rows) != before + added:
            raise RuntimeError(f"{writer.name}: {found} rows after {rows} changes, not {before + added}")
        result.million_rows, result.million_ms = rows, measured.milliseconds[0]
        result.million_processor_seconds = measured.processor_seconds[0]


def base_rows(spark: SparkSession, load: Workload, source: Path) -> DataFrame:
    """Return the rows of a table before the stream, a data file for each of the source's files."""
    base = spark.read.schema(load.columns).parquet(str(source / "base"))
    return base.repartition(REGION) if load.partitioned else base


def rows_that_should_be(spark: SparkSession, load: Workload, source: Path, batches: int) -> DataFrame:
    """Return the base without the rows whose keys changed, and the last change of each key."""
    base = spark.read.schema(load.columns).parquet(str(source / "base"))
    files = [str(file) for file in sorted((source / "changes").iterdir())[:batches]]
    changes = spark.read.schema(load.changes_columns).parquet(*files)
    newest = changes.groupBy(KEY).agg(sf.max_by(sf.struct(*changes.columns), SEQUENCE).alias("change"))
    rows = newest.select("change.*").where("op <> 'D'").select(*base.columns)
    return base.join(changes.select(KEY).distinct(), KEY, "left_anti").select(*base.columns).union(rows)


def without_deletes(writer: Writer, spark: SparkSession, work: Path, load: Workload) -> OursInsert:
    """Return a table of the same rows, in files of the base's size."""
    clean = OursInsert(spark, work, load, "clean")
    rows = writer.frame()
    parts = -(-load.rows // FILE_ROWS)
    clean.fill(rows.repartition(REGION) if load.partitioned else rows.repartition(parts))
    return clean


def _scans(writer: Writer, clean: Writer | None) -> tuple[dict[str, float], dict[str, float]]:
    """Return the milliseconds of a full scan by each reader, of the table and of the one without deletes."""
    plain = {} if clean is None else _read(clean, clean.contents, _all_rows_by_duckdb)
    return _read(writer, writer.contents, _all_rows_by_duckdb), plain


def _read(
    writer: Writer,
    by_spark: Callable[[], Any],
    by_duckdb: Callable[[Connection, str], None],
    condition: str = "true",
) -> dict[str, float]:
    """Return the milliseconds of a query by each reader, neither of which has read the table before."""
    started = time.perf_counter()
    by_spark()
    times = {"spark": (time.perf_counter() - started) * 1000}
    if writer.duckdb_reads:
        query = f"FROM iceberg_scan('{newest_metadata(str(writer.location))}') WHERE {condition}"
        with connect() as duck:
            started = time.perf_counter()
            by_duckdb(duck, query)
            times["duckdb"] = (time.perf_counter() - started) * 1000
    return times


def _all_rows_by_duckdb(duck: Connection, query: str) -> None:
    duck.execute(f"SELECT bit_xor(hash(COLUMNS(*))) {query}").fetchall()


def _one_row_by_duckdb(duck: Connection, query: str) -> None:
    rows = duck.execute(f"SELECT * {query}").to_arrow_table().num_rows
    if rows != 1:
        raise RuntimeError(f"{rows} rows have the key, not 1")


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {reader: statistics.median(run[reader] for run in runs) for reader in runs[0]} if runs else {}


def bytes_in(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    sizes = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file() and path.suffix != ".crc":
                sizes.append(path.stat().st_size)
    return sum(sizes)
