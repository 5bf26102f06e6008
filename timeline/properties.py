"""The table properties: those that carry the protocol, those that guard the table from other engines'
writers, and the checks of those that users set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema

_OURS = "streaming-sink."

VERSION = _OURS + "version"
COMMIT_ID = _OURS + "commit-id"
FIRST_VERSION = _OURS + "first-version"
PARENT_VERSION = _OURS + "parent-version"
PARENT_COMMIT_ID = _OURS + "parent-commit-id"
RECENT_COMMITS = _OURS + "recent-commits"
TRANSACTION_PREFIX = _OURS + "txn."
WORK_ITEMS_PREFIX = _OURS + "items."
DISCARDED_ITEMS_PREFIX = _OURS + "discarded."
PLAN_OF_ITEMS_PREFIX = _OURS + "plan."
OUTBOX_PREFIX = _OURS + "outbox."
OUTBOXES = _OURS + "outboxes"
SECOND_TABLES = _OURS + "second-tables"
MIRRORS = _OURS + "mirrors"
GC_CUTOFF = _OURS + "gc-cutoff"
PROBED_STORES = _OURS + "probed-stores"
REQUIRED_FEATURES = _OURS + "required-features"
APPENDED_MANIFESTS = _OURS + "appended-manifests"
PENDING_PLANS = _OURS + "pending-plans"
PENDING_PLAN_PREFIX = PENDING_PLANS + "."
RESERVATION_TIMEOUT_MS = _OURS + "clustering.reservation-timeout-ms"
KEY = _OURS + "key"
TOMBSTONES = _OURS + "tombstones"
TOMBSTONE_TTL_MS = _OURS + "tombstone-ttl-ms"
REPARTITIONED = _OURS + "repartitioned"
CLUSTERING_COUNT = _OURS + "clustering.commits"
MAX_SNAPSHOTS = _OURS + "history.max-snapshots"
WITNESS = _OURS + "witness"
MAINTAINED = _OURS + "maintained"
ROLLED_BACK = _OURS + "rolled-back"
ROLLED_BACK_TO = _OURS + "rolled-back-to"
DIGEST = _OURS + "digest"
DELETION_GRACE_MS = _OURS + "history.deletion-grace-ms"
COPIED_FROM_BYTES = _OURS + "merge.copy-row-groups-from-bytes"

METADATA_PATH = "write.metadata.path"
GC_ENABLED = "gc.enabled"
PREVIOUS_VERSIONS_MAX = "write.metadata.previous-versions-max"
NAME_MAPPING = "schema.name-mapping.default"
MAX_SNAPSHOT_AGE_MS = "history.expire.max-snapshot-age-ms"
MIN_SNAPSHOTS_TO_KEEP = "history.expire.min-snapshots-to-keep"
_COMPRESSION = "write.parquet.compression-codec"
MANIFEST_MIN_MERGE_COUNT = "commit.manifest.min-count-to-merge"

RECENT_COMMITS_KEPT = 100
"""How many commit ids the head carries, so that a writer finds its own commit among them (R1)."""

DEFAULTS: Mapping[str, str] = {
    MAX_SNAPSHOT_AGE_MS: str(24 * 3600 * 1000),
    MIN_SNAPSHOTS_TO_KEEP: "100",
    MAX_SNAPSHOTS: "2000",
    DELETION_GRACE_MS: str(3600 * 1000),
    RESERVATION_TIMEOUT_MS: str(3600 * 1000),
    MANIFEST_MIN_MERGE_COUNT: "32",
    PREVIOUS_VERSIONS_MAX: "1000",
    _COMPRESSION: "zstd",
}
"""What a new table is created with, unless its creator says otherwise."""

KEYED_DEFAULTS: Mapping[str, str] = {TOMBSTONE_TTL_MS: str(7 * 24 * 3600 * 1000)}
"""What a table gets with its key, unless it has it."""


def guards(location: str, schema: Schema) -> dict[str, str]:
    """Return the properties that every table of this protocol must carry.

    With `write.metadata.path` set, rename-based Java tables refuse every commit; `gc.enabled=false` makes
    their remove_orphan_files, expire_snapshots and DROP … PURGE refuse. The name mapping lets a reader that
    ignores field ids find its columns.
    """
    return {
        METADATA_PATH: f"{location}/metadata",
        GC_ENABLED: "false",
        NAME_MAPPING: name_mapping(schema),
    }


def name_mapping(schema: Schema) -> str:
    """Return the names of a schema's fields as a property, for files without field ids."""
    return str(create_mapping_from_schema(schema).model_dump_json())


def is_ours(key: str) -> bool:
    """Return whether a property is one of this sink's, of its protocol or not."""
    return key.startswith(_OURS)


def is_protocol(key: str) -> bool:
    """Return whether a property belongs to the protocol, so that no user may set it."""
    return key in (METADATA_PATH, GC_ENABLED, PREVIOUS_VERSIONS_MAX) or (
        key.startswith(_OURS)
        and key
        not in (
            MAX_SNAPSHOTS,
            DELETION_GRACE_MS,
            RESERVATION_TIMEOUT_MS,
            TOMBSTONE_TTL_MS,
            COPIED_FROM_BYTES,
        )
    )


def decides(key: str) -> bool:
    """Return whether a property is part of what a table remembers of its writers: of the protocol's all but
    advice, the witness itself, and where a version file is.
    """
    is_advice = key == PENDING_PLANS or key.startswith(PENDING_PLAN_PREFIX)
    return key.startswith(_OURS) and is_protocol(key) and key != WITNESS and not is_advice


def check_properties(given: Mapping[str, str]) -> None:
    """Raise ValueError or TypeError for properties that a user may not set, or whose values no writer could
    read.
    """
    check_property_names(given)
    for key, value in given.items():
        if not isinstance(value, str):
            raise TypeError(f"table property {key} must be text, not {value!r}: no reader could open it")
    for key in given.keys() & (DEFAULTS.keys() | KEYED_DEFAULTS.keys()) - {_COMPRESSION}:
        number(given, key)
    if TOMBSTONE_TTL_MS in given and number(given, TOMBSTONE_TTL_MS) < 0:
        raise ValueError(
            f"table property {TOMBSTONE_TTL_MS} says for how long deleted keys are remembered, and cannot be"
            f" negative: {given[TOMBSTONE_TTL_MS]}"
        )


def check_property_names(keys: Iterable[str]) -> None:
    """Raise ValueError for a property of the protocol, and TypeError for a key that is no text."""
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(f"the key of a table property must be text, not {key!r}")
        if is_protocol(key):
            raise ValueError(
                f"table property {key} belongs to the commit protocol and is set by it alone; leave it out"
            )


def number(properties: Mapping[str, str], key: str) -> int:
    """Return a numeric property, or its default where the table does not set it. ValueError names key and
    value.
    """
    value = properties.get(key, {**DEFAULTS, **KEYED_DEFAULTS}[key])
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"table property {key} must be a whole number, not {value!r}") from None
