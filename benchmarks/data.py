"""The batches that the benchmarks stream: ten columns, about 46 bytes a row, the same in every run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = (
    "event_id BIGINT, event_time TIMESTAMP, user_id BIGINT, session STRING, region STRING, device STRING, "
    "status INT, amount DOUBLE, latency_ms DOUBLE, comment STRING"
)
PARTITION_COLUMN = "region"

_REGIONS = np.array(
    ["eu-west", "us-east", "us-west", "ap-south", "eu-north", "sa-east", "af-south", "me-central"]
)
_REGION_SHARES = np.array([0.40, 0.25, 0.13, 0.09, 0.06, 0.04, 0.02, 0.01])
_DEVICES = np.array(["phone", "desktop", "tablet", "tv", "watch"])
_STATUSES = np.array([200, 200, 200, 200, 204, 301, 404, 500], dtype=np.int32)
_START_MICROS = 1_767_225_600_000_000  # 2026-01-01
_DISTINCT_FILES = 60


def write_batches(folder: Path, *, rows: int, files: int) -> None:
    """Fill the folder with Parquet files of so many rows, in the order of their modification times.

    At most sixty files are distinct; more are hard links to those.
    """
    folder.mkdir(parents=True)
    for number in range(files):
        path = folder / f"{number:05d}.parquet"
        if number < _DISTINCT_FILES:
            pq.write_table(_batch(number, rows), path, compression="zstd")
            # Spark's file source takes the oldest first.
            os.utime(path, (1_700_000_000 + number,) * 2)
        else:
            os.link(folder / f"{number % _DISTINCT_FILES:05d}.parquet", path)


def _batch(number: int, rows: int) -> pa.Table:
    rng = np.random.default_rng([2026, number, rows])
    ids = np.arange(number * rows, (number + 1) * rows, dtype=np.int64)
    times = _START_MICROS + ids * 2_000 + rng.integers(0, 1_500_000, rows)
    return pa.table(
        {
            "event_id": ids,
            "event_time": pa.array(times, pa.timestamp("us", tz="UTC")),
            "user_id": rng.zipf(1.3, rows) % 1_000_000,
            "session": _sessions(rng, rows),
            "region": rng.choice(_REGIONS, rows, p=_REGION_SHARES),
            "device": rng.choice(_DEVICES, rows),
            "status": rng.choice(_STATUSES, rows),
            "amount": np.round(rng.lognormal(3.0, 1.0, rows), 2),
            "latency_ms": rng.gamma(2.0, 40.0, rows),
            "comment": _comments(rng, rows),
        }
    )


def _sessions(rng: np.random.Generator, rows: int) -> list[str]:
    """Return 64 random bits a row, as hexadecimal text."""
    return [f"{value:016x}" for value in rng.integers(0, 2**63, rows)]


def _comments(rng: np.random.Generator, rows: int) -> list[str]:
    """Return up to nine words a row, from a vocabulary in which a few words are frequent."""
    letters = np.array(list("aeioubcdfghlmnprst"))
    words = ["".join(np.random.default_rng(i).choice(letters, 3 + i % 7)) for i in range(3_000)]
    lengths = rng.integers(0, 10, rows)
    picks = (rng.zipf(1.2, int(lengths.sum())) - 1) % len(words)
    ends = np.cumsum(lengths)
    return [" ".join(words[i] for i in picks[end - n : end]) for n, end in zip(lengths, ends, strict=True)]
