"""Buffer zones in `purge` and `doctor --gone`: staged files that hold rows of keys that are to be gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from streaming_sink.options.values.tables import KnownTable
    from streaming_sink.removal.wanted import WantedKeys
    from streaming_sink.zones.stored_zone import StoredZone
    from timeline.diagnosis.findings import Diagnosis
    from timeline.stores.base import Store

zones = click.option(
    "--zone",
    "zones",
    multiple=True,
    metavar="URL",
    help="A buffer zone of the table, whose staged files are searched too; may be repeated.",
)


@dataclass(frozen=True, kw_only=True)
class SearchedZone:
    """What of some keys a buffer zone has."""

    location: str
    found: dict[str, int]
    """Staged file, below the zone → its rows of the keys."""
    unread: dict[str, str]
    """Staged file → why it cannot be read."""
    deleted: tuple[str, ...]
    sources: tuple[str, ...]
    """Folders of source files, which are their producers': nothing looks there."""

    @property
    def left(self) -> tuple[str, ...]:
        """The staged files that hold, or may hold, such rows."""
        return tuple(path for path in (*self.found, *self.unread) if path not in self.deleted)

    def described(self) -> str:
        """Return what is left, and who is to remove it, for people."""
        shown = f"{', '.join(self.left[:3])}{' and others' if len(self.left) > 3 else ''}"
        return f"{len(self.left):,} staged files of the buffer zone {self.location}: {shown}"


def search_zones(
    locations: Sequence[str], table: KnownTable, wanted: WantedKeys, *, purge: bool
) -> list[SearchedZone]:
    """Look for the keys in the staged files of buffer zones of a table. `purge`: delete those whose rows are
    known to be in the table. ValueError for a zone of another table, or a location without a zone.
    """
    from streaming_sink.removal.matching import matcher_of

    opened = [_zone_of(table, each) for each in locations]
    if not opened:
        return []
    # What streams have staged has columns by the names that the table has, and no field ids.
    matcher = replace(matcher_of(wanted, table.open().head), needs_ids=False)
    return [_searched(zone, matcher.find, purge=purge) for zone in opened]


def _zone_of(table: KnownTable, location: str) -> StoredZone:
    from streaming_sink.options.values.tables import CatalogTable
    from streaming_sink.zones.given import NOTHING_GIVEN
    from streaming_sink.zones.stored_zone import StoredZone
    from timeline.stores import open_store

    given = replace(NOTHING_GIVEN, in_catalog=table if isinstance(table, CatalogTable) else None)
    zone = StoredZone(open_store(location, table.storage_options), table.storage_options, given)
    if zone.definition.table != table.address:
        raise ValueError(f"the buffer zone is one of {zone.definition.table}: {zone.store.location}")
    return zone


def with_zone_findings(diagnosis: Diagnosis, searched: Sequence[SearchedZone]) -> Diagnosis:
    """Return a diagnosis with what buffer zones have of the keys."""
    from timeline.diagnosis.findings import warning

    findings = [
        warning(
            kind="gone-row-staged-in-zone",
            what=each.described(),
            means="a stream has staged these rows: they are in the table already, or will be",
            repair="`streaming-sink purge --zone` deletes what has landed; delete what was rejected yourself",
        )
        for each in searched
        if each.left
    ]
    facts = [
        ("not read", f"source files of {each.location}, their producers': {', '.join(each.sources)}")
        for each in searched
    ]
    return diagnosis.extended(facts, findings)


def _searched(zone: StoredZone, find: Callable[[Store, str], Sized], *, purge: bool) -> SearchedZone:
    from streaming_sink.tasks.errors import DataFileError
    from streaming_sink.zones.cleaning import STAGED, delete_landed

    found, unread = dict[str, int](), dict[str, str]()
    for path in sorted(each.path for each in zone.store.list_below(STAGED)):
        if not path.endswith(".parquet"):
            continue
        try:
            if rows := len(find(zone.store, path)):
                found[path] = rows
        except FileNotFoundError:
            continue  # the cleaner was first
        except DataFileError as unreadable:
            unread[path] = str(unreadable)
    deleted = delete_landed(zone, found) if purge else []
    return SearchedZone(
        location=zone.store.location,
        found=found,
        unread=unread,
        deleted=tuple(deleted),
        sources=zone.sources.roots[:-1],
    )
