"""One run of a zone's plan index: which plan has which version of which source file.

A run file as `streaming_sink/tasks/run_files.py` has it, in the order of the digests of paths, so that a
look-up reads the footer and one block. The footer says which work items each plan has. Checksums cover the
footer and each block, and readers of the whole run compare all of them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from planners.ingestion.plan_runs import PlanRun
from streaming_sink.tasks.errors import UnusableRunError
from streaming_sink.tasks.run_files import WORD, RunLayout, RunWriter, read_layout
from streaming_sink.zones.planning.digests import FileDigests
from streaming_sink.zones.records import Plan, mark_of

_MAGIC = b"SSPLNRUN"
_BLOCK_ENTRIES = 16 * 1024
"""512 KiB."""
_DTYPES = (WORD, WORD, WORD, np.dtype(np.int64))


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a run's footer says of the plans that it covers."""

    zone_id: str
    first: int
    last: int
    mark: str
    """Of the last plan, which no other plan has."""
    position: int
    """The furthest position of these plans."""
    first_items: tuple[int, ...]
    """The number of the first work item of each plan."""
    next_item: int

    @property
    def place(self) -> PlanRun:
        return PlanRun(self.first, self.last, 0)


class PlanRows(NamedTuple):
    """Versions of files, in the order of their paths' digests, and the plan of each."""

    files: FileDigests
    plans: Any


@dataclass(frozen=True)
class WholeRun:
    """A run in memory."""

    facts: RunFacts
    rows: PlanRows


def run_of_plan(zone_id: str, number: int, plan: Plan) -> WholeRun:
    """Return the run of one plan."""
    files = FileDigests.of(file.key for item in plan.items for file in item.files).sorted()
    first_items, next_item = (plan.items[0].number,), plan.items[-1].number + 1
    facts = RunFacts(zone_id, number, number, mark_of(plan), int(plan.position), first_items, next_item)
    return WholeRun(facts, PlanRows(files, np.full(len(files), number, np.int64)))


def merge_plan_runs(runs: Sequence[WholeRun]) -> WholeRun:
    """Return the run of the plans of several that follow one another, in their order."""
    files = FileDigests.concatenate([run.rows.files for run in runs])
    plans = np.concatenate([run.rows.plans for run in runs])
    order = np.argsort(files.paths, kind="stable")
    facts = replace(
        runs[-1].facts,
        first=runs[0].facts.first,
        position=max(run.facts.position for run in runs),
        first_items=tuple(item for run in runs for item in run.facts.first_items),
    )
    return WholeRun(facts, PlanRows(files.take(order), plans[order]))


def encode_run(run: WholeRun) -> bytes:
    output, (files, plans) = io.BytesIO(), run.rows
    writer = RunWriter(output, _MAGIC, asdict(run.facts), _BLOCK_ENTRIES)
    writer.write((files.paths, files.high, files.low, plans))
    writer.finish()
    return output.getvalue()


def decode_run(data: bytes, run: PlanRun, zone_id: str) -> WholeRun:
    """Return a run, in memory of its own size alone. UnusableRunError where any of it is damaged, or is of
    other plans or of another zone.
    """
    facts, layout = _read_footer(io.BytesIO(data), run, zone_id)
    paths, high, low, plans = layout.load(data)
    return WholeRun(facts, PlanRows(FileDigests(paths, high, low), plans))


class OpenRun:
    """A run that is looked up by ranges; its footer is read once. UnusableRunError as for `decode_run`, here
    and for the block that a look-up reads; what `open_file` raises.
    """

    def __init__(self, open_file: Callable[[], BinaryIO], run: PlanRun, zone_id: str) -> None:
        self._open = open_file
        with open_file() as file:
            self.facts, self._layout = _read_footer(file, run, zone_id)

    def plans_of(self, word: int) -> set[int]:
        """Return the plans that have a version of the path with this digest. Reads one block at most, but
        where the versions of a path are in several.
        """
        found: set[int] = set()
        for number in self._layout.reached(word, word):
            with self._open() as file:
                paths, _, _, plans = self._layout.read(file, number)
            found.update(plans[paths == np.uint64(word)].tolist())
        return found


def _read_footer(file: BinaryIO, run: PlanRun, zone_id: str) -> tuple[RunFacts, RunLayout]:
    said, layout = read_layout(file, _MAGIC, lambda _: _DTYPES)
    facts = RunFacts(**{**said, "first_items": tuple(said["first_items"])})
    if (facts.zone_id, facts.first, facts.last) != (zone_id, run.first, run.last):
        raise UnusableRunError(
            f"a run of the zone {facts.zone_id}, of its plans {facts.first} to {facts.last}"
        )
    return facts, layout
