"""The figures of commits to a catalog: what is a process' own, and which aims were measured."""

from collections import Counter

import pytest

from benchmarks.catalogs import Sample, Writing, aims

APPEND = Sample(40.0, 9.0, [("create", 2.0), ("create", 1.0), ("POST", 25.0)])


def test_what_is_no_request_is_the_process_own():
    assert APPEND.parts == {"all": 40.0, "catalog": 25.0, "store": 3.0, "own": 12.0, "processor": 9.0}
    assert APPEND.sequence == "create, create, POST"


def test_a_mark_that_was_not_reached_has_no_figure_and_the_usual_append_counts():
    requests = {"append": Counter({"create, create, POST": 19, "create, create, POST, GET, list_folder": 1})}
    writing = [Writing(True, 10.0, [30, 10], 44, 0), Writing(False, 10.0, [20, 20], 60, 1)]
    found = aims({(50, "ours"): [APPEND], (50, "bare"): [APPEND]}, requests, writing)
    assert [aim.measured for aim in found] == [12.0, None, None, 1, 2, 1]
    assert [aim.met for aim in found] == [True, False, False, True, True, False]


def test_the_slowest_writer_is_compared_with_the_mean():
    writing = Writing(True, 10.0, [30, 10], 44, 0)
    assert writing.per_minute == 240
    assert writing.slowest_share == pytest.approx(0.5)
