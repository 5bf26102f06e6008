"""Parquet files whose footers and indexes say something else than pyarrow has written."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streaming_sink.tasks.row_groups.compact import Struct, decode_struct, encode_struct


def footer_of(data: bytes) -> Struct:
    """The footer of a Parquet file."""
    return decode_struct(data[-8 - int.from_bytes(data[-8:-4], "little") : -8])[0]


def lying(path: Path, change: Callable[[Any], None]) -> Path:
    """Let the footer of a file say something else of each column chunk of its first row group."""
    data = path.read_bytes()
    length, footer = int.from_bytes(data[-8:-4], "little"), footer_of(data)
    for chunk in footer[4].value.items[0][1].value.items:
        change(chunk[3].value)
    spoiled = encode_struct(footer)
    path.write_bytes(data[: -8 - length] + spoiled + struct.pack("<I", len(spoiled)) + b"PAR1")
    return path


def lying_index(path: Path, place: int, change: Callable[[Struct], None]) -> Path:
    """Let the column index of a column say something else, in as many bytes."""
    data = path.read_bytes()
    chunk = footer_of(data)[4].value.items[0][1].value.items[place]
    index, end = decode_struct(data, chunk[6].value)
    change(index)
    spoiled = encode_struct(index)
    assert len(spoiled) == end - chunk[6].value
    path.write_bytes(data[: chunk[6].value] + spoiled + data[end:])
    return path
