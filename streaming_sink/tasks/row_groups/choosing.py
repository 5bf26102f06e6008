"""Which row groups of an open file are copied into another one: the planner's choice, by its footer."""

from __future__ import annotations

from collections.abc import Sequence

from planners.row_groups import RowGroupPlan, StoredRows, plan_row_groups
from streaming_sink.tasks.row_groups.conditions import FileLayout, why_not_copied
from streaming_sink.tasks.row_groups.copying import moved_group
from streaming_sink.tasks.row_groups.footer import FooterError, StoredGroup, StoredGroups


def choose_row_groups(
    stored: StoredGroups,
    layout: FileLayout,
    from_bytes: int,
    deleted: Sequence[int] | None = None,
    cuts: Sequence[int] = (),
) -> RowGroupPlan:
    """Return which row groups are copied of a file with the right schema. `deleted`: how many rows of each
    are; `from_bytes` and `cuts` as in `plan_row_groups`.
    """
    groups = stored.footer.groups
    gone = [0] * len(groups) if deleted is None else deleted
    known = [
        StoredRows(group.rows, group.extent.size, rows, _why_not(group, stored, layout, from_bytes))
        for group, rows in zip(groups, gone, strict=True)
    ]
    return plan_row_groups(known, from_bytes, cuts)


def _why_not(group: StoredGroup, stored: StoredGroups, layout: FileLayout, from_bytes: int) -> str:
    """Return why a row group cannot be copied, "" where it can, or is too small to be."""
    reason = why_not_copied(group, layout)
    if reason or group.extent.size < from_bytes:
        return reason
    try:
        moved_group(group, stored.footer, stored.indexes, 0)
    except FooterError as damage:
        return str(damage)  # of what decoding does not need
    return ""
