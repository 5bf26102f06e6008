"""A table's rows and the changes to them, by key: what `benchmarks.upserts` gives to every writer.

Rows are numbered in the order in which they came into being, and every value of a row follows from its number
and that of the change. A key comes once a batch, so that no writer has to choose between two changes of one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

KEY = "id"
SEQUENCE = "updated_at"
REGION = "region"
_TYPES = {"int": "BIGINT", "uuid": "STRING"}
TYPES = tuple(_TYPES)
ORDERS = ("random", "growing")
UPDATES, DELETES = 0.50, 0.05
FILE_ROWS = 1_000_000

_REGIONS = pa.array(["eu-west", "us-east", "us-west", "ap-south", "eu-north", "sa-east", "af-south", "me"])
_STATES = pa.array(["new", "paid", "packed", "sent", "delivered", "returned"])
_NOTES = pa.array(
    [
        " ".join(f"{word:x}" for word in np.random.default_rng(number).integers(0, 99_999, number % 7))
        for number in range(3_000)
    ]
)
_START_MICROS = 1_767_225_600_000_000  # 2026-01-01
_BATCH_MICROS = 60_000_000
_RECENT_ROWS = 200_000
"""The mean age, in rows, of those that changes of growing keys are about."""


@dataclass(frozen=True)
class Workload:
    """So many rows, and so many batches of changes to them."""

    rows: int
    batches: int
    changes: int
    """A batch."""
    type: str = "int"
    """Of the key: "int" or "uuid", a text."""
    order: str = "random"
    """ "random": keys say nothing of their age, and old ones of any age change; "growing": they are the
    larger the younger, and most of those that change are young."""
    partitioned: bool = False
    updates: float = UPDATES
    """The share of the changes that are of rows which the table has."""
    deletes: float = DELETES

    @property
    def name(self) -> str:
        return f"{self.order} {self.type}, {'partitioned' if self.partitioned else 'unpartitioned'}"

    @property
    def columns(self) -> str:
        """The columns of a row, as DDL; a change has the column `op` too, "U" or "D"."""
        return (
            f"{KEY} {_TYPES[self.type]}, {SEQUENCE} TIMESTAMP, {REGION} STRING, state STRING, amount DOUBLE,"
            " quantity INT, note STRING"
        )

    @property
    def changes_columns(self) -> str:
        return f"{self.columns}, op STRING"

    def folder(self, kept: Path) -> Path:
        """Return where the rows are. Layouts share them."""
        old = "" if (self.updates, self.deletes) == (UPDATES, DELETES) else f"-{self.updates}-{self.deletes}"
        return kept / f"{self.rows}-{self.batches}x{self.changes}-{self.order}-{self.type}{old}"


def write_rows(load: Workload, folder: Path, *, million: bool = True) -> None:
    """Write the base to `folder`/base, and the changes to `folder`/changes, a file a batch, in the order of
    their modification times; and, for `million`, one batch of a million changes more to `folder`/million.
    """
    for part in ("base", "changes", "million"):
        (folder / part).mkdir(parents=True)
    for number, start in enumerate(range(0, load.rows, FILE_ROWS)):
        rows = np.arange(start, min(start + FILE_ROWS, load.rows), dtype=np.int64)
        _write(_rows(load, rows, 0), folder / "base" / f"{number:05d}.parquet")
    live, count = np.ones(load.rows, bool), load.rows
    for batch in range(1, load.batches + 1):
        live, count = _batch(load, batch, load.changes, live, count, folder / "changes")
    if million:
        _batch(load, load.batches + 1, min(1_000_000, load.rows), live, count, folder / "million")


def _batch(
    load: Workload, batch: int, changes: int, live: np.ndarray, count: int, folder: Path
) -> tuple[np.ndarray, int]:
    """Write one batch. Return which of the rows are live after it, and how many there have been."""
    rng = np.random.default_rng([2026, batch, changes])
    updates, deletes = int(changes * load.updates), int(changes * load.deletes)
    old = _old_rows(load, rng, live, count, updates + deletes)
    new = np.arange(count, count + changes - len(old))
    numbers = np.concatenate([old, new])
    gone = np.zeros(len(numbers), bool)
    gone[:deletes] = True
    order = rng.permutation(len(numbers))
    rows = _rows(load, numbers[order], batch)
    _write(
        rows.append_column("op", pa.array(np.where(gone, "D", "U")[order])), folder / f"{batch:05d}.parquet"
    )
    live = np.append(live, np.ones(len(new), bool))
    live[old[:deletes]] = False
    return live, count + len(new)


def _old_rows(
    load: Workload, rng: np.random.Generator, live: np.ndarray, count: int, wanted: int
) -> np.ndarray:
    """Return the numbers of live rows, each once, in no order."""
    if load.order == "random":
        return rng.choice(np.flatnonzero(live), wanted, replace=False)
    found = np.empty(0, np.int64)
    mean = min(max(_RECENT_ROWS, 2 * wanted), count // 4)
    while len(found) < wanted:
        ages = rng.exponential(mean, 2 * wanted).astype(np.int64)
        drawn = count - 1 - ages[ages < count]
        found = np.union1d(found, drawn[live[drawn]])
    return rng.permutation(found)[:wanted]


def _rows(load: Workload, numbers: np.ndarray, batch: int) -> pa.Table:
    """Return the rows of these numbers as a batch leaves them; batch 0 is the base."""
    values = _mixed(numbers.astype(np.uint64) + np.uint64(batch << 40))
    fixed = _mixed(numbers.astype(np.uint64))
    times = _START_MICROS + batch * _BATCH_MICROS + (values % np.uint64(_BATCH_MICROS)).astype(np.int64)
    return pa.table(
        {
            KEY: _keys(load, numbers, fixed),
            SEQUENCE: pa.array(times, pa.timestamp("us", tz="UTC")),
            # Of a key always the same, since partitioned tables have a key once a partition.
            REGION: _REGIONS.take(pa.array(np.sqrt(fixed >> np.uint64(58)).astype(np.int64))),
            "state": _STATES.take(pa.array((values >> np.uint64(32)) % np.uint64(len(_STATES)))),
            "amount": (values % np.uint64(1_000_003)).astype(np.float64) / 100,
            "quantity": ((values >> np.uint64(20)) % np.uint64(100)).astype(np.int32),
            "note": _NOTES.take(pa.array((values >> np.uint64(40)) % np.uint64(len(_NOTES)))),
        }
    )


def _keys(load: Workload, numbers: np.ndarray, fixed: np.ndarray) -> pa.Array:
    if load.type == "int":
        return pa.array(numbers if load.order == "growing" else fixed.view(np.int64))
    # As UUIDs of version 7 begin with the time, and those of version 4 with nothing that grows.
    first = numbers.astype(np.uint64) << np.uint64(24) if load.order == "growing" else fixed
    words = np.column_stack([first, _mixed(fixed)]).astype(">u8")
    return _uuid_texts(words.view(np.uint8).reshape(-1, 16))


def _uuid_texts(values: np.ndarray) -> pa.Array:
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    hexadecimal = digits[np.stack([values >> 4, values & 15], axis=2).reshape(-1, 32)]
    texts = np.full((len(values), 36), ord("-"), np.uint8)
    at = 0
    for place, length in ((0, 8), (9, 4), (14, 4), (19, 4), (24, 12)):
        texts[:, place : place + length] = hexadecimal[:, at : at + length]
        at += length
    offsets = np.arange(len(values) + 1, dtype=np.int32) * 36
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets), pa.py_buffer(texts))


def _mixed(values: np.ndarray) -> np.ndarray:
    """Return other 64-bit words, different ones for different values (the end of SplitMix64)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _write(rows: pa.Table, path: Path) -> None:
    pq.write_table(rows, path, compression="zstd")
    # Spark's file source takes the oldest first.
    os.utime(path, (1_700_000_000 + int(path.stem),) * 2)
