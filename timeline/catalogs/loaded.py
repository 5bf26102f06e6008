"""A table's metadata, as a catalog has answered, as a head: what a writer refuses, and whole properties; and
which of two answers is the older one, since a cache may answer a load with an old one.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2

from timeline import properties
from timeline.catalogs.answers import unclear
from timeline.catalogs.catalog_version import CatalogVersion
from timeline.catalogs.state_files import StateFiles
from timeline.errors import TimelineError, UnsupportedTableError
from timeline.retention.policy import commit_of
from timeline.versions.head import Head
from timeline.versions.listing import read_head
from timeline.versions.version_file import Version


def read_loaded(metadata: TableMetadata, place: str, state_files: StateFiles, name: str) -> Head:
    """Return metadata that the catalog has at a place as a head. Errors call the table by its name.

    UnsupportedTableError for a table that is not written; MissingMetadataError for a file that does not
    exist, which a newer head may not name; CorruptTableError for one that is damaged.
    """
    manifest_files = state_files.manifest_files
    location = manifest_files.store.location
    if not isinstance(metadata, TableMetadataV2):
        raise UnsupportedTableError(
            f"the table has Iceberg format version {metadata.format_version}, and this sink writes format"
            f" version 2 only; write to another table: {name}",
            location=location,
        )
    stated = metadata.properties.get(properties.METADATA_PATH, location)
    try:
        manifest_files.store.relative(f"{stated}/list")
    except ValueError:
        raise UnsupportedTableError(
            f"the table has its metadata elsewhere than below its location, by {properties.METADATA_PATH}"
            f" = {stated}; write to another table, or remove the property: {name}",
            location=location,
        ) from None
    stored = metadata.properties
    # One spelling of the location: engines write file:/x, file:///x and /x, or s3a for s3.
    whole = metadata.model_copy(update={"location": location, "properties": state_files.resolve(stored)})
    version = CatalogVersion(whole.last_sequence_number, whole, identity=place, stored=stored)
    return read_head(manifest_files, version)


def is_older(head: Head, known: Head) -> bool:
    """Return whether a load may have brought an older state of the table than one that is known.

    A change that adds no snapshot, such as a rollback, has no number of its own. Then the newer state names
    the older one in its log, where the catalog keeps one, or has a later time.
    """
    now, before = head.metadata, known.metadata
    if now.table_uuid != before.table_uuid or head.number > known.number:
        return False
    if head.number < known.number:
        return True
    is_logged = any(it.metadata_file == known.version.identity for it in now.metadata_log)
    return not (is_as_built(now, before) or is_logged or now.last_updated_ms > before.last_updated_ms)


def is_as_built(now: TableMetadata, base: TableMetadata) -> bool:
    """Return whether the requirements hold of a commit that was built on `base`."""
    return (
        now.current_snapshot_id == base.current_snapshot_id
        and now.current_schema_id == base.current_schema_id
        and now.default_spec_id == base.default_spec_id
    )


def may_name(catalog: Catalog, identifier: tuple[str, ...], version: Version) -> bool:
    """Return whether a table may have the commit of a version, though no head can be made of it: False where
    its metadata are shown, and have no such snapshot.
    """
    with suppress(NoSuchTableError, TimelineError, *unclear()):
        known = catalog.load_table(identifier).metadata.snapshots
        return any(commit_of(snapshot) == version.commit_id for snapshot in known)
    return True


@cache
def no_io() -> FileIO:
    """Return what pyiceberg's table wants to have; a commit reads and writes nothing through it."""
    return load_file_io()
