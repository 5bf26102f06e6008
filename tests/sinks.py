"""Sinks, zones and options by plain words, for tests that vary single options: the values that users make
take several words each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streaming_sink import Checks, FileSizing, IcebergSink, PathTable, SchemaContract, TableOptions, ingest
from streaming_sink.options.table_options import SinkOptions, sink_options
from streaming_sink.options.values.writes import WRITES, Write

_OF_KEYS = (
    "key",
    "sequence_by",
    "delete_where",
    "key_scope",
    "null_keys",
    "except_columns",
    "key_index",
    "partial_update",
    "changelog_table",
)
_OF_SIZING = ("fill", "fill_policy", "fold_above", "warn_small_files")
_OF_CHECKS = {"expectations": "expectations", "max_quarantined": "at_most", "quarantine": "quarantine"}


def flat_sink(location: Any, **words: Any) -> IcebergSink:
    """Return a sink; a write by key is one with `operation` or, without, an upsert."""
    return IcebergSink(_table(location, words), **table_values(words))


def flat_zone(location: str, **words: Any) -> ingest.BufferZone:
    """Return a zone; `by_key` has the words of a write by key."""
    by_key = words.pop("by_key", None)
    words |= {} if by_key is None else {"operation": "upsert", **by_key}
    if (bound := words.pop("max_waiting", None)) is not None:
        words["rules"] = replace(words.get("rules") or ingest.Rules(), max_waiting=bound)
    if (stays := words.pop("by_reference", None)) is not None:
        words["sources"] = ingest.SourceFolders(words.get("sources") or (), by_reference=stays)
    return ingest.BufferZone(location, **table_values(words))


def flat_options(location: Any, words: Mapping[str, Any]) -> SinkOptions:
    """Return the options of a sink."""
    own = dict(words)
    return sink_options(_table(location, own), table_values(own))


def table_options(**words: Any) -> TableOptions:
    """Return the options of a table."""
    return TableOptions(**table_values(words))


def table_values(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return words as the values that a sink takes; those that are none of a value stay. None is left out,
    but for those that never are None, so that tests see them refused.
    """
    left = {name: value for name, value in words.items() if value is not None or name in _OF_SIZING}
    operation, of_keys = left.pop("operation", None), _taken(left, _OF_KEYS)
    duplicates = _taken(left, ("allow_duplicates",))
    if operation is not None or of_keys or duplicates:
        left["write"] = _write(operation or ("upsert" if of_keys else "insert"), of_keys | duplicates)
    if sizing := _taken(left, _OF_SIZING):
        if sizing.get("fill_policy") == "never":
            sizing = {**sizing, "fill": "never", "fill_policy": "amortized"}
        left["sizing"] = replace(left.get("sizing") or FileSizing(), **sizing)
    if "schema" in left:
        left["contract"] = left.pop("schema")
    if left.pop("evolve_partitioning", False):
        left["contract"] = replace(left.get("contract") or SchemaContract(), partitioning="evolve")
    if checks := {_OF_CHECKS[name]: value for name, value in _taken(left, _OF_CHECKS).items()}:
        left["checks"] = Checks(**checks)
    return left


def _write(operation: str, options: Mapping[str, Any]) -> Write:
    return WRITES[operation](**options)


def _taken(words: dict[str, Any], names: Any) -> dict[str, Any]:
    return {name: words.pop(name) for name in names if name in words}


def _table(location: Any, words: dict[str, Any]) -> Any:
    options = words.pop("storage_options", None)
    return location if options is None else PathTable(location, options)


def replay_options(**words: Any) -> TableOptions:
    """Return the options of a replay, which quarantines rows that do not fit, unless it is said."""
    return table_options(**{"schema": SchemaContract(mismatch="quarantine"), **words})
