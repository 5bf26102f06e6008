"""What a merge of files costs whose row groups are copied, beside one that decodes, and a scan of its file.

    python -m benchmarks.merging --check --json

The fill of a pass runs here without Spark, as a task runs it, on files of one large row group each; requests
are those of an object store. A second table shows from which size on row groups are worth keeping: the same
rows in groups of different sizes, scanned by DuckDB, whole and in two columns, of ten columns and of a
hundred, with the requests by which it reads the file: each takes 60 ms from far away.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from benchmarks.aims import Aim, benchmark_parser, conclude
from benchmarks.data import write_batches
from planners.model import InputFile
from streaming_sink.tasks.files.dictionaries import choose_dictionaries
from streaming_sink.tasks.files.metrics import ColumnMetrics
from streaming_sink.tasks.job import FileIds, ParquetSettings, TaskBuckets, WorkerJob
from streaming_sink.tasks.leaves import leaves
from streaming_sink.tasks.results import WrittenFile
from streaming_sink.tasks.rows.fill_task import Fill, Filled, execute_fill
from streaming_sink.tasks.rows.merging import MERGE_GROUP_BYTES
from timeline.stores import LocalStore
from timeline.stores._object_files import ObjectInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MIB = 1024 * 1024
_RUNS = 5
_COPIES, _DECODES = ParquetSettings().copied_from_bytes, 1 << 60
_GROUP_MIB = (64, 16, 8, 4, 2, 1, 0.5, 0.25)


class _Counted:
    """A file whose reads are counted: each is a request, of an object store."""

    requests = 0

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size

    def read(self, size: int = -1) -> bytes:
        _Counted.requests += 1
        return self._file.read(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _CountingStore(LocalStore):
    """A folder whose files are read by ranges, as those of an object store are."""

    def open_input(self, path: str) -> Any:
        file = super().open_input(path)
        size = os.fstat(file.fileno()).st_size

        def fetch(start: int, end: int) -> bytes:
            _Counted.requests += 1
            return os.pread(file.fileno(), end - start, start)

        return ObjectInput(size, fetch)


class _CountingFiles(LocalFileSystem):
    protocol = "counted"

    def _open(self, path: str, *_: Any, **__: Any) -> Any:
        return _Counted(open(path, "rb"))

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("counted://")


@dataclass(frozen=True)
class Merged:
    """One way of merging the same files, by the median of its runs."""

    way: str
    processor_seconds: float
    bytes: int
    row_groups: int
    requests: int
    scan_milliseconds: float


@dataclass(frozen=True)
class Scanned:
    """A file in row groups of one size."""

    columns: int
    group_mib: float
    row_groups: int
    bytes: int
    scan_milliseconds: float
    scan_requests: int
    two_columns_milliseconds: float
    two_columns_requests: int


def _rows(work: Path, rows: int, files: int) -> list[pa.Table]:
    write_batches(work / "batches", rows=rows, files=files)
    return [_with_ids(pq.read_table(path)) for path in sorted((work / "batches").iterdir())]


def _with_ids(table: pa.Table) -> pa.Table:
    fields = [
        pa.field(field.name, field.type, metadata={"PARQUET:field_id": str(number)})
        for number, field in enumerate(table.schema, start=1)
    ]
    return table.cast(pa.schema(fields))


def measure_merges(work: Path, rows: int, files: int) -> list[Merged]:
    """Merge files of one row group each, in turns by copying and by decoding."""
    tables = _rows(work, rows, files)
    store = _CountingStore(str(work / "table"))
    job = WorkerJob(
        store=store,
        schema=tables[0].schema,
        partition_by=(),
        parquet=ParquetSettings(),
        metrics={leaf.field_id: "truncate(16)" for leaf in leaves(tables[0].schema)},
        ids=FileIds(1_800_000_000_000, "fill", 0),
        tasks={},
        shared=TaskBuckets(),
        rows_per_new_file=1 << 40,
        max_file_bytes=1 << 40,
    )
    inputs = []
    for number, table in enumerate(tables):
        path = f"data/in-{number}.parquet"
        with store.open_output(path) as output:
            pq.write_table(
                table, output, row_group_size=len(table), store_schema=False, write_page_index=True,
                compression="zstd", use_dictionary=["region", "device", "status", "comment", "user_id"],
            )  # fmt: skip
        inputs.append(InputFile(store.uri(path), len(table)))
    stated = {it.path: ColumnMetrics(nans={8: 0, 9: 0}) for it in inputs}
    fill = Fill(0, (), (), tuple(inputs), ())
    ways = {
        "copied": replace(job, stated=stated),
        "decoded": replace(job, parquet=replace(job.parquet, copied_from_bytes=_DECODES)),
    }
    taken: dict[str, list[float]] = {way: [] for way in ways}
    found: dict[str, tuple[WrittenFile, int]] = {}
    for _ in range(_RUNS):
        for way, how in ways.items():
            _Counted.requests, before = 0, time.process_time()
            done = execute_fill(how, fill, 0)
            taken[way].append(time.process_time() - before)
            assert isinstance(done, Filled)
            found[way] = done.files[0], _Counted.requests
    scans = _scans([file.path for file, _ in found.values()], tables[0].column_names)
    return [
        Merged(
            way,
            statistics.median(taken[way]),
            file.bytes,
            pq.read_metadata(file.path).num_row_groups,
            requests,
            milliseconds,
        )
        for (way, (file, requests)), milliseconds in zip(found.items(), scans, strict=True)
    ]


def measure_group_sizes(work: Path, rows: int) -> list[Scanned]:
    """Scan the same rows in row groups of different sizes."""
    [table] = _rows(work, rows, 1)
    few = table.slice(0, len(table) // 10)
    wide = pa.table({f"{name}_{copy}": few[name] for copy in range(10) for name in table.column_names})
    chosen = choose_dictionaries(table, leaves(table.schema))
    found = []
    for each in (table, wide):
        encoded = [name for name in each.column_names if name.rpartition("_")[0] in chosen or name in chosen]
        paths = []
        for mib in (1 << 20, *_GROUP_MIB):  # the first one says how many bytes the rows have
            size = os.stat(paths[0]).st_size if paths else 1
            group_rows = max(1, int(len(each) * min(1.0, mib * _MIB / size)))
            paths.append(str(work / f"{each.num_columns}-{mib}.parquet"))
            pq.write_table(
                each, paths[-1], row_group_size=group_rows, compression="zstd", use_dictionary=encoded
            )
        whole, two = (_scans(paths[1:], names) for names in (each.column_names, each.column_names[3:5]))
        for mib, path, *times in zip(_GROUP_MIB, paths[1:], whole, two, strict=True):
            asked = [_requests(path, names) for names in (each.column_names, each.column_names[3:5])]
            groups = pq.read_metadata(path).num_row_groups
            size = os.stat(path).st_size
            found.append(Scanned(each.num_columns, mib, groups, size, times[0], asked[0], times[1], asked[1]))
    return found


def _query(path: str, names: Iterable[str]) -> str:
    return f"SELECT {', '.join(f'max({name})' for name in names)} FROM read_parquet('{path}')"


def _scans(paths: Sequence[str], names: Sequence[str]) -> list[float]:
    """Return the processor time of a scan of each file, in milliseconds: the median of runs in turns."""
    taken: list[list[float]] = [[] for _ in paths]
    with duckdb.connect() as duck:
        duck.execute("SET enable_progress_bar = false")
        for _ in range(_RUNS + 1):  # the first one reads the files from the disk
            for path, of_path in zip(paths, taken, strict=True):
                before = time.process_time()
                duck.execute(_query(path, names)).to_arrow_table()
                of_path.append((time.process_time() - before) * 1000)
    return [statistics.median(of_path[1:]) for of_path in taken]


def _requests(path: str, names: Sequence[str]) -> int:
    with duckdb.connect() as duck:
        duck.register_filesystem(_CountingFiles(skip_instance_cache=True))
        _Counted.requests = 0
        duck.execute(_query(f"counted://{path}", names)).to_arrow_table()
        return _Counted.requests


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    parser = benchmark_parser("benchmarks.merging", __doc__, "three files, and a tenth of the rows of scans")
    options = parser.parse_args(arguments)
    work = Path(tempfile.mkdtemp(dir=options.work))
    try:
        merges = measure_merges(work / "merges", 300_000, 3 if options.quick else 6)
        sizes = measure_group_sizes(work / "sizes", 100_000 if options.quick else 1_000_000)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    copied, decoded = merges
    aims = [
        Aim(
            what="processor time, copied ÷ decoded",
            bound=0.2,
            measured=copied.processor_seconds / decoded.processor_seconds,
        ),
        Aim(what="bytes, copied ÷ decoded", bound=1.1, measured=copied.bytes / decoded.bytes),
        Aim(what="requests, copied ÷ decoded", bound=1.2, measured=copied.requests / decoded.requests),
        Aim(
            what="scan by DuckDB, processor time, copied ÷ decoded",
            bound=1.05,
            measured=copied.scan_milliseconds / decoded.scan_milliseconds,
        ),
    ]
    introduction = (
        f"Row groups are copied from {_COPIES // _MIB} MiB on; decoded rows go into groups of"
        f" {MERGE_GROUP_BYTES // _MIB} MiB of Arrow."
    )
    tables = [_table(merges), _table(sizes)]
    found = {"merges": [asdict(it) for it in merges], "sizes": [asdict(it) for it in sizes]}
    return conclude(options, introduction, tables, found, aims)


def _table(rows: Sequence[Merged] | Sequence[Scanned]) -> str:
    names = list(asdict(rows[0]))
    lines = [f"| {' | '.join(name.replace('_', ' ') for name in names)} |", f"|{' ---: |' * len(names)}"]
    lines += [f"| {' | '.join(_shown(getattr(row, name)) for name in names)} |" for row in rows]
    return "\n".join(lines)


def _shown(value: object) -> str:
    return (
        f"{value:,.3g}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


if __name__ == "__main__":
    sys.exit(main())
