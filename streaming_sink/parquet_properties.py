"""The table's `write.parquet.*` and `write.metadata.metrics.*` properties, as the writer's settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema

from streaming_sink.writejob import ParquetSettings

_PREFIX = "write.parquet."
_METRICS = "write.metadata.metrics."
_CODECS = {
    "zstd": "zstd",
    "gzip": "gzip",
    "snappy": "snappy",
    "brotli": "brotli",
    "lz4": "lz4",
    "uncompressed": "none",
}
_MODE = re.compile(r"^(none|counts|full|truncate\([1-9][0-9]*\))$")
_DEFAULT_MODE = "truncate(16)"
_HONOURED = (
    "compression-codec",
    "compression-level",
    "row-group-size-bytes",
    "page-size-bytes",
    "page-row-limit",
    "dict-size-bytes",
)


def parquet_settings(properties: Mapping[str, str]) -> ParquetSettings:
    """Return the encoding that a table's properties ask for. ValueError names a property that cannot be
    honoured."""
    default = ParquetSettings()
    codec = properties.get(_PREFIX + "compression-codec", "zstd").lower()
    if codec not in _CODECS:
        raise ValueError(f"{_PREFIX}compression-codec must be one of {', '.join(_CODECS)}, not {codec!r}")
    level = properties.get(_PREFIX + "compression-level")
    return ParquetSettings(
        compression=_CODECS[codec],
        compression_level=_level(codec, level),
        row_group_bytes=_positive(properties, "row-group-size-bytes", default.row_group_bytes),
        page_bytes=_positive(properties, "page-size-bytes", default.page_bytes),
        page_rows=_positive(properties, "page-row-limit", default.page_rows),
        dictionary_page_bytes=_positive(properties, "dict-size-bytes", default.dictionary_page_bytes),
    )


def ignored_properties(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the `write.parquet.*` properties that are set and that this writer leaves aside, in order.

    They tune how parquet-mr checks sizes (`row-group-check-*`), pick a page version, add bloom filters, or
    switch statistics off by column. Files are correct without them; the bounds come from the statistics.
    """
    mine = {_PREFIX + name for name in _HONOURED}
    return tuple(sorted(key for key in properties if key.startswith(_PREFIX) and key not in mine))


def _level(codec: str, text: str | None) -> int | None:
    if text is None or codec in ("snappy", "lz4", "uncompressed"):
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{_PREFIX}compression-level must be a whole number, not {text!r}") from None


def _positive(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(_PREFIX + name, str(default))
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"{_PREFIX}{name} must be a positive whole number, not {text!r}")
    return int(text)


def metrics_modes(schema: Schema, properties: Mapping[str, str]) -> dict[int, str]:
    """Return the metrics mode of every primitive column, by field id.

    As Iceberg: a column's own property wins, then `write.metadata.metrics.default`; without one, the first
    100
    columns (`max-inferred-column-defaults`) have truncate(16) and the others none.
    """
    default = properties.get(_METRICS + "default")
    limit = int(properties.get(_METRICS + "max-inferred-column-defaults", "100"))
    modes: dict[int, str] = {}
    for position, (path, field_id) in enumerate(_leaves(schema.as_struct(), "")):
        inferred = _DEFAULT_MODE if position < limit else "none"
        key = _METRICS + "column." + path
        text = properties.get(key, default if default is not None else inferred)
        if not _MODE.match(text):
            wrong = key if key in properties else _METRICS + "default"
            raise ValueError(f"{wrong} must be none, counts, truncate(n) or full, not {text!r}")
        modes[field_id] = text
    return modes


def _leaves(struct: iceberg.StructType, prefix: str) -> Iterator[tuple[str, int]]:
    for field in struct.fields:
        yield from _leaf(field.field_type, prefix + field.name, field.field_id)


def _leaf(kind: iceberg.IcebergType, path: str, field_id: int) -> Iterator[tuple[str, int]]:
    if isinstance(kind, iceberg.StructType):
        yield from _leaves(kind, path + ".")
    elif isinstance(kind, iceberg.ListType):
        yield from _leaf(kind.element_type, path + ".element", kind.element_id)
    elif isinstance(kind, iceberg.MapType):
        yield from _leaf(kind.key_type, path + ".key", kind.key_id)
        yield from _leaf(kind.value_type, path + ".value", kind.value_id)
    else:
        yield path, field_id
