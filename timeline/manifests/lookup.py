"""Find live files by their locations, and read as few manifests as that needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from pyiceberg.manifest import ManifestFile

from timeline.manifests.contents import is_large
from timeline.manifests.entries import LiveFile
from timeline.manifests.manifests import ManifestFiles
from timeline.manifests.stated_files import id_time, stated_files


def find_files(
    files: ManifestFiles,
    manifests: Iterable[ManifestFile],
    locations: Iterable[str],
    *,
    likely: bool = False,
    once: bool = False,
) -> dict[str, tuple[ManifestFile, LiveFile]]:
    """Return those of these files that are live, each with the manifest that holds it.

    Reads a manifest only while files are missing, and one whose name speaks against it last. `likely`: not at
    all, so that a file is missed where a name is wrong. `once`: many files are looked for, in large manifests
    that are not kept for it.
    """
    found: dict[str, tuple[ManifestFile, LiveFile]] = {}
    missing, unread = _Missing(locations), list[ManifestFile]()
    if not missing.locations:
        return found

    def look(manifest: ManifestFile) -> None:
        packed = None
        if once and files.known(manifest) is None:
            packed = files.packed.find(manifest, may_have_copy=is_large(manifest))
        if packed is None:
            here: Mapping[str, LiveFile] = files.contents(manifest).files
        else:
            here = {it.location: it for it in packed[0].files(missing.locations)}
        for location in missing.locations & here.keys():
            found[location] = manifest, here[location]
            missing.remove(location)

    for manifest in manifests:
        if missing.locations and files.known(manifest) is not None:
            look(manifest)
        else:
            unread.append(manifest)
    looked_into = set[str]()
    for manifest in files.ahead(it for it in unread if missing.may_be_in(it)):
        if missing.may_be_in(manifest):
            look(manifest)
            looked_into.add(manifest.manifest_path)
    if missing.locations and not likely:
        for manifest in files.ahead(it for it in unread if it.manifest_path not in looked_into):
            if missing.locations:
                look(manifest)
    return found


class _Missing:
    """Files that are looked for, by the times in their names: a name is parsed once, and not for each
    manifest, and files of a batch have few times.
    """

    def __init__(self, locations: Iterable[str]) -> None:
        self.locations = set(locations)
        self._at: dict[str | None, set[str]] = defaultdict(set)
        for location in self.locations:
            self._at[id_time(location)].add(location)

    def remove(self, location: str) -> None:
        """Look for a file no more."""
        time = id_time(location)
        self.locations.remove(location)
        self._at[time].remove(location)
        if not self._at[time]:
            del self._at[time]

    def may_be_in(self, manifest: ManifestFile) -> bool:
        """Return whether a manifest may hold one of them, by its name."""
        stated = stated_files(manifest.manifest_path)
        return bool(self._at) and (stated is None or any(map(stated.may_hold, self._at)))
