"""Column sizes, counts and bounds of one Parquet file, from the footer that its writer has just made.

A footer holds everything but the NaN counts, so nothing is computed twice. Bounds are Iceberg's single-value
bytes (spec, appendix D) of the leaves that are not inside a list or a map.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_sink.tasks.leaves import Leaf, leaf_values


@dataclass(frozen=True, slots=True)
class ColumnMetrics:
    """What a manifest entry says of the columns, keyed by field id."""

    sizes: dict[int, int] = field(default_factory=dict)
    values: dict[int, int] = field(default_factory=dict)
    nulls: dict[int, int] = field(default_factory=dict)
    nans: dict[int, int] = field(default_factory=dict)
    lower: dict[int, bytes] = field(default_factory=dict)
    upper: dict[int, bytes] = field(default_factory=dict)


def column_metrics(
    footer: pq.FileMetaData, columns: tuple[Leaf, ...], modes: Mapping[int, str], nans: Mapping[int, int]
) -> ColumnMetrics:
    """Return the metrics of a closed file: sizes of every column, counts and bounds as its mode allows."""
    metrics = ColumnMetrics()
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    for index, leaf in enumerate(columns):
        chunks = [group.column(index) for group in groups]
        metrics.sizes[leaf.field_id] = sum(chunk.total_compressed_size for chunk in chunks)
        mode = modes.get(leaf.field_id, "none")
        if mode == "none":
            continue
        statistics = [chunk.statistics for chunk in chunks]
        values = sum(chunk.num_values for chunk in chunks)
        nulls = sum(each.null_count for each in statistics)
        metrics.values[leaf.field_id] = values
        metrics.nulls[leaf.field_id] = nulls
        if leaf.field_id in nans:
            metrics.nans[leaf.field_id] = nans[leaf.field_id]
        if mode == "counts" or leaf.repeated or _is_uuid(leaf):
            continue
        _add_bounds(metrics, leaf, mode, statistics)
    return metrics


def _add_bounds(metrics: ColumnMetrics, leaf: Leaf, mode: str, statistics: list[Any]) -> None:
    floating = pa.types.is_floating(leaf.type)
    bounded = []
    for each in statistics:
        if each.has_min_max:
            if floating and (each.min_raw != each.min_raw or each.max_raw != each.max_raw):
                return  # NaN, of another writer: it bounds nothing
            bounded.append(each)
        elif each.num_values:
            return  # too long for the footer, or NaN: its row group has no bound, so neither has the file
    if not bounded:
        return
    length = int(mode[len("truncate(") : -1]) if mode.startswith("truncate(") else None
    least = min((each.min_raw for each in bounded), key=_order(leaf.type))
    most = max((each.max_raw for each in bounded), key=_order(leaf.type))
    if floating:  # some writers state one zero for both
        least, most = least or -0.0, most or 0.0
    try:
        lower, upper = lower_bound(leaf.type, least, length), upper_bound(leaf.type, most, length)
    except UnicodeDecodeError:
        return  # another writer has cut a text in the middle of a character
    if lower is not None:
        metrics.lower[leaf.field_id] = lower
    if upper is not None:
        metrics.upper[leaf.field_id] = upper


def lower_bound(kind: pa.DataType, raw: Any, length: int | None) -> bytes | None:
    """Return Iceberg's bytes of a value that no value of the column is below; `raw` is Parquet's physical
    value."""
    if pa.types.is_string(kind):
        return bytes(raw) if length is None else raw.decode()[:length].encode()
    if pa.types.is_binary(kind):
        return bytes(raw) if length is None else bytes(raw[:length])
    return _single_value(kind, raw)


def upper_bound(kind: pa.DataType, raw: Any, length: int | None) -> bytes | None:
    """Return Iceberg's bytes of a value that no value of the column is above, or None if truncation leaves
    none."""
    if pa.types.is_string(kind):
        return bytes(raw) if length is None else _truncate_text_up(raw.decode(), length)
    if pa.types.is_binary(kind):
        return bytes(raw) if length is None else _truncate_bytes_up(bytes(raw), length)
    return _single_value(kind, raw)


def _truncate_text_up(text: str, length: int) -> bytes | None:
    if len(text) <= length:
        return text.encode()
    for end in range(length, 0, -1):
        successor = ord(text[end - 1]) + 1
        if 0xD800 <= successor <= 0xDFFF:
            successor = 0xE000  # surrogates are no characters
        if successor <= 0x10FFFF:
            return (text[: end - 1] + chr(successor)).encode()
    return None


def _truncate_bytes_up(data: bytes, length: int) -> bytes | None:
    if len(data) <= length:
        return data
    for end in range(length, 0, -1):
        if data[end - 1] != 0xFF:
            return data[: end - 1] + bytes([data[end - 1] + 1])
    return None


def _single_value(kind: pa.DataType, raw: Any) -> bytes | None:
    if pa.types.is_boolean(kind):
        return b"\x01" if raw else b"\x00"
    if pa.types.is_decimal(kind):
        unscaled = raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
        size = ((unscaled if unscaled >= 0 else ~unscaled).bit_length() + 8) // 8
        return unscaled.to_bytes(size, "big", signed=True)
    if pa.types.is_fixed_size_binary(kind):
        return bytes(raw)
    pattern = _PATTERNS.get(kind.id)
    if pattern is None:
        return None
    return struct.pack(pattern, raw)


_PATTERNS = {
    pa.int32().id: "<i",
    pa.date32().id: "<i",
    pa.int64().id: "<q",
    pa.time64("us").id: "<q",
    pa.timestamp("us").id: "<q",
    pa.float32().id: "<f",
    pa.float64().id: "<d",
}


def _order(kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return lambda raw: raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
    if pa.types.is_floating(kind):
        # Parquet writes -0.0 as the least zero and 0.0 as the greatest; for Python they are equal.
        return lambda raw: (raw, math.copysign(1.0, raw))
    return None


def _is_uuid(leaf: Leaf) -> bool:
    # Readers disagree whether the bytes of a UUID compare as signed or unsigned, so a bound could hide rows.
    return isinstance(leaf.type, pa.BaseExtensionType)


def nan_counts(table: pa.Table, columns: tuple[Leaf, ...]) -> dict[int, int]:
    """Return the NaNs of each float and double leaf of `table` that is not inside a list or a map."""
    counts: dict[int, int] = {}
    for leaf in columns:
        if leaf.repeated or not pa.types.is_floating(leaf.type):
            continue
        column = leaf_values(table.column(leaf.path[0]), leaf)
        counts[leaf.field_id] = pc.sum(pc.is_nan(column)).as_py() or 0
    return counts
