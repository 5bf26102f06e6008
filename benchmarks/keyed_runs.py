"""One writer's run of `benchmarks.upserts`: the table before, the stream, and what readers see afterwards."""

from __future__ import annotations

import shutil
import statistics
import time
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
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.keyed_data import Workload
    from benchmarks.keyed_writers import Writer

_ROUNDS = 3
_POINTS = 5


class Run:
    """The runs of all writers on one workload, whose rows are in `source`."""

    def __init__(self, spark: SparkSession, work: Path, load: Workload, source: Path) -> None:
        self._spark = spark
        self._work = work
        self._load = load
        self._source = source
        self._expected: Contents | None = None
        self._tables = 0

    def of(self, kind: type[Writer]) -> Result:
        """Run one writer, and remove its table. RuntimeError where it does not hold the rows that it should
        hold.
        """
        self._tables += 1
        writer = kind(self._spark, self._work, self._load, f"run{self._tables}")
        writer.fill(self._base())
        before = _bytes_in(writer.location)
        milliseconds, processor, drained_ms = self._stream(writer, "changes")
        written, files = _bytes_in(writer.location) - before, writer.files()
        self._check(writer)
        clean = self._without_deletes(writer) if kind.name == OURS else None
        scans = [_scans(writer, clean) for _ in range(_ROUNDS)]
        result = Result(
            writer=kind.name,
            workload=self._load.name,
            order=self._load.order,
            milliseconds=milliseconds,
            processor_seconds=processor,
            drained_ms=drained_ms,
            written_bytes=written,
            files=files.data,
            delete_files=files.deletes,
            scan_ms=_medians([ours for ours, _ in scans]),
            clean_scan_ms=_medians([plain for _, plain in scans]),
            point_ms=self._points(writer) if kind.keeps_keys_once else {},
        )
        if kind.name == OURS:
            result.million_ms = self._million(writer)
        shutil.rmtree(writer.location)
        if clean is not None:
            shutil.rmtree(clean.location)
        return result

    def _base(self) -> DataFrame:
        base = self._spark.read.schema(self._load.columns).parquet(str(self._source / "base"))
        return base.repartition(REGION) if self._load.partitioned else base

    def _stream(self, writer: Writer, folder: str) -> tuple[list[int], float, int]:
        """Land all batches of a folder. Return the milliseconds of each, the processor seconds of one of
        those that count, and for how many milliseconds something ran beside the stream in the end.
        """
        batches = len(list((self._source / folder).iterdir()))
        first = Result.warm_up_of(batches)
        began = processor_seconds()

        def land(changes: DataFrame, number: int) -> None:
            nonlocal began
            if number == first:
                began = processor_seconds()
            writer.land(changes, number)

        stream = self._spark.readStream.schema(self._load.changes_columns).option("maxFilesPerTrigger", 1)
        output = stream.parquet(str(self._source / folder)).writeStream.foreachBatch(land)
        checkpoint = self._work / "checkpoint"
        query = output.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start()
        query.awaitTermination()
        ended = time.perf_counter()
        writer.finish()
        drained_ms = round((time.perf_counter() - ended) * 1000)
        processor = (processor_seconds() - began) / (batches - first)
        shutil.rmtree(checkpoint)
        progress = [each for each in query.recentProgress if each["numInputRows"]]
        if len(progress) != batches:
            raise RuntimeError(f"{writer.name}: {len(progress)} batches, not {batches}")
        return [each["durationMs"]["addBatch"] for each in progress], processor, drained_ms

    def _check(self, writer: Writer) -> None:
        if not writer.keeps_keys_once:
            found = writer.frame().count()
            wanted = self._load.rows + self._load.batches * self._load.changes
            if found != wanted:
                raise RuntimeError(f"{writer.name}: {found} rows, not {wanted}")
            return
        self._expected = self._expected or contents_of(self._rows_that_should_be())
        landed = contents_of(writer.frame())
        if landed != self._expected:
            raise RuntimeError(f"{writer.name}: {landed}, not {self._expected}")

    def _rows_that_should_be(self) -> DataFrame:
        """Return the base without the rows whose keys changed, and the last change of each key."""
        read = self._spark.read
        base = read.schema(self._load.columns).parquet(str(self._source / "base"))
        changes = read.schema(self._load.changes_columns).parquet(str(self._source / "changes"))
        newest = changes.groupBy(KEY).agg(sf.max_by(sf.struct(*changes.columns), SEQUENCE).alias("change"))
        rows = newest.select("change.*").where("op <> 'D'").select(*base.columns)
        return base.join(changes.select(KEY).distinct(), KEY, "left_anti").select(*base.columns).union(rows)

    def _without_deletes(self, writer: Writer) -> OursInsert:
        """Return a table of the same rows, in files of the base's size."""
        clean = OursInsert(self._spark, self._work, self._load, "clean")
        rows = writer.frame()
        parts = -(-self._load.rows // FILE_ROWS)
        clean.fill(rows.repartition(REGION) if self._load.partitioned else rows.repartition(parts))
        return clean

    def _points(self, writer: Writer) -> dict[str, float]:
        """Ask for keys that the last batch has brought or changed."""
        last = max((self._source / "changes").iterdir())
        changes = pq.read_table(last, filters=[("op", "=", "U")]).slice(0, _POINTS)
        runs = [
            _read(writer, f"{KEY} = {key!r}", _one_row_by_spark, _one_row_by_duckdb)
            for key in changes[KEY].to_pylist()
        ]
        return _medians(runs)

    def _million(self, writer: Writer) -> int:
        """Return the milliseconds of a batch of a million changes."""
        [changes] = (self._source / "million").iterdir()
        rows = pq.read_metadata(changes).num_rows
        before = writer.frame().count()
        [milliseconds], _, _ = self._stream(writer, "million")
        added = rows - int(rows * UPDATES) - 2 * int(rows * DELETES)
        if (found := writer.frame().count()) != before + added:
            raise RuntimeError(f"{writer.name}: {found} rows after {rows} changes, not {before + added}")
        return milliseconds


def _scans(writer: Writer, clean: Writer | None) -> tuple[dict[str, float], dict[str, float]]:
    """Return the milliseconds of a full scan by each reader, of the table and of the one without deletes."""
    plain = {} if clean is None else _read(clean, "true", _all_rows_by_spark, _all_rows_by_duckdb)
    return _read(writer, "true", _all_rows_by_spark, _all_rows_by_duckdb), plain


def _read(
    writer: Writer,
    condition: str,
    by_spark: Callable[[DataFrame], None],
    by_duckdb: Callable[[Connection, str, str], None],
) -> dict[str, float]:
    """Return the milliseconds of a query by each reader, neither of which has read the table before."""
    started = time.perf_counter()
    by_spark(writer.frame().where(condition))
    times = {"spark": (time.perf_counter() - started) * 1000}
    if writer.duckdb_reads:
        columns = ", ".join(writer.frame().columns)
        query = f"FROM iceberg_scan('{newest_metadata(str(writer.location))}') WHERE {condition}"
        with connect() as duck:
            started = time.perf_counter()
            by_duckdb(duck, columns, query)
            times["duckdb"] = (time.perf_counter() - started) * 1000
    return times


def _all_rows_by_spark(rows: DataFrame) -> None:
    contents_of(rows)


def _all_rows_by_duckdb(duck: Connection, columns: str, query: str) -> None:
    duck.execute(f"SELECT count(*), bit_xor(hash({columns})) {query}").fetchall()


def _one_row_by_spark(rows: DataFrame) -> None:
    _check_is_one(rows.collect())


def _one_row_by_duckdb(duck: Connection, columns: str, query: str) -> None:
    _check_is_one(duck.execute(f"SELECT {columns} {query}").to_arrow_table().to_pylist())


def _check_is_one(rows: list[Any]) -> None:
    if len(rows) != 1:
        raise RuntimeError(f"{len(rows)} rows have the key, not 1")


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {reader: statistics.median(run[reader] for run in runs) for reader in runs[0]} if runs else {}


def _bytes_in(folder: Path) -> int:
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".crc")
    return sum(path.stat().st_size for path in files)
