"""The options of a buffer zone, checked at construction, as the zone's own file stores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from planners.buffering import Rules
from planners.sizing import FileSizing, parse_bytes
from streaming_sink.options import sink_options
from streaming_sink.table.key_options import KEY_OPTIONS, UPSERT, key_options
from streaming_sink.table.spec import partition_terms
from streaming_sink.zones.definition import remote
from timeline.stores import StorageOptions, open_store

_EMPTY: tuple[object, ...] = (None, [], {})


def table_options(
    table: str | None,
    by_key: Mapping[str, Any] | None,
    given: Mapping[str, Any],
    storage_options: StorageOptions | None,
) -> dict[str, Any]:
    """Return the options of the sink under which items land, as plain values; those that are empty are left
    out. TypeError or ValueError for one that the sink refuses.
    """
    given = {**given, "partition_by": list(partition_terms(given["partition_by"]))}
    options = {
        **_key_options(by_key),
        **{name: value for name, value in given.items() if value not in _EMPTY},
    }
    if table is not None:
        sink_options(table, {**options, "storage_options": remote(table, storage_options)})
    plain = dict(options)
    if "sizing" in plain:
        plain["sizing"] = {name: getattr(plain["sizing"], name) for name in FileSizing.__slots__}
    if "schema" in plain:
        plain["schema"] = asdict(plain["schema"])
    return plain


def zone_options(
    table: str | None,
    rules: Rules | None,
    sources: Sequence[str] | None,
    max_waiting: int | str | None,
    by_reference: bool | None,
    storage_options: StorageOptions | None,
) -> dict[str, Any]:
    """Return the options of the zone itself that are given, as plain values."""
    given: dict[str, Any] = {}
    if by_reference is not None:
        if not isinstance(by_reference, bool):
            raise TypeError(f"by_reference must be True or False, not {by_reference!r}")
        given["by_reference"] = by_reference
    if table is not None:
        given["table"] = open_store(table, remote(table, storage_options)).location
    if rules is not None:
        names = ("max_bytes", "max_files", "max_age_ms", "per_partition")
        given["rules"] = {name: getattr(rules, name) for name in names}
    if sources is not None:
        if isinstance(sources, str):
            raise TypeError(f"sources must be a list of folders, not {sources!r}")
        given["sources"] = tuple(open_store(each, remote(each, storage_options)).location for each in sources)
    if max_waiting is not None:
        given["max_waiting"] = parse_bytes(max_waiting)
        if given["max_waiting"] < 1:
            raise ValueError(f"max_waiting must be above 0, such as 100GiB, not {max_waiting!r}")
    return given


def _key_options(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options of changes by key; none for None. ValueError for one that a zone does not have."""
    if not given:
        return {}
    known = {"operation", *KEY_OPTIONS} - {"changelog_table"}
    if unknown := sorted(set(given) - known):
        names = ", ".join(sorted(known))
        raise ValueError(f"by_key has options of changes by key, {names}: not {unknown[0]!r}")
    options = {"operation": UPSERT, **given}
    key_options(str(options["operation"]), options)
    return {**options, **{name: list(value) for name, value in options.items() if isinstance(value, tuple)}}
