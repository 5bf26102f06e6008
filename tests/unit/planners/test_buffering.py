"""Which waiting files become work items, by amount and time; whatever is lost, doubled or out of order."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners.ingestion.buffering import (
    MOST_AMOUNTS,
    Buffer,
    BufferedFile,
    FileKey,
    PlannedItem,
    PlanningRules,
)


def file(number: int, *, size: int = 10, at: int = 0, partition: str = "") -> BufferedFile:
    return BufferedFile(f"/drop/{number:04}.parquet", "v1", size, at, partition=partition)


def buffer(rules: PlanningRules, planned: set[FileKey] | None = None) -> Buffer:
    known = set() if planned is None else planned
    return Buffer(rules, known.__contains__)


def test_files_wait_until_together_they_reach_the_bytes() -> None:
    waiting = buffer(PlanningRules(max_bytes=100))
    waiting.receive(file(number) for number in range(9))
    assert waiting.due(0, 7) == ()
    waiting.receive([file(9)])
    (item,) = waiting.due(0, 7)
    assert (item.number, len(item.files), item.bytes) == (7, 10, 100)
    assert item.why == "100 B wait, and 100 B are enough"


def test_files_wait_until_they_are_enough() -> None:
    waiting = buffer(PlanningRules(max_files=3))
    waiting.receive([file(1), file(2), file(3)])
    assert [item.why for item in waiting.due(0, 0)] == ["3 files wait, and 3 are enough"]


def test_no_file_waits_longer_than_the_time() -> None:
    waiting = buffer(PlanningRules(max_age_ms=1000))
    waiting.receive([file(1, at=500), file(2, at=100), file(3, at=900)])
    assert waiting.deadline_ms() == 1100
    assert waiting.due(1099, 0) == ()
    (item,) = waiting.due(1100, 0)
    assert [each.arrived_ms for each in item.files] == [100, 500, 900]
    assert item.why == "a file has waited 1 s, and 1 s are enough"


def test_nothing_waits_without_files() -> None:
    waiting = buffer(PlanningRules(max_age_ms=1))
    assert waiting.deadline_ms() is None
    assert waiting.due(1 << 60, 0, flush=True) == ()


def test_a_flush_takes_all_that_waits() -> None:
    waiting = buffer(PlanningRules())
    waiting.receive([file(1)])
    assert waiting.due(0, 0) == ()
    assert [item.why for item in waiting.due(0, 0, flush=True)] == ["nothing more is to come"]


def test_the_deadline_is_that_of_what_still_waits() -> None:
    waiting = buffer(PlanningRules(max_age_ms=1000))
    waiting.receive([file(1, at=0), file(2, at=400)])
    waiting.forget([file(1).key])
    assert waiting.deadline_ms() == 1400


def test_the_same_file_is_one_entry_and_a_replaced_one_is_another() -> None:
    waiting = buffer(PlanningRules(), {file(3).key})
    waiting.receive([file(1), file(1, at=9), replace(file(1), identity="v2"), file(3)])
    assert waiting.waiting == {"": (2, 20, 0)}


def test_partitions_wait_apart_where_the_rules_say_so() -> None:
    waiting = buffer(PlanningRules(max_files=2, max_age_ms=1000, per_partition=True))
    waiting.receive(
        [file(1, partition="day=1"), file(2, partition="day=2", at=5), file(3, partition="day=1")]
    )
    assert [(item.why, len(item.files)) for item in waiting.due(10, 0)] == [
        ("day=1: 2 files wait, and 2 are enough", 2)
    ]
    late = waiting.due(1005, 4)
    assert [(item.number, len(item.files)) for item in late] == [(4, 2), (5, 1)]


def test_a_backlog_is_cut_and_a_large_file_is_an_item_of_its_own() -> None:
    waiting = buffer(PlanningRules(max_bytes=100, max_files=4))
    waiting.receive(file(number, size=1, at=number) for number in range(95))
    waiting.receive([file(95, size=5000, at=95)])
    items = waiting.due(0, 0)
    assert [len(item.files) for item in items] == [40, 40, 15, 1]
    assert [item.number for item in items] == [0, 1, 2, 3]


@pytest.mark.parametrize("given_rules", [{"max_bytes": 0}, {"max_files": True}, {"max_age_ms": -1}])
def test_an_amount_that_is_none_is_refused(given_rules: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be a whole number of 1 or more"):
        PlanningRules(**given_rules)


@given(st.lists(st.integers(1, 60), max_size=60))
def test_no_item_is_larger_than_its_bound_and_each_file_is_in_one(sizes: list[int]) -> None:
    rules = PlanningRules(max_bytes=5, max_files=2)
    waiting = buffer(rules)
    files = [file(number, size=size, at=number // 3) for number, size in enumerate(sizes)]
    waiting.receive(files)
    items = waiting.due(1 << 40, 0, flush=True)
    assert [each for item in items for each in item.files] == files
    for item in items:
        assert len(item.files) == 1 or item.bytes <= MOST_AMOUNTS * rules.max_bytes
        assert len(item.files) <= MOST_AMOUNTS * rules.max_files
    assert all(after.number == before.number + 1 for before, after in pairwise(items))


@given(st.integers(0, 2**32))
def test_messages_that_come_three_times_in_any_order_to_two_processes_plan_each_file_once(seed: int) -> None:
    """Two processes plan into one log: the first to take a number has it, and the other applies that plan."""
    random, rules = Random(seed), PlanningRules(max_bytes=40, max_files=5, max_age_ms=50)
    sent = [file(number, at=random.randrange(100)) for number in range(random.randrange(1, 30))]
    log: list[PlannedItem] = []
    both = []
    for _ in range(2):
        planned: set[FileKey] = set()
        both.append((buffer(rules, planned), planned, random.sample(sent * 3, 3 * len(sent))))
    applied = [0, 0]

    def catch_up(who: int) -> None:
        for item in log[applied[who] :]:
            both[who][1].update(each.key for each in item.files)
            both[who][0].forget(each.key for each in item.files)
        applied[who] = len(log)

    now = 0
    while any(messages for _, _, messages in both):
        who = random.randrange(2)
        waiting, _, messages = both[who]
        waiting.receive(messages[:4])
        del messages[:4]
        if random.random() < 0.5:  # else it plans on what it knew
            catch_up(who)
        now += 7
        items = waiting.due(now, applied[who])
        if items and applied[who] == len(log):  # else its number is taken
            log += items
        catch_up(who)
    catch_up(0)
    log += both[0][0].due(now, len(log), flush=True)
    assert sorted(each.path for item in log for each in item.files) == sorted(each.path for each in sent)
    assert [item.number for item in log] == list(range(len(log)))
