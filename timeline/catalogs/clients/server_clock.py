"""The time of a REST catalog's server, as its answers state it."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import parsedate_to_datetime

_BEHIND_MS = 2
"""A commit of two snapshots has two times, a millisecond apart; neither may be ahead of the server."""


class ServerClock:
    """The time of a server, never ahead of it: as its last answer said, with what has passed since (R12).

    A server refuses a snapshot that is ahead of its own clock; one that takes it makes a table that others
    cannot open.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._ahead_ms: int | None = None
        """How far the server's clock is ahead of this machine's, at least; None before its first answer."""

    def see(self, date: str | None) -> None:
        """Take the time that an answer states, in whole seconds."""
        if date is None:
            return
        try:
            stated = parsedate_to_datetime(date)
        except ValueError:
            return
        ahead = int(stated.timestamp() * 1000) - self._now_ms()
        # The second that has begun is cut off, so of two answers the one that shows more is nearer.
        known = self._ahead_ms
        near = known is not None and abs(ahead - known) <= 1000
        self._ahead_ms = max(ahead, known) if near and known is not None else ahead

    def now_ms(self) -> int:
        """Return milliseconds since the epoch; this machine's where the server states none."""
        ahead = self._ahead_ms
        return self._now_ms() if ahead is None else self._now_ms() + ahead - _BEHIND_MS
