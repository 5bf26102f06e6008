"""Upkeep of a key index: builds runs of files that none covers, merges runs, and deletes those it replaced.

Runs are written under names that are used once, and none is read before it is whole. So any number of
processes may do this at a time, and each may stop at any moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from planners.key_runs import KeyRun, KeyRunPlan, plan_key_runs
from streaming_sink.tasks.errors import UnusableRunError
from streaming_sink.tasks.key_index.index import KeyIndex
from streaming_sink.tasks.key_index.merging import build_run, merge_runs
from streaming_sink.tasks.key_index.runs import read_footer
from streaming_sink.tasks.keys.probing import KeyEntries
from streaming_sink.tasks.keys.scanning import KeyedFile, scan_keys
from timeline.names import key_run_id, key_run_path, ulid_time_ms

GRACE_MS = 3_600_000
"""A reader opens a run within an hour after it has listed it, or scans."""

_LOG = logging.getLogger("streaming_sink.keys")


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What was done for an index, as the paths of runs."""

    built: tuple[str, ...]
    merged: tuple[str, ...]
    """Runs that took the place of others."""
    deleted: tuple[str, ...]


def maintain(
    index: KeyIndex,
    files: Sequence[KeyedFile],
    new_id: Callable[[], str],
    now_ms: int,
    *,
    damaged: Iterable[str] = (),
) -> Upkeep:
    """Build, merge and delete runs as the live files of a head need it. `damaged` are runs that lookups have
    reported.

    `now_ms` is the table's time (`commit_time`), and `new_id` makes ULIDs of it. Takes 350 MiB, however large
    the table is, and space for the entries of a build in the temporary folder. Raises as a scan does; what
    was done until then stays.
    """
    deleted = delete_damaged(index, damaged, now_ms)
    plan = plan_upkeep(index, files, now_ms)
    built = [build(index, [KeyedFile(*file) for file in group], new_id()) for group in plan.builds]
    merged = []
    for planned in plan.merges:
        keep = [KeyedFile(*file) for file in planned.files]
        try:
            merged.append(merge_key_runs(index, planned.runs, keep, new_id()))
        except FileNotFoundError:
            continue  # another process has deleted one, and so has merged it
        except UnusableRunError as damage:
            _LOG.warning("runs of the key index are not merged: %s: %s", planned.runs, damage)
            deleted += delete_damaged(index, planned.runs, now_ms)
    index.store.delete(plan.deletes)
    return Upkeep(tuple(built), tuple(merged), (*deleted, *plan.deletes))


def plan_upkeep(index: KeyIndex, files: Sequence[KeyedFile], now_ms: int) -> KeyRunPlan:
    """Return what an index needs: builds and merges, which tasks may share, and deletes. One LIST, and a read
    of the footer of each run that this process has not seen.
    """
    known = [KeyRun(path, _created_ms(path), footer.files) for path, footer in index.readable_runs()]
    return plan_key_runs(known, files, now_ms=now_ms, grace_ms=GRACE_MS)


def build(index: KeyIndex, files: Sequence[KeyedFile], run_id: str) -> str:
    """Write a run of data files, whose keys are read, and return its path. DataFileError as for a scan, and
    where a file is encrypted.
    """
    entries = (
        (number, entries)
        for number, file in enumerate(files)
        for entries in scan_keys(index.store, file, index.columns)
    )
    return write_run(index, files, entries, run_id)


def write_run(
    index: KeyIndex, files: Sequence[KeyedFile], entries: Iterable[tuple[int, KeyEntries]], run_id: str
) -> str:
    """Write a run of data files whose keys the caller has, and return its path: those of all rows that have a
    key, with the number of the file in `files`.
    """
    path = key_run_path(index.columns.digest, run_id)
    with index.store.open_output(path) as output:
        build_run(output, index.columns.digest, files, entries, index.columns.kind)
    return path


def merge_key_runs(
    index: KeyIndex,
    paths: Sequence[str],
    keep: Sequence[KeyedFile],
    run_id: str,
) -> str:
    """Write a run of those data files of `keep` that the runs at `paths` cover, and return its path.
    FileNotFoundError, and UnusableRunError where one is damaged.
    """
    opened = [index.runs.open(index.store, each, index.columns.digest) for each in paths]
    path = key_run_path(index.columns.digest, run_id)
    with index.store.open_output(path) as output:
        merge_runs(output, index.columns.digest, opened, keep)
    return path


def delete_damaged(index: KeyIndex, suspected: Iterable[str], now_ms: int) -> list[str]:
    """Delete those of the suspected runs that are damaged in the store, not in a copy alone, and those that
    were not written to their end within the grace period. Return their paths.
    """
    readable = {path for path, _ in index.readable_runs()}
    deleted = [
        path for path in index.run_paths() if path not in readable and _created_ms(path) <= now_ms - GRACE_MS
    ]
    for path in suspected:
        index.runs.discard(index.store, path)
        try:
            with index.store.open_input(path) as file:
                read_footer(file, index.columns.digest).layout.check(file)
        except FileNotFoundError:
            continue
        except UnusableRunError:
            deleted.append(path)
    index.store.delete(deleted)
    return deleted


def _created_ms(path: str) -> int:
    run_id = key_run_id(path)
    assert run_id is not None  # it was listed as a run
    return ulid_time_ms(run_id)
