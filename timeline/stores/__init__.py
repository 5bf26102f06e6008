"""Stores for a table's files: the `Store` protocol, its implementations, and the probe that each must pass.

Imports neither pyiceberg nor, before an object store is opened, obstore: Spark's Python workers import this
package.
"""

from __future__ import annotations

import re

from timeline.stores._options import StorageOptions
from timeline.stores._paths import local_path
from timeline.stores.base import (
    Created,
    CreateOutcome,
    Exists,
    Listed,
    ListedObject,
    Store,
    Stored,
    Unknown,
    open_by_name,
    paths_below,
)
from timeline.stores.local import LocalStore
from timeline.stores.memory import MemoryStore
from timeline.stores.probe import probe

__all__ = [
    "CreateOutcome",
    "Created",
    "Exists",
    "Listed",
    "ListedObject",
    "LocalStore",
    "MemoryStore",
    "StorageOptions",
    "Store",
    "Stored",
    "Unknown",
    "local_path",
    "open_by_name",
    "open_store",
    "paths_below",
    "probe",
]

_LOOKS_LIKE_A_SCHEME = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:/")
_SUPPORTED = "a path, file://, s3://, s3a://, gs://, gcs://, az://, abfs://, abfss://, memory://"


def open_store(location: str, storage_options: StorageOptions | None = None) -> Store:
    """Return the store for a table's location; sends no request.

    ValueError for a scheme that is not supported, for an unknown storage option, and for options that
    the store cannot use.
    """
    scheme, separator, _ = location.partition("://")
    local = not separator or scheme == "file"
    if not separator and (_LOOKS_LIKE_A_SCHEME.match(location) or location.startswith("~")):
        raise ValueError(
            "this would be a folder of that very name on each machine's own disk. Supported are"
            f" {_SUPPORTED}; spell a home folder out; got: {location!r}"
        )
    if storage_options and (local or scheme == "memory"):
        raise ValueError(
            f"storage_options are for object stores only, and would be ignored for: {location!r}"
        )
    if local:
        return LocalStore(location)
    if scheme == "memory":
        return MemoryStore(location.removeprefix("memory://"))
    from timeline.stores._object_client import SCHEMES
    from timeline.stores.object import ObjectStore

    if scheme not in SCHEMES:
        raise ValueError(f"unknown scheme; supported are {_SUPPORTED}; got: {location!r}")
    return ObjectStore(location, storage_options)
