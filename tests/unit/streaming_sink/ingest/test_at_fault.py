"""Which failures of a work item may be a file's: none of a store, a lost worker, a limit, other writers."""

from __future__ import annotations

import errno

import pytest
from pyspark.errors import PythonException

from planners.ingestion.buffering import BufferedFile, PlannedItem
from streaming_sink.ingest.item_landing import find_at_fault
from streaming_sink.ingest.profiling import Work
from streaming_sink.spark.worker_failures import UnfitRowsError
from timeline.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    SchemaMismatchError,
    StoreUnavailableError,
)


def work(count: int = 8) -> Work:
    files = tuple(BufferedFile(f"/{number}.parquet", "1", 10, 0) for number in range(count))
    return Work(PlannedItem(0, files, "test"))


def of_task(text: str) -> Exception:
    return PythonException(f"An exception was thrown from the Python worker.\n{text}")


OF_NO_FILE = [
    StoreUnavailableError("it is away"),
    CommitStateUnknownError("no answer"),
    CommitConflictError("others were first"),
    MemoryError(),
    OSError(errno.ENOSPC, "No space left on device"),
    of_task("Traceback (most recent call last):\nMemoryError"),
    of_task("Python worker exited unexpectedly (crashed)"),
]


@pytest.mark.parametrize("failure", OF_NO_FILE, ids=lambda failure: f"{type(failure).__name__}")
def test_what_is_no_files_fault_is_not_looked_for(failure: Exception) -> None:
    tried: list[Work] = []

    def rehearse(part: Work) -> bool:
        tried.append(part)
        return True

    assert find_at_fault(work(), failure, rehearse) == {}
    assert tried == []


@pytest.mark.parametrize("failure", OF_NO_FILE, ids=lambda failure: f"{type(failure).__name__}")
def test_what_is_no_files_fault_ends_the_search(failure: Exception) -> None:
    def rehearse(part: Work) -> bool:
        if len(part.files()) <= 2:
            raise failure
        raise ValueError("of a file")

    with pytest.raises(type(failure)):
        find_at_fault(work(), ValueError("of a file"), rehearse)


@pytest.mark.parametrize(
    "failure",
    [
        KeyError("x"),
        SchemaMismatchError("a row"),
        of_task("Traceback (most recent call last):\nIndexError: x"),
    ],
    ids=lambda failure: f"{type(failure).__name__}",
)
def test_what_may_be_a_files_is_found_by_number_with_its_reason(failure: Exception) -> None:
    def rehearse(part: Work) -> bool:
        if any(number in (2, 5) for number, _ in part.files()):
            raise failure
        return True

    found = find_at_fault(work(), failure, rehearse)
    assert sorted(found) == [2, 5]
    assert all(type(failure).__name__ in reason for reason in found.values())


def test_parts_of_which_no_file_can_land_show_nothing_of_the_others() -> None:
    """Files that are rejected anyway pass, also where all others fail for the session's sake."""

    def rehearse(part: Work) -> bool:
        if any(number > 1 for number, _ in part.files()):
            raise ValueError("of all that is read")
        return False

    assert find_at_fault(work(), ValueError("of all that is read"), rehearse) == {}


def test_a_failure_that_names_values_is_of_the_only_file_of_an_item() -> None:
    """It failed three workers and was set apart, where among other files it is rejected."""
    found = find_at_fault(work(1), UnfitRowsError("1 row has a null in the key's column 'id'"), fails)
    assert found == {0: "1 row has a null in the key's column 'id'"}
    assert find_at_fault(work(1), SchemaMismatchError("of the table, as far as is known"), fails) == {}


def test_files_all_of_which_have_such_values_are_all_at_fault() -> None:
    found = find_at_fault(work(40), UnfitRowsError("a null"), fails)
    assert found == dict.fromkeys(range(40), "a null")


def test_a_file_whose_own_values_fail_says_nothing_of_files_that_fail_for_another_reason() -> None:
    """One null in a key had all files of an item rejected that failed for the session's sake."""

    def rehearse(part: Work) -> bool:
        raise UnfitRowsError("a null") if [number for number, _ in part.files()] == [0] else ValueError("all")

    assert find_at_fault(work(), ValueError("all"), rehearse) == {0: "a null"}


def fails(part: Work) -> bool:
    raise UnfitRowsError("a null")
