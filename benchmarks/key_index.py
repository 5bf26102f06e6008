"""What the rows of a batch's keys cost to find: by the key index, and by scans. One process, no Spark.

    python -m benchmarks.key_index --quick
    python -m benchmarks.key_index --check --json

Tables have files of 2,000,000 rows, with keys in random order; a batch has 50,000 keys, half of which are in
the table. `first` is the lookup of a process that has not seen the run, and compares its checksums; `then`
is the median of the next nine. Files and runs are in the page cache. A build reads data files and writes runs
of 8 million rows, a merge writes one run of all.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.aims import Aim, benchmark_parser, conclude
from streaming_sink.tasks.key_index.index import KeyIndex, KeyLookup, RunPart
from streaming_sink.tasks.key_index.open_runs import OpenRuns
from streaming_sink.tasks.key_index.upkeep import build, merge_key_runs, plan_upkeep
from streaming_sink.tasks.keys.hashing import hash_keys
from streaming_sink.tasks.keys.probing import KeyProbe
from streaming_sink.tasks.keys.scanning import KeyColumns, KeyedFile
from timeline.names import ulid
from timeline.stores import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROWS = (10_000_000, 50_000_000)
KINDS = {"long": pa.int64(), "uuid text": pa.string()}
_FILE_ROWS = 2_000_000
_BATCH = 50_000
_LOOKUPS = 9
_T = TypeVar("_T")


@dataclass(frozen=True)
class Figures:
    """What was measured with one table."""

    key: str
    rows: int
    hashed_per_second: float
    build_seconds: float
    merge_seconds: float
    bytes_a_key: float
    scan_ms: float
    first_ms: float
    then_ms: float


def measure(folder: Path, key: str, rows: int) -> Figures:
    """Make a table of so many rows, and measure its index."""
    field = pa.field("key", KINDS[key], False, {"PARQUET:field_id": "1"})
    store = LocalStore(folder)
    index = KeyIndex(store, KeyColumns(UUID(int=1), pa.schema([field])))
    files, batch = _write_files(store, pa.schema([field]), rows)
    hashes, hash_seconds = _timed(lambda: hash_keys([batch], index.columns.seed))
    probe = KeyProbe(hashes[:_BATCH])
    _, scan_seconds = _timed(lambda: index.lookup([], files, probe))
    ids = count()

    def build_all() -> list[str]:
        groups = plan_upkeep(index, files, 0).builds
        return [build(index, [KeyedFile(*file) for file in group], ulid(0, next(ids))) for group in groups]

    paths, build_seconds = _timed(build_all)
    merged, merge_seconds = _timed(lambda: merge_key_runs(index, paths, files, ulid(0, next(ids))))
    store.delete(paths)
    index = replace(index, runs=OpenRuns())
    found, first_seconds = _timed(lambda: _look_up(index, probe))
    if len(found.files) != _BATCH // 2 or found.scanned:
        raise ValueError(f"{len(found.files)} of {_BATCH // 2} keys were found, {len(found.scanned)} scans")
    then = [_timed(lambda: _look_up(index, probe))[1] for _ in range(_LOOKUPS)]
    return Figures(
        key=key,
        rows=rows,
        hashed_per_second=len(batch) / hash_seconds,
        build_seconds=build_seconds,
        merge_seconds=merge_seconds,
        bytes_a_key=Path(store.uri(merged)).stat().st_size / rows,
        scan_ms=1_000 * scan_seconds,
        first_ms=1_000 * first_seconds,
        then_ms=1_000 * statistics.median(then),
    )


def _look_up(index: KeyIndex, probe: KeyProbe) -> KeyLookup:
    """Look keys up in all files that runs cover, as a task that gets these runs."""
    runs = index.readable_runs()
    parts = [RunPart(path, footer, np.ones(len(footer.files), bool)) for path, footer in runs]
    return index.lookup(parts, (), probe)


def _write_files(store: LocalStore, schema: pa.Schema, rows: int) -> tuple[list[KeyedFile], pa.Array]:
    """Return the files, and a million keys that begin with a batch: half of its keys are in the table."""
    random = np.random.default_rng(rows)
    files: list[KeyedFile] = []
    present = []
    for number, start in enumerate(range(0, rows, _FILE_ROWS)):
        keys = _keys(random, min(_FILE_ROWS, rows - start), schema.field(0).type)
        present.append(keys[: 1 + _BATCH // 2 * _FILE_ROWS // rows])
        path = f"data/{number}.parquet"
        with store.open_output(path) as output:
            pq.write_table(pa.table([keys], schema), output, compression="zstd", use_dictionary=False)
        files.append(KeyedFile(store.uri(path), len(keys)))
    absent = _keys(random, 1_000_000, schema.field(0).type)
    return files, pa.concat_arrays([pa.concat_arrays(present)[: _BATCH // 2], absent])


def _keys(random: np.random.Generator, rows: int, kind: pa.DataType) -> pa.Array:
    if kind == pa.int64():
        return pa.array(random.integers(-(2**63), 2**63, rows))
    # The text of a uuid: 36 bytes, of which 32 are hexadecimal digits.
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.full((rows, 36), ord("-"), np.uint8)
    places = [place for place in range(36) if place not in (8, 13, 18, 23)]
    text[:, places] = digits[random.integers(0, 16, (rows, 32), np.uint8)]
    offsets = np.arange(0, 36 * rows + 1, 36, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text))


def _timed(work: Callable[[], _T]) -> tuple[_T, float]:
    start = time.perf_counter()
    done = work()
    return done, time.perf_counter() - start


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, report, and return the exit code."""
    parser = benchmark_parser("benchmarks.key_index", __doc__, "2,000,000 rows")
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    parser.add_argument("--keys", nargs="+", choices=KINDS, default=list(KINDS))
    options = parser.parse_args(arguments)
    measured = list(_measure_all(options.work, options.keys, [_FILE_ROWS] if options.quick else options.rows))
    figures = {"tables": [asdict(each) for each in measured]}
    return conclude(options, "", [_markdown(measured)], figures, aims(measured))


def _measure_all(work: Path | None, keys: Sequence[str], sizes: Sequence[int]) -> Iterator[Figures]:
    for key in keys:
        for rows in sizes:
            folder = Path(tempfile.mkdtemp(prefix="key-index-", dir=work))
            try:
                yield measure(folder, key, rows)
            finally:
                shutil.rmtree(folder)


def _markdown(measured: Sequence[Figures]) -> str:
    lines = [
        "| key | rows | M hashes a second | build s | merge s | bytes a key | scan ms | first ms | then ms |",
        "| --- |" + " ---: |" * 8,
    ]
    lines += [
        f"| {it.key} | {it.rows:,} | {it.hashed_per_second / 1e6:.1f} | {it.build_seconds:.1f}"
        f" | {it.merge_seconds:.1f} | {it.bytes_a_key:.1f} | {it.scan_ms:,.0f} | {it.first_ms:.0f}"
        f" | {it.then_ms:.0f} |"
        for it in measured
    ]
    return "\n".join(lines)


def aims(measured: Sequence[Figures]) -> list[Aim]:
    """Return the aim: a lookup is a small part of a micro-batch, which takes 300 ms at least."""
    largest = {it.key: it.then_ms for it in measured if it.rows == ROWS[-1]}
    what = f"{_BATCH:,} keys in {ROWS[-1]:,} by an index that is open, ms"
    return [Aim(what=f"{key}: {what}", bound=50, measured=largest.get(key)) for key in KINDS]


if __name__ == "__main__":
    sys.exit(main())
