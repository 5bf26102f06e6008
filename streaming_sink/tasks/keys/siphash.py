"""SipHash-2-4 with 128 bits (Aumasson and Bernstein, 2012), of many messages at a time."""

from __future__ import annotations

import numpy as np

SEED_BYTES = 16

_COMPRESSIONS = 2
_FINALIZATIONS = 4
_WORD_BITS = 64


class SipHash:
    """The states of `count` messages under one seed. Each message is a sequence of 64-bit words.

    `absorb` appends a word to the first messages and leaves the others as they are, so that messages of
    different lengths, the longest first, need no masks. A digest is that of the published algorithm over the
    words as little-endian bytes.
    """

    def __init__(self, count: int, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes, not {len(seed)}")
        key0, key1 = (int.from_bytes(half, "little") for half in (seed[:8], seed[8:]))
        self._state = [
            np.full(count, word, np.uint64)
            for word in (
                key0 ^ 0x736F6D6570736575,
                key1 ^ 0x646F72616E646F6D ^ 0xEE,
                key0 ^ 0x6C7967656E657261,
                key1 ^ 0x7465646279746573,
            )
        ]
        self._words = np.zeros(count, np.uint64)
        self._spare = np.empty(count, np.uint64)

    def absorb(self, words: np.ndarray) -> None:
        """Append a word to each of the first `len(words)` messages."""
        self._words[: len(words)] += np.uint64(1)
        self._compress(words)

    def reorder(self, order: np.ndarray) -> None:
        """Put message `order[i]` at place i."""
        self._state = [part[order] for part in self._state]
        self._words = self._words[order]

    def digests(self) -> np.ndarray:
        """End all messages, and return their digests: a row each, of two words."""
        self._compress(self._words * np.uint64(8) << np.uint64(56))  # the bytes of a message, modulo 256
        digests = np.empty((len(self._words), 2), np.uint64)
        for half, (part, end) in enumerate(((2, 0xEE), (1, 0xDD))):
            self._state[part] ^= np.uint64(end)
            _mix(self._state, self._spare, _FINALIZATIONS)
            digests[:, half] = np.bitwise_xor.reduce(self._state)
        return digests

    def _compress(self, words: np.ndarray) -> None:
        first = [part[: len(words)] for part in self._state]
        first[3] ^= words
        _mix(first, self._spare[: len(words)], _COMPRESSIONS)
        first[0] ^= words


def _mix(state: list[np.ndarray], spare: np.ndarray, rounds: int) -> None:
    a, b, c, d = state
    for _ in range(rounds):
        a += b
        c += d
        _rotate(b, 13, spare)
        _rotate(d, 16, spare)
        b ^= a
        d ^= c
        _rotate(a, 32, spare)
        c += b
        a += d
        _rotate(b, 17, spare)
        _rotate(d, 21, spare)
        b ^= c
        d ^= a
        _rotate(c, 32, spare)


def _rotate(words: np.ndarray, bits: int, spare: np.ndarray) -> None:
    np.left_shift(words, np.uint64(bits), out=spare)
    np.right_shift(words, np.uint64(_WORD_BITS - bits), out=words)
    words |= spare
