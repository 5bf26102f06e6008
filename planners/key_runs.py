"""Which runs of a table's key index are built, merged and deleted: size-tiered, as the levels of an LSM tree.

A data file is looked up in the largest run that covers it, and only there. By how many rows they have of such
files, runs are in tiers, each eight times as large as the one before:

    less than 64 Ki rows, 512 Ki, 4 Mi, 32 Mi    merged into one run where there are eight
    32 Mi rows and more                          left alone, so that no merge is larger than 256 Mi rows

So a row is written by a build and by one merge for each tier, or by more where runs are smaller than a merge
of eight is worth; a table has at most seven runs in each of four tiers, and one for each 32 Mi rows. A run of
which less than half is still looked up is rewritten, and its dead entries leave. Several maintainers may plan
at a time: that costs space, and the next plan deletes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planners.tiers import merges_of_tiers

File = tuple[str, int, bytes]
"""A data file of the table: its location, its rows by its manifest, and the scope of its keys."""

RUNS_A_TIER = 8
"""So many are merged."""
FIRST_TIER_ROWS = 64 * 1024
MERGED_TIERS = 4
BUILD_ROWS = 8 * 1024 * 1024
"""Files of so many rows together get a run; a larger one has its own."""


@dataclass(frozen=True, slots=True)
class KeyRun:
    """A run of the index, as its name and its footer describe it."""

    path: str
    created_ms: int
    files: Sequence[File]
    """The files that it covers, whether they are live or not."""

    @property
    def rows(self) -> int:
        return _rows(self.files)


@dataclass(frozen=True, slots=True)
class KeyRunMerge:
    """Runs that one run takes the place of."""

    runs: tuple[str, ...]
    files: tuple[File, ...]
    """The live files that it covers; entries of all others leave."""
    reason: str


@dataclass(frozen=True, slots=True)
class KeyRunPlan:
    """What is to be done for an index, each by itself."""

    builds: tuple[tuple[File, ...], ...]
    """Live files that no run covers; each group gets a run."""
    merges: tuple[KeyRunMerge, ...]
    deletes: tuple[str, ...]
    """Runs that no reader needs, or has needed for the grace period."""


def plan_key_runs(runs: Sequence[KeyRun], files: Sequence[File], *, now_ms: int, grace_ms: int) -> KeyRunPlan:
    """Plan the upkeep of an index. `runs` are its readable runs, `files` the live data files.

    A run that no live file needs is deleted once it, and the runs that took its place, are older than
    `grace_ms`: a reader that listed the runs before may be about to open it, and would scan its files.
    """
    used, left = _looked_up(runs, files)
    return KeyRunPlan(
        tuple(_builds(file for file in files if file in left)),
        tuple(_merges([run for run in runs if run.path in used], used)),
        tuple(
            run.path for run in runs if run.path not in used and _is_old(run, runs, used, now_ms - grace_ms)
        ),
    )


def _looked_up(runs: Sequence[KeyRun], files: Iterable[File]) -> tuple[dict[str, list[File]], set[File]]:
    """Return which live files each run is used for, and those that have none."""
    left = set(files)
    used = {}
    for run in sorted(runs, key=lambda run: (-run.rows, run.path)):
        if mine := [file for file in run.files if file in left]:
            used[run.path] = mine
            left.difference_update(mine)
    return used, left


def _builds(files: Iterable[File]) -> Iterable[tuple[File, ...]]:
    group: list[File] = []
    for file in files:
        if group and _rows([*group, file]) > BUILD_ROWS:
            yield tuple(group)
            group = []
        group.append(file)
    if group:
        yield tuple(group)


def _merges(runs: Iterable[KeyRun], used: dict[str, list[File]]) -> Iterable[KeyRunMerge]:
    ordered = sorted(runs, key=lambda run: run.path)
    live = [_rows(used[run.path]) for run in ordered]
    left = set(range(len(ordered)))
    for group in merges_of_tiers(live, RUNS_A_TIER, FIRST_TIER_ROWS, MERGED_TIERS):
        left.difference_update(group)
        rows = sum(live[place] for place in group)
        merged = [ordered[place] for place in group]
        yield _merge(merged, used, f"{len(group)} runs of {rows:,} rows: {RUNS_A_TIER} of a tier")
    for place in sorted(left):
        run = ordered[place]
        if 2 * live[place] < run.rows:
            yield _merge([run], used, f"{live[place]:,} of {run.rows:,} rows are looked up in it")


def _merge(runs: Sequence[KeyRun], used: dict[str, list[File]], reason: str) -> KeyRunMerge:
    kept = tuple(file for run in runs for file in used[run.path])
    return KeyRunMerge(tuple(run.path for run in runs), kept, reason)


def _is_old(run: KeyRun, runs: Iterable[KeyRun], used: dict[str, list[File]], before_ms: int) -> bool:
    """Return whether a run that is not looked up, and all that are for its files, are from before a time."""
    mine = set(run.files)
    instead = [other for other in runs if mine.intersection(used.get(other.path, ()))]
    return all(each.created_ms <= before_ms for each in (run, *instead))


def _rows(files: Iterable[File]) -> int:
    return sum(file[1] for file in files)
