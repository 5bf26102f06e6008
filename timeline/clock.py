"""The one door through which time, sleep and randomness come into the timeline.

Everything else in `timeline` takes an `Environment`; lint bans the direct calls. A test or a simulator
passes its own and replays a run exactly.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from timeline import names


@dataclass(frozen=True)
class Environment:
    """What the world gives to the timeline: wall clock, stopwatch, sleep, randomness."""

    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    """Milliseconds since the epoch by this machine's clock. Never compared with another machine's (R12)."""
    monotonic: Callable[[], float] = time.monotonic
    """Seconds on a clock that never steps back; for deadlines and reports only."""
    sleep: Callable[[float], None] = time.sleep
    random: random.Random = field(default_factory=random.SystemRandom)

    def new_id(self, time_ms: int) -> str:
        """Return a fresh ULID of a time: ids sort by their times, and no two are equal."""
        return names.ulid(time_ms, self.random.getrandbits(80))


SYSTEM = Environment()
"""The real clock and the operating system's randomness."""
