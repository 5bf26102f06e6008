"""The figures of commits to a catalog: what is a process' own, and which aims were measured."""

from collections import Counter

import pytest

from benchmarks.catalog_commits import APPEND, LOSER, own_aims, requests_aims
from benchmarks.catalog_servers import PARTS, Sample
from benchmarks.catalog_state import MetadataFiles, files_aims
from benchmarks.catalog_writers import JAVA, OURS, Writing, writers_aims

COMMIT = Sample(40.0, 9.0, [("create", 2.0, 1.0), ("create", 1.0, 0.5), ("POST", 25.0, 2.5)])
BARE = Sample(
    30.0, 5.0, [("SELECT", 1.0, 1.0), ("read", 2.0, 0.5), ("create", 1.0, 0.5), ("UPDATE", 16.0, 1.0)]
)


def test_what_is_no_request_is_the_process_own():
    assert COMMIT.parts == dict(zip(PARTS, (40.0, 25.0, 3.0, 12.0, 5.0), strict=True))
    assert COMMIT.sequence == "create, create, POST"


def test_a_mark_that_was_not_reached_has_no_figure():
    samples = {(50, "ours"): [COMMIT], (50, "bare"): [BARE]}
    assert [aim.measured for aim in own_aims("REST", samples)] == [12.0, 5.0, None, None, None, None]
    assert [aim.met for aim in own_aims("REST", samples)] == [True, True, False, False, False, False]


def test_where_the_client_writes_the_metadata_a_bare_commit_counts_too():
    samples = {(50, "ours"): [COMMIT], (50, "bare"): [BARE]}
    assert [aim.measured for aim in own_aims("SQL", samples)] == [2.0, 3.0, None, None, None, None]


def test_the_usual_append_counts_and_what_a_lost_race_adds():
    appends = Counter({"create, create, POST": 19, "create, create, POST, GET, list_folder": 1})
    lost = Counter({"create, create, POST, GET, read, create, POST": 4, "create, POST": 1})
    found = requests_aims({APPEND: appends, LOSER: lost})
    assert [aim.measured for aim in found] == [1, 2, 2, 2]
    assert all(aim.met for aim in found)
    assert [aim.measured for aim in requests_aims({})] == [None] * 4


def test_the_slowest_writer_is_compared_with_the_mean():
    writing = Writing("REST", OURS, 10.0, [30, 10], 800.0, 44, 0)
    assert writing.per_minute == 240
    assert writing.processor_a_commit == 20
    assert writing.slowest_share == pytest.approx(0.5)


def test_writers_are_compared_by_the_medians_of_their_runs():
    ours = [Writing("REST", OURS, 60.0, [9], 90.0, 9, 0), Writing("REST", OURS, 60.0, [30], 90.0, 30, 1)]
    java = [Writing("REST", JAVA, 60.0, [commits], 90.0) for commits in (10, 15, 90)]
    aims = {aim.what: aim for aim in writers_aims([*ours, *java])}
    alone = aims["REST: commits a minute of 1 writers (ours) over Java's"]
    assert alone.measured == pytest.approx(19.5 / 15)
    assert alone.met
    assert aims["REST: commits a minute of 4 writers (ours) over Java's"].measured is None
    assert aims["acknowledged commits that are missing"].measured == 1


def test_a_short_run_does_not_say_what_is_left_of_many_commits():
    counted = [MetadataFiles("SQL", 2_000, 300, 101, 0)]
    assert [aim.measured for aim in files_aims(counted, 2_000)] == [101]
    assert [aim.measured for aim in files_aims(counted, 300)] == [None]
