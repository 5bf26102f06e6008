"""Hashes of keys: the same for equal values however Arrow holds them, others for all else, and for ever."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_sink.tasks.keys.hashing import coarse_words, hash_keys, key_seed
from streaming_sink.tasks.keys.probing import KeyFilter
from tests.unit.streaming_sink.tasks.keys.reference import siphash

TABLE = UUID("0198a4c2-7d5e-7c31-9f0a-5b6c7d8e9f00")
SEED = key_seed(TABLE, [1])
_WORD_OF: dict[str, int] = {}
WORDS = st.one_of(st.text(max_size=30), st.text("ab", max_size=9))


@pytest.fixture(autouse=True)
def _forget_words() -> None:
    """A number and a text may have one message, and never are of one key."""
    _WORD_OF.clear()


def _hex(*columns: pa.Array) -> list[str]:
    """Return the hashes; and check that equal keys have equal coarse words, in all calls of a test."""
    hashes = [row.tobytes().hex() for row in hash_keys(columns, SEED)]
    for key, word in zip(hashes, coarse_words(columns).tolist(), strict=True):
        assert _WORD_OF.setdefault(key, word) == word
    return hashes


def _digest(message: bytes) -> str:
    return siphash(message, SEED)


def _encoded(value: int | bytes) -> bytes:
    """Return the canonical encoding of a value, as the module's docstring states it."""
    if isinstance(value, int):
        return value.to_bytes(8, "little", signed=True)
    encoded = len(value).to_bytes(4, "little") + value
    return encoded + bytes(-len(encoded) % 8)


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), WORDS, st.binary(max_size=20)), min_size=1))
def test_a_hash_is_the_digest_of_the_encoded_values(keys: list[tuple[int, str, bytes]]) -> None:
    numbers, texts, blobs = zip(*keys, strict=True)
    hashes = _hex(pa.array(texts, pa.string()), pa.array(numbers, pa.int64()), pa.array(blobs, pa.binary()))
    assert hashes == [
        _digest(_encoded(text.encode()) + _encoded(number) + _encoded(blob)) for number, text, blob in keys
    ]


def test_a_long_value_is_hashed_whole() -> None:
    values = ["x" * 5000, "", "x" * 4999 + "y", "x" * 250]
    assert _hex(pa.array(values)) == [_digest(_encoded(value.encode())) for value in values]


@given(st.lists(st.tuples(WORDS, WORDS), unique=True))
def test_keys_of_two_texts_are_equal_only_where_both_are(keys: list[tuple[str, str]]) -> None:
    columns = [pa.array([key[place] for key in keys], pa.string()) for place in (0, 1)]
    assert len(set(_hex(*columns))) == len(keys)


def test_where_one_value_ends_and_the_next_begins_is_part_of_a_key() -> None:
    assert _hex(pa.array(["a"]), pa.array(["bc"])) != _hex(pa.array(["ab"]), pa.array(["c"]))
    assert _hex(pa.array(["a"])) != _hex(pa.array(["a\0"]))
    assert _hex(pa.array(["a"]), pa.array([""])) != _hex(pa.array([""]), pa.array(["a"]))


@given(st.lists(st.integers(-128, 127), min_size=1))
def test_an_integer_is_equal_in_every_width(values: list[int]) -> None:
    hashes = {tuple(_hex(pa.array(values, kind))) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())}
    assert len(hashes) == 1


@given(st.lists(WORDS, min_size=1), st.data())
def test_text_is_equal_however_arrow_holds_it(values: list[str], data: st.DataObject) -> None:
    plain = pa.array(values, pa.string())
    cut = data.draw(st.integers(0, len(values)))
    before, after = data.draw(st.lists(WORDS, max_size=3)), data.draw(st.lists(WORDS, max_size=3))
    sliced = pa.array([*before, *values, *after], pa.string()).slice(len(before), len(values))
    held = [
        pa.array(values, pa.large_string()),
        plain.cast(pa.binary()),
        plain.cast(pa.large_binary()),
        plain.dictionary_encode(),
        pa.chunked_array([plain[:cut], plain[cut:]]),
        pa.chunked_array([plain[:cut].dictionary_encode(), plain[cut:].dictionary_encode()]),
        sliced,
    ]
    assert all(_hex(each) == _hex(plain) for each in held)


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1), st.integers(0, 2))
def test_a_decimal_is_equal_in_every_precision_of_its_scale(unscaled: list[int], skipped: int) -> None:
    values = [Decimal(each).scaleb(-2) for each in [0] * skipped + unscaled]
    kinds = (pa.decimal128(12, 2), pa.decimal128(38, 2), pa.decimal64(12, 2))
    hashes = {tuple(_hex(pa.array(values, kind)[skipped:])) for kind in kinds}
    assert hashes == {tuple(_digest(each.to_bytes(16, "little", signed=True)) for each in unscaled)}


def test_a_uuid_is_its_bytes_and_a_fixed_value_too() -> None:
    values = [UUID(int=number).bytes for number in (0, 1, 2**127)]
    fixed = pa.array([b"x" * 16, *values], pa.binary(16))[1:]
    assert _hex(pa.ExtensionArray.from_storage(pa.uuid(), fixed)) == _hex(fixed) == _hex(pa.array(values))


@pytest.mark.parametrize(
    "kind",
    [pa.bool_(), pa.date32(), pa.time64("us"), pa.timestamp("us"), pa.timestamp("us", "UTC")],
    ids=str,
)
def test_a_time_or_a_truth_is_its_integer(kind: pa.DataType) -> None:
    numbers = pa.array([0, 1, 0, 1])
    values = numbers.cast(pa.int32()).cast(kind) if kind == pa.date32() else numbers.cast(kind)
    assert _hex(values[1:]) == _hex(numbers[1:])


def test_rows_beyond_one_slab_keep_their_order() -> None:
    texts = [str(number) * (number % 5) for number in range(40_000)]
    hashes = hash_keys([pa.array(texts)], SEED)
    places = [0, 16_383, 16_384, 20_001, 39_999]
    assert hashes[places].tolist() == hash_keys([pa.array([texts[place] for place in places])], SEED).tolist()


def test_no_rows_have_no_hashes() -> None:
    assert hash_keys([pa.array([], pa.int64()), pa.chunked_array([], pa.string())], SEED).shape == (0, 2)


@pytest.mark.parametrize(
    "kind",
    [
        pa.float32(), pa.float64(), pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.timestamp("ns"),
        pa.uint64(), pa.null(), pa.decimal256(50, 2), pa.dictionary(pa.int32(), pa.float64()),
    ],
    ids=str,
)  # fmt: skip
def test_a_type_that_has_no_canonical_encoding_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(TypeError, match="cannot be part of a key; booleans, integers"):
        hash_keys([pa.array([], pa.int64()), pa.nulls(0, kind)], SEED)


def test_nulls_are_refused() -> None:
    with pytest.raises(ValueError, match="1 values of column 1 of the key are null"):
        hash_keys([pa.array([1, 2]), pa.array(["a", None])], SEED)


@pytest.mark.parametrize("columns", [[], [pa.array([1]), pa.array([1, 2])]], ids=["none", "unequal"])
def test_columns_that_are_no_key_are_refused(columns: list[pa.Array]) -> None:
    with pytest.raises(ValueError, match="a key has columns of one length"):
        hash_keys(columns, SEED)


def test_seeds_and_hashes_are_what_they_were_in_the_first_release() -> None:
    """Files beside tables hold them. A change of any makes every index of every table worthless."""
    assert SEED.hex() == "f34e96862f4d5967fc22c4a5cc22d198"
    assert _hex(pa.array([0, 1, -1])) == [
        "749036233681ffcde674de4ccc7a8771",
        "8cf27d0352104b8f1b8fa31255462b6e",
        "8b6fc0a7741566b5a476fd42d1c7f0ba",
    ]
    assert _hex(pa.array(["", "a", "0198a4c2-7d5e-7c31-9f0a-5b6c7d8e9f00"])) == [
        "749036233681ffcde674de4ccc7a8771",
        "f5216d168577d71dd9cdebd25a244e00",
        "eca67970d271ba07d3678ba1008ce197",
    ]
    assert _hex(pa.array([7]), pa.array(["ß"]), pa.array([Decimal("-1.25")])) == [
        "f05e875d0647fe7252019c192f579e58"
    ]


def test_another_table_and_another_key_have_other_seeds() -> None:
    seeds = {
        key_seed(TABLE, [1]),
        key_seed(TABLE, [1, 2]),
        key_seed(TABLE, [2, 1]),
        key_seed(UUID(int=1), [1]),
    }
    assert len(seeds) == 4


@pytest.mark.parametrize(
    "keys",
    [
        [f"user-{number:06d}" for number in range(5_000)],
        [f"{number:06d}@example.org" for number in range(5_000)],
        list(range(-2_500, 2_500)),
        [number << 40 for number in range(5_000)],
        [Decimal(number) for number in range(5_000)],
    ],
    ids=["one prefix", "one suffix", "one after the other", "the upper bits alone", "decimal"],
)
def test_coarse_words_tell_most_keys_apart(keys: list[object]) -> None:
    words = coarse_words([pa.array(keys)])
    assert KeyFilter(words[:50]).may_have(words).sum() < 1_000


def test_coarse_words_of_no_rows_are_none() -> None:
    assert coarse_words([pa.array([], pa.string())]).tolist() == []
