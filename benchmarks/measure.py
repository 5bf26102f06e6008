"""What a table looks like after a run, as pyiceberg and the file system see it; the same for every writer."""

from __future__ import annotations

import os
import re
import statistics
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pyiceberg.table import StaticTable

from timeline.properties import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.manifest import DataFile
    from pyiceberg.table.snapshots import Snapshot

_VERSION_NAME = re.compile(r"^v([1-9][0-9]*)\.metadata\.json$")


class BatchTimes:
    """The times of a writer's batches, over all runs; the first batches of a run warm up and do not count."""

    WARM_UP_BATCHES: ClassVar[int] = 5
    milliseconds: list[list[int]]
    """addBatch per batch, a list per run, warm-up included."""

    @property
    def warm(self) -> list[int]:
        return [value for run in self.milliseconds for value in run[self.WARM_UP_BATCHES :]]

    @property
    def median(self) -> float:
        return statistics.median(self.warm)

    @property
    def p95(self) -> float:
        return statistics.quantiles(self.warm, n=20, method="inclusive")[-1]


def processor_seconds() -> float:
    """Return the processor time that this process and all below it (the JVM, its Python workers) have taken
    so far, to 10 ms a process. Those that have ended count, since their parents have waited for them: so do
    the JVM, and the daemon of PySpark's workers in the sessions of benchmarks (`benchmarks.waiting_daemon`).
    Linux only; 0 elsewhere.
    """
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended
            fields = stat.read_text().rpartition(")")[2].split()
            process = int(stat.parent.name)
            parents[process] = int(fields[1])
            ticks[process] = sum(map(int, fields[11:15]))  # user, system, and both of its ended children
    return sum(ticks[each] for each in ticks if is_below(each, parents)) / os.sysconf("SC_CLK_TCK")


def wait_for_new_workers() -> None:
    """Wait until Spark has ended the Python workers of this process's sessions, which it does when they had
    nothing to do for a minute: the next tasks begin in new ones. Linux only. TimeoutError after five minutes.
    """
    end = time.monotonic() + 300
    while _workers():
        if time.monotonic() > end:
            raise TimeoutError(f"Python workers are still there: {_workers()}")
        time.sleep(1)


def _workers() -> list[int]:
    """Return the children of the daemon that forks workers, `benchmarks.waiting_daemon`."""
    parents: dict[int, int] = {}
    of_daemon: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            # The command line of the JVM names the module too, as a setting.
            if b"\0-m\0benchmarks.waiting_daemon\0" in (folder / "cmdline").read_bytes():
                of_daemon.add(int(folder.name))
    return [it for it in of_daemon if parents[it] in of_daemon and is_below(it, parents)]


def is_below(process: int, parents: Mapping[int, int]) -> bool:
    """Return whether a process is this one or has it among its ancestors."""
    while process > 1 and process != os.getpid():
        process = parents.get(process, 0)
    return process == os.getpid()


@dataclass(frozen=True)
class TableShape:
    """The live files of a table, and what it took to get there."""

    rows: int
    files: int
    bytes: int
    files_at_size: int
    """Files of at least the small limit."""
    bytes_at_size: int
    written_bytes: int
    """All data files in the table's folder, live or not: nothing is deleted during a run."""
    most_small_files: int
    """The most files below the small limit that one partition held after any batch."""

    @property
    def share_at_size(self) -> float:
        return self.bytes_at_size / self.bytes

    @property
    def written_per_kept(self) -> float:
        return self.written_bytes / self.bytes


def shape_of(location: Path, small_file_bytes: int) -> TableShape:
    """Return the shape of the table at its head and over its whole history."""
    table = StaticTable.from_metadata(str(newest_metadata(location)))
    history = _by_time(table)
    live = _live_files(table, history[-1])
    at_size = [file for file in live if file.file_size_in_bytes >= small_file_bytes]
    return TableShape(
        rows=sum(file.record_count for file in live),
        files=len(live),
        bytes=sum(file.file_size_in_bytes for file in live),
        files_at_size=len(at_size),
        bytes_at_size=sum(file.file_size_in_bytes for file in at_size),
        written_bytes=sum(path.stat().st_size for path in Path(location, "data").rglob("*.parquet")),
        most_small_files=max(
            _most_small_files(_live_files(table, snapshot), small_file_bytes)
            for snapshot in _ends_of_batches(history)
        ),
    )


def newest_metadata(location: Path) -> Path:
    """Return the metadata file of the newest version of a table."""
    found = [
        (int(m[1]), p) for p in Path(location, "metadata").iterdir() if (m := _VERSION_NAME.match(p.name))
    ]
    return max(found)[1]


def _by_time(table: StaticTable) -> list[Snapshot]:
    return sorted(table.snapshots(), key=lambda snapshot: snapshot.sequence_number or 0)


def _ends_of_batches(history: list[Snapshot]) -> list[Snapshot]:
    """Leave out an append whose replace stands in the same commit: no batch ends between the two."""
    following = [_version(snapshot) for snapshot in history[1:]]
    return [
        snapshot
        for snapshot, after in zip(history, [*following, None], strict=True)
        if after is None or after != _version(snapshot)
    ]


def _version(snapshot: Snapshot) -> str | None:
    """Return the version of this sink's table; None for another writer's, whose commits are one snapshot."""
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(VERSION)


def _live_files(table: StaticTable, snapshot: Snapshot) -> list[DataFile]:
    manifests = snapshot.manifests(table.io)
    entries = (manifest.fetch_manifest_entry(table.io, discard_deleted=True) for manifest in manifests)
    return [entry.data_file for of_manifest in entries for entry in of_manifest]


def _most_small_files(files: list[DataFile], small_file_bytes: int) -> int:
    small = Counter(
        tuple(f.partition[i] for i in range(len(f.partition)))
        for f in files
        if f.file_size_in_bytes < small_file_bytes
    )
    return max(small.values(), default=0)
