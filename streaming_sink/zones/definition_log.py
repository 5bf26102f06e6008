"""A buffer zone's definition as the zone keeps it: a log of which the newest entry counts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from streaming_sink.options.table_options import TableOptions
from streaming_sink.zones.definition import Definition, check_is_elsewhere, check_together
from streaming_sink.zones.given import NOTHING_GIVEN, Given
from streaming_sink.zones.zone_options import KEPT, Rules, SourceFolders
from timeline.errors import CorruptTableError, StoreUnavailableError
from timeline.slots.numbered import NumberedLog
from timeline.stores.base import Store

_LOG = logging.getLogger("streaming_sink")
_FOLDER = "definition"
_TRIES = 8
_Wanted = Callable[[Definition | None, NumberedLog], Definition | None]


def settle_definition(
    store: Store, plans: NumberedLog, given: Given, new_id: Callable[[], str]
) -> Definition:
    """Return what a zone says of itself, made or brought up to date with what was given. Each change is an
    entry of a log, so that of two processes that change options at once the later one sees the earlier's.

    ValueError where there is no zone and no table was given, where the zone is another table's or has its
    announcements elsewhere, and for options that a sink would refuse: none is stored. CorruptTableError where
    the log of a zone that has plans is missing.
    """
    return _settled(store, _wanted_of(store, plans, given, new_id))


def check_given(store: Store, plans: NumberedLog, given: Given, new_id: Callable[[], str]) -> None:
    """Raise what `settle_definition` raises for what is given, and store nothing. Two requests; none where
    nothing is given that could contradict.
    """
    if replace(given, in_catalog=None) == NOTHING_GIVEN:
        return
    log = NumberedLog(store, _FOLDER, "json")
    _wanted_of(store, plans, given, new_id)(_stored(store, log, log.last()), log)


def _wanted_of(store: Store, plans: NumberedLog, given: Given, new_id: Callable[[], str]) -> _Wanted:
    def wanted(stored: Definition | None, log: NumberedLog) -> Definition | None:
        made = _made(store, plans, given, new_id, log) if stored is None else _changed(stored, given, store)
        if made not in (None, stored):
            check_together(made)
            made.sink_options(None, given.in_catalog)
        return made

    return wanted


def _settled(store: Store, wanted: _Wanted) -> Definition:
    """Return what is `wanted` of what is stored, once it is stored. None: another process has changed it."""
    log = NumberedLog(store, _FOLDER, "json")
    for _ in range(_TRIES):
        number = log.last()
        stored = _stored(store, log, number)
        found = wanted(stored, log)
        if found is None:
            continue
        if found == stored:
            return found
        if log.create(number + 1, found.to_json()):
            _LOG.info("the buffer zone has new options: %s", store.location)
            return found
    raise StoreUnavailableError(
        f"other processes keep changing the zone's options; try again: {store.location}",
        location=store.location,
    )


def _with(stored: Definition, given: Given) -> Definition:
    """Return a definition with what is given in the place of what it has."""
    options = replace(TableOptions.from_dict(stored.options), **given.options)
    wanted = replace(stored, options=options.to_dict())
    if given.in_catalog is not None and isinstance(name := given.in_catalog.catalog, str):
        wanted = replace(wanted, catalog={**(stored.catalog or {}), "name": name})
    if given.rules is not KEPT:
        wanted = replace(wanted, rules=(given.rules or Rules()).to_dict())
    if given.sources is not KEPT:
        wanted = replace(wanted, sources=(given.sources or SourceFolders()).to_dict())
    if given.audit is not KEPT:
        wanted = replace(wanted, audit=None if given.audit is None else given.audit.to_stored())
    return wanted


def read_definition(store: Store) -> Definition | None:
    """Return what a zone says of itself; None where there is none."""
    log = NumberedLog(store, _FOLDER, "json")
    return _stored(store, log, log.last())


def _stored(store: Store, log: NumberedLog, number: int) -> Definition | None:
    if not number:
        return None
    return Definition.from_json(log.existing(number), store.uri(log.path(number)))


def _made(
    store: Store, plans: NumberedLog, given: Given, new_id: Callable[[], str], log: NumberedLog
) -> Definition | None:
    where = store.location
    if plans.last():
        if log.last():
            return None
        raise CorruptTableError(
            "the zone has plans, and its definition is missing; a new one would land all of their files"
            f" again. Restore it from a copy, or make a zone at another location: {where}",
            location=where,
        )
    if given.table is None:
        raise ValueError(
            "there is no buffer zone here; `streaming-sink ingest create ZONE --table LOCATION` makes"
            f" one, as does BufferZone(zone, table): {where}"
        )
    if given.in_catalog is None:
        check_is_elsewhere(where, given.table)
    usual = Definition(
        new_id(),
        given.table,
        TableOptions().to_dict(),
        Rules().to_dict(),
        SourceFolders().to_dict(),
        "" if given.topic in (KEPT, None) else given.topic.url,
        catalog=None if given.in_catalog is None else {"name": "", "uuid": "", "location": ""},
    )
    return _with(usual, given)


def _changed(stored: Definition, given: Given, store: Store) -> Definition:
    if given.table not in (None, stored.table):
        raise ValueError(
            f"the buffer zone is for the table {stored.table}, and this is {given.table}; a zone"
            f" stays with its table, so give this one another location: {store.location}"
        )
    topic = stored.announcements if given.topic is KEPT else given.topic.url if given.topic else ""
    if topic != stored.announcements:
        raise ValueError(
            "a zone's announcements stay where they are, so give this one another location:"
            f" {store.location}: {stored.announcements or 'files of the zone'}"
        )
    return _with(stored, given)


def name_table(store: Store, table_uuid: str, location: str) -> Definition:
    """Store the uuid and the location of a zone's table, which is in a catalog and was not there before, and
    return what the zone says of itself then: another process may have been first.
    """

    def named(stored: Definition | None, _: NumberedLog) -> Definition:
        assert stored is not None
        if stored.catalog is None or stored.catalog["uuid"]:
            return stored
        check_is_elsewhere(store.location, location)
        return replace(stored, catalog={**stored.catalog, "uuid": table_uuid, "location": location})

    return _settled(store, named)
