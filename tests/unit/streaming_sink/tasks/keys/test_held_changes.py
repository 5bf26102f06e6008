"""The changes that a task holds are ordered by key and sequence, whatever words their hashes share."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streaming_sink.tasks.changes.finding import value_texts
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


def test_the_order_in_which_a_table_got_its_columns_decides_no_tie() -> None:
    """Of two changes that each brought a column, the one that came second won: its column was the last."""
    x = {"id": 1, "t": "x", "c": None, "s": {"b": None, "a": 1}}
    y = {"id": 1, "t": None, "c": "x", "s": {"b": 1, "a": None}}
    kinds = {"id": pa.int64(), "t": pa.string(), "c": pa.string()}
    winners = set()
    for names, inside in ((["id", "t", "c", "s"], "ab"), (["id", "c", "t", "s"], "ba")):
        fields = {**kinds, "s": pa.struct([(name, pa.int64()) for name in inside])}
        schema = pa.schema([(name, fields[name]) for name in names])
        texts = value_texts(pa.RecordBatch.from_pylist([x, y], schema))
        winners.add(texts.index(max(texts)))
    assert len(winners) == 1
    only = [
        value_texts(pa.RecordBatch.from_pylist([x], pa.schema([("s", kind)])))
        for kind in (
            pa.struct([("a", pa.int64()), ("b", pa.int64())]),
            pa.struct([("b", pa.int64()), ("a", pa.int64())]),
        )
    ]
    assert only[0] == only[1]
