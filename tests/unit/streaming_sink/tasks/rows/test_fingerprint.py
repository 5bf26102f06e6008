"""The fingerprint of rows that were counted: the same for the same rows, however they are cut and ordered."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streaming_sink.tasks.rows.fingerprints import FINGERPRINT, fingerprint_of

HASHES = st.lists(st.integers(-(2**63), 2**63 - 1))


def _rows(hashes):
    return pa.record_batch([pa.array(hashes, pa.int64())], [FINGERPRINT])


@given(HASHES, st.randoms(use_true_random=False), st.integers(0, 9))
def test_order_and_parts_do_not_count(hashes, random, cut):
    turned = random.sample(hashes, len(hashes))
    parts = fingerprint_of(_rows(turned[cut:]), fingerprint_of(_rows(turned[:cut])))
    assert parts == fingerprint_of(_rows(hashes)) == sum(hashes) % 2**64


def test_a_row_lost_and_another_doubled_count():
    assert fingerprint_of(_rows([1, 2, 3])) != fingerprint_of(_rows([1, 3, 3]))


def test_rows_that_carry_none_have_none():
    assert fingerprint_of(pa.record_batch([pa.array([1])], ["id"])) == 0
