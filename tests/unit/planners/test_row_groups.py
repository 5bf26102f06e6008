"""Which row groups a merge copies, and how often a row is decoded in its life."""

from __future__ import annotations

from math import log2

from hypothesis import given, settings
from hypothesis import strategies as st

from planners.fills import plan_fills
from planners.model import TableFile
from planners.row_groups import StoredRows, plan_row_groups
from planners.sizing import FileSizing

MIB = 1024 * 1024


def test_large_groups_of_live_rows_are_copied_and_all_others_decoded_with_the_reason():
    groups = [
        StoredRows(100, 5000),
        StoredRows(100, 999),
        StoredRows(100, 5000, deleted=3),
        StoredRows(100, 1000),
        StoredRows(100, 5000, unfit="its schema is another one"),
    ]
    plan = plan_row_groups(groups, 1000)
    assert (plan.copied, plan.decoded) == ((0, 3), (1, 2, 4))
    assert plan.reasons == (
        "999 bytes, copied from 1,000 on",
        "3 of its rows are deleted",
        "its schema is another one",
    )


@given(st.lists(st.integers(1, 100), min_size=1), st.lists(st.integers(-500, 500)))
def test_a_file_whose_rows_go_into_two_is_decoded(rows, cuts):
    plan = plan_row_groups([StoredRows(each, 5000) for each in rows], 1000, cuts)
    inside = any(0 < cut < sum(rows) for cut in cuts)
    assert plan.decoded == (tuple(range(len(rows))) if inside else ())
    assert {*plan.copied, *plan.decoded} == {*range(len(rows))}


BOUND, GROUP = 4 * MIB, 16 * MIB
SIZING = FileSizing(max_file_bytes=120 * MIB, small_file_bytes=100 * MIB)


class _Stream:
    """Files of a partition as their row groups: (bytes, how often these were decoded)."""

    def __init__(self):
        self.files = {}
        self.decoded = self.came = self.most = 0

    def arrive(self, number, size):
        self.came += size
        self.files[f"f{number:06}"] = [(size, 0)]
        plan = plan_fills(
            (TableFile(path, (), sum(it for it, _ in groups), 1) for path, groups in self.files.items()),
            SIZING,
        )
        for fill in plan.fills:
            assert not fill.cuts  # arrivals are small: all fit into one file
            merged = [group for file in fill.inputs for group in self._merged(file.path)]
            small = sum(size for size, _ in merged if size < BOUND)
            times = max((times for size, times in merged if size < BOUND), default=0) + 1
            kept = [group for group in merged if group[0] >= BOUND]
            self.decoded += small
            self.most = max(self.most, times if small else 0)
            kept += [(GROUP, times)] * (small // GROUP)
            kept += [(small % GROUP, times)] * (small % GROUP > 0)
            assert sum(size < BOUND for size, _ in kept) <= 1
            number += 1
            self.files[f"{fill.inputs[0].path}+"] = kept

    def _merged(self, path):
        groups = self.files.pop(path)
        plan = plan_row_groups([StoredRows(1, size) for size, _ in groups], BOUND)
        assert [groups[at] for at in plan.copied] == [it for it in groups if it[0] >= BOUND]
        return groups


_SIZES = st.integers(16 * 1024, 2 * MIB).flatmap(
    lambda least: st.tuples(st.just(least), st.lists(st.integers(least, 2 * least), min_size=1, max_size=9))
)


@settings(deadline=None, max_examples=15)
@given(_SIZES)
def test_a_row_is_decoded_a_bounded_number_of_times(sizes):
    """Of a stream whose smallest arrival has x bytes: at most 2 + log2(bound / x) times, and half as often on
    average.
    """
    least, more = sizes
    stream = _Stream()
    for number in range(300):
        stream.arrive(number, more[number % len(more)])
    assert stream.most <= 2 + log2(BOUND / least)
    assert stream.decoded <= (1 + log2(BOUND / least) / 2) * stream.came
