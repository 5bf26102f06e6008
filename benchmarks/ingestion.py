"""Many small files into one table: by a buffer zone, and by Spark's file source with a plain sink beside it.

    python -m benchmarks.ingestion --quick
    python -m benchmarks.ingestion --files 200000 --check --json

Files have 200 rows of ten columns (8 to 20 KB) in 50 partitions; the large ones have 40,000 rows (about 3 MB)
of Snappy to be registered, and of Zstandard, as the table has it, for row groups that are copied, as this
table is told to do from 2 MiB on. The ways to land them take turns. `processor` is the time of this process
and all below it, the JVM and its workers, from the announcement to the commit. Spark is started, and its
workers are, before the clock starts. Two peers take such files, too: `spark.read.parquet` (openCostInBytes 0,
its best) with `BulkInsert()`, and Iceberg's `add_files` with `rewrite_data_files`, into a table without
partitions, which is less work. Other small files have five columns of text, of 33 days.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.aims import Aim, benchmark_parser, conclude
from benchmarks.measure import TableShape, is_below, processor_seconds, shape_of
from benchmarks.sessions import local_session
from planners import FileSizing
from streaming_sink import BulkInsert, IcebergSink, ingest
from tests.jars import iceberg_runtime
from timeline.properties import COPIED_FROM_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

FILES = 200_000
PARTITIONS = 50
SIZING = FileSizing(max_file_bytes="12MiB", small_file_bytes="10MiB")
AS_THEY_ARE = FileSizing(max_file_bytes="12MiB", small_file_bytes="2MiB")
"""In a table of these sizes the large files are registered as they are."""
_ROWS, _LARGE_ROWS = 200, 40_000
_LARGE_FILES = 300
_TEXT_FILES = 20_000
_FIRST_DAY = 20_454
"""2026-01-01, in days since 1970."""
_ROUNDS = 3
_COPIES, _DECODES = "2097152", str(1 << 60)
_PEER_FILES = 20_000


@dataclass(frozen=True)
class Figures:
    """One way to land the files."""

    way: str
    files: int
    bytes: int
    seconds: float
    processor_seconds: float
    worker_megabytes: float
    table: TableShape

    @property
    def milliseconds_a_file(self) -> float:
        return 1000 * self.processor_seconds / self.files


def write_files(folder: Path, count: int, rows: int, codec: str = "snappy") -> None:
    """Write files of ten columns, each of one of the partitions."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(1)
    names = np.array([f"user-{number:05}" for number in range(10_000)])
    for number in range(count):
        table = pa.table(
            {
                "id": pa.array(np.arange(rows) + number * rows),
                "day": pa.array(np.full(rows, number % PARTITIONS, np.int32)),
                "name": pa.array(names[random.integers(0, len(names), rows)]),
                **{f"d{place}": random.random(rows) for place in range(4)},
                **{f"n{place}": random.integers(0, 1 << 40, rows) for place in range(3)},
            }
        )
        pq.write_table(table, folder / f"{number:06}.parquet", compression=codec)


def write_texts(folder: Path, count: int) -> None:
    """Write files of five columns of text, a time and a number, over 33 days; a tenth of them over two."""
    folder.mkdir(parents=True)
    random, rows = np.random.default_rng(2), 150
    for number in range(count):
        ids, sessions = ([f"{it:016x}" for it in random.integers(0, 1 << 62, rows)] for _ in range(2))
        items, sources = random.integers(0, 100_000, rows), random.integers(0, 1 << 40, rows)
        seconds = random.integers(0, 86_400 * (1 if number % 10 else 2), rows)
        micros = ((_FIRST_DAY + number % 33) * 86_400 + seconds) * 1_000_000
        table = pa.table(
            {
                "id": ids,
                "session": sessions,
                "url": [f"https://example.com/shop/item/{it}" for it in items],
                "referrer": [f"https://example.org/?q={it:x}" for it in sources],
                "agent": [f"agent-{it}" for it in random.integers(0, 200, rows)],
                "at": pa.array(micros).cast(pa.timestamp("us")),
                "n": random.integers(0, 1000, rows),
            }
        )
        pq.write_table(table, folder / f"{number:06}.parquet")


@contextmanager
def _watched_workers(peaks: list[float]) -> Iterator[None]:
    """Note the most memory that a Python worker had, in megabytes."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.2):
            parents, memory = {}, {}
            for status in Path("/proc").glob("[0-9]*/status"):
                with suppress(OSError, KeyError):
                    told = dict(line.partition(":")[::2] for line in status.read_text().splitlines())
                    process = int(status.parent.name)
                    parents[process] = int(told["PPid"])
                    # Not the JVM, among whose settings the module is, too.
                    if b"\0-m\0benchmarks.waiting_daemon\0" in (status.parent / "cmdline").read_bytes():
                        memory[process] = int(told["VmHWM"].split()[0]) / 1024
            peaks.extend(size for process, size in memory.items() if is_below(process, parents))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def land_by_zone(
    session: SparkSession,
    drop: Path,
    lake: Path,
    way: str = "buffer zone",
    sizing: FileSizing = SIZING,
    by_reference: bool = False,
    copied_from: str = _DECODES,
    partition_by: str = "day",
) -> Figures:
    """Announce all files of a folder, and land them."""
    rules = ingest.Rules(max_files=1_000_000, max_bytes="1TiB")
    zone = ingest.BufferZone(
        str(lake / "zone"),
        table=str(lake / "table"),
        rules=rules,
        partition_by=[partition_by],
        sizing=sizing,
        table_properties={COPIED_FROM_BYTES: copied_from},
        sources=ingest.SourceFolders(by_reference=by_reference),
    )
    peaks: list[float] = [0.0]
    with _watched_workers(peaks):
        started, before = time.perf_counter(), processor_seconds()
        pushed = zone.push(f"{drop}/")
        landed = ingest.run(session, zone, available_now=True)
        seconds, spent = time.perf_counter() - started, processor_seconds() - before
    for each in landed:
        print(each.line(), file=sys.stderr)
    shape = shape_of(lake / "table", sizing.small_file_bytes)
    return Figures(way, pushed.files, pushed.bytes, seconds, spent, max(peaks), shape)


def land_large(session: SparkSession, snappy: Path, zstd: Path, work: Path, rounds: int) -> list[Figures]:
    """Land large files in each way, the ways taking turns; return the median of each."""
    found: dict[str, list[Figures]] = {}
    for number in range(rounds):
        lakes = work / f"round-{number}"
        for way, drop, sizing, by_reference, copied_from in (
            ("large files, consolidated", snappy, SIZING, False, _DECODES),
            ("large files, registered", snappy, AS_THEY_ARE, False, _DECODES),
            ("large files, by reference", snappy, AS_THEY_ARE, True, _DECODES),
            ("large files of Zstandard, decoded", zstd, SIZING, False, _DECODES),
            ("large files of Zstandard, copied", zstd, SIZING, False, _COPIES),
        ):
            lake = lakes / way
            one = land_by_zone(session, drop, lake, way, sizing, by_reference, copied_from)
            found.setdefault(way, []).append(one)
            shutil.rmtree(lake)
    return [sorted(each, key=lambda it: it.processor_seconds)[len(each) // 2] for each in found.values()]


def land_by_spark(session: SparkSession, drop: Path, lake: Path) -> Figures:
    """Read the files with Spark, and write them with a sink that does not touch them."""
    sink = IcebergSink(str(lake / "table"), BulkInsert(), app_id="bulk", partition_by=["day"], sizing=SIZING)
    peaks: list[float] = [0.0]
    files = list(drop.iterdir())
    with _watched_workers(peaks):
        started, before = time.perf_counter(), processor_seconds()
        sink(session.read.parquet(str(drop)), 0)
        seconds, spent = time.perf_counter() - started, processor_seconds() - before
    shape = shape_of(lake / "table", SIZING.small_file_bytes)
    size = sum(file.stat().st_size for file in files)
    return Figures("spark.read + bulk_insert", len(files), size, seconds, spent, max(peaks), shape)


def land_by_iceberg(session: SparkSession, drop: Path, lake: Path) -> Figures:
    """Let Iceberg add the files to a table as they are, and rewrite them as few."""
    files, table = list(drop.iterdir()), f"iceberg.peer.{drop.name}"
    session.read.parquet(str(files[0])).limit(0).writeTo(table).using("iceberg").create()
    peaks: list[float] = [0.0]
    with _watched_workers(peaks):
        started, before = time.perf_counter(), processor_seconds()
        source = f"source_table => '`parquet`.`{drop}`', parallelism => 2"
        session.sql(f"CALL iceberg.system.add_files(table => '{table}', {source})").collect()
        options = f"'rewrite-all', 'true', 'target-file-size-bytes', '{SIZING.max_file_bytes}'"
        rewrite = f"table => '{table}', options => map({options})"
        session.sql(f"CALL iceberg.system.rewrite_data_files({rewrite})").collect()
        seconds, spent = time.perf_counter() - started, processor_seconds() - before
    shape = shape_of(lake / "peer" / drop.name, SIZING.small_file_bytes)
    size = sum(file.stat().st_size for file in files)
    way = "Iceberg's add_files + rewrite_data_files"
    return Figures(way, len(files), size, seconds, spent, max(peaks), shape)


def _iceberg(warehouse: Path) -> dict[str, str]:
    return {
        "spark.jars": str(iceberg_runtime()),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.iceberg": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.iceberg.type": "hadoop",
        "spark.sql.catalog.iceberg.warehouse": str(warehouse),
    }


def _warm_up(session: SparkSession, work: Path) -> None:
    write_files(work / "warm", 100, _ROWS)
    land_by_zone(session, work / "warm", work / "warm-lake")


def _aims(zone: Figures, texts: Figures, spark: Figures | None, large: Sequence[Figures]) -> list[Aim]:
    snappy, _, _, decoded, copied = large
    tails = zone.table.files - zone.table.files_at_size
    return [
        Aim(
            what=f"seconds for {FILES:,} files",
            bound=120,
            measured=zone.seconds if zone.files == FILES else None,
        ),
        Aim(what="processor ms a file", bound=0.8, measured=zone.milliseconds_a_file),
        Aim(what="processor ms a file of texts", bound=0.8, measured=texts.milliseconds_a_file),
        Aim(what="megabytes of a worker", bound=450, measured=zone.worker_megabytes),
        Aim(what="share of bytes at size", bound=0.9, measured=zone.table.share_at_size, at_least=True),
        Aim(what="remainders a partition", bound=1, measured=tails / PARTITIONS),
        Aim(
            what="processor time of spark.read + bulk_insert, a file, over ours",
            bound=4,
            measured=None if spark is None else spark.milliseconds_a_file / zone.milliseconds_a_file,
            at_least=True,
        ),
        Aim(
            what="MB a second of files of 3 MB",
            bound=80,
            measured=snappy.bytes / snappy.seconds / 1e6,
            at_least=True,
        ),
        Aim(
            what="processor time of files of 3 MB, decoded ÷ copied",
            bound=2,
            measured=decoded.processor_seconds / copied.processor_seconds,
            at_least=True,
        ),
    ]


def _table(figures: Sequence[Figures]) -> str:
    lines = [
        "| way | files | MB | seconds | MB/s | processor s | ms a file | files out | at size | worker MB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {it.way} | {it.files:,} | {it.bytes / 1e6:,.0f} | {it.seconds:.1f} |"
        f" {it.bytes / 1e6 / it.seconds:,.0f} | {it.processor_seconds:.1f} |"
        f" {it.milliseconds_a_file:.2f} | {it.table.files:,} | {it.table.share_at_size:.0%} |"
        f" {it.worker_megabytes:.0f} |"
        for it in figures
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    parser = benchmark_parser("benchmarks.ingestion", __doc__, "2,000 files")
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--peer-files", type=int, default=_PEER_FILES, help="0: no peers")
    options = parser.parse_args(arguments)
    files = 2_000 if options.quick else options.files
    peer = min(files, options.peer_files)
    work = Path(tempfile.mkdtemp(dir=options.work))
    try:
        settings = {"spark.sql.files.openCostInBytes": "0"} | (_iceberg(work / "iceberg") if peer else {})
        session = local_session("ingestion", settings)
        _warm_up(session, work)
        write_files(work / "drop", files, _ROWS)
        large_files = 10 if options.quick else _LARGE_FILES
        write_files(work / "large", large_files, _LARGE_ROWS)
        write_files(work / "zstd", large_files, _LARGE_ROWS, "zstd")
        write_texts(work / "texts", files // 2 if options.quick else _TEXT_FILES)
        zone = land_by_zone(session, work / "drop", work / "zone")
        texts = land_by_zone(
            session, work / "texts", work / "of-texts", "files of texts, 14 KB", partition_by="day(at)"
        )
        rounds = 1 if options.quick else _ROUNDS
        large = land_large(session, work / "large", work / "zstd", work, rounds)
        spark = iceberg = None
        if peer:
            write_files(work / "peer", peer, _ROWS)
            spark = land_by_spark(session, work / "peer", work / "spark")
            land_by_iceberg(session, work / "warm", work / "iceberg")
            iceberg = land_by_iceberg(session, work / "peer", work / "iceberg")
        session.stop()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    found = [each for each in (zone, texts, *large, spark, iceberg) if each is not None]
    introduction = f"{PARTITIONS} partitions, files of at most {SIZING.max_file_bytes:,} bytes."
    figures = {"ways": [{**asdict(it), "milliseconds_a_file": it.milliseconds_a_file} for it in found]}
    return conclude(options, introduction, [_table(found)], figures, _aims(zone, texts, spark, large))


if __name__ == "__main__":
    sys.exit(main())
