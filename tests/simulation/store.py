"""A store whose every request is sent, applied and answered as three events, and fails in between.

Objects, listings and create-if-absent are strongly consistent at the moment of being applied; everything else
is up to the weather: which faults there are, and how often.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, BinaryIO, Protocol

from tests.simulation.scheduler import Actor, Scheduler
from timeline import names
from timeline.errors import StoreUnavailableError
from timeline.stores.base import Created, CreateOutcome, Exists, HeldOutput, ListedObject, Stored, Unknown

LOCATION = "memory://simulated"
DROP = "memory://drop"
"""Where the files lie that the table has by reference (R28)."""


class Watcher(Protocol):
    """Told of every effect on the objects, at the moment of the effect, and of who asks and learns what."""

    def created(self, path: str, data: bytes) -> None: ...
    def overwritten(self, path: str, data: bytes, by: str) -> None: ...
    def deleted(self, path: str, by: str) -> None: ...
    def sent(self, verb: str, path: str, data: bytes | None, by: str) -> None: ...
    def answered(self, path: str, data: bytes | None, to: str) -> None: ...


@dataclass
class Weather:
    """What can befall a request, with its odds; all zero is a store that always answers at once."""

    latency: float = 0.02
    timeout: float = 1.0
    lost_request: float = 0.0
    lost_reply: float = 0.0
    late: float = 0.0
    """Unanswered in time, and applied long after."""
    duplicate: float = 0.0
    """Applied twice, the second time long after the first."""
    exists_own: float = 0.0
    """Applied, and answered "already exists": the client tried again by itself."""
    conflict: float = 0.0
    """Answered 409, or "already exists", with nothing stored."""
    refused: float = 0.0
    stall: float = 0.0
    """The process or its packet stands still for longer than any retention."""
    stall_seconds: float = 30.0
    stale: float = 0.0
    """A load of a catalog's table is answered from a cache."""
    calm_reads: float = 0.3
    """How much rarer all faults are for what is not the create of a version file."""


@dataclass
class Objects:
    """What is stored, whoever asks."""

    watcher: Watcher
    stored: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    when_freed: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    """Creates under way, which may arrive just when the name that they go to was deleted."""
    _folders: dict[str, dict[str, ListedObject]] = field(default_factory=lambda: defaultdict(dict))
    """What is stored, as a listing of each folder shows it."""
    _identity: int = 0

    def create(self, path: str, data: bytes) -> CreateOutcome:
        if path in self.stored:
            return Exists()
        self._put(path, data)
        self.watcher.created(path, data)
        return Created()

    def overwrite(self, path: str, data: bytes, by: str) -> None:
        self.watcher.overwritten(path, data, by)
        self._put(path, data)

    def read(self, path: str) -> Stored | FileNotFoundError:
        if path not in self.stored:
            return FileNotFoundError(path)
        data, identity = self.stored[path]
        return Stored(data, str(identity))

    def list_folder(self, folder: str) -> list[ListedObject]:
        return list(self._folders[folder].values())

    def list_below(self, folder: str) -> list[ListedObject]:
        prefix = f"{folder}/" if folder else ""
        return [
            ListedObject(path, len(data), str(identity))
            for path, (data, identity) in self.stored.items()
            if path.startswith(prefix)
        ]

    def delete(self, path: str, by: str) -> None:
        if self.stored.pop(path, None) is not None:
            del self._folders[path.rpartition("/")[0]][path]
            self.watcher.deleted(path, by)
            for arrive in self.when_freed.pop(path, ()):
                arrive()

    def _put(self, path: str, data: bytes) -> None:
        self._identity += 1
        self.stored[path] = bytes(data), self._identity
        listed = ListedObject(path, len(data), str(self._identity))
        self._folders[path.rpartition("/")[0]][path] = listed


@dataclass
class SimulatedStore:
    """One process's client. Without an actor, requests are served at once and never fail."""

    objects: Objects
    scheduler: Scheduler
    weather: Weather
    random: Random
    meet: Callable[[str], None]
    tell: Callable[[str, str], None]
    actor: Actor | None = None
    traced: bool = False
    location: str = LOCATION

    @property
    def signature(self) -> str:
        return "simulated"

    def uri(self, path: str) -> str:
        return f"{self.location}/{path}"

    def relative(self, uri: str) -> str:
        if uri.startswith(f"{DROP}/"):
            raise ValueError(f"a file by reference has no path below the table: {uri}")
        return self.key(uri)

    def key(self, uri: str) -> str:
        """Return under which key the object of a name is stored: a file by reference under its whole name."""
        return uri.removeprefix(f"{self.location}/")

    def at(self, location: str) -> SimulatedStore:
        raise ValueError(f"only judges look at what lies elsewhere: {location}")

    @property
    def _name(self) -> str:
        return "nobody" if self.actor is None else self.actor.name

    def create(self, path: str, data: bytes) -> CreateOutcome:
        outcome = self._request("create", path, lambda: self.objects.create(path, data), data)
        assert isinstance(outcome, Created | Exists | Unknown)
        return outcome

    def overwrite(self, path: str, data: bytes) -> None:
        self._request("overwrite", path, lambda: self.objects.overwrite(path, data, self._name), data)

    def read(self, path: str) -> Stored:
        try:
            stored = self._request("read", path, lambda: self.objects.read(path))
        except FileNotFoundError:
            self.objects.watcher.answered(path, None, self._name)
            raise
        assert isinstance(stored, Stored)
        self.objects.watcher.answered(path, stored.data, self._name)
        return stored

    def list_folder(self, folder: str) -> list[ListedObject]:
        listed: list[ListedObject] = self._request("list", folder, lambda: self.objects.list_folder(folder))
        return listed

    def list_below(self, folder: str) -> Iterator[ListedObject]:
        listed: list[ListedObject] = self._request("list", folder, lambda: self.objects.list_below(folder))
        return iter(listed)

    def look(self, path: str) -> ListedObject:
        stored = self.read(path)
        return ListedObject(path, len(stored.data), stored.identity)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._request("delete", path, partial(self.objects.delete, path, self._name))

    def take_turn(self) -> AbstractContextManager[object]:
        return nullcontext()

    def open_output(self, path: str) -> BinaryIO:
        return HeldOutput(
            lambda data: self._request(
                "write", path, lambda: self.objects.overwrite(path, data, self._name), data
            )
        )

    def copy_from(self, *_: object) -> bool:
        return False

    def open_input(self, path: str) -> BinaryIO:
        return io.BytesIO(self.read(path).data)

    def _request(self, verb: str, path: str, apply: Callable[[], Any], data: bytes | None = None) -> Any:
        """Send a request; return or raise what it is answered."""
        self.objects.watcher.sent(verb, path, data, self._name)
        if self.actor is None:
            answer = apply()
            if isinstance(answer, BaseException):
                raise answer
            return answer
        said = self.actor.wait(lambda answer: self._send(verb, path, apply, answer))
        if self.traced:
            self.tell(self.actor.name, f"{verb} {path}: {_short(said)}")
        return said

    def _send(self, verb: str, path: str, apply: Callable[[], Any], answer: Callable[[Any], None]) -> None:
        weather, random, after = self.weather, self.random, self.scheduler.after
        assert self.actor is not None
        there = random.expovariate(1 / (weather.latency * self.actor.pace))
        back = random.expovariate(1 / (weather.latency * self.actor.pace))
        version = names.version_number(path) is not None
        commits, slow = verb == "create" and version, False
        if self._happens("stall", version or verb == "list"):
            # Before the effect, or between the effect and the answer.
            stall = weather.stall_seconds * 10 ** random.uniform(-1.5, 1.0)
            there, back = (there + stall, back) if random.random() < 0.6 else (there, back + stall)
            slow = True
        fate = self._fate(verb, commits)
        if fate != "well":
            self.meet(f"{'create' if commits else 'other'} {fate}")
            self.tell(self.actor.name, f"  ({verb} {path} will be {fate})")

        arrived = False

        def applied() -> None:
            nonlocal arrived
            if arrived:
                return
            arrived = True
            result = apply()
            assert self.actor is not None
            if self.traced:
                self.tell(self.actor.name, f"  (applied {verb} {path}: {_short(result)})")
            if fate == "lost_reply":
                after(weather.timeout, lambda: answer(_no_answer(verb)))
            elif fate == "exists_own":
                after(back, lambda: answer(Exists()))
            elif fate != "late":
                after(back, lambda: answer(result))

        def applied_again() -> None:
            result = apply()
            if self.traced:
                assert self.actor is not None
                self.tell(self.actor.name, f"  (applied again {verb} {path}: {_short(result)})")

        def arrive_when_freed(arrive: Callable[[], Any]) -> None:
            if commits and random.random() < 0.5:
                soon = random.expovariate(1 / weather.latency)
                self.objects.when_freed.setdefault(path, []).append(lambda: after(soon, arrive))

        if fate == "refused":
            after(there + back, lambda: answer(StoreUnavailableError(f"refused: {verb} {path}")))
        elif fate == "conflict":
            said = Exists() if random.random() < 0.5 else Unknown("409")
            after(there + back, lambda: answer(said))
        elif fate == "lost_request":
            after(weather.timeout, lambda: answer(_no_answer(verb)))
        elif fate == "late":
            after(weather.timeout, lambda: answer(_no_answer(verb)))
            after(there + weather.timeout * 10 ** random.uniform(-1, 2), applied)
            arrive_when_freed(applied)
        else:
            after(there, applied)
            if fate == "duplicate":
                after(there + weather.timeout * 10 ** random.uniform(-1.5, 2), applied_again)
                arrive_when_freed(applied_again)
            elif slow:
                arrive_when_freed(applied)

    def _fate(self, verb: str, commits: bool) -> str:
        for kind in _FATES[verb]:
            if self._happens(kind, commits):
                return kind
        return "well"

    def _happens(self, kind: str, often: bool) -> bool:
        odds = getattr(self.weather, kind)
        return bool(odds) and self.random.random() < odds * (1 if often else self.weather.calm_reads)


_READ = ("refused", "lost_request")
_CHANGE = (*_READ, "lost_reply", "late", "duplicate")
_FATES = {
    "read": _READ,
    "list": _READ,
    "write": _READ,  # executors try again, and what is there is whole
    "overwrite": _CHANGE,
    "delete": _CHANGE,
    "create": (*_CHANGE, "exists_own", "conflict"),
}


def _no_answer(verb: str) -> Any:
    return Unknown("no answer in time") if verb == "create" else StoreUnavailableError("no answer in time")


def _short(answer: Any) -> str:
    if isinstance(answer, list):
        numbers = sorted(n for listed in answer if (n := names.version_number(listed.path)) is not None)
        return f"{len(answer)} objects, highest v{numbers[-1]}" if numbers else f"{len(answer)} objects"
    if isinstance(answer, Stored):
        return f"{len(answer.data)} bytes, identity {answer.identity}"
    return type(answer).__name__ if answer is not None else "done"
