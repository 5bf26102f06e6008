"""Whose metadata a catalog has under a mirror's name: a version of the table, or of another one (R36)."""

from __future__ import annotations

from timeline import properties
from timeline.errors import MirrorForkedError
from timeline.names import version_number, version_path
from timeline.stores.base import Store, find_path
from timeline.versions.head import Head
from timeline.versions.past import find_uuid


def check_is_of(mirror: str, store: Store, head: Head, place: str, known: tuple[str, int] | None) -> int:
    """Return which version of a table a place has. MirrorForkedError where it has none, or one of a table
    that was dropped there. A version that is `known` to be of a table, by its uuid, is not read.
    """
    number, uuid = find_version(mirror, store, place), str(head.metadata.table_uuid)
    stated = uuid if known == (uuid, number) else find_uuid(store, version_path(number))
    # Of a version file that was deleted there is no uuid: its number says whether this table had begun.
    if stated not in (None, uuid) or number < int(head.properties.get(properties.FIRST_VERSION, "1")):
        of = "a table" if stated is None else f"table {stated}"
        raise MirrorForkedError(
            f"the mirror {mirror} names version {number} of {of}, which was dropped; the one that was made in"
            f" its place is {uuid}. Nothing of it was changed; drop it in the catalog, and the next commit"
            f" makes the mirror anew: {store.location}",
            location=store.location,
        )
    return number


def find_version(mirror: str, store: Store, place: str) -> int:
    """Return which version file of the folder a place is. MirrorForkedError where it is none."""
    path = find_path(store, place) or ""
    number = version_number(path)
    if place and number is not None and path == version_path(number):
        return number
    other, _, file = place.rpartition("/metadata/")
    if not path and version_number(f"metadata/{file}") is not None:
        found = (
            f"it is that of the table at {other}, and names its version file {place}. Nothing of it was"
            " changed; mirror this table under another name"
        )
    else:
        found = (
            "it is another one, or was written through the catalog, and has the metadata"
            f" {place or '(none to be read)'}. Nothing of it was changed; keep what it has, drop it in the"
            " catalog, and the next commit makes the mirror anew; or mirror the table under another name"
        )
    raise MirrorForkedError(
        f"{mirror} is no mirror of the table: {found}: {store.location}", location=store.location
    )
