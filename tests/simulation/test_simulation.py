"""Simulated schedules: the code as it is breaks no rule, and a rule that is switched off is caught."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import pytest

from tests.simulation.catalogs.partition_columns import PARTITION_COLUMNS
from tests.simulation.clusterers import PLANNED
from tests.simulation.key_runs import INDEXED
from tests.simulation.mutations import SWITCHES
from tests.simulation.naming import NAMED, NAMED_IN_A_CATALOG
from tests.simulation.schedule import (
    AUDITS,
    CATALOGS,
    INGESTION,
    KEYED_CATALOGS,
    KEYS,
    MIRRORS,
    OUTBOXES,
    run,
)
from tests.simulation.score import Scored, known_seeds, markdown, score
from tests.simulation.simulation import Report

SCHEDULES = int(os.environ.get("SIMULATED_SCHEDULES", "120"))
"""Few, which meet all that they are for: `make soak` runs thirty times as many."""
SEEDS_TO_CATCH = 300
"""Most switches fall within twenty; `python -m tests.simulation --mutations` tries the rare ones longer."""
SCHEDULES_OF_TWO_TABLES = SCHEDULES * 3 // 10
SCHEDULES_OF_KEYS = SCHEDULES * 8 // 10
SCHEDULES_OF_INDEXES = SCHEDULES // 10
SCHEDULES_OF_PLANNED_CLUSTERING = SCHEDULES * 2 // 10
SCHEDULES_OF_INGESTION = SCHEDULES * 6 // 10
SCHEDULES_OF_AUDITS = SCHEDULES * 7 // 10
SCHEDULES_OF_CATALOGS = SCHEDULES
SCHEDULES_OF_KEYED_CATALOGS = SCHEDULES * 3 // 10
SCHEDULES_OF_MIRRORS = SCHEDULES * 4 // 10
SCHEDULES_OF_NAMES = SCHEDULES // 10
SCHEDULES_OF_PARTITION_COLUMNS = SCHEDULES * 2 // 10
_MUST_BE_MET = (
    "a delete file shared", "a file is live again", "acknowledged", "another had changed the partitioning",
    "another run took over", "batch skipped", "crash", "create conflict", "create duplicate",
    "create exists_own", "create late", "create lost_reply", "deletes added", "deletes folded",
    "deletes folded beside", "deletes merged", "dropped", "expired file deleted",
    "failed: CheckpointRegressionError", "failed: CommitConflictError", "failed: FencedError",
    "filled beside", "fork below the head", "fork or race lost, then won", "instants spoiled",
    "made again where it was dropped", "once pinned, then expired", "orphan deleted", "plan cancelled",
    "plan claimed", "plan completed",
    "plan taken over", "plan timed out", "repartitioned", "replace dropped", "rolled back", "row delta",
    "shared deletes merged", "snapshot expired", "table made again", "tagged", "takeover", "unknown",
    "version deleted", "version read in whole",
)  # fmt: skip
_MUST_BE_MET_BY_TWO_TABLES = (
    "acknowledged", "another run took over", "batch skipped", "crash", "delivered",
    "delivered from behind the fence", "delivery: delivered before", "failed: CommitConflictError",
    "failed: FencedError", "fork below the head", "orphan deleted", "second table cleaned", "takeover",
    "unknown",
)  # fmt: skip
_MUST_BE_MET_BY_KEYS = (
    "a change came after its delete was forgotten", "a delete file shared", "acknowledged",
    "another run took over", "batch skipped", "batch that changes nothing",
    "before a commit by key: FencedError", "before a commit by key: KeyConflictError",
    "change log continued", "changes by key", "changes expired before they were appended", "crash",
    "delete file of a refused try deleted", "deleted keys forgotten", "deleted keys merged",
    "deletes folded", "failed: CommitConflictError", "failed: KeyConflictError",
    "failed: purge dropped", "filled beside", "fork below the head", "insert refused",
    "inserted beside keys", "inserted without a key", "key came back", "key declared",
    "key declared over rows that were checked", "key deleted", "key deleted by a purge", "key gone",
    "key purged", "keys looked for again", "late change committed", "orphan deleted",
    "own rows taken back", "purge refused: not followed", "repartitioned", "replace committed",
    "snapshot expired", "takeover", "unknown",
)  # fmt: skip


_MUST_BE_MET_BY_INDEXES = (
    "a run cut off", "a run damaged", "a run deleted", "a run of another key", "a run of other rows",
    "a run opened", "a run stale", "acknowledged", "changes by key", "crash", "key deleted",
    "keys looked for again", "replace committed", "runs built", "runs deleted", "runs merged",
)  # fmt: skip


_MUST_BE_MET_BY_PLANNED_CLUSTERING = (
    "acknowledged", "plan claimed", "plan completed", "planned by the planner", "planned group dropped",
)  # fmt: skip


_MUST_BE_MET_BY_INGESTION = (
    "acknowledged", "an announcement is tried again", "announced twice", "create conflict", "crash",
    "file by reference", "fork below the head", "item landed", "item was published before", "items planned",
    "orphan deleted", "planning is tried again", "unknown",
)  # fmt: skip


_MUST_BE_MET_BY_AUDITS = (
    "acknowledged", "crash", "item discarded", "item held", "item landed",
    "item published from behind the fence", "item staged", "item unstaged", "orphan deleted",
    "snapshot expired", "staged item published", "unknown",
)  # fmt: skip


_MUST_BE_MET_BY_CATALOGS = (
    "acknowledged", "another had changed the partitioning", "another run took over", "batch skipped",
    "cannot be decided", "commit conflict", "commit duplicate", "commit exists_own", "commit late",
    "commit lost_reply", "commit lost_request", "crash", "deletes folded", "deletes folded beside",
    "failed: CommitConflictError", "failed: FencedError", "failed: SchemaMismatchError",
    "file of a failed commit deleted", "filled beside", "fork or race lost, then won", "repartitioned",
    "replace dropped", "schema evolved", "stale load", "stopped: CorruptTableError",
    "stopped: TableNotFoundError", "stopped: TableReplacedError", "table made again", "theirs: append",
    "theirs: branch", "theirs: cherry-pick", "theirs: column added", "theirs: column dropped",
    "theirs: column renamed", "theirs: compaction", "theirs: delete by copy",
    "theirs: delete by position", "theirs: delete by value", "theirs: expiry", "theirs: fast-forward",
    "theirs: memory edited", "theirs: partitioning", "theirs: properties", "theirs: rewrite_manifests",
    "theirs: rollback", "theirs: table dropped and created", "theirs: table renamed",
    "theirs: table replaced", "theirs: tag", "unknown",
)  # fmt: skip


_MUST_BE_MET_BY_KEYED_CATALOGS = (
    "a delete file shared", "acknowledged", "another run took over", "batch skipped",
    "batch that changes nothing", "before a commit by key: KeyConflictError",
    "change of a key that is there twice", "changes by key", "commit conflict", "commit duplicate",
    "commit exists_own", "commit late", "commit lost_reply", "crash",
    "delete file of a refused try deleted", "deleted keys forgotten", "deleted keys merged",
    "deletes folded", "deletes folded beside", "failed: CommitConflictError", "failed: KeyConflictError",
    "file of a failed commit deleted", "filled beside", "fork or race lost, then won", "insert refused",
    "inserted beside keys", "inserted without a key", "key declared",
    "key declared over rows that were checked", "key deleted", "key deleted by a purge", "key purged",
    "keys looked for again", "late change committed", "one row left of a key that was there twice",
    "own rows taken back", "stale load", "stopped: TableReplacedError", "theirs: append", "theirs: branch",
    "theirs: cherry-pick", "theirs: column added", "theirs: compaction", "theirs: delete by copy",
    "theirs: delete by position", "theirs: delete by value", "theirs: expiry", "theirs: fast-forward",
    "theirs: orphan deleted", "theirs: partitioning", "theirs: properties", "theirs: rewrite_manifests",
    "theirs: rollback", "theirs: set_current_snapshot", "theirs: tag", "unknown",
)  # fmt: skip


_MUST_BE_MET_BY_MIRRORS = (
    "crash", "dropped from the catalog", "expired file deleted", "fork below the head", "mirror is a fork",
    "mirror outdated", "mirror's begin late", "mirror's move conflict", "mirror's move duplicate",
    "mirror's move late", "mirror's move lost_reply", "mirror's move lost_request", "mirrored",
    "version deleted", "written through the catalog",
)  # fmt: skip


_MUST_BE_MET_BY_NAMES = (
    "acknowledged", "crash", "expired file deleted", "failed: CommitConflictError",
    "fork below the head", "fork or race lost, then won", "name removed", "name set",
    "once pinned, then expired", "snapshot expired", "unknown",
)  # fmt: skip


_MUST_BE_MET_BY_NAMES_IN_A_CATALOG = (
    "acknowledged", "crash", "failed: CommitConflictError", "fork or race lost, then won", "name removed",
    "snapshot expired", "stale load", "theirs: branch", "theirs: tag", "theirs: tag moved", "unknown",
)  # fmt: skip


_MUST_BE_MET_BY_PARTITION_COLUMNS = (
    "acknowledged", "crash", "replace dropped", "theirs: column of partitions dropped",
    "theirs: column of partitions widened", "theirs: compaction", "theirs: partitioned by a column",
    "theirs: schemas removed", "unknown",
)  # fmt: skip


@cache
def _reports() -> list[Report]:
    return _run(range(SCHEDULES))


@cache
def _reports_of_two_tables() -> list[Report]:
    return _run(range(OUTBOXES, OUTBOXES + SCHEDULES_OF_TWO_TABLES))


@cache
def _reports_of_keys() -> list[Report]:
    return _run(range(KEYS, KEYS + SCHEDULES_OF_KEYS))


@cache
def _reports_of_indexes() -> list[Report]:
    return _run(range(INDEXED, INDEXED + SCHEDULES_OF_INDEXES))


@cache
def _reports_of_planned_clustering() -> list[Report]:
    return _run(range(PLANNED, PLANNED + SCHEDULES_OF_PLANNED_CLUSTERING))


@cache
def _reports_of_ingestion() -> list[Report]:
    return _run(range(INGESTION, INGESTION + SCHEDULES_OF_INGESTION))


@cache
def _reports_of_audits() -> list[Report]:
    return _run(range(AUDITS, AUDITS + SCHEDULES_OF_AUDITS))


@cache
def _reports_of_catalogs() -> list[Report]:
    return _run(range(CATALOGS, CATALOGS + SCHEDULES_OF_CATALOGS))


@cache
def _reports_of_keyed_catalogs() -> list[Report]:
    return _run(range(KEYED_CATALOGS, KEYED_CATALOGS + SCHEDULES_OF_KEYED_CATALOGS))


@cache
def _reports_of_mirrors() -> list[Report]:
    return _run(range(MIRRORS, MIRRORS + SCHEDULES_OF_MIRRORS))


@cache
def _reports_of_names() -> list[Report]:
    return _run(range(NAMED, NAMED + SCHEDULES_OF_NAMES))


@cache
def _reports_of_names_in_a_catalog() -> list[Report]:
    return _run(range(NAMED_IN_A_CATALOG, NAMED_IN_A_CATALOG + SCHEDULES_OF_NAMES))


@cache
def _reports_of_partition_columns() -> list[Report]:
    return _run(range(PARTITION_COLUMNS, PARTITION_COLUMNS + SCHEDULES_OF_PARTITION_COLUMNS))


def _run(seeds: range) -> list[Report]:
    with ProcessPoolExecutor(2, initializer=sys.settrace, initargs=(None,)) as pool:  # see score
        return list(pool.map(run, seeds, chunksize=10))


@pytest.mark.slow
def test_no_schedule_breaks_a_rule() -> None:
    reports = [*_reports(), *_reports_of_two_tables(), *_reports_of_keys(), *_reports_of_ingestion()]
    reports += [*_reports_of_audits(), *_reports_of_catalogs(), *_reports_of_keyed_catalogs()]
    reports += [*_reports_of_mirrors(), *_reports_of_indexes(), *_reports_of_planned_clustering()]
    reports += [*_reports_of_names(), *_reports_of_names_in_a_catalog(), *_reports_of_partition_columns()]
    broken = {report.seed: report.violation for report in reports if report.violation}
    assert not broken, f"replay with: python -m tests.simulation {min(broken)}"


@pytest.mark.slow
def test_the_schedules_meet_what_they_are_for() -> None:
    """A simulator that never meets a fork, a lost reply or a fenced run proves nothing."""
    for reports, wanted in (
        (_reports(), _MUST_BE_MET),
        (_reports_of_two_tables(), _MUST_BE_MET_BY_TWO_TABLES),
        (_reports_of_keys(), _MUST_BE_MET_BY_KEYS),
        (_reports_of_indexes(), _MUST_BE_MET_BY_INDEXES),
        (_reports_of_planned_clustering(), _MUST_BE_MET_BY_PLANNED_CLUSTERING),
        (_reports_of_ingestion(), _MUST_BE_MET_BY_INGESTION),
        (_reports_of_audits(), _MUST_BE_MET_BY_AUDITS),
        (_reports_of_catalogs(), _MUST_BE_MET_BY_CATALOGS),
        (_reports_of_keyed_catalogs(), _MUST_BE_MET_BY_KEYED_CATALOGS),
        (_reports_of_mirrors(), _MUST_BE_MET_BY_MIRRORS),
        (_reports_of_names(), _MUST_BE_MET_BY_NAMES),
        (_reports_of_names_in_a_catalog(), _MUST_BE_MET_BY_NAMES_IN_A_CATALOG),
        (_reports_of_partition_columns(), _MUST_BE_MET_BY_PARTITION_COLUMNS),
    ):
        met: Counter[str] = Counter()
        for report in reports:
            met += report.met
        for what in wanted:
            assert met[what] >= len(reports) / 100, what
        assert met["schedule cut short"] <= len(reports) / 100


@pytest.mark.slow
def test_a_rule_that_is_switched_off_is_caught() -> None:
    """All but the rules that take thousands of schedules, which the long score runs."""
    switches = [switch for switch in SWITCHES if not switch.rare]
    scored = score(switches, SEEDS_TO_CATCH, known_seeds=known_seeds())
    assert [f"{each.rule}: {each.what}" for each in scored if each.seeds is None] == []


def test_every_switch_still_fits_the_code() -> None:
    for switch in SWITCHES:
        with switch.thrown():
            pass


def test_the_table_of_the_documentation_has_every_switch() -> None:
    table = markdown([Scored(each.rule, each.what, 2, "caught") for each in SWITCHES])
    assert all(f"| {each.rule} | {each.what} | 2 schedules |" in table for each in SWITCHES)


def test_a_seed_replays_to_the_letter_in_another_process() -> None:
    """Whatever the order of hashes: one trace for one seed."""
    traces = {
        subprocess.run(
            [sys.executable, "-m", "tests.simulation", "7"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(traces) == 1
