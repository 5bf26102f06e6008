"""Reads Avro object container files, with what the oracle needs and nothing of the code under test.

See https://avro.apache.org/docs/1.11.1/specification/. Knows the types that Iceberg's manifests use.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

_Decoder = Callable[["_Bytes"], Any]
_decoders: dict[str, _Decoder] = {}


def read_avro(data: bytes) -> list[dict[str, Any]]:
    """Return the records of a file."""
    source = _Bytes(data)
    assert source.take(4) == b"Obj\1"
    header = _map(_bytes)(source)
    sync = source.take(16)
    schema = header["avro.schema"].decode()
    if schema not in _decoders:
        _decoders[schema] = _decoder(json.loads(schema), {})
    decode = _decoders[schema]
    records = []
    while source.position < len(data):
        count, size = _long(source), _long(source)
        block = source.take(size)
        if header.get("avro.codec", b"null") == b"deflate":
            block = zlib.decompress(block, -15)
        inner = _Bytes(block)
        records += [decode(inner) for _ in range(count)]
        assert source.take(16) == sync
    return records


def read_header(data: bytes) -> dict[str, str]:
    """Return what a file says of itself, its schema included."""
    source = _Bytes(data)
    assert source.take(4) == b"Obj\1"
    return {key: value.decode() for key, value in _map(_bytes)(source).items()}


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, count: int) -> bytes:
        taken = self.data[self.position : self.position + count]
        assert len(taken) == count, "the file ends early"
        self.position += count
        return taken


def _long(source: _Bytes) -> int:
    value = shift = 0
    while True:
        byte = source.data[source.position]
        source.position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1)
        shift += 7


def _bytes(source: _Bytes) -> bytes:
    return source.take(_long(source))


def _string(source: _Bytes) -> str:
    return _bytes(source).decode()


def _array(item: _Decoder) -> Callable[[_Bytes], list[Any]]:
    def decode(source: _Bytes) -> list[Any]:
        items = []
        while count := _long(source):
            if count < 0:
                count = -count
                _long(source)
            items += [item(source) for _ in range(count)]
        return items

    return decode


def _map(value: _Decoder) -> Callable[[_Bytes], dict[str, Any]]:
    pairs = _array(lambda source: (_string(source), value(source)))
    return lambda source: dict(pairs(source))


_PRIMITIVES: dict[str, _Decoder] = {
    "null": lambda source: None,
    "boolean": lambda source: source.take(1) == b"\1",
    "int": _long,
    "long": _long,
    "float": lambda source: struct.unpack("<f", source.take(4))[0],
    "double": lambda source: struct.unpack("<d", source.take(8))[0],
    "bytes": _bytes,
    "string": _string,
}


def _decoder(schema: Any, named: dict[str, _Decoder]) -> _Decoder:
    if isinstance(schema, list):
        branches = [_decoder(branch, named) for branch in schema]
        return lambda source: branches[_long(source)](source)
    if isinstance(schema, str):
        return _PRIMITIVES.get(schema) or named[schema]
    kind = schema["type"]
    if kind == "record":
        fields = [(field["name"], _decoder(field["type"], named)) for field in schema["fields"]]
        named[schema["name"]] = lambda source: {name: decode(source) for name, decode in fields}
        return named[schema["name"]]
    if kind == "array":
        return _array(_decoder(schema["items"], named))
    if kind == "map":
        return _map(_decoder(schema["values"], named))
    if kind == "fixed":
        return lambda source: source.take(schema["size"])
    return _decoder(kind, named)
