"""The features that a table requires of its writers: a writer that lacks one refuses to write."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from timeline.errors import UnknownFeatureError
from timeline.properties import REQUIRED_FEATURES

OUTBOX = "outbox"
"""Cleaners of the table keep what the outboxes of other tables name (R24)."""
KEYS = "keys"
"""Writers of a keyed table look for the keys of their rows in it, and state up to where they have looked."""
BY_REFERENCE = "by-reference"
"""Data files may lie outside of the table's location, and are never deleted (R28)."""
ROLLBACK = "rollback"
"""Main may have content again that had left it, so that files which a snapshot has removed may be live."""
DROPPED = "dropped"
"""The table was dropped by this version: no writer builds on it, and a new table at its place follows it."""
MIRROR = "mirror"
"""Catalogs name version files of the table, which cleaners keep for a day (R36)."""
_SINCE = {DROPPED: "0.1", ROLLBACK: "0.1", OUTBOX: "0.1", KEYS: "0.1", BY_REFERENCE: "0.1", MIRROR: "0.1"}
KNOWN_FEATURES = frozenset(_SINCE)
"""The features that this version implements. An entry never leaves this set."""


def required_features(table_properties: Mapping[str, str]) -> dict[str, str]:
    """Return the features that a table requires, each with the first streaming-sink version that has it; ""
    where its entry does not say. An entry is `name` or `name>=version`.
    """
    entries = (entry.strip() for entry in table_properties.get(REQUIRED_FEATURES, "").split(","))
    split = (entry.partition(">=") for entry in entries if entry)
    return {name.strip(): since.strip() for name, _, since in split}


def require_feature(table_properties: dict[str, str], name: str) -> None:
    """Add a feature to those that a table requires of its writers, where it is not among them."""
    if name not in required_features(table_properties):
        known = table_properties.get(REQUIRED_FEATURES, "").strip()
        table_properties[REQUIRED_FEATURES] = ", ".join(filter(None, [known, f"{name}>={_SINCE[name]}"]))


def release_feature(table_properties: dict[str, str], name: str) -> None:
    """Take a feature from those that a table requires of its writers, where it is among them."""
    entries = [entry.strip() for entry in table_properties.pop(REQUIRED_FEATURES, "").split(",")]
    left = [entry for entry in entries if entry and entry.partition(">=")[0].strip() != name]
    if left:
        table_properties[REQUIRED_FEATURES] = ", ".join(left)


def check_features_are_known(table_properties: Mapping[str, str], location: str) -> None:
    """Raise UnknownFeatureError where the table requires a feature of its writers that this version lacks.
    Readers need no check: a feature binds writers only.
    """
    required = required_features(table_properties)
    unknown = sorted(required.keys() - KNOWN_FEATURES)
    if not unknown:
        return
    named = ", ".join(
        f"{name!r} (since version {required[name]})" if required[name] else repr(name) for name in unknown
    )
    raise UnknownFeatureError(
        "the table requires a feature that this writer does not know, and could be damaged by it. Nothing was"
        f" written; reading is safe. Upgrade streaming-sink, which is version {_installed_version()} here:"
        f" {location}: {named}",
        location=location,
        features=unknown,
    )


def _installed_version() -> str:
    try:
        return version("streaming-sink")
    except PackageNotFoundError:
        return "unknown (not installed as a package)"
