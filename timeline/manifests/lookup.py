"""Find live files by their locations, and read as few manifests as that needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pyiceberg.manifest import ManifestFile

from timeline.manifests.contents import ManifestContents
from timeline.manifests.entries import LiveFile
from timeline.manifests.manifests import ManifestFiles
from timeline.manifests.stated_files import stated_files


def find_files(
    files: ManifestFiles,
    manifests: Iterable[ManifestFile],
    locations: Iterable[str],
    *,
    likely: bool = False,
) -> dict[str, tuple[ManifestFile, LiveFile]]:
    """Return those of these files that are live, each with the manifest that holds it.

    Reads a manifest only while files are missing, and one whose name speaks against it last. `likely`: not at
    all, so that a file is missed where a name is wrong.
    """
    found: dict[str, tuple[ManifestFile, LiveFile]] = {}
    missing, unread = set(locations), list[ManifestFile]()

    def look(manifest: ManifestFile, contents: ManifestContents) -> None:
        for location in missing & contents.files.keys():
            found[location] = manifest, contents.files[location]
            missing.remove(location)

    for manifest in manifests:
        if missing and (known := files.known(manifest)) is not None:
            look(manifest, known)
        else:
            unread.append(manifest)
    looked_into = set[str]()
    for manifest in files.ahead(it for it in unread if _may_hold(it, missing)):
        if _may_hold(manifest, missing):
            look(manifest, files.contents(manifest))
            looked_into.add(manifest.manifest_path)
    if missing and not likely:
        for manifest in files.ahead(it for it in unread if it.manifest_path not in looked_into):
            if missing:
                look(manifest, files.contents(manifest))
    return found


def _may_hold(manifest: ManifestFile, locations: Collection[str]) -> bool:
    stated = stated_files(manifest.manifest_path)
    return bool(locations) and (stated is None or any(map(stated.may_hold, locations)))
