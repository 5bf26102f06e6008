"""How many tasks a batch of changes gets, by what the last ones took."""

import pytest

from streaming_sink.tasks.results import TaskReport
from streaming_sink.writing.change_tasks import CHANGES_A_TASK, ChangeTasks


def report(rows: int, seconds: float, reading: float = 0.0) -> TaskReport:
    return TaskReport(0, 0, rows, seconds, reading)


def test_nothing_is_known_of_the_first_batch_so_all_cores_share_it():
    assert ChangeTasks().expected(8) == 8


def test_small_batches_come_to_one_task_though_both_tasks_of_the_first_took_long_to_find_their_keys():
    known = ChangeTasks()
    known.add([report(500, 4.0), report(500, 4.0)], seconds=5.0, parallelism=2)
    assert known.expected(2) == 1


@pytest.mark.parametrize(("rows", "tasks"), [(CHANGES_A_TASK, 1), (CHANGES_A_TASK + 1, 2), (9_000_000, 8)])
def test_many_changes_are_shared(rows: int, tasks: int):
    known = ChangeTasks()
    known.add([report(rows, 0.1)], seconds=0.2, parallelism=8)
    assert known.expected(8) == tasks


def test_the_largest_of_the_last_three_batches_counts():
    known = ChangeTasks()
    for rows, tasks in ((4 * CHANGES_A_TASK, 4), (1, 4), (1, 4), (1, 1)):
        known.add([report(rows, 0.1)], seconds=0.2, parallelism=8)
        assert known.expected(8) == tasks


def test_changes_that_take_long_to_compute_are_shared_from_the_batch_on_that_shows_it():
    known = ChangeTasks()
    known.add([report(500, 0.1), report(500, 0.1)], seconds=1.1, parallelism=8)
    assert known.expected(8) == 1, "upstream took at most eight seconds: one batch tries"
    known.add([report(1000, 3.5, reading=3.0)], seconds=4.0, parallelism=8)
    assert known.expected(8) == 3
    known.add([report(500, 0.1), report(500, 0.1)], seconds=1.1, parallelism=8)
    assert known.expected(8) == 3, "it is not tried again"


def test_a_machine_that_was_busy_for_a_moment_says_nothing_of_the_next_batch():
    known = ChangeTasks()
    for reading in (0.2, 3.0, 3.0):
        known.add([report(1000, 4.0, reading)], seconds=4.0, parallelism=8)
        assert known.expected(8) == 1


def test_no_batch_comes_to_one_task_where_all_cores_took_long_before_the_shuffle():
    known = ChangeTasks()
    known.add([report(500, 0.1), report(500, 1.0)], seconds=3.0, parallelism=8)
    assert known.expected(8) == 8
