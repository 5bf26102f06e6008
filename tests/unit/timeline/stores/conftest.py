"""Every kind of store that needs no server, each at a fresh location, for the suites of this folder.

The same contract runs on real servers in tests/servers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore as ObstoreMemory

from timeline.stores import LocalStore, MemoryStore, Store
from timeline.stores._object_client import ObjectPlace
from timeline.stores.object import ObjectStore

_names = itertools.count(1)
_obstore_memories: dict[str, ObstoreMemory] = {}


def memory_client(place: ObjectPlace, options: Mapping[str, Any], commit: bool) -> ObstoreMemory:
    """Stands in for a cloud: copies of a store that were pickled find the same objects."""
    return _obstore_memories.setdefault(f"{place.bucket}/{place.prefix}", ObstoreMemory())


@pytest.fixture
def make_store(tmp_path: Path) -> Callable[[str], Store]:
    """Make a store of a kind, at a location that nobody used before."""

    def make(kind: str) -> Store:
        number = next(_names)
        if kind == "local":
            return LocalStore(tmp_path / f"lake {number}" / "table")
        if kind == "memory":
            return MemoryStore(f"lake {number}/table")
        return ObjectStore(f"s3://bucket/lake {number}/table", None, memory_client)

    return make


@pytest.fixture(params=["local", "memory", "obstore-memory"])
def store(request: pytest.FixtureRequest, make_store: Callable[[str], Store]) -> Store:
    return make_store(request.param)
