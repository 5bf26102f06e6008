"""One run of a zone's plan index: a Parquet file that says which plan has which version of which source file.

Rows are in the order of their paths' digests, in groups of 32,768, so that a look-up reads the footer and one
group. The footer says which work items each plan has. Checksums cover pages, what the footer says and, for
readers of the whole run, all rows.
"""

from __future__ import annotations

import io
import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from planners.ingestion.plan_runs import PlanRun
from streaming_sink.zones.planning.digests import FileDigests
from streaming_sink.zones.records import Plan, mark_of
from timeline.errors import StoreUnavailableError

_GROUP_ROWS = 32 * 1024
_SCHEMA = pa.schema(
    [("path", pa.uint64()), ("key_high", pa.uint64()), ("key_low", pa.uint64()), ("plan", pa.int64())]
)
_SAID = b"streaming-sink.plan-index"


class DamagedRunError(Exception):
    """A run that cannot be read, or does not hold what its footer says. Its plans say all of it."""


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
    rows: int
    crc: int
    group_starts: tuple[int, ...]
    """The first word of each group of rows."""

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
    rows = PlanRows(files, np.full(len(files), number, np.int64))
    return _whole(rows, zone_id, number, number, mark_of(plan), int(plan.position), _starts(plan))


def merge_runs(runs: Sequence[WholeRun]) -> WholeRun:
    """Return the run of the plans of several that follow one another, in their order."""
    files = FileDigests.concatenate([run.rows.files for run in runs])
    plans = np.concatenate([run.rows.plans for run in runs])
    order = np.argsort(files.paths, kind="stable")
    first, last = runs[0].facts, runs[-1].facts
    starts = [*(item for run in runs for item in run.facts.first_items), last.next_item]
    furthest = max(run.facts.position for run in runs)
    rows = PlanRows(files.take(order), plans[order])
    return _whole(rows, first.zone_id, first.first, last.last, last.mark, furthest, starts)


def encode_run(run: WholeRun) -> bytes:
    files, plans = run.rows
    table = pa.table([files.paths, files.high, files.low, plans], schema=_SCHEMA)
    written, said = io.BytesIO(), {name: getattr(run.facts, name) for name in RunFacts.__slots__}
    with pq.ParquetWriter(
        written,
        _SCHEMA,
        compression="none",
        use_dictionary=False,
        write_page_checksum=True,
        store_schema=False,
    ) as output:
        output.write_table(table, row_group_size=_GROUP_ROWS)
        text = json.dumps(said, separators=(",", ":")).encode()
        output.add_key_value_metadata({_SAID.decode(): f"{crc32(text)} {text.decode()}"})
    return written.getvalue()


def decode_run(data: bytes, run: PlanRun, zone_id: str) -> WholeRun:
    """Return a run. DamagedRunError where any of it is damaged, or is of other plans or of another zone."""
    file = OpenRun(lambda: io.BytesIO(data), run, zone_id)
    rows = file.rows()
    if _crc(rows) != file.facts.crc:
        raise DamagedRunError("its rows are not those that were written")
    return WholeRun(file.facts, rows)


class OpenRun:
    """A run that is looked up by ranges; its footer is read once. DamagedRunError as for `decode_run`, here
    and in each method; what `open_file` raises.
    """

    def __init__(self, open_file: Callable[[], BinaryIO], run: PlanRun, zone_id: str) -> None:
        self._open = open_file
        with open_file() as file, _damage():
            self._footer = pq.read_metadata(file)
            self.facts = _facts((self._footer.metadata or {})[_SAID])
        stated = (self.facts.zone_id, self.facts.first, self.facts.last)
        if stated != (zone_id, run.first, run.last):
            raise DamagedRunError(f"it is of the zone {stated[0]}, of its plans {stated[1]} to {stated[2]}")

    def rows(self) -> PlanRows:
        """Return all rows, in memory of their own size alone."""
        columns = [np.empty(self.facts.rows, np.uint64) for _ in range(3)]
        plans, filled = np.empty(self.facts.rows, np.int64), 0
        with self._whole() as file:
            for group in range(self._footer.num_row_groups):
                part = file.read_row_group(group, use_threads=False)
                for column, values in zip([*columns, plans], part.columns, strict=True):
                    column[filled : filled + len(values)] = values.to_numpy()
                filled += part.num_rows
        if filled != self.facts.rows:
            raise DamagedRunError(f"it has {filled} rows, and {self.facts.rows} were written")
        return PlanRows(FileDigests(*columns), plans)

    def plans_of(self, word: int) -> set[int]:
        """Return the plans that have a version of the path with this digest. Reads one group of rows."""
        found: set[int] = set()
        starts = self.facts.group_starts
        for group in range(max(0, bisect_left(starts, word) - 1), bisect_right(starts, word)):
            with self._whole() as file:
                part = file.read_row_group(group, ["path", "plan"], use_threads=False)
            paths, plans = (column.to_numpy() for column in part.columns)
            if int(paths[0]) != starts[group]:
                raise DamagedRunError(f"group {group} of its rows is another one")
            found.update(plans[paths == np.uint64(word)].tolist())
        return found

    @contextmanager
    def _whole(self) -> Iterator[Any]:
        with self._open() as file, _damage():
            yield pq.ParquetFile(file, metadata=self._footer, page_checksum_verification=True)


def _facts(stored: bytes) -> RunFacts:
    crc, _, text = stored.partition(b" ")
    if crc32(text) != int(crc):
        raise DamagedRunError("its footer is not the one that was written")
    said = json.loads(text)
    lists = {name: tuple(said[name]) for name in ("first_items", "group_starts")}
    return RunFacts(**{**said, **lists})


@contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except (StoreUnavailableError, FileNotFoundError, DamagedRunError):
        raise
    except Exception as damage:  # pyarrow raises several kinds
        raise DamagedRunError(f"{type(damage).__name__}: {damage}") from damage


def _whole(
    rows: PlanRows, zone_id: str, first: int, last: int, mark: str, position: int, starts: Sequence[int]
) -> WholeRun:
    facts = RunFacts(
        zone_id,
        first,
        last,
        mark,
        position,
        first_items=tuple(starts[:-1]),
        next_item=starts[-1],
        rows=len(rows.plans),
        crc=_crc(rows),
        group_starts=tuple(rows.files.paths[::_GROUP_ROWS].tolist()),
    )
    return WholeRun(facts, rows)


def _starts(plan: Plan) -> tuple[int, int]:
    """Return the number of a plan's first work item, and that after its last."""
    return plan.items[0].number, plan.items[-1].number + 1


def _crc(rows: PlanRows) -> int:
    crc = 0
    for column in (rows.files.paths, rows.files.high, rows.files.low, rows.plans):
        little: Any = np.ascontiguousarray(column, column.dtype.newbyteorder("<"))
        crc = crc32(little, crc)
    return crc
