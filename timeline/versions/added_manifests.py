"""The manifests that a version added, described in one of its properties: this lets the loser of a race
rebase without reading the winner's list.

The list is one of the four requests, each after the other, that a lost race costs. It is read where a version
describes nothing, as after a replace, or where the description was damaged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pyiceberg.manifest import ManifestContent, ManifestFile, PartitionFieldSummary

from timeline import properties
from timeline.versions.head import Head
from timeline.versions.version_file import Version

_SUMMARIES, _KEY_METADATA = 13, 14
"""Positions of fields in a manifest list's entry (Iceberg spec, manifest lists)."""


def carried_manifests(manifests: Iterable[ManifestFile]) -> list[ManifestFile]:
    """Return the manifests that still hold live files; the others only list what they removed."""
    return [m for m in manifests if m.has_added_files() or m.has_existing_files()]


def describe_manifests(version: int, manifests: Sequence[ManifestFile]) -> str:
    """Return the property in which `version` describes the manifests that it puts before those carried from
    its parent.
    """
    return json.dumps({"version": version, "manifests": [_plain(each) for each in manifests]})


def manifests_after(base: Head, winner: Version) -> tuple[ManifestFile, ...] | None:
    """Return the manifests of the version after `base`, or None where only its list names them."""
    stated = winner.metadata.properties
    if stated.get(properties.PARENT_COMMIT_ID) != base.version.commit_id:
        return None
    try:
        known = json.loads(stated.get(properties.APPENDED_MANIFESTS, ""))
        if known["version"] != winner.number:
            return None
        return (*map(_manifest, known["manifests"]), *carried_manifests(base.manifests))
    except (ValueError, LookupError, TypeError):
        return None


def _plain(manifest: ManifestFile) -> list[Any]:
    values: list[Any] = [manifest[position] for position in range(_SUMMARIES)]
    values[3] = int(manifest.content)
    summaries = [
        [each.contains_null, each.contains_nan, _hex(each.lower_bound), _hex(each.upper_bound)]
        for each in manifest.partitions or ()
    ]
    return [*values, summaries, _hex(manifest.key_metadata)]


def _manifest(values: list[Any]) -> ManifestFile:
    made: list[Any] = list(values)
    made[3] = ManifestContent(made[3])
    made[_SUMMARIES] = [
        PartitionFieldSummary(has_null, has_nan, _bytes(lower), _bytes(upper))
        for has_null, has_nan, lower, upper in made[_SUMMARIES]
    ]
    made[_KEY_METADATA] = _bytes(made[_KEY_METADATA])
    return ManifestFile(*made)


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else bytes.fromhex(value)
