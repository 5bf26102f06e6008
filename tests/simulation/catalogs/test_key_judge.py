"""What the judge of keys in a catalog takes for legal where others delete rows while a batch commits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.simulation.catalogs.key_judge import KeyedCatalogOracle, _State
from tests.simulation.key_files import Change
from tests.simulation.key_judge import Declared
from tests.simulation.oracle import Work
from tests.simulation.raw import OURS, Member, SnapshotFiles, ViolationError

_OLD, _OWN, _NEWER = (Change(row, 5, 0, at, "v") for row, at in ((1, 3), (2, 4), (3, 4)))
_CAME = Change(4, 5, 0, 2, "v")
_KEY = 5, 0
_WORK = Work("app", "query", 0, (_OWN.row,))


def _member(number: int, parents: Sequence[int | None]) -> Member:
    """Return a state of main, whose snapshots are counted from 0; the last one is its head."""
    snapshots = {
        at: {"timestamp-ms": number, "parent-snapshot-id": parent} for at, parent in enumerate(parents)
    }
    files = SnapshotFiles({}, [], frozenset())
    told = {OURS + "tombstone-ttl-ms": "1000"}
    return Member(number, str(number), "uuid", number, files, snapshots, len(parents) - 1, {}, told)


def _judge(now: Sequence[Change], *states: Sequence[Change], parents: Sequence[int | None]) -> None:
    """Judge a batch that began at the first of these states, and has landed on the last one."""
    oracle = KeyedCatalogOracle("memory://table", 10, 10)
    oracle.by = "stream"
    for number, live in enumerate(states):
        oracle._states.append(_State(_member(number, parents[: number + 1]), {_KEY: live}, {}))
    member = _member(len(states), parents)
    key = Declared(("id", "p"), has_sequence=True)
    late = oracle._may_be_late(key, _KEY, _OWN, _WORK, member)
    oracle._check_change(key, _KEY, _OWN, states[-1], now, _WORK, member, late)


def test_a_change_is_late_by_a_row_that_others_delete_once_it_was_looked_at() -> None:
    """As if the batch had landed before the delete: the older row that it replaces is gone, too."""
    _judge([], [_OLD], [_OLD, _NEWER], [_OLD], parents=[None, 0, 1])


@pytest.mark.parametrize(
    ("states", "parents"),
    [
        ([[_OLD], [_OLD]], [None, 0]),
        ([[_OLD], [_NEWER], [_OLD]], [None, 0, 1]),
        ([[_NEWER], [_NEWER, _CAME], [_OLD, _CAME]], [None, 0, 1]),
        ([[_OLD], [_OLD, _NEWER], [_OLD]], [None, 0, 0]),
        ([[_OLD, _NEWER], [_OLD, _NEWER]], [None, 0]),
    ],
    ids=["no newer row", "it came after the newer", "one of two came", "main was set back", "it is there"],
)
def test_a_row_leaves_by_no_change_that_is_not_there(
    states: Sequence[Sequence[Change]], parents: Sequence[int | None]
) -> None:
    with pytest.raises(ViolationError, match="is to make it"):
        _judge([], *states, parents=parents)
