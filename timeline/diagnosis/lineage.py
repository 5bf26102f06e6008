"""Read the top of `metadata/`: the versions with their places in the lineage, the hint, and other files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from timeline import names, properties
from timeline.errors import CorruptTableError
from timeline.features import DROPPED, required_features
from timeline.retention.mirrored import notes_of_mirrors
from timeline.stores.base import Listed, Store, read_if_there
from timeline.stores.local import is_unfinished
from timeline.versions.version_file import Version, parse_version


@dataclass(frozen=True)
class LineagePlace:
    """What a version file says of its place in the lineage. Nine hundred whole ones would fill the memory."""

    number: int
    commit_id: str
    parent_number: str
    parent_commit_id: str
    table_uuid: str
    is_last: bool
    """Whether its table was dropped by it (R17)."""
    updated_ms: int


@dataclass
class Lineage:
    """The versions of one listing, as far as they can be read."""

    hint: bytes | None
    versions: Mapping[int, Listed]
    strangers: Sequence[str]
    """The names beside the versions and the hint."""
    places: dict[int, LineagePlace] = field(default_factory=dict)
    refused: dict[int, tuple[CorruptTableError, bytes]] = field(default_factory=dict)
    """Version → why it cannot be taken, and its bytes."""
    head: Version | None = None
    """The highest version; None where there is none, or it cannot be taken."""
    held: frozenset[int] = frozenset()
    """The versions that are kept since mirrors name them, however old they are (R36)."""

    @property
    def highest(self) -> int:
        return max(self.versions, default=0)

    @property
    def missing(self) -> list[int]:
        """The numbers that no version has, between the lowest that belongs to the lineage and the highest."""
        lowest = min(self.versions.keys() - set(self.strays) - self.held, default=0)
        return [number for number in range(lowest + 1, self.highest) if number not in self.versions]

    @property
    def strays(self) -> list[int]:
        """The versions that the head does not descend from: it went through another commit of that number."""
        strays = [n for n, place in self.places.items() if not self._is_of_the_lineage(place)]
        return [number for number in strays if number not in self.held]

    def _is_of_the_lineage(self, place: LineagePlace) -> bool:
        if self.head is None:
            return True
        recent = self.head.metadata.properties.get(properties.RECENT_COMMITS, "").split(",")
        back = self.head.number - place.number
        if back == 0:
            return True
        if back < len(recent):
            return recent[-1 - back] == place.commit_id
        child = self.places.get(place.number + 1)
        if child is not None:
            return child.parent_commit_id == place.commit_id
        # The head no longer knows the id, but for a thousand versions it knows the time.
        times = {
            names.version_number(entry.metadata_file): entry.timestamp_ms
            for entry in self.head.metadata.metadata_log
        }
        return times.get(place.number) == place.updated_ms


def read_lineage(store: Store) -> Lineage:
    """Return what the top of `metadata/` holds. The hint is read first: it follows the versions, so that one
    that a listing begun later does not show is no race with a writer.
    """
    hint = read_if_there(store, names.HINT_PATH)
    versions: dict[int, Listed] = {}
    strangers = []
    for listed in store.list_folder(names.VERSION_FOLDER):
        number = names.version_number(listed.path)
        if number is not None:
            versions[number] = listed
        elif listed.path != names.HINT_PATH and not is_unfinished(listed.path):
            strangers.append(listed.path)
    lineage = Lineage(hint, versions, sorted(strangers))
    for number in sorted(versions):
        _read_version(store, lineage, number)
    if lineage.head is not None:
        with suppress(CorruptTableError):  # a finding says so
            lineage.held = frozenset(note.version for note in notes_of_mirrors(store, lineage.head))
    return lineage


def _read_version(store: Store, lineage: Lineage, number: int) -> None:
    data = read_if_there(store, names.version_path(number))
    if data is None:  # deleted by a writer's retention since it was listed
        return
    place = _place(data)
    # Parsing in full takes six times as long, which nine hundred versions make a minute of.
    if place is None or place.number != number or number == lineage.highest:
        try:
            version = parse_version(number, data, store.location)
        except CorruptTableError as refusal:
            lineage.refused[number] = refusal, data
            return
        if number == lineage.highest:
            lineage.head = version
    if place is not None:
        lineage.places[number] = place


def _place(data: bytes) -> LineagePlace | None:
    """Return what a version file says of its place, or None if it does not say it."""
    try:
        stored = json.loads(data)
        stated = stored["properties"]
        return LineagePlace(
            number=int(stated[properties.VERSION]),
            commit_id=stated[properties.COMMIT_ID],
            parent_number=stated[properties.PARENT_VERSION],
            parent_commit_id=stated[properties.PARENT_COMMIT_ID],
            table_uuid=stored["table-uuid"],
            is_last=DROPPED in required_features(stated),
            updated_ms=stored["last-updated-ms"],
        )
    except (ValueError, KeyError, TypeError):
        return None
