"""A catalog with one table: a commit is sent, applied and answered as three events.

It does what a catalog must do (R33): requirements are checked and updates applied in one step, no sequence
number is taken twice, and no snapshot is ahead of its clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import format_datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    ServiceUnavailableError,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import MetadataLogEntry
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from tests.simulation.scheduler import Actor
from tests.simulation.store import LOCATION, SimulatedStore
from tests.unit.timeline.world import NOON
from timeline.catalogs.clients.server_clock import ServerClock

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

NAME = ("db", "t")
ENGINE = "engine"
"""How the names of those begin that stand for other engines."""
_LOGGED = 5
_CACHED_MS = 4000
"""For so long after a change a cache may show the table as it was before."""


class Loaded(NamedTuple):
    """The table as a load or a commit answers it."""

    metadata: TableMetadata
    metadata_location: str

    @property
    def config(self) -> Mapping[str, str]:
        """What the server says of the table to its clients: nothing."""
        return {}


class CatalogWatcher(Protocol):
    """Told of every change of the table, at the moment of the change."""

    def changed(self, metadata: TableMetadata, by: str) -> None: ...


@dataclass
class Server:
    """What the catalog holds, whoever asks."""

    now_ms: Callable[[], int]
    watcher: CatalogWatcher
    store: SimulatedStore
    name: tuple[str, ...] = NAME
    """What the table is called now."""
    table: Loaded | None = None
    former: list[tuple[int, Loaded]] = field(default_factory=list)
    """Its former states, and when each ended."""
    logs: bool = True
    """Whether the metadata names what was before it."""
    slow_ms: int = 0
    """How far the clocks of other engines are behind."""
    _changes: int = 0

    @property
    def metadata(self) -> TableMetadata:
        assert self.table is not None
        return self.table.metadata

    def load(self, name: tuple[str, ...]) -> Loaded:
        if self.table is None or name != self.name:
            raise NoSuchTableError(f"no table {'.'.join(name)}")
        return self.table

    def commit(
        self,
        name: tuple[str, ...],
        requirements: Sequence[TableRequirement],
        updates: Sequence[TableUpdate],
        by: str,
    ) -> Loaded:
        before = self.load(name).metadata
        for requirement in requirements:
            requirement.validate(before)
        newest, now = before.last_sequence_number, self.now_ms()
        for update in updates:
            if isinstance(update, AddSnapshotUpdate):
                snapshot = update.snapshot
                if (snapshot.sequence_number or 0) <= newest:
                    raise CommitFailedException(f"sequence number {snapshot.sequence_number} is taken")
                if snapshot.timestamp_ms > now:
                    raise ValueError(f"a snapshot of {snapshot.timestamp_ms} is ahead of the server: {now}")
                newest = snapshot.sequence_number or 0
        self.put(update_table_metadata(before, tuple(updates)), by)
        return self.load(name)

    def put(self, metadata: TableMetadata, by: str) -> None:
        """Let the table have this metadata."""
        now, log = self.now_ms(), list[MetadataLogEntry]()
        if self.table is not None:
            self.former.append((now, self.table))
            before = self.table.metadata
            place = self.table.metadata_location
            if self.logs:
                entry = MetadataLogEntry(metadata_file=place, timestamp_ms=before.last_updated_ms)
                log = [*before.metadata_log, entry][-_LOGGED:]
        # Who only moves a ref says when: a slow clock steps back.
        stepped = self.table is not None and metadata.last_sequence_number == before.last_sequence_number
        time_ms = now - self.slow_ms if stepped and by.startswith(ENGINE) else now
        told = {"last_updated_ms": time_ms, "metadata_log": log}
        # pyiceberg logs a ref that is set by this machine's own clock.
        logged = [
            it.model_copy(update={"timestamp_ms": min(it.timestamp_ms, time_ms)})
            for it in metadata.snapshot_log
        ]
        metadata = metadata.model_copy(update={**told, "snapshot_log": logged})
        self._changes += 1
        path = f"metadata/{self._changes:05}.metadata.json"
        self.store.overwrite(path, metadata.model_dump_json().encode())
        self.table = Loaded(metadata, f"{LOCATION}/{path}")
        self.watcher.changed(metadata, by)


class SimulatedCatalog:
    """One process's client of the catalog, as far as `CatalogLog` uses pyiceberg's."""

    properties: Mapping[str, str] = MappingProxyType({})
    """What the server says to its clients: nothing."""

    def __init__(self, sim: Simulation, server: Server, actor: Actor, local_ms: Callable[[], int]) -> None:
        self._sim, self._server, self._actor = sim, server, actor
        self.server_clock = ServerClock(local_ms)
        self._see_date()

    def load_table(self, identifier: tuple[str, ...]) -> Loaded:
        loaded: Loaded = self._actor.wait(
            lambda answer: self._send("load", answer, lambda: self._look(identifier))
        )
        self._see_date()
        return loaded

    def commit_table(
        self, table: Any, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]
    ) -> Loaded:
        name = self._actor.name

        def apply() -> Loaded:
            return self._server.commit(table.name(), requirements, updates, name)

        loaded: Loaded = self._actor.wait(lambda answer: self._send("commit", answer, apply))
        self._see_date()
        return loaded

    def list_tables(self, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
        return [self._server.name]

    def list_namespaces(self, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
        return [] if namespace else [self._server.name[:-1]]

    def _look(self, identifier: tuple[str, ...]) -> Loaded:
        """Load the table, or what a cache has of it."""
        now, at = self._server.load(identifier), self._server.now_ms() - _CACHED_MS
        cached = [state for ended, state in self._server.former if ended > at]
        if cached and self._happens("stale"):
            self._sim.meet("stale load")
            return self._sim.random.choice(cached)
        return now

    def _see_date(self) -> None:
        now = datetime.fromtimestamp(self._server.now_ms() / 1000, tz=timezone.utc)
        self.server_clock.see(format_datetime(now, usegmt=True))

    def _send(self, verb: str, answer: Callable[[Any], None], apply: Callable[[], Loaded]) -> None:
        weather, random, after = self._sim.weather, self._sim.random, self._sim.scheduler.after
        commits, actor = verb == "commit", self._actor
        there = random.expovariate(1 / (weather.latency * actor.pace))
        back = random.expovariate(1 / (weather.latency * actor.pace))
        if self._happens("stall"):
            stall = weather.stall_seconds * 10 ** random.uniform(-1.5, 1.0)
            there, back = (there + stall, back) if random.random() < 0.6 else (there, back + stall)
        fate = next((kind for kind in _FATES[verb] if self._happens(kind)), "well")
        if fate != "well":
            self._sim.meet(f"{verb} {fate}")
            self._sim.tell(actor.name, f"  ({verb} will be {fate})")

        def applied() -> None:
            result = _done(apply)
            self._sim.tell(actor.name, f"  (applied {verb}: {_short(result)})") if commits else None
            if fate == "lost_reply":
                after(weather.timeout, lambda: answer(_no_answer(random.random() < 0.5)))
            elif fate == "exists_own":
                # A proxy has sent it again, and passes on what the second one was answered.
                again = _done(apply)
                after(back, lambda: answer(again))
            elif fate != "late":
                after(back, lambda: answer(result))

        if fate == "refused":
            after(there + back, lambda: answer(ServiceUnavailableError("503")))
        elif fate == "conflict":
            after(there + back, lambda: answer(CommitFailedException("409, for no reason")))
        elif fate in ("lost_request", "late"):
            after(weather.timeout, lambda: answer(_no_answer(random.random() < 0.5)))
            if fate == "late":
                after(there + weather.timeout * 10 ** random.uniform(-1, 2), applied)
        else:
            after(there, applied)
            if fate == "duplicate":
                after(there + weather.timeout * 10 ** random.uniform(-1.5, 2), lambda: _done(apply))

    def _happens(self, kind: str) -> bool:
        odds = getattr(self._sim.weather, kind)
        return bool(odds) and self._sim.random.random() < odds


_FATES = {
    "load": ("refused", "lost_request"),
    "commit": ("refused", "lost_request", "lost_reply", "late", "duplicate", "exists_own", "conflict"),
}


def server_now_ms(sim: Simulation) -> int:
    return NOON + int(sim.scheduler.now * 1000)


def _done(apply: Callable[[], Loaded]) -> Loaded | Exception:
    try:
        return apply()
    except (CommitFailedException, NoSuchTableError, ValueError, KeyError) as refusal:
        return refusal


def _no_answer(by_status: bool) -> Exception:
    return CommitStateUnknownException("504") if by_status else ConnectionError("no answer in time")


def _short(answer: Loaded | Exception) -> str:
    if isinstance(answer, Exception):
        return f"{type(answer).__name__}: {answer}"
    return f"sequence {answer.metadata.last_sequence_number}, main {answer.metadata.current_snapshot_id}"
