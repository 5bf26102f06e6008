"""The probe: a store must show, by racing, that it keeps create-if-absent, or it is refused (R18)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from timeline.clock import SYSTEM, Environment
from timeline.errors import StoreUnavailableError, UnsafeStoreError
from timeline.names import PROBE_FOLDER
from timeline.stores.base import Created, CreateOutcome, Exists, Store, Unknown

# A server that answers one create after another correctly had several winners in 58 % of races when 8 clients
# raced for one key after the other, and in 16 % when they raced for 8 keys at once: the more requests there
# are at a time, the less they meet. A store that fails every fourth race passes with 0.75**24 = 0.1 %. At 60
# ms per request the probe takes 3 s.
_KEYS = 24
_RACERS = 8


@dataclass(frozen=True, slots=True)
class _Race:
    path: str
    outcomes: Sequence[CreateOutcome]
    shown: bool
    """Whether listings that winners began right after their create showed the key."""


def check_store(store: Store, environment: Environment = SYSTEM) -> None:
    """Probe the store under fresh names (R18). Raises as `probe`."""
    probe(store, f"{environment.random.getrandbits(80):020x}")


def probe(store: Store, probe_id: str) -> None:
    """Return if the store keeps create-if-absent and lists what is there; UnsafeStoreError if it does not.

    `probe_id` makes the names under `_timeline/probe/` unique: no two probes of one table may share it. The
    keys are removed, also after a refusal. StoreUnavailableError if the store does not answer clearly
    enough to decide.
    """
    first = f"{PROBE_FOLDER}/{probe_id}-first"
    raced = [f"{PROBE_FOLDER}/{probe_id}-{number}" for number in range(_KEYS)]
    try:
        _check_second_create_loses(store, first)
        with ThreadPoolExecutor(_RACERS, thread_name_prefix="probe") as pool:
            races = _race_all(store, pool, raced)
            _check_each_race_has_one_winner(races)
            _check_winners_bytes_stay(store, pool, races)
        _check_listing_shows_winners(races)
    except BaseException:
        with contextlib.suppress(StoreUnavailableError):  # the refusal matters more than the keys
            store.delete([first, *raced])
        raise
    store.delete([first, *raced])
    if any(entry.path == first for entry in store.list_folder(PROBE_FOLDER)):
        raise UnsafeStoreError(f"the store lists an object that was deleted; use another: {store.location}")


def _check_second_create_loses(store: Store, path: str) -> None:
    if not isinstance(_clear(store, store.create(path, b"first")), Created):
        raise UnsafeStoreError(f"the store says that a fresh name exists; use another: {store.uri(path)}")
    second = _clear(store, store.create(path, b"second"))
    stored = store.read(path)
    if isinstance(second, Created) or stored.data != b"first":
        raise UnsafeStoreError(
            f"the store lets a second create of one name win; use another: {store.location}"
        )
    listed = {entry.path: entry.identity for entry in store.list_folder(PROBE_FOLDER)}
    if path not in listed:
        raise UnsafeStoreError(
            f"the store does not list what was just created; use another: {store.location}"
        )
    if listed[path] != stored.identity:
        raise UnsafeStoreError(f"the store names an object differently in listing and read: {store.location}")


def _race_all(store: Store, pool: ThreadPoolExecutor, paths: Sequence[str]) -> list[_Race]:
    races: list[_Race] = []
    for path in paths:
        gate = threading.Barrier(_RACERS)
        pending = [pool.submit(_race, store, path, racer, gate) for racer in range(_RACERS)]
        answers = [future.result() for future in pending]
        races.append(_Race(path, [outcome for outcome, _ in answers], all(shown for _, shown in answers)))
    return races


def _race(store: Store, path: str, racer: int, gate: threading.Barrier) -> tuple[CreateOutcome, bool]:
    gate.wait()
    outcome = store.create(path, _body(racer))
    if not isinstance(outcome, Created):
        return outcome, True
    return outcome, any(entry.path == path for entry in store.list_folder(PROBE_FOLDER))


def _check_each_race_has_one_winner(races: Sequence[_Race]) -> None:
    wins = [sum(isinstance(outcome, Created) for outcome in race.outcomes) for race in races]
    broken = sum(count > 1 for count in wins)
    if broken:
        raise UnsafeStoreError(
            f"the store let several writers create one name in {broken} of {len(races)} races: it would lose "
            "rows that were acknowledged; use a store with create-if-absent"
        )
    decided = wins.count(1)
    if decided * 2 < len(races):
        causes = [
            outcome.cause for race in races for outcome in race.outcomes if isinstance(outcome, Unknown)
        ]
        raise StoreUnavailableError(
            f"only {decided} of {len(races)} races had a clear winner, too few to trust the store; try "
            f"again later; an unclear answer: {causes[0] if causes else 'already exists, to all'}"
        )


def _check_winners_bytes_stay(store: Store, pool: ThreadPoolExecutor, races: Sequence[_Race]) -> None:
    decided = [race for race in races if any(isinstance(outcome, Created) for outcome in race.outcomes)]
    stored = pool.map(lambda race: store.read(race.path).data, decided)
    for race, data in zip(decided, stored, strict=True):
        winner = next(racer for racer, outcome in enumerate(race.outcomes) if isinstance(outcome, Created))
        if data != _body(winner):
            raise UnsafeStoreError(
                f"the store replaced the winner's bytes with a loser's: {store.uri(race.path)}"
            )


def _check_listing_shows_winners(races: Sequence[_Race]) -> None:
    missed = sum(not race.shown for race in races)
    if missed:
        raise UnsafeStoreError(
            f"the store's listing missed {missed} of {len(races)} objects that had just been created, so a "
            "writer could take an old version for the newest; use a store with consistent listings"
        )


def _clear(store: Store, outcome: CreateOutcome) -> Created | Exists:
    if isinstance(outcome, Unknown):
        raise StoreUnavailableError(
            f"the store gave the probe no clear answer; try again later: {store.location}: {outcome.cause}"
        )
    return outcome


def _body(racer: int) -> bytes:
    return f"racer {racer}".encode()
