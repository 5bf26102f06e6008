"""SipHash-2-4-128 against the vectors that its authors published with the reference implementation."""

from __future__ import annotations

import numpy as np
import pytest

from streaming_sink.tasks.keys.siphash import SipHash
from tests.unit.streaming_sink.tasks.keys.reference import siphash

SEED = bytes(range(16))
PUBLISHED = {
    0: "a3817f04ba25a8e66df67214c7550293",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    24: "2db479ae78bd50d8882a8a178a6132ad",
    32: "7c3956ca5eeafc3e363e9d556546eb68",
    40: "df6a301e95c95dad97ae0cc8c6913bd8",
    48: "f7e5aef549f782cf379055a608269b16",
    56: "1938f2cf72d54ee97e94166fa91d2a36",
}
PUBLISHED_ODD = {1: "da87c1d86b99af44347659119b22fc45", 63: "5150d1772f50834a503e069a973fbd7c"}
"""The digests of the bytes 0, 1, 2, … under the seed, by their number; the first are of whole words."""


def _words(length: int) -> np.ndarray:
    return np.frombuffer(bytes(range(length)), np.uint64)


@pytest.mark.parametrize("length", PUBLISHED)
def test_a_digest_is_the_published_one(length: int) -> None:
    state = SipHash(1, SEED)
    for word in _words(length):
        state.absorb(np.array([word]))
    assert state.digests().tobytes().hex() == PUBLISHED[length]


@pytest.mark.parametrize(("length", "published"), [*PUBLISHED.items(), *PUBLISHED_ODD.items()])
def test_the_reference_of_these_tests_is_right(length: int, published: str) -> None:
    assert siphash(bytes(range(length)), SEED) == published


def test_messages_of_different_lengths_are_hashed_beside_each_other_and_may_be_reordered() -> None:
    state = SipHash(len(PUBLISHED), SEED)  # message i becomes 56 - 8 * i bytes long
    for number, word in enumerate(_words(56)):
        state.absorb(np.full(7 - number, word))
    state.reorder(np.arange(len(PUBLISHED))[::-1])
    assert [digest.tobytes().hex() for digest in state.digests()] == list(PUBLISHED.values())


def test_a_seed_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="a seed has 16 bytes, not 15"):
        SipHash(1, bytes(15))
