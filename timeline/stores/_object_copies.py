"""Copies that an object store makes by itself: what is asked of it, and what its answers must show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from timeline.stores._object_client import ObjectPlace
from timeline.stores.base import Listed

LEAST_BYTES = 8 * 1024 * 1024
"""One PUT stores what is smaller; a copy takes six requests, looks included."""
MOST_BYTES = 5_000_000_000
"""S3 copies no more by one request."""

# Every copy is create-if-absent: one that is applied late, or twice, when its source holds other bytes,
# changes nothing (R2, R3). S3 does that by a multipart upload, whose one part is copied; unlike CopyObject it
# carries along neither metadata nor tags, and what comes after its end finds no upload. Azure may answer
# before it has copied, and the client does not show whether it has, so nothing is copied there.
OPTIONS: Mapping[str, Mapping[str, Any]] = {"s3": {"copy_if_not_exists": "multipart"}, "gcs": {}}
"""Options of the client, by the service; where there are none, nothing is copied."""
_CARRIES_ENCODING = ("gcs",)
_TIMEOUT = "60s"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a HEAD says of an object. Two that are equal are of the same bytes: where the ETag is the hash of
    these, as on S3, what was replaced and restored in between has another time, to the second.
    """

    size: int
    identity: str
    stored_at: datetime
    encoded: bool
    """Whether a copy would say of its bytes that they are compressed, as nothing that is written here does:
    Google unpacks those for readers.
    """

    @staticmethod
    def of(meta: Mapping[str, Any], identity: str, attributes: Mapping[str, str], service: str) -> Facts:
        encoded = service in _CARRIES_ENCODING and bool(attributes.get("Content-Encoding"))
        return Facts(meta["size"], identity, meta["last_modified"], encoded)

    def differ_from(self, seen: Listed) -> bool:
        return (self.size, self.identity) != (seen.size, seen.identity)


def may_copy(source: ObjectPlace, target: ObjectPlace) -> bool:
    """Return whether both are in one bucket of a service that copies."""
    one, other = ((at.service, at.bucket, at.account) for at in (source, target))
    return one == other and target.service in OPTIONS


def of_bucket(place: ObjectPlace, options: Mapping[str, Any]) -> tuple[ObjectPlace, dict[str, Any]]:
    """Return the place and the options of a client that copies from any place of the bucket to any other."""
    return replace(place, prefix=""), {"timeout": _TIMEOUT, **options, **OPTIONS[place.service]}


def key(place: ObjectPlace, path: str) -> str:
    """Return the key in the bucket of a path at the place."""
    return f"{place.prefix}/{path}" if place.prefix else path
