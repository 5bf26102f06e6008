"""A table's data files and its key index, beside a dictionary that knows every row."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from planners import key_runs
from streaming_sink.tasks.key_index import merging, runs
from streaming_sink.tasks.key_index.index import KeyIndex, KeyLookup
from streaming_sink.tasks.key_index.open_runs import OpenRuns
from streaming_sink.tasks.key_index.upkeep import Upkeep, maintain
from streaming_sink.tasks.keys.probing import KeyFilter, KeyProbe
from streaming_sink.tasks.keys.scanning import TABLE_SALT, KeyedFile, partition_salt
from streaming_sink.tasks.keys.sequences import NO_SEQUENCE
from tests.unit.streaming_sink.tasks.keys.data_files import COLUMNS, filter_of, probe_of, put_rows
from timeline import names
from timeline.stores import LocalStore, MemoryStore, Store

Row = tuple[int, str | None, int | None]
NOON = 1_700_000_000_000
FOLDER = f"_timeline/index/{COLUMNS.digest}"
KEYS = [(number, name) for number in range(3) for name in ("a", "b")]
SCOPES = [TABLE_SALT, partition_salt(("eu",)), partition_salt(("us",))]
"""Of whole tables and of partitions; the files of one table are not of both, but an index does not care."""


@dataclass
class Lake:
    """A table's data files and its index, as a dictionary knows them."""

    store: Store
    copies: Path
    live: dict[KeyedFile, list[Row]] = field(default_factory=dict)
    now: int = NOON

    def __post_init__(self) -> None:
        self.restart()
        self._numbers = itertools.count(1)

    def restart(self) -> None:
        """Start a new process on the same machine."""
        self.open = OpenRuns(str(self.copies))
        self.index = KeyIndex(self.store, COLUMNS, self.open)

    def write(self, rows: list[Row], scope: bytes = TABLE_SALT) -> KeyedFile:
        file = put_rows(self.store, rows, path=f"data/{next(self._numbers)}.parquet")._replace(salt=scope)
        self.live[file] = rows
        return file

    def maintain(self, live: list[KeyedFile] | None = None, damaged: tuple[str, ...] = ()) -> Upkeep:
        files = list(self.live) if live is None else live
        return maintain(self.index, files, self.new_id, self.now, damaged=damaged)

    def new_id(self) -> str:
        return names.ulid(self.now, next(self._numbers))

    def run_paths(self) -> list[str]:
        return sorted(each.path for each in self.store.list_folder(FOLDER))

    def look_for(self, files: list[KeyedFile], probe: KeyProbe, wanted: KeyFilter | None = None) -> KeyLookup:
        """Look up keys as a task does that gets the runs which the driver knows."""
        parts, left = [], set(files)
        for path, footer in self.index.readable_runs():
            has = np.array([file in left for file in footer.files])
            left -= set(footer.files)
            live = np.packbits(has).tobytes()
            parts.append(self.index.part(path, live))
        scanned = [file for file in files if file in left]
        return self.index.lookup(parts, scanned, probe, wanted=wanted)

    def lookup(self) -> KeyLookup:
        """Look up every key in every scope, and compare the answer with the dictionary."""
        files, wanted = list(self.live), [(*key, scope) for scope in SCOPES for key in KEYS]
        found = self.look_for(files, probe_of(KEYS, SCOPES), wanted=filter_of(KEYS))
        assert found.rows.sequences is not None
        numbers = [files.index(found.of[number]) for number in found.files]
        answer = zip(found.rows.indexes, numbers, found.rows.positions, found.rows.sequences, strict=True)
        assert sorted(tuple(map(int, each)) for each in answer) == sorted(
            (
                wanted.index((number, name, file.salt)),
                files.index(file),
                position,
                NO_SEQUENCE if at is None else at,
            )
            for file, rows in self.live.items()
            for position, (number, name, at) in enumerate(rows)
            if name is not None
        )
        return found


def make_runs_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a few rows fill blocks, segments, tiers and builds."""
    monkeypatch.setattr(runs, "BLOCK_ENTRIES", 3)
    monkeypatch.setattr(merging, "BLOCK_ENTRIES", 3)
    monkeypatch.setattr(merging, "SEGMENT_ENTRIES", 8)
    monkeypatch.setattr(key_runs, "RUNS_A_TIER", 3)
    monkeypatch.setattr(key_runs, "FIRST_TIER_ROWS", 8)
    monkeypatch.setattr(key_runs, "BUILD_ROWS", 12)


def make_lake(kind: str, folder: Path) -> Lake:
    store = MemoryStore() if kind == "memory" else LocalStore(folder / "table")
    return Lake(store, folder / "copies")
