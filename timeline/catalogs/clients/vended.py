"""Credentials that a catalog vends for a table's files, as `storage_options` that any process fetches."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from timeline.catalogs.clients.file_settings import FileSettings, read_file_settings
from timeline.catalogs.clients.settings import REST, CatalogSettings
from timeline.clock import SYSTEM

_BEFORE_THE_END_MS = 5 * 60_000
"""So long before credentials end new ones are fetched: a request takes time, and clocks differ."""
_UNSAID_MS = 10 * 60_000
"""So long are session credentials kept whose end is not stated; none are given for less than 15 minutes."""
_AT_LEAST_MS = 1_000
_ENDING = {"session_token", "bearer_token", "sas_key", "token"}
_NEVER = 1 << 62
_fetched: dict[VendedOptions, tuple[FileSettings, int]] = {}
_FETCHING = Lock()


@dataclass(frozen=True)
class VendedOptions:
    """A picklable function that returns the storage options of a table, as its catalog states them.

    A process fetches them once for all its stores and tasks, and anew before they end. It carries what
    connects to the catalog, which `repr` does not show.
    """

    settings: CatalogSettings = field(repr=False, hash=False)
    identifier: tuple[str, ...]
    location: str

    def __call__(self) -> Mapping[str, Any]:
        """Return the options. StoreUnavailableError where the catalog does not answer, UnsupportedTableError
        for settings that cannot be kept to.
        """
        with _FETCHING:
            known = _fetched.get(self)
            if known is None or SYSTEM.now_ms() >= known[1]:
                known = self._fetch()
                _fetched[self] = known
            return known[0].options

    def is_due(self, options: Mapping[str, Any]) -> bool:
        """Return whether a store that was opened with these options should ask for others."""
        known = _fetched.get(self)
        return known is None or known[0].options != options or SYSTEM.now_ms() >= known[1]

    def renew(self, refused: Mapping[str, Any] | None) -> None:
        """Fetch at the next call, where these are still the known ones: the store has refused them."""
        with _FETCHING:
            known = _fetched.get(self)
            if known is not None and known[0].options == refused:
                del _fetched[self]

    def _fetch(self) -> tuple[FileSettings, int]:
        stated = self.settings.properties
        if self.settings.kind == REST:
            from timeline.catalogs.clients.rest import connect_rest

            with closing(connect_rest(self.settings, snapshots="refs")) as catalog:
                stated = catalog.file_settings(self.identifier, self.location)
        found = read_file_settings(stated, self.location)
        return found, _renewed_at(found)


def vended_options(
    settings: CatalogSettings, identifier: tuple[str, ...], location: str
) -> VendedOptions | None:
    """Return the storage options that a catalog states for a table; None where it states none, so that those
    of the environment are taken.
    """
    if "://" not in location:
        return None
    made = VendedOptions(settings, identifier, location)
    return made if made() else None


def _renewed_at(found: FileSettings) -> int:
    """Return when new credentials are to be fetched."""
    now = SYSTEM.now_ms()
    if found.ends_ms is not None:
        # Of short ones half their time is used, so that they are not fetched for each request.
        early = min(_BEFORE_THE_END_MS, (found.ends_ms - now) // 2)
        return max(found.ends_ms - early, now + _AT_LEAST_MS)
    return now + _UNSAID_MS if _ENDING & found.options.keys() else _NEVER
