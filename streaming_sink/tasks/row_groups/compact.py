"""Thrift's compact protocol without a schema: each value with its field id and type, so that fields which are
not known here stay what they are. Parquet's footers and page indexes are structs of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
"""The types, as the protocol numbers them."""

_DEEPEST = 32
"""Structs and lists in each other. Parquet's have less than ten; each costs a frame of Python's stack."""
_LONGEST_VARINT = 10
_BITS = {I16: 16, I32: 32, I64: 64}
_INTEGERS = frozenset(_BITS)
_TRUTHS = (TRUE, FALSE)
_FIXED = {DOUBLE: 8, UUID: 16}


class CompactError(ValueError):
    """Bytes that are no value of the protocol."""


class Field(NamedTuple):
    """A value with its type. Integers and truths are Python's; a double or a UUID is its bytes."""

    kind: int
    value: Any


class Values(NamedTuple):
    """A list, or a set."""

    kind: int
    items: list[Any]


class Pairs(NamedTuple):
    """A map."""

    key_kind: int
    value_kind: int
    items: list[tuple[Any, Any]]


Struct = dict[int, Field]
"""Fields by their ids, in the order in which they are stored."""


def decode_struct(data: bytes, start: int = 0) -> tuple[Struct, int]:
    """Return the struct that begins at `start`, and where it ends.

    CompactError for anything else: what is cut off, nested deeper than 32 times, or stated twice. It takes
    time and memory in proportion to the bytes, not to the sizes that they claim.
    """
    reader = _Reader(data, start)
    return reader.struct(0), reader.at


def encode_struct(struct: Struct) -> bytes:
    """Return the bytes of a struct: those that `decode_struct` has read, if each value was spelled in the
    shortest way.
    """
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


_new_field = tuple.__new__
"""What the class calls, with less between: a footer has some hundred fields a row group."""


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._end = len(data)
        self.at = at

    def _byte(self) -> int:
        at = self.at
        if at >= self._end:
            raise CompactError(f"it is cut off after {self._end:,} bytes")
        self.at = at + 1
        return self._data[at]

    def _bytes(self, count: int) -> bytes:
        start = self.at
        if count > self._end - start:
            raise CompactError(f"{count:,} bytes are stated, and {self._end - start:,} are left")
        self.at = start + count
        return bytes(self._data[start : start + count])

    def _varint(self) -> int:
        data, at = self._data, self.at
        value = shift = 0
        for byte in data[at : at + _LONGEST_VARINT]:
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at = at
                return value
            shift += 7
        if at == self._end:
            raise CompactError(f"it is cut off after {self._end:,} bytes")
        raise CompactError(f"a number has more than {_LONGEST_VARINT} bytes")

    def _integer(self, kind: int) -> int:
        zigzag = self._varint()
        if zigzag >> _BITS[kind]:
            raise CompactError(f"a number does not fit into {_BITS[kind]} bits")
        return (zigzag >> 1) ^ -(zigzag & 1)

    def _size(self, least_bytes: int) -> int:
        """Return the number of elements: each takes so many bytes at least, and they have to be there."""
        size = self._varint()
        if size * least_bytes > self._end - self.at:
            raise CompactError(f"{size:,} elements are stated, and {self._end - self.at:,} bytes are left")
        return size

    def struct(self, depth: int) -> Struct:
        if depth > _DEEPEST:
            raise CompactError(f"it is nested more than {_DEEPEST} times")
        data, at = self._data, self.at
        fields: Struct = {}
        last = 0
        try:
            while header := data[at]:
                kind, delta = header & 0x0F, header >> 4
                self.at = at + 1
                last = last + delta if delta else self._integer(I16)
                if last in fields or not -0x8000 <= last <= 0x7FFF:
                    raise CompactError(f"a struct has a field twice, or one that is out of range: {last}")
                value: Any
                if kind in _INTEGERS and (byte := data[self.at]) < 0x80:  # most numbers
                    value = (byte >> 1) ^ -(byte & 1)
                    self.at += 1
                elif kind == STRUCT:
                    value = self.struct(depth + 1)
                elif kind in _TRUTHS:
                    value = kind == TRUE
                else:
                    value = self._value(kind, depth)
                fields[last] = _new_field(Field, (kind, value))
                at = self.at
        except IndexError:
            raise CompactError(f"it is cut off after {self._end:,} bytes") from None
        self.at = at + 1
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _BITS:
            return self._integer(kind)
        if kind == BINARY:
            return self._bytes(self._varint())
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (LIST, SET):
            return self._values(depth + 1)
        if kind in _FIXED:
            return self._bytes(_FIXED[kind])
        if kind == BYTE:
            return (self._byte() ^ 0x80) - 0x80
        if kind == MAP:
            return self._pairs(depth + 1)
        raise CompactError(f"there is no type {kind}")

    def _element(self, kind: int, depth: int) -> Any:
        return self._byte() == TRUE if kind in (TRUE, FALSE) else self._value(kind, depth)

    def _values(self, depth: int) -> Values:
        if depth > _DEEPEST:
            raise CompactError(f"it is nested more than {_DEEPEST} times")
        header = self._byte()
        kind, size = header & 0x0F, header >> 4
        if size == 0x0F:
            size = self._size(1)
        return Values(kind, [self._element(kind, depth) for _ in range(size)])

    def _pairs(self, depth: int) -> Pairs:
        if depth > _DEEPEST:
            raise CompactError(f"it is nested more than {_DEEPEST} times")
        size = self._size(2)
        kinds = self._byte() if size else 0
        of_keys, of_values = kinds >> 4, kinds & 0x0F
        return Pairs(
            of_keys,
            of_values,
            [(self._element(of_keys, depth), self._element(of_values, depth)) for _ in range(size)],
        )


def _write_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_integer(out: bytearray, value: int) -> None:
    _write_varint(out, value << 1 if value >= 0 else ~(value << 1))


def _write_struct(out: bytearray, struct: Struct) -> None:
    last = 0
    for number, (kind, value) in struct.items():
        kind = (TRUE if value else FALSE) if kind in _TRUTHS else kind
        if 0 < number - last < 0x10:
            out.append((number - last) << 4 | kind)
        else:
            out.append(kind)
            _write_integer(out, number)
        last = number
        if kind in _INTEGERS and -0x40 <= value < 0x40:  # most numbers
            out.append(value << 1 if value >= 0 else ~(value << 1))
        elif kind not in _TRUTHS:
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in _BITS:
        _write_integer(out, value)
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        size = len(value.items)
        out.append(min(size, 0x0F) << 4 | value.kind)
        if size >= 0x0F:
            _write_varint(out, size)
        for item in value.items:
            _write_element(out, value.kind, item)
    elif kind in _FIXED:
        out += value
    elif kind == BYTE:
        out.append(value & 0xFF)
    else:
        _write_varint(out, len(value.items))
        if value.items:
            out.append(value.key_kind << 4 | value.value_kind)
        for key, each in value.items:
            _write_element(out, value.key_kind, key)
            _write_element(out, value.value_kind, each)


def _write_element(out: bytearray, kind: int, value: Any) -> None:
    if kind in (TRUE, FALSE):
        out.append(TRUE if value else FALSE)
    else:
        _write_value(out, kind, value)
