"""What a day of buffered ingestion takes in requests, dollars and cores, by its steps: arithmetic alone.

Prices are Amazon's list prices of us-east-1, without discounts: https://aws.amazon.com/s3/pricing/ (S3
Standard) and https://aws.amazon.com/ec2/pricing/on-demand/ (m6i).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

DOLLARS_PER_1000_PUTS = 0.005
"""PUT, COPY, POST and LIST; a DELETE costs nothing."""
DOLLARS_PER_1000_GETS = 0.0004
DOLLARS_PER_CORE_HOUR = 0.048
"""Half of an m6i.large, which has two virtual cores."""
PART_BYTES = 8 * 1024 * 1024
"""Larger objects are uploaded in parts of this size, with a request before and one after them."""
_SECONDS = 24 * 60 * 60


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests by what they cost: a listing costs as much as a PUT."""

    puts: float = 0.0
    lists: float = 0.0
    gets: float = 0.0

    def __add__(self, other: Requests) -> Requests:
        return Requests(self.puts + other.puts, self.lists + other.lists, self.gets + other.gets)

    def __sub__(self, other: Requests) -> Requests:
        return self + other.times(-1)

    def times(self, count: float) -> Requests:
        return Requests(count * self.puts, count * self.lists, count * self.gets)

    @property
    def dollars(self) -> float:
        return (
            self.puts + self.lists
        ) / 1000 * DOLLARS_PER_1000_PUTS + self.gets / 1000 * DOLLARS_PER_1000_GETS


@dataclass(frozen=True, slots=True)
class Steps:
    """The requests of each step, a data file of the table aside."""

    message: Requests
    """An announcement of more than ten files of one folder; of fewer, each is looked up by a GET."""
    file: Requests
    """A source file, from its announcement to its rows in the table."""
    item: Requests
    """A work item: plan, index, claim, commit, notes."""
    planner_poll: Requests
    """A look of a planner at a zone where nothing is new."""
    folder_poll: Requests
    """A look at a watched folder of at most 1,000 files where nothing is new, on top of that."""
    worker_poll: Requests
    """A look of a worker, or of `dispatch`, at a zone where nothing is new."""


@dataclass(frozen=True, slots=True)
class DayShape:
    """What a day brings, and how the zones are set up."""

    files: int
    bytes: int
    messages: int
    items: int
    data_files: int
    """Files that are written for the table, those that replace small ones included."""
    written_bytes: int
    polls: int
    """Looks of a planner at a zone, over all zones."""
    worker_polls: int
    watched_folders: int = 0
    """In each zone."""


def requests_of(day: DayShape, steps: Steps) -> dict[str, Requests]:
    """Return the requests of a day, by what they are for."""
    return {
        "announcements": steps.message.times(day.messages),
        "source files": steps.file.times(day.files),
        "work items": steps.item.times(day.items),
        "data files": uploads(day.data_files, day.written_bytes),
        "planners that look": (steps.planner_poll + steps.folder_poll.times(day.watched_folders)).times(
            day.polls
        ),
        "workers that look": steps.worker_poll.times(day.worker_polls),
    }


def uploads(files: int, size: int) -> Requests:
    """Return the requests that write so many files of equal size."""
    if not files:
        return Requests()
    parts = ceil(size / files / PART_BYTES)
    return Requests(puts=files * (1 if parts <= 1 else parts + 2))


def platform_day(
    *,
    files: int = 700_000,
    bytes: int = 1_500_000_000_000,  # noqa: A002
    datasets: int = 20,
    minutes: float = 5.0,
    poll_seconds: float = 1.0,
    files_a_message: int = 20,
    times_written: float = 2.0,
    data_file_bytes: int = 120 * 1024 * 1024,
) -> DayShape:
    """Return a day of the platform: every dataset has an item each `minutes`, a planner and one `dispatch`
    look at each zone every `poll_seconds`, and rows are written `times_written` times, fills included. An
    item leaves one more file than its bytes fill.
    """
    items, polls = round(datasets * 24 * 60 / minutes), round(datasets * _SECONDS / poll_seconds)
    written = round(times_written * bytes)
    return DayShape(
        files=files,
        bytes=bytes,
        messages=ceil(files / files_a_message),
        items=items,
        data_files=ceil(written / data_file_bytes) + items,
        written_bytes=written,
        polls=polls,
        worker_polls=polls,
    )


def cores_for(files: int, milliseconds_a_file: float) -> float:
    """Return how many cores a day's files keep busy, on average."""
    return files * milliseconds_a_file / 1000 / _SECONDS
