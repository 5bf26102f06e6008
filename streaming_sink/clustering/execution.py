"""One pass over a plan: its groups rewritten, those that succeeded committed, all of them reported."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from planners.clustering.plan import FILE_BY_FILE, ClusteringPlan
from streaming_sink.clustering.dispatch import rewrites, rewritten
from streaming_sink.clustering.groups import Group, found
from streaming_sink.clustering.options import Execution
from streaming_sink.clustering.report import ClusterReport, GroupReport, summary
from streaming_sink.clustering.sort_orders import sort_order_ids
from streaming_sink.table.data_files import data_file
from timeline.commit.changes import Change, Replace
from timeline.errors import CommitConflictError
from timeline.table import Committed, Table
from timeline.versions.head import Head

_LOG = logging.getLogger("streaming_sink")
_UNWANTED = "the plan was cancelled, or taken over by another executor"


def execute(
    session: SparkSession,
    table: Table,
    plan: ClusteringPlan,
    how: Execution,
    *,
    plan_id: str,
    also: Sequence[Change] = (),
    is_wanted: Callable[[], bool] = lambda: True,
) -> ClusterReport:
    """Rewrite the groups of a plan in parallel, and commit all that succeeded as one REPLACE version.

    A group is one Spark task, or several, each with a range of its order, where cores are idle or the group
    is large. It is published as a whole, only with exactly as many rows as its inputs, and with
    `how.checksum` only with the same rows, read back. A group whose inputs are gone, whose worker died or
    whose strategy failed is reported and left as it was; the others commit. What a dead worker or a dropped
    group wrote is not part of the table; `remove_orphan_files` deletes it.

    With `how.max_commits` above 1 the groups land in up to so many versions, the first of them while others
    are still being rewritten: what is done then outlives whatever happens to the rest. `also` goes into the
    last version. `is_wanted` is asked before each task and before each commit: after a False nothing
    more is done.

    ValueError, before anything is written, for a strategy or a column that there is not, and for strategy
    "encrypt" without keys. Else raises as `Table.commit`, but for a conflict, which is what the report tells.
    """
    head = table.refresh()
    made = rewrites(head, table, plan, how)
    table.ensure_store_is_safe()
    groups = found(head, plan, has_keys=how.keys is not None)
    order_ids = sort_order_ids(table, [it.planned for it in groups if not it.dropped])
    commits = _Commits(table, head, plan_id, order_ids, len(groups))
    ended = rewritten(session, table.store, groups, plan, made, is_wanted, _UNWANTED)
    told: list[GroupReport] = []
    for portion, is_last in _portions(ended, len(groups), how.max_commits):
        if is_wanted():
            told += commits.commit(portion, also if is_last else ())
        else:
            told += [_dropped(group.report(), _UNWANTED) for group in portion]
    report = ClusterReport(
        plan_id=plan_id,
        version=commits.version,
        snapshot_id=commits.snapshot_id,
        groups=tuple(told),
    )
    _LOG.info("%s", report.line())
    return report


def _portions(groups: Iterable[Group], count: int, most: int) -> Iterator[tuple[list[Group], bool]]:
    """Cut the groups into at most so many portions of about equal number; the last one is told as such."""
    portion: list[Group] = []
    ends = [count * (place + 1) // min(most, max(1, count)) for place in range(min(most, max(1, count)))]
    for number, group in enumerate(groups, start=1):
        portion.append(group)
        if number in ends[:-1]:
            yield portion, False
            portion = []
    yield portion, True


class _Commits:
    """The versions of one pass: groups that succeeded become their REPLACE."""

    def __init__(
        self,
        table: Table,
        head: Head,
        plan_id: str,
        order_ids: Mapping[tuple[str, ...], int],
        planned: int,
    ) -> None:
        self._table = table
        self._head = head
        self._plan_id = plan_id
        self._order_ids = order_ids
        self._planned = planned
        self.version: int | None = None
        """The last version that was committed, and its snapshot."""
        self.snapshot_id: int | None = None

    def commit(self, groups: Sequence[Group], also: Sequence[Change]) -> list[GroupReport]:
        """Commit the groups that succeeded and `also`, if there is anything, and report all groups."""
        replaces = {group.index: self._replace(group) for group in groups if group.succeeded}
        reports = [group.report() for group in groups]
        if not replaces and not also:
            return reports
        try:
            committed = self._table.commit(
                [*replaces.values(), *also],
                schema_id=self._head.schema.schema_id,
                summary=summary(
                    self._plan_id, self._planned, [group.planned for group in groups if group.succeeded]
                ),
            )
        except CommitConflictError as conflict:
            return [_dropped(it, str(conflict)) if it.index in replaces else it for it in reports]
        assert isinstance(committed, Committed)
        self.version = committed.version
        self.snapshot_id = committed.replaced_snapshot_id or self.snapshot_id
        lost = {dropped.change: dropped.reason for dropped in committed.dropped}
        return [
            _dropped(it, lost[replaces[it.index]]) if replaces.get(it.index) in lost else it for it in reports
        ]

    def _replace(self, group: Group) -> Replace:
        planned = group.planned
        order_id = self._order_ids.get(planned.sort_by, 0) if planned.strategy.name == "sort" else 0
        ids = [order_id] * len(group.files)
        if planned.strategy.name in FILE_BY_FILE:
            ids = [group.inputs[file.bucket].sort_order_id for file in group.files]
        files = [data_file(file, self._head.spec, it) for file, it in zip(group.files, ids, strict=True)]
        return Replace(frozenset(planned.inputs), tuple(files))


def _dropped(report: GroupReport, why: str) -> GroupReport:
    return replace(report, outcome="dropped", why=why, output_files=0, output_bytes=0)
