"""The changes that a task holds are ordered by key and sequence, whatever words their hashes share."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streaming_sink.tasks.changes.held_changes import _ordered
from streaming_sink.tasks.keys.sequences import LONG, WIDE
from tests.unit.streaming_sink.tasks.keys.numbers import sequences_of

WORDS = st.sampled_from([0, 1, 2**63, 2**64 - 1])


@given(
    st.lists(st.tuples(WORDS, WORDS, st.integers(-2, 2), st.booleans()), max_size=12),
    st.sampled_from([LONG, WIDE]),
)
def test_changes_are_ordered_by_both_words_then_sequence_then_deletes_last_and_else_as_they_came(
    changes: list[tuple[int, int, int, bool]], kind: np.dtype
) -> None:
    hashes = np.array([it[:2] for it in changes], np.uint64).reshape(-1, 2)
    sequences = sequences_of([it[2] for it in changes], kind)
    deletes = np.array([it[3] for it in changes], bool)
    expected = sorted(range(len(changes)), key=lambda place: changes[place])
    assert _ordered(hashes, sequences, deletes).tolist() == expected
