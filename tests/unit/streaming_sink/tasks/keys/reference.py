"""SipHash-2-4-128 of one message, as its paper has it, in plain integers: slow, and easy to compare."""

from __future__ import annotations

_ALL = 2**64 - 1


def siphash(message: bytes, seed: bytes) -> str:
    """Return the digest as hexadecimal text."""
    key = [int.from_bytes(seed[:8], "little"), int.from_bytes(seed[8:], "little")]
    names = (b"somepseu", b"dorandom", b"lygenera", b"tedbytes")
    state = [int.from_bytes(name, "big") ^ key[place % 2] for place, name in enumerate(names)]
    state[1] ^= 0xEE
    padded = message + bytes(-len(message) % 8) if len(message) % 8 else message + bytes(8)
    padded = padded[:-1] + bytes([len(message) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        state[3] ^= word
        _mix(state, 2)
        state[0] ^= word
    digest = b""
    for place, end in ((2, 0xEE), (1, 0xDD)):
        state[place] ^= end
        _mix(state, 4)
        digest += (state[0] ^ state[1] ^ state[2] ^ state[3]).to_bytes(8, "little")
    return digest.hex()


def _mix(state: list[int], rounds: int) -> None:
    a, b, c, d = state
    for _ in range(rounds):
        a, c = a + b & _ALL, c + d & _ALL
        b, d = _rotated(b, 13) ^ a, _rotated(d, 16) ^ c
        a = _rotated(a, 32)
        c, a = c + b & _ALL, a + d & _ALL
        b, d = _rotated(b, 17) ^ c, _rotated(d, 21) ^ a
        c = _rotated(c, 32)
    state[:] = a, b, c, d


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _ALL
