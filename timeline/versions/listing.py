"""The version files of a table: list them, read the newest (R4, R5), delete old ones, write the hint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from timeline.clock import Environment
from timeline.errors import MissingMetadataError, StoreUnavailableError
from timeline.manifests.manifests import ManifestFiles
from timeline.names import HINT_PATH, VERSION_FOLDER, hint_text, version_number, version_path
from timeline.stores.base import Listed, Store, read_if_there
from timeline.versions.added_manifests import manifests_after
from timeline.versions.head import Head
from timeline.versions.version_file import Version, parse_version

_READ_TRIES = 20
_HINT_DIGITS = 19


@dataclass(frozen=True, slots=True)
class Listing:
    """The versions that one listing showed: number → object."""

    versions: dict[int, Listed]

    @property
    def highest(self) -> int:
        """The highest version number; 0 where there is none."""
        return max(self.versions, default=0)


@dataclass(frozen=True)
class VersionFiles:
    """Lists, reads and deletes the version files of one table. Creating them is for `settle` alone (R20)."""

    store: Store
    manifest_files: ManifestFiles
    environment: Environment

    def list(self) -> Listing:
        """Return the live versions. A failing store raises StoreUnavailableError: never an empty log."""
        versions: dict[int, Listed] = {}
        for listed in self.store.list_folder(VERSION_FOLDER):
            number = version_number(listed.path)
            if number is not None:
                versions[number] = listed
        return Listing(versions)

    def latest(self, listing: Listing | None = None, known: Version | None = None) -> Version | None:
        """Return the highest version, or None if there is none. Faster where a version near it is known.

        A version that another writer commits during this call may or may not be seen. The bytes are those of
        the object that was listed; where it was replaced or deleted in between, the reader lists again (R4).
        """
        for attempt in range(_READ_TRIES):
            listing = listing or self.list()
            if not listing.versions:
                return None
            listed = listing.versions[listing.highest].identity  # now: what was listed, not what came later
            try:
                stored = self.store.read(version_path(listing.highest))
            except FileNotFoundError:
                stored = None
            if stored is not None and stored.identity == listed:
                return parse_version(
                    listing.highest, stored.data, self.store.location, stored.identity, known
                )
            listing = None
            self.environment.sleep(0.01 * attempt)
        raise StoreUnavailableError(
            f"the highest version changed under each of {_READ_TRIES} reads; does the store list what it"
            f" holds? {self.store.location}",
            location=self.store.location,
        )

    def newest(self, listing: Listing | None = None, base: Head | None = None) -> Head | None:
        """Return the highest version with its manifests, or None if there is no version.

        The manifest list is not read where the version follows `base` and states what it added to it.
        MissingMetadataError if its list does not exist although it is still the highest version. A reader
        that sleeps past the grace period between two reads misses files that were rightly deleted; it lists
        again.
        """
        known = None if base is None else base.version
        while (version := self.latest(listing, known)) is not None:
            try:
                return self.head_after(base, version)
            except MissingMetadataError:
                listing = self.list()
                if listing.highest <= version.number:
                    raise
        return None

    def head_after(self, base: Head | None, version: Version) -> Head:
        """Return a version with its manifests; no request where it states what it added to `base`."""
        manifests = None if base is None else manifests_after(base, version)
        return self.head(version) if manifests is None else Head(version, manifests, self.manifest_files)

    def head(self, version: Version) -> Head:
        """Return a version with its manifests: one GET for the list, none for manifests that are known."""
        return read_head(self.manifest_files, version)

    def write_hint(self, number: int) -> None:
        """Name the highest version for other engines, unless the hint names a higher one already (R5)."""
        hinted = self.read_hint()
        if hinted is None or hinted < number:
            self.store.overwrite(HINT_PATH, hint_text(number))

    def read_hint(self) -> int | None:
        """Return the number that the hint names, or None where there is none. No decision rests on it."""
        text = read_if_there(self.store, HINT_PATH) or b""
        return int(text) if text.strip().isdigit() and len(text) < _HINT_DIGITS else None

    def delete(self, numbers: Iterable[int]) -> None:
        self.store.delete([version_path(number) for number in numbers])


def read_head(manifest_files: ManifestFiles, version: Version) -> Head:
    """Return a version with the manifests that its current snapshot lists."""
    snapshot = Head(version, (), manifest_files).snapshot
    manifests = () if snapshot is None else manifest_files.read_list(snapshot.manifest_list)
    return Head(version, manifests, manifest_files)
