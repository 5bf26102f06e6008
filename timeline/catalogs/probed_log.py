"""The commit log of a catalog that has to show first that it is safe to write through (R33)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from threading import Lock
from typing import Any

import pyiceberg
from pyiceberg.catalog import Catalog

from timeline import names
from timeline.catalogs.catalog_draft import CatalogDraft, OneSnapshotDraft, UntaggedDraft
from timeline.catalogs.catalog_log import CatalogLog
from timeline.catalogs.clients.settings import shown_address
from timeline.catalogs.clients.store_io import OpenStore
from timeline.catalogs.probing.probe import Capabilities, probe_catalog
from timeline.catalogs.renames import find_sharer
from timeline.commit.attempts import Candidate
from timeline.commit.log import Judge, Lost, StateUnknown, Won
from timeline.errors import UnsafeCatalogError, UnsupportedTableError
from timeline.stores import open_store
from timeline.versions.head import Head
from timeline.versions.mirrors import mirrors_of
from timeline.versions.past import find_uuid

Connect = Callable[[], Catalog]
_MOST_READ = 100
"""Of metadata files that a table does not name: with more of them, tables are looked at."""
_REVISION = 2
"""Of what the probe tries. A greater one is tried by each writer anew."""
_shown: dict[str, Capabilities] = {}
_PROBING = Lock()


@dataclass(frozen=True)
class ProbedLog(CatalogLog):
    """A `CatalogLog` whose catalog is probed before the first commit through it."""

    connect: Connect | None = None
    """Connects to the catalog once more; None where the caller knows it."""
    open_store: OpenStore = open_store

    @property
    def draft(self) -> type[CatalogDraft]:
        """The kind of draft, by what the catalog has shown this process so far: a commit has probed it."""
        shown = self._seen()
        if shown is not None and not shown.keeps_both:
            return OneSnapshotDraft
        return CatalogDraft if shown is None or shown.keeps_tags else UntaggedDraft

    def check_writable(self, head: Head) -> None:
        """Raise as the log itself does; UnsafeCatalogError where the catalog loses commits, and
        UnsupportedTableError for the mirror of a table at a location (R36), and for a table without a
        snapshot in the folder of another one.
        """
        if mirrors_of(head.properties):
            raise UnsupportedTableError(
                f"{self.name} is a mirror, for reading, of the table at {self.store.location}; nothing was"
                " written. Write to that one, by its location",
                **head.where,
            )
        self.capabilities()
        super().check_writable(head)
        if head.snapshot is None:
            self._check_folder_is_free(head)

    def find_sharer(self, head: Head) -> str | None:
        """Return the name of another table whose folder is this one's: in the namespace; in any other, where
        the folder has metadata that is not known to be of this one.
        """
        catalog = self.catalog if self.connect is None else self.connect()
        everywhere = self._has_other_metadata(head)
        return find_sharer(catalog, self.identifier[:-1], head.metadata, everywhere=everywhere)

    def _check_folder_is_free(self, head: Head) -> None:
        """A renamed table stays in its folder, and a catalog may create another one under its old name there.
        Refused before the first row: a cleaner of either would delete files of the other.
        """
        if not self._has_other_metadata(head):
            return
        if (other := self.find_sharer(head)) is not None:
            raise UnsupportedTableError(
                f"{self.name} has the folder of {other}, which had its name once; nothing was written. Give"
                f" the sink that name, or drop {self.name}, without PURGE, and create it with a location of"
                f" its own by another engine: {self.store.location}",
                **head.where,
            )

    def _has_other_metadata(self, head: Head) -> bool:
        """Return whether the table's folder has metadata files of another table, or many that this one does
        not name: those of attempts that lost, and old ones, are its own.
        """
        own = (head.version.identity, *(entry.metadata_file for entry in head.metadata.metadata_log))
        named, uuid = {each.rpartition("/")[2] for each in own}, str(head.metadata.table_uuid)
        listed = (entry.path for entry in self.store.list_folder(names.VERSION_FOLDER))
        others = [it for it in listed if ".metadata.json" in it and it.rpartition("/")[2] not in named]
        return len(others) > _MOST_READ or any(find_uuid(self.store, it) != uuid for it in others)

    def find_ban(self) -> str:
        """Return why snapshots and files of the table stay, as far as the catalog has said or shown."""
        shown = self._seen()
        stays = shown is not None and not shown.removes_snapshots
        why = "the catalog has not shown that it removes snapshots" if stays else ""
        return super().find_ban() or why

    def publish(self, candidate: Candidate, judge: Judge, give_up_at: float) -> Won | Lost | StateUnknown:
        """Commit as the log does. UnsafeCatalogError for two snapshots where the catalog would keep one."""
        assert candidate.base is not None
        before = {it.snapshot_id for it in candidate.base.metadata.snapshots}
        new = [it for it in candidate.head.metadata.snapshots if it.snapshot_id not in before]
        if len(new) > 1 and not self.capabilities().keeps_both:
            raise UnsafeCatalogError(
                "the catalog has not shown that it keeps two snapshots of one commit, and this one has two;"
                f' nothing was committed. Use fill="beside": {self.name}',
                location=self.store.location,
            )
        return super().publish(candidate, judge, give_up_at)

    def capabilities(self) -> Capabilities:
        """Return what the catalog has shown: in this process, to a writer of this table, or now."""
        if self.connect is None:
            return Capabilities(raced=True, keeps_both=True, removes_snapshots=True, keeps_tags=True)
        catalog = catalog_signature(self.catalog)
        with _PROBING:
            if catalog not in _shown:
                _shown[catalog] = self._recall(catalog) or self._probe(catalog, self.connect)
            return _shown[catalog]

    def _seen(self) -> Capabilities | None:
        """Return what the catalog has shown this process; None where it has not, or is known."""
        return None if self.connect is None else _shown.get(catalog_signature(self.catalog))

    def _recall(self, catalog: str) -> Capabilities | None:
        try:
            stated = json.loads(self.store.read(_record(catalog)).data)
            return Capabilities(**stated["shown"])
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError):
            return None  # damaged, or of another release: to probe again is right

    def _probe(self, catalog: str, connect: Connect) -> Capabilities:
        shown = probe_catalog(connect, self.identifier, self.open_store, self.environment)
        stated = {
            "shown": asdict(shown),
            "at": self.environment.now_ms(),
            "catalog": describe_catalog(self.catalog),
        }
        self.store.overwrite(_record(catalog), json.dumps(stated).encode())
        return shown


def _record(signature: str) -> str:
    return f"{names.CATALOG_PROBE_FOLDER}/{signature}.json"


def catalog_signature(catalog: Catalog) -> str:
    """Return a name for a catalog as it is now: for its kind, address, configuration and client."""
    text = json.dumps([_REVISION, pyiceberg.__version__, describe_catalog(catalog)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def describe_catalog(catalog: Catalog) -> dict[str, Any]:
    """Return what is known of a catalog, without secrets: its endpoints may show its version."""
    given = catalog.properties
    endpoints: Sequence[Any] = sorted(map(str, getattr(catalog, "_supported_endpoints", ())))
    engine = getattr(catalog, "engine", None)
    return {
        "class": type(catalog).__name__,
        "address": shown_address(str(given.get("uri", ""))),
        "name": catalog.name,
        "warehouse": given.get("warehouse"),
        "prefix": given.get("prefix"),
        "glue": [given.get(name) for name in ("glue.endpoint", "glue.region", "client.region", "glue.id")],
        "endpoints": hashlib.sha256("\n".join(endpoints).encode()).hexdigest()[:16] if endpoints else None,
        "server": str(getattr(getattr(engine, "dialect", None), "server_version_info", None)),
    }
