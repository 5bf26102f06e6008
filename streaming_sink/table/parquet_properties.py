"""The table's `write.parquet.*` and `write.metadata.metrics.*` properties, as the writer's settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema

from planners.suggestions import nearest_name
from streaming_sink.tasks.job import BloomFilter, ParquetSettings
from timeline.properties import COPIED_FROM_BYTES

_PREFIX = "write.parquet."
_METRICS = "write.metadata.metrics."
_METRICS_OF = f"{_METRICS}column."
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
    "bloom-filter-max-bytes",
)
_HONOURED_KEYS = frozenset(f"{_PREFIX}{name}" for name in _HONOURED)
_LEFT_ASIDE = frozenset(
    {
        "write.data.path",
        "write.distribution-mode",
        "write.folder-storage.path",
        "write.format.default",
        "write.location-provider.impl",
        "write.manifest-lists.enabled",
        "write.metadata.compression-codec",
        "write.metadata.delete-after-commit.enabled",
        "write.metadata.metrics.default",
        "write.metadata.metrics.max-inferred-column-defaults",
        "write.metadata.path",
        "write.metadata.previous-versions-max",
        "write.object-storage.enabled",
        "write.object-storage.partitioned-paths",
        "write.object-storage.path",
        "write.parquet.page-version",
        "write.parquet.row-group-check-max-record-count",
        "write.parquet.row-group-check-min-record-count",
        "write.parquet.row-group-limit",
        "write.py-location-provider.impl",
        "write.summary.partition-limit",
        "write.target-file-size-bytes",
        "write.upsert.enabled",
        "write.wap.enabled",
    }
)
"""Iceberg's other names of properties for writers; a name that is in no list here is probably misspelled."""
_FAMILIES = tuple(
    f"write.{name}."
    for name in ("avro", "delete", "merge", "orc", "parquet.stats-enabled", "spark", "update")
)
_BLOOM = "bloom-filter-"
_ENABLED, _FALSE_POSITIVES, _DIFFERENT = (
    f"{_PREFIX}{_BLOOM}{what}.column." for what in ("enabled", "fpp", "ndv")
)
_LEAST_BLOOM_BYTES = 32
_BYTES = "some readers look for other bytes than those stored, so the filter would hide rows from them"
_ZEROS = "-0.0 and 0.0 are equal and have two hashes, so the filter of one would hide the other's rows"
_NO_BLOOM: dict[type[iceberg.IcebergType], str] = {
    iceberg.BooleanType: "Parquet has no bloom filters of booleans",
    # DuckDB 1.5 hashes the text that it prints for a blob (`\xFF` for a byte) where Parquet hashes its bytes.
    iceberg.BinaryType: _BYTES,
    iceberg.FixedType: _BYTES,
    # A file is hashed as its rows are: no writer adds the other zero, and readers look for one of the two.
    iceberg.FloatType: _ZEROS,
    iceberg.DoubleType: _ZEROS,
}


def parquet_settings(properties: Mapping[str, str], schema: Schema | None = None) -> ParquetSettings:
    """Return the encoding that a table's properties ask for. ValueError names a property that cannot be
    honoured.

    Without a `schema` the columns of bloom filters are not known, and there are none; what they are asked to
    be is checked all the same.
    """
    default = ParquetSettings()
    codec = properties.get(_PREFIX + "compression-codec", "zstd").lower()
    if codec not in _CODECS:
        raise ValueError(f"{_PREFIX}compression-codec must be one of {', '.join(_CODECS)}, not {codec!r}")
    level = properties.get(_PREFIX + "compression-level")
    filters = _bloom_filters(properties)
    kinds = {} if schema is None else _kinds(schema)
    return ParquetSettings(
        compression=_CODECS[codec],
        compression_level=_level(codec, level),
        row_group_bytes=_positive(properties, "row-group-size-bytes", default.row_group_bytes),
        page_bytes=_positive(properties, "page-size-bytes", default.page_bytes),
        page_rows=_positive(properties, "page-row-limit", default.page_rows),
        dictionary_page_bytes=_positive(properties, "dict-size-bytes", default.dictionary_page_bytes),
        bloom_filters={
            kinds[column][0]: asked for column, asked in filters.items() if not _unfit(kinds, column)
        },
        bloom_filter_bytes=_positive(
            properties, "bloom-filter-max-bytes", default.bloom_filter_bytes, _LEAST_BLOOM_BYTES
        ),
        copied_from_bytes=_at_least(properties, COPIED_FROM_BYTES, default.copied_from_bytes),
    )


def ignored_properties(properties: Mapping[str, str], schema: Schema) -> Mapping[str, str]:
    """Return the `write.*` properties that are set, should say how files are written, and that this writer
    leaves aside, and why.

    Files are correct without them: they tune how parquet-mr checks sizes (`row-group-check-*`), pick a page
    version, switch statistics off by column (the bounds come from these), name a column that the table lacks,
    ask for a bloom filter on one that cannot have one, or whose filter would hide rows, or are no properties
    of Iceberg.
    """
    kinds = _kinds(schema)
    return {key: why for key in sorted(properties) if (why := _ignored(key, kinds))}


def _ignored(key: str, kinds: Mapping[str, tuple[int, iceberg.IcebergType]]) -> str:
    """Return why a property is left aside; "" for one that is honoured, or not about this writer's files."""
    if not key.startswith("write.") or key in _HONOURED_KEYS:
        return ""
    for prefix in (_ENABLED, _FALSE_POSITIVES, _DIFFERENT):
        if key.startswith(prefix):
            return _unfit(kinds, key.removeprefix(prefix))
    if key.startswith(_METRICS_OF):
        column = key.removeprefix(_METRICS_OF)
        return "" if column in kinds else _no_column(kinds, column)
    if key in _LEFT_ASIDE or key.startswith(_FAMILIES):
        return "this writer does not know it" if key.startswith(_PREFIX) else ""
    near = nearest_name(key, {*_HONOURED_KEYS, *_LEFT_ASIDE})
    return f"Iceberg has no such property{f'; did you mean {near}?' if near else ''}"


def _bloom_filters(properties: Mapping[str, str]) -> dict[str, BloomFilter]:
    """Return the filters that are asked for, by Iceberg's name of the column."""
    found = {}
    for key, text in properties.items():
        if not key.startswith(_ENABLED):
            continue
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{key} must be true or false, not {text!r}")
        column = key.removeprefix(_ENABLED)
        share = _share(properties, _FALSE_POSITIVES + column, BloomFilter().false_positives)
        different = properties.get(_DIFFERENT + column)
        if different is not None and (not different.isdecimal() or int(different) == 0):
            raise ValueError(f"{_DIFFERENT}{column} must be a positive whole number, not {different!r}")
        if text.lower() == "true":
            found[column] = BloomFilter(share, None if different is None else int(different))
    return found


def _share(properties: Mapping[str, str], key: str, default: float) -> float:
    text = properties.get(key, str(default))
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise ValueError(f"{key} must be a number between 0 and 1, not {text!r}")
    return share


def _kinds(schema: Schema) -> dict[str, tuple[int, iceberg.IcebergType]]:
    """Return the field id and type of every primitive column, by Iceberg's name of it."""
    return {path: (field_id, schema.find_type(field_id)) for path, field_id in leaf_names(schema)}


def _unfit(kinds: Mapping[str, tuple[int, iceberg.IcebergType]], column: str) -> str:
    """Return why a column has no bloom filter, or ""."""
    if column not in kinds:
        return _no_column(kinds, column)
    return _NO_BLOOM.get(type(kinds[column][1]), "")


def _no_column(kinds: Mapping[str, tuple[int, iceberg.IcebergType]], column: str) -> str:
    near = nearest_name(column, kinds)
    hint = f"; did you mean {near!r}?" if near else ""
    return f"the table has no column {column!r} of single values{hint}"


def _level(codec: str, text: str | None) -> int | None:
    if text is None or codec in ("snappy", "lz4", "uncompressed"):
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{_PREFIX}compression-level must be a whole number, not {text!r}") from None


def _positive(properties: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    return _at_least(properties, _PREFIX + name, default, least)


def _at_least(properties: Mapping[str, str], key: str, default: int, least: int = 1) -> int:
    text = properties.get(key, str(default))
    if not text.isdecimal() or int(text) < least:
        bound = "a positive whole number" if least == 1 else f"a whole number of at least {least}"
        raise ValueError(f"{key} must be {bound}, not {text!r}")
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
    for position, (path, field_id) in enumerate(leaf_names(schema)):
        inferred = _DEFAULT_MODE if position < limit else "none"
        key = _METRICS_OF + path
        text = properties.get(key, default if default is not None else inferred)
        if not _MODE.match(text):
            wrong = key if key in properties else _METRICS + "default"
            raise ValueError(f"{wrong} must be none, counts, truncate(n) or full, not {text!r}")
        modes[field_id] = text
    return modes


def leaf_names(schema: Schema) -> Iterator[tuple[str, int]]:
    """Yield Iceberg's name and the field id of every column of single values, in the order of the schema."""
    yield from _below(schema.as_struct(), "")


def _below(struct: iceberg.StructType, prefix: str) -> Iterator[tuple[str, int]]:
    for field in struct.fields:
        yield from _leaf(field.field_type, prefix + field.name, field.field_id)


def _leaf(kind: iceberg.IcebergType, path: str, field_id: int) -> Iterator[tuple[str, int]]:
    if isinstance(kind, iceberg.StructType):
        yield from _below(kind, path + ".")
    elif isinstance(kind, iceberg.ListType):
        yield from _leaf(kind.element_type, path + ".element", kind.element_id)
    elif isinstance(kind, iceberg.MapType):
        yield from _leaf(kind.key_type, path + ".key", kind.key_id)
        yield from _leaf(kind.value_type, path + ".value", kind.value_id)
    else:
        yield path, field_id
