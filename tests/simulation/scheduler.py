"""Actors that run one at a time, in simulated time, in an order that a seed decides.

An actor is ordinary blocking code on a stack of its own (a greenlet: with threads a schedule takes two to
five times as long). It hands the baton over where it waits: for a request to be answered, or for a sleep to
end. Everything else happens in events, of which the scheduler runs the next one by time. With exponential
delays that is a random walk; an actor's `pace` stretches its delays, so that paces far apart make the
priorities of PCT (Burckhardt et al., ASPLOS 2010), and changing them its change points.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from random import Random
from typing import Any

from greenlet import greenlet


class Killed(BaseException):
    """Ends an actor at the place where it waits, as a killed process ends: nothing of it runs after."""


class Scheduler:
    """Owns the time and the events."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.steps = 0
        self.actors: list[Actor] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), event))

    def start(self, name: str, body: Callable[[Actor], None], delay: float = 0.0) -> Actor:
        actor = Actor(self, name, body)
        self.actors.append(actor)
        self.after(delay, lambda: actor.resume(None))
        return actor

    def run(self, most_steps: int, every_step: Callable[[], None]) -> bool:
        """Run until no event is left (True), or for so many steps."""
        while self._events and self.steps < most_steps:
            self.now, _, event = heapq.heappop(self._events)
            self.steps += 1
            event()
            every_step()
        return not self._events

    def close(self) -> None:
        """End every actor that still waits, and with it its thread's work."""
        for actor in self.actors:
            actor.kill()


class Actor:
    """One process, or one run of a query: code that waits only by `wait`."""

    def __init__(self, scheduler: Scheduler, name: str, body: Callable[[Actor], None]) -> None:
        self.name = name
        self.pace = 1.0
        self.killed = False
        self.ended = False
        self._body = body
        self._failure: BaseException | None = None
        self._waits = 0
        self._greenlet = greenlet(self._live)

    def wait(self, arrange: Callable[[Callable[[Any], None]], None]) -> Any:
        """Hand the baton over until `arrange`'s argument is called with an answer; raise it if it is an
        error.
        """
        if self.killed:
            raise Killed
        self._waits += 1
        this = self._waits
        arrange(lambda answer: self._deliver(this, answer))
        answer = self._greenlet.parent.switch()
        if self.killed:
            raise Killed
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def resume(self, answer: Any) -> None:
        """Give the actor the baton, and take it back where it waits next or ends. Called by events only."""
        if self.ended:
            return
        self._greenlet.switch(answer)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def kill(self) -> None:
        if not self.ended and not self.killed:
            self.killed = True
            self.resume(None)

    def _deliver(self, wait: int, answer: Any) -> None:
        if not self.ended and not self.killed and wait == self._waits:
            self._waits += 1  # a second answer to one request is nobody's
            self.resume(answer)

    def _live(self, _: Any) -> None:
        try:
            if not self.killed:
                self._body(self)
        except Killed:
            pass
        except BaseException as failure:  # noqa: BLE001 - raised again where the actor was resumed
            self._failure = failure
        self.ended = True
