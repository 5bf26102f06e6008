"""The index of a zone's plans: which plan has which source file, without reading the plans.

Derived from the published plans, which are the truth: runs in `plans/index/` below the zone, each of some
plans that follow one another, created if absent and never changed; `planners/ingestion/plan_runs.py` says
which are merged. Planners write it. A run that is lost, late or damaged costs a reading of its plans, never a
row; one of plans that are no longer the zone's, as after a restore, is not used.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from planners.ingestion.plan_runs import PlanRun, due_merge, is_run, uncovered, widest
from streaming_sink.tasks.errors import UnusableRunError
from streaming_sink.zones.planning.digests import FileDigests, path_word
from streaming_sink.zones.planning.index_run import (
    OpenRun,
    RunFacts,
    WholeRun,
    decode_run,
    encode_run,
    merge_plan_runs,
    run_of_plan,
)
from streaming_sink.zones.records import Plan, ends_with_mark
from timeline.errors import StoreUnavailableError
from timeline.stores.base import Created, Listed

if TYPE_CHECKING:
    from streaming_sink.zones.stored_zone import StoredZone

_LOG = logging.getLogger("streaming_sink")
_NAME = re.compile(r"^([0-9]{12})-([0-9]{12})\.run$")
_OLD_SUFFIX = ".parquet"
"""Of runs in the format before this one."""
_TRIES = 5
_AT_ONCE = 16
"""Runs that a look-up reads at a time: an object store answers each in some 30 ms."""
_T = TypeVar("_T")


class PlanIndex:
    """The runs of one zone, as one process uses them. Not safe for concurrent use by threads."""

    def __init__(self, zone: StoredZone) -> None:
        self._zone, self._store = zone, zone.store
        self._folder = f"{zone.plans.folder}/index"
        self._zone_id = zone.definition.id
        self._known: tuple[PlanRun, ...] = ()

    def path(self, run: PlanRun) -> str:
        return f"{self._folder}/{run.first:012}-{run.last:012}.run"

    # ------------------------------------------------------------------------------------- planners

    def load(self, *, repair: bool) -> list[tuple[RunFacts, FileDigests]]:
        """Return what the widest runs hold, in order. One LIST, a GET for each, and one of the newest plan.

        `repair` deletes what is damaged, of an older format, of other plans, or not needed: `add` writes it
        anew. StoreUnavailableError.
        """
        for _ in range(_TRIES):
            with suppress(FileNotFoundError):  # a planner has merged it since
                return self._load(repair)
        return []

    def _load(self, repair: bool) -> list[tuple[RunFacts, FileDigests]]:
        stored = self._list()
        listed = _runs_in(stored)
        doomed = set(listed).difference(widest(listed))
        loaded: list[tuple[RunFacts, FileDigests]] = []
        for run in widest(listed):
            try:
                whole = decode_run(self._store.read(self.path(run)).data, run, self._zone_id)
                loaded.append((whole.facts, whole.rows.files))
            except UnusableRunError as damage:
                _LOG.warning("a run of the plan index is damaged: %s: %s", self.path(run), damage)
                doomed.add(run)
        if loaded and not self._is_of_this_log(loaded[-1][0]):
            loaded, doomed = [], set(listed)
        if repair:
            old = (each.path for each in stored if each.path.endswith(_OLD_SUFFIX))
            self._store.delete([*old, *(self.path(run) for run in sorted(doomed))])
        self._known = tuple(run for run in widest(listed) if run not in doomed)
        return loaded

    def add(self, number: int, plan: Plan) -> WholeRun:
        """Write the run of a plan, and the merges that are due then; return it. Best effort: what fails is
        logged, and costs time.
        """
        made = run_of_plan(self._zone_id, number, plan)
        try:
            self._write(PlanRun(number, number, 0), made)
            for _ in range(_TRIES):
                children = due_merge(self._known)
                if not children:
                    break
                self._merge(children)
        except StoreUnavailableError as failure:
            _LOG.warning("the index of plan %d is not written: %s", number, failure)
        return made

    def _write(self, run: PlanRun, made: WholeRun) -> bool:
        data = encode_run(made)
        created = isinstance(self._store.create(self.path(run), data), Created)
        self._known = widest([*self._known, PlanRun(run.first, run.last, len(data))])
        return created

    def _merge(self, children: Sequence[PlanRun]) -> None:
        try:
            parts = [
                decode_run(self._store.read(self.path(run)).data, run, self._zone_id) for run in children
            ]
        except (FileNotFoundError, UnusableRunError) as lost:
            _LOG.info("the runs of the plan index are looked at again: %s", lost)
            self._look_again()
            return
        merged = PlanRun(children[0].first, children[-1].last, 0)
        if self._write(merged, merge_plan_runs(parts)):
            self._store.delete(self.path(run) for run in children)
        else:
            self._look_again()

    def _look_again(self) -> None:
        """See what other planners have written, and delete what lies inside of a merged run."""
        listed = _runs_in(self._list())
        self._known = widest(listed)
        self._store.delete(self.path(run) for run in sorted(set(listed).difference(self._known)))

    # ------------------------------------------------------------------------------------- readers

    def _list(self) -> list[Listed]:
        return self._store.list_folder(self._folder)

    def _is_of_this_log(self, newest: RunFacts) -> bool:
        data = self._zone.plans.read(newest.last)
        if data is not None and ends_with_mark(data, newest.mark):
            return True
        _LOG.warning("the plan index is of other plans, and is not used: %s", self._store.location)
        return False

    def view(self) -> PlanView:
        """Return the index as it is now, for look-ups. One LIST, the footer of each run, the newest plan that
        a run covers, and a GET for each plan that none covers. StoreUnavailableError.
        """
        for _ in range(_TRIES):
            with suppress(FileNotFoundError):  # a planner has merged it since
                return self._view()
        return PlanView(self._zone, {}, [])

    def _view(self) -> PlanView:
        def open_run(run: PlanRun) -> OpenRun | None:
            try:
                return OpenRun(partial(self._store.open_input, self.path(run)), run, self._zone_id)
            except FileNotFoundError:
                raise
            except (UnusableRunError, OSError) as damage:
                _LOG.warning("a run of the plan index is damaged: %s: %s", self.path(run), damage)
                return None

        runs = widest(_runs_in(self._list()))
        opened = {run: it for run, it in zip(runs, _at_once(open_run, runs), strict=True) if it is not None}
        if opened and not self._is_of_this_log(opened[max(opened)].facts):
            opened = {}
        return PlanView(
            self._zone, opened, list(uncovered(opened, max((it.last for it in opened), default=0)))
        )


class PlanView:
    """The plans of a zone at one moment, by file and by work item."""

    def __init__(self, zone: StoredZone, runs: dict[PlanRun, OpenRun], left: list[int]) -> None:
        self._zone, self._runs, self._left = zone, runs, left
        last = max((run.last for run in runs), default=0)
        self.next_item = max((run.facts.next_item for run in runs.values()), default=0)
        """The number of the next work item."""
        self._items: dict[int, range] = {}
        """The work items of the plans that no run covers."""
        for number in left:
            self._note(number, zone.existing_plan(number))
        for number, plan in zone.plans_after(last):
            self._note(number, plan)

    def _note(self, number: int, plan: Plan) -> None:
        self._items[number] = range(plan.items[0].number, plan.items[-1].number + 1)
        self.next_item = max(self.next_item, plan.items[-1].number + 1)

    def plans_of_path(self, path: str) -> list[int]:
        """Return the plans that may have a version of a file, in order. Reads a range of each run."""
        word = path_word(path)

        def look(run: PlanRun) -> set[int]:
            try:
                return self._runs[run].plans_of(word)
            except (UnusableRunError, OSError) as lost:  # or a planner has merged it since
                _LOG.warning("the plans of a run of the plan index are read: %s: %s", run, lost)
                return set(range(run.first, run.last + 1))

        return sorted(set(self._items).union(*_at_once(look, list(self._runs))))

    def plan_of_item(self, number: int) -> int | None:
        """Return which plan has a work item. No request."""
        for run, opened in self._runs.items():
            facts = opened.facts
            if facts.first_items[0] <= number < facts.next_item:
                return run.first + bisect_right(facts.first_items, number) - 1
        return next((plan for plan, items in self._items.items() if number in items), None)


def _runs_in(stored: Iterable[Listed]) -> list[PlanRun]:
    found = []
    for each in stored:
        named = _NAME.match(each.path.rpartition("/")[2])
        if named and is_run(int(named[1]), int(named[2])):
            found.append(PlanRun(int(named[1]), int(named[2]), each.size))
    return found


def _at_once(do: Callable[[PlanRun], _T], runs: Sequence[PlanRun]) -> list[_T]:
    if len(runs) < 2:
        return [do(run) for run in runs]
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="plan-index") as pool:
        return list(pool.map(do, runs))
