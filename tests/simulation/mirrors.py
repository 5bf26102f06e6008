"""A mirror of the table in the simulation: its catalog, who brings it up, who writes to it, and the judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
)

from tests.simulation.acting import TRIES, Body, think
from tests.simulation.raw import OURS, ViolationError
from tests.simulation.scheduler import Actor
from tests.simulation.simulation import Process, Simulation
from tests.simulation.store import LOCATION, Weather
from timeline import names
from timeline.catalogs.mirrors.mirroring import Mirror
from timeline.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    CorruptTableError,
    MirrorForkedError,
    StoreUnavailableError,
)
from timeline.retention import mirrored
from timeline.retention.mirrored import mirror_digest
from timeline.table import Table

NAME = "lake:db.t"
TABLE = ("db", "t")
HELD_MS = 12_000
_FAILURES = (StoreUnavailableError, CommitStateUnknownError, CommitConflictError)
_CHANGE = ("refused", "lost_request", "lost_reply", "late", "duplicate", "conflict")
_FATES = {"read": ("refused", "lost_request"), "begin": _CHANGE, "move": _CHANGE, "drop": ()}


@dataclass
class MirrorJudge:
    """The pointer of the catalog, and what must hold of it (R36)."""

    sim: Simulation
    compares: bool
    place: str | None = None
    seen: dict[str, str | None] = field(default_factory=dict)
    """What each client was last answered that the pointer is."""
    said: int = 0
    """The latest version that a call has returned."""
    spoiled: bool = False
    """A request came late, or a call failed: the pointer may be at an older version than was said."""
    old: bool = False
    """The note on what the pointer names may have been deleted: it was set back by a request that came late,
    or a vandal was here.
    """

    def begin(self, place: str, by: str, *, late: bool) -> None:
        if self.place is not None:
            raise TableAlreadyExistsError(str(TABLE))
        self._set(place, by)
        self.old = late

    def move(self, base: str, place: str, by: str, *, late: bool) -> None:
        if self.compares and self.place != base:
            raise CommitFailedException("another writer was first")
        if self.place is None:
            raise NoSuchTableError(str(TABLE))
        if version_in(base) is None or (not self.compares and version_in(self.seen.get(by)) is None):
            raise ViolationError(f"{by} moves the mirror over a fork (R36): {self.place}")
        before, after = version_in(self.place) or 0, version_in(place) or 0
        if self.compares and after < before:
            raise ViolationError(f"{by} moves the mirror from version {before} to {after} (R36)")
        self.sim.met["mirror set back, where nothing is compared"] += after < before
        self._set(place, by)
        self.old = late and not self.compares

    def _set(self, place: str, by: str) -> None:
        version = version_in(place)
        if version is None or not self.sim.oracle.has_member(version):
            raise ViolationError(f"{by} lets the mirror name what is no version (R36): {place}")
        self.place = place
        self.sim.meet("mirrored")

    def deleted(self, path: str, by: str) -> None:
        """What the mirror names stays for a day of the table's time, and what that reaches."""
        version, oracle = version_in(self.place), self.sim.oracle
        self.old |= by.startswith("vandal") and names.mirrored_parts(path) is not None
        if version is None or self.old:
            return
        member = oracle.member(version)
        uri = f"{LOCATION}/{path}"
        if path != names.version_path(version) and uri not in oracle.reachable(member):
            return
        age = oracle.head.updated_ms - member.updated_ms
        if member.uuid == oracle.head.uuid and age <= HELD_MS:
            raise ViolationError(
                f"{by} deleted {path}, which the mirror names by version {version}, {age} ms after it (R36)"
            )
        self.sim.meet("mirror outdated")


class Pointers:
    """One process's client of the catalog."""

    def __init__(self, world: Mirrors, actor: Actor, weather: Weather) -> None:
        self._world, self._actor, self._weather = world, actor, weather

    def read_pointer(self, _: tuple[str, ...]) -> str | None:
        judge, name = self._world.judge, self._actor.name
        place: str | None = self._ask("read", lambda late: judge.place)
        judge.seen[name] = place
        return place

    def begin_pointer(self, _: tuple[str, ...], place: str) -> None:
        judge, name = self._world.judge, self._actor.name
        self._ask("begin", lambda late: judge.begin(place, name, late=late))

    def move_pointer(self, _: tuple[str, ...], base: str, place: str) -> None:
        judge, name = self._world.judge, self._actor.name
        self._ask("move", lambda late: judge.move(base, place, name, late=late))

    def drop_table(self, _: tuple[str, ...]) -> None:
        raise AssertionError("no process of the sink drops the mirror here")

    def create_namespace(self, _: tuple[str, ...]) -> None:
        raise AssertionError("the namespace is there")

    def _ask(self, verb: str, apply: Callable[[bool], Any]) -> Any:
        return self._actor.wait(lambda answer: self._send(verb, answer, apply))

    def _send(self, verb: str, answer: Callable[[Any], None], apply: Callable[[bool], Any]) -> None:
        sim, weather = self._world.sim, self._weather
        random, after = sim.random, sim.scheduler.after
        there = random.expovariate(1 / (weather.latency * self._actor.pace))
        back = random.expovariate(1 / (weather.latency * self._actor.pace))
        fate = next((kind for kind in _FATES[verb] if random.random() < getattr(weather, kind)), "well")
        if fate != "well":
            sim.meet(f"mirror's {verb} {fate}")
            sim.tell(self._actor.name, f"  ({verb} of the mirror will be {fate})")

        def applied(late: bool = False) -> None:
            result = _done(lambda: apply(late))
            sim.tell(self._actor.name, f"  (applied {verb} of the mirror: {result!r})")
            if fate == "lost_reply":
                after(weather.timeout, lambda: answer(_no_answer(random)))
            elif fate != "late" and not late:
                after(back, lambda: answer(result))

        if fate == "refused":
            after(there + back, lambda: answer(ServiceUnavailableError("503")))
        elif fate == "conflict":
            after(there + back, lambda: answer(CommitFailedException("409, for no reason")))
        elif fate in ("lost_request", "late"):
            after(weather.timeout, lambda: answer(_no_answer(random)))
            if fate == "late":
                self._world.judge.spoiled = True
                after(there + weather.timeout * 10 ** random.uniform(-1, 2), lambda: applied(late=True))
        else:
            after(there, applied)
            if fate == "duplicate":
                self._world.judge.spoiled = True
                delay = there + weather.timeout * 10 ** random.uniform(-1.5, 2)
                after(delay, lambda: applied(late=True))


class Mirrors:
    """The mirror of a simulation, and what its actors do with it."""

    def __init__(self, sim: Simulation) -> None:
        self.sim, self.drawn = sim, Random(f"mirrors {sim.seed}")
        self.judge = MirrorJudge(sim, compares=self.drawn.random() < 0.7)
        self._forks = 0
        deleted = sim.oracle.deleted

        def judged(path: str, by: str) -> None:
            self.judge.deleted(path, by)
            deleted(path, by)

        sim.oracle.deleted = judged  # type: ignore[method-assign]

    def start(self, start: Callable[..., None]) -> None:
        """Start who brings the mirror up, and who writes to it through the catalog."""
        for number in range(self.drawn.choice([1, 2, 2, 3])):
            start(f"mirror{number}", self.bring_up(self.drawn.randrange(3, 10)))
        # Where nothing is compared, a write between a look and a move is passed over.
        if self.judge.compares and self.drawn.random() < 0.4:
            start("stranger", self.write_through(self.drawn.randrange(1, 3)))

    def bring_up(self, times: int) -> Body:
        """A process that has the catalog name the newest version, again and again."""

        def body(actor: Actor) -> None:
            process, left = self.sim.process(actor), times
            weather = self.sim.weather if self.judge.compares else Weather()
            catalog = Pointers(self, actor, weather)
            for _ in range(TRIES):
                mirror = Mirror(NAME, TABLE, catalog)
                try:
                    table = process.open()
                    while left:
                        think(self.sim, process, 2.0)
                        left -= 1
                        self._call(process, mirror, table)
                except _FAILURES as failure:
                    self.judge.spoiled = True
                    self.sim.tell(actor.name, f"=> {type(failure).__name__}: {failure}")
                except CorruptTableError as failure:  # others have deleted or made again what it knew
                    self.judge.spoiled = True
                    self.sim.tell(actor.name, f"=> {type(failure).__name__}: {failure}")
                if not left:
                    return
                think(self.sim, process)

        return body

    def _call(self, process: Process, mirror: Mirror, table: Table) -> None:
        try:
            done = mirror.bring_up(table)
        except MirrorForkedError as fork:
            self.sim.meet("mirror is a fork")
            self.sim.tell(process.actor.name, f"=> FORK: {fork}")
            return
        if done.version > len(self.sim.oracle.lineage):
            raise ViolationError(f"a call says that the mirror names version {done.version}, which is none")
        self.judge.said = max(self.judge.said, done.version)
        self.sim.tell(process.actor.name, f"=> MIRRORED {done}")

    def write_through(self, times: int) -> Body:
        """Another engine that commits through the catalog, and drops its table there after a while."""

        def body(actor: Actor) -> None:
            process = self.sim.calm_process(actor)
            for _ in range(times):
                think(self.sim, process, 8.0)
                if self.judge.place is None:
                    continue
                self._forks += 1
                folder = self.sim.random.choice([f"{LOCATION}/metadata", "memory://elsewhere/metadata"])
                self.judge.place = f"{folder}/{self._forks:05}-0a1b.metadata.json"
                self.sim.tell(actor.name, f"FORK {self.judge.place}")
                self.sim.meet("written through the catalog")
                think(self.sim, process, 8.0)
                if self.sim.random.random() < 0.7:
                    self.judge.place, self.judge.said = None, 0
                    self.sim.tell(actor.name, "DROPPED from the catalog")
                    self.sim.meet("dropped from the catalog")

        return body

    def finish(self) -> None:
        """When all is quiet the mirror is where the last call has left it; one more brings it up."""
        judge = self.judge
        at = version_in(judge.place)
        if not (judge.spoiled or self.sim.met["crash"]) and at is not None and at < judge.said:
            raise ViolationError(f"in the end the mirror names version {at}, and {judge.said} was said (R36)")
        self.sim.scheduler.start("last mirror", self._bring_up_in_the_end)

    def _bring_up_in_the_end(self, actor: Actor) -> None:
        process = self.sim.calm_process(actor)
        table, forked = process.open(), self.judge.place
        if forked is not None and version_in(forked) is None:
            try:
                Mirror(NAME, TABLE, Pointers(self, actor, Weather())).bring_up(table)
            except MirrorForkedError:
                assert self.judge.place == forked
                return
            raise ViolationError(f"in the end a fork passes for a mirror (R36): {forked}")
        done = Mirror(NAME, TABLE, Pointers(self, actor, Weather())).bring_up(table)
        head = len(self.sim.oracle.lineage)
        if (version_in(self.judge.place), done.version) != (head, head):
            raise ViolationError(f"in the end the mirror names {self.judge.place}, and the head is {head}")
        digest = mirror_digest(NAME, table.head.metadata.table_uuid)
        notes = [note.version for note in mirrored.list_mirror_notes(process.store) if note.digest == digest]
        if notes != [head]:
            raise ViolationError(f"in the end notes say that the mirror names {notes}, not {head}")
        assert OURS + "mirrors" in self.sim.oracle.head.properties


def version_in(place: str | None) -> int | None:
    """Return which version file of the table a place is; None where it is none."""
    folder = f"{LOCATION}/metadata/"
    number = names.version_number(place.removeprefix(folder)) if place and place.startswith(folder) else None
    return number if place == f"{LOCATION}/{names.version_path(number or 1)}" else None


def _done(apply: Callable[[], Any]) -> Any:
    try:
        return apply()
    except (CommitFailedException, NoSuchTableError, TableAlreadyExistsError) as refusal:
        return refusal


def _no_answer(random: Random) -> Exception:
    return (
        CommitStateUnknownException("504") if random.random() < 0.5 else ConnectionError("no answer in time")
    )
