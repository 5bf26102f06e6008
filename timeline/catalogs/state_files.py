"""Long values of a catalog table's properties are in files of the table; the property names the file.

Some catalogs copy all properties into parameters with limits of their own, and each answer brings them. So a
value of this protocol that is long goes to an immutable file, which is durable before the commit that names
it, and which is named with its digest. All above the log sees whole values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pyiceberg.table.metadata import TableMetadataV2

from timeline import names, properties
from timeline.catalogs.catalog_version import CatalogVersion
from timeline.clock import Environment
from timeline.errors import CorruptTableError, MissingMetadataError
from timeline.manifests.manifests import ManifestFiles
from timeline.versions.head import Head

MOST_KEY_BYTES, MOST_VALUE_BYTES, _MOST_BYTES, _SHORT_BYTES = 200, 4_000, 30_000, 200
"""Of a key, of a value, and of all of them together, unless what is left is short."""
_WRITTEN_KEPT = 16


@dataclass
class StateFiles:
    """Reads and writes the state files of one table. Those of the newest head are kept: they never change."""

    manifest_files: ManifestFiles
    environment: Environment
    _known: dict[str, str] = field(default_factory=dict)
    """The values by path, as the newest head names them."""
    _written: dict[str, str] = field(default_factory=dict)
    """The last values that were written, by path, so that a retry does not write them again."""

    def resolve(self, stored: Mapping[str, str]) -> dict[str, str]:
        """Return properties with their whole values.

        MissingMetadataError where a file does not exist, which a newer head may no longer name;
        CorruptTableError where it is not what was written. Both name the file and the property.
        """
        known = self._known | self._written
        named = {key: path for key, path in stored.items() if _names_file(key, path)}
        self._known = {
            path: known[path] if path in known else self._read(key, path) for key, path in named.items()
        }
        return {**stored, **{key: self._known[path] for key, path in named.items()}}

    def store(self, base: Head, after: Head) -> tuple[TableMetadataV2, TableMetadataV2]:
        """Return the metadata before and after a commit as the catalog is to have them, once the files that
        they name are durable. ValueError for a key that is too long.
        """
        before, whole = base.properties, dict(after.properties)
        stored = {
            key: _stored_in(base)[key] if before.get(key) == value else value for key, value in whole.items()
        }
        cutoff = before.get(properties.GC_CUTOFF, "")
        for key in list(find_long(stored)):
            stored[key] = self._find_written(stored[key], cutoff) or self._write(stored[key], after)
        return (
            base.metadata.model_copy(update={"properties": dict(_stored_in(base))}),
            after.metadata.model_copy(update={"properties": stored}),
        )

    def _find_written(self, value: str, cutoff: str) -> str | None:
        """Return the path of a value that was written, unless a cleaner may have deleted the file (R6)."""
        return next(
            (
                path
                for path, text in self._written.items()
                if text == value and names.state_file_parts(path)[0] >= cutoff
            ),
            None,
        )

    def _write(self, value: str, after: Head) -> str:
        file_id = self.environment.new_id(after.metadata.last_updated_ms)
        path = names.state_file_path(file_id, _digest(value.encode()))
        self.manifest_files.write_fresh(path, value.encode())
        self._written[path] = value
        if len(self._written) > _WRITTEN_KEPT:
            del self._written[next(iter(self._written))]
        return path

    def _read(self, key: str, path: str) -> str:
        location = self.manifest_files.store.location
        try:
            data = self.manifest_files.store.read(path).data
        except FileNotFoundError:
            raise MissingMetadataError(
                f"the file with the value of the table's property {key} does not exist: something deleted it."
                f" Nothing was changed; restore it from a copy: {location}/{path}",
                location=location,
                files=[path],
            ) from None
        if _digest(data) != names.state_file_parts(path)[1]:
            raise CorruptTableError(
                f"the file with the value of the table's property {key} is not what was written, by the"
                f" digest in its name. Nothing was changed; restore it from a copy: {location}/{path}",
                location=location,
                files=[path],
            )
        return data.decode()


def state_files_of(head: Head) -> frozenset[str]:
    """Return the paths of the state files that a head of a table in a catalog names; no others matter."""
    return frozenset(value for key, value in _stored_in(head).items() if _names_file(key, value))


def _stored_in(head: Head) -> Mapping[str, str]:
    assert isinstance(head.version, CatalogVersion)
    return head.version.stored_properties


def find_long(stored: Mapping[str, str]) -> Iterator[str]:
    """Yield the properties whose values are to be in files: each that is long, and of the others, where all
    together are long, the longest. ValueError for a key that is too long.
    """
    ours = {key: len(value.encode()) for key, value in stored.items() if properties.is_ours(key)}
    for key in ours:
        if len(key.encode()) > MOST_KEY_BYTES:
            raise ValueError(
                f"the key of a property in a catalog has at most {MOST_KEY_BYTES} bytes, and this one has"
                f" {len(key.encode())}; use a shorter name for the application: {key}"
            )
    together = sum(len(key.encode()) + size for key, size in ours.items())
    inline = {key: size for key, size in ours.items() if not _names_file(key, stored[key])}
    for key, size in sorted(inline.items(), key=lambda each: (-each[1], each[0])):
        if size <= MOST_VALUE_BYTES and (together <= _MOST_BYTES or size <= _SHORT_BYTES):
            return
        together -= size - names.STATE_FILE_PATH_BYTES
        yield key


def _names_file(key: str, value: str) -> bool:
    return properties.is_ours(key) and value.startswith(f"{names.STATE_FOLDER}/")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[: names.STATE_DIGEST_LETTERS]
