"""Partial updates: the row of a key is a function of the set of its changes, however they come."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_sink.tasks.changes.column_sequences import COLUMN_SEQUENCES
from streaming_sink.tasks.files.delete_files import read_position_deletes
from streaming_sink.tasks.results import ChangeCounts
from tests.tiers import only_in_soak
from tests.unit.streaming_sink.tasks.keys.changes_by_column import PartialChange, row_of
from tests.unit.streaming_sink.tasks.keys.test_change_writer import SEQUENCE_TYPES, Change, Lake

CHANGES = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.integers(0, 4),
        st.sampled_from(["x", "y", None]),
        st.sampled_from([1, 2, None]),
        st.sampled_from([False, False, False, False, True]),
    ),
    min_size=1,
    max_size=10,
)
PARTIAL = [("a", "b"), ("a",)]


def wanted_rows(changes: list[Change], partial: tuple[str, ...]) -> list[tuple[object, ...]]:
    found = []
    for key in {change[0] for change in changes}:
        of_key = [
            PartialChange(at, {"a": a, "b": b}, deletes) for each, at, a, b, deletes in changes if each == key
        ]
        if (row := row_of(of_key, partial)) is not None:
            found.append((key, row[0], row[1]["a"], row[1]["b"]))
    return sorted(found, key=repr)


@settings(max_examples=100, deadline=None)
@given(CHANGES, st.sampled_from(PARTIAL), SEQUENCE_TYPES, st.data())
def test_the_order_of_changes_decides_nothing(
    changes: list[Change], partial: tuple[str, ...], at_type: pa.DataType, data: st.DataObject
) -> None:
    """Nor does how they are cut into batches, and some of them come twice."""
    again = data.draw(st.lists(st.sampled_from(changes), max_size=4))
    order = data.draw(st.permutations([*changes, *again]))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(order)), max_size=4)))
    lake = Lake(partial, at_type)
    for begin, end in itertools.pairwise([0, *cuts, len(order)]):
        lake.take(order[begin:end])
        assert lake.rows == wanted_rows(order[:end], partial)
    files = dict(lake.files)
    for change in order:
        lake.take([change])
    assert (lake.rows, lake.files) == (wanted_rows(changes, partial), files)


BASE: Change = (1, 1, "m", 7, False)
SOME: list[Change] = [
    (1, 5, "A", None, False),
    (1, 5, "B", None, False),
    (1, 5, None, 1, False),
    (1, 5, None, None, True),
    (1, 4, "C", None, False),
    (1, 3, None, None, True),
    (1, 6, None, 2, False),
    (1, 1, "m", None, False),
]


@pytest.mark.parametrize(
    ("partial", "together"),
    [
        pytest.param(partial, together, marks=[] if (partial == PARTIAL[1]) == together else [only_in_soak])
        for partial in PARTIAL
        for together in (False, True)
    ],
)
def test_any_two_changes_leave_the_same_row_in_both_orders(partial: tuple[str, ...], together: bool) -> None:
    for one, other in itertools.permutations(SOME, 2):
        lake = Lake(partial)
        for batch in [[BASE], [one, other]] if together else [[BASE], [one], [other]]:
            lake.take(batch)
        assert lake.rows == wanted_rows([BASE, one, other], partial), (one, other)
        before = dict(lake.files)
        lake.take([one])
        lake.take([other])
        assert lake.files == before, "a change that comes again writes nothing"


def columns_set_at(lake: Lake) -> dict[int, object]:
    """Key → what the table keeps of the sequences of its columns."""
    found = {}
    for file in lake.files.values():
        with lake.store.open_input(lake.store.relative(file.location)) as source:
            rows = pq.read_table(pa.PythonFile(source, mode="r")).to_pylist()
        gone = set(read_position_deletes(lake.store, file.deletes, file.location).tolist())
        found |= {row["id"]: row[COLUMN_SEQUENCES] for place, row in enumerate(rows) if place not in gone}
    return found


def test_a_sequence_is_kept_only_where_it_is_not_the_rows() -> None:
    lake = Lake(("a", "b"))
    lake.take([(1, 5, "x", 1, False), (2, 5, None, 1, False), (3, 5, "x", 1, False), (4, 5, "x", 1, False)])
    assert columns_set_at(lake) == dict.fromkeys(range(1, 5))
    lake.take(
        [(1, 6, "y", None, False), (2, 4, "z", None, False), (3, 7, "y", 2, False), (4, 3, "y", 3, False)]
    )
    assert lake.rows == [(1, 6, "y", 1), (2, 5, "z", 1), (3, 7, "y", 2), (4, 5, "x", 1)]
    assert columns_set_at(lake) == {1: [(4, 5)], 2: [(3, 4)], 3: None, 4: None}


def test_a_late_delete_clears_what_was_set_before_it_and_is_remembered() -> None:
    lake = Lake(("a", "b"))
    lake.take([(1, 2, "x", 1, False), (1, 6, "y", None, False)])
    lake.take([(1, 4, None, None, True)])
    assert lake.rows == [(1, 6, "y", None)]
    assert lake.counts == ChangeCounts(updated=1)
    lake.take([(1, 3, None, 3, False)])
    assert lake.rows == [(1, 6, "y", None)]
    assert lake.counts == ChangeCounts(late=1)


def test_a_delete_that_the_batch_itself_has_superseded_is_remembered() -> None:
    lake = Lake(("a", "b"))
    lake.take([(1, 4, None, None, True), (1, 6, "y", None, False)])
    lake.take([(1, 3, None, 3, False)])
    assert lake.rows == [(1, 6, "y", None)]


def test_the_report_tells_late_changes_from_such_as_come_again() -> None:
    lake = Lake(("a", "b"))
    changes: list[Change] = [
        (1, 5, "m", 1, False),
        (2, 5, "m", None, False),
        (3, 5, None, None, True),
        (4, 5, "m", 1, False),
    ]
    lake.take(changes)
    assert lake.counts == ChangeCounts(inserted=3, absent=1)
    lake.take(changes)
    assert lake.counts == ChangeCounts(unchanged=3, late=1)
    lake.take(
        [(1, 4, "k", None, False), (2, 4, None, 4, False), (3, 4, "k", 4, False), (4, 5, "l", 1, False)]
    )
    assert lake.counts == ChangeCounts(updated=1, late=3)
    lake.take(
        [(1, 4, "k", 1, False), (1, 6, None, 6, False), (2, 6, None, None, True), (2, 2, "z", 2, False)]
    )
    assert lake.counts == ChangeCounts(updated=1, deleted=1, superseded=2)
