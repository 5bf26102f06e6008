"""Back-pressure: what waits in a zone or is not in the table yet, and producers that wait for it."""

from __future__ import annotations

import logging
import time

from planners.sizing import size_text
from streaming_sink.zones.errors import BufferZoneFullError
from streaming_sink.zones.ledger import Ledger
from streaming_sink.zones.planning.flux import Flux
from streaming_sink.zones.stored_zone import StoredZone

_LOG = logging.getLogger("streaming_sink")
_POLL_SECONDS = 1.0
_LOGGED_EVERY = 60


class Backlog:
    """The bytes of a zone that are announced and not in the table. Makes no request where the zone has no
    bound.
    """

    def __init__(self, zone: StoredZone, flux: Flux | None = None) -> None:
        self._zone, self._flux = zone, flux
        self._sizes: dict[int, int] = {}

    def bytes(self) -> int:
        """Return how many bytes wait, or are of work items that are not in the table. A LIST or two, the
        table's head, and the plans that are new.
        """
        self._flux = self._flux or Flux(self._zone, plans=False)
        self._flux.catch_up()
        ledger = Ledger(self._zone)
        numbers = set(ledger.open_numbers)
        new = ledger.items(numbers - self._sizes.keys())
        self._sizes |= {item.number: item.bytes for item in new}
        self._sizes = {number: size for number, size in self._sizes.items() if number in numbers}
        waiting = sum(size for _, size, _ in self._flux.buffer.waiting.values())
        return waiting + sum(self._sizes.values())

    def is_full(self) -> bool:
        """Return whether producers are to wait."""
        most = self._zone.definition.rules_of.most_waiting
        return most is not None and self.bytes() >= most

    def check(self) -> None:
        """Raise BufferZoneFullError where producers are to wait."""
        most = self._zone.definition.rules_of.most_waiting
        if most is not None and (found := self.bytes()) >= most:
            raise BufferZoneFullError(
                f"{size_text(found)} wait in the zone or are not in the table yet, and max_waiting is"
                f" {size_text(most)}; nothing was announced. Push again once workers have landed some:"
                f" {self._zone.store.location}",
                location=self._zone.store.location,
            )

    def wait(self) -> None:
        """Return once producers may go on. What is waited for is in the log, once a minute."""
        looks = 0
        while self.is_full():
            if looks % _LOGGED_EVERY == 0:
                _LOG.warning(
                    "the stream waits, since %s wait in the zone or are not in the table yet: %s",
                    size_text(self.bytes()),
                    self._zone.store.location,
                )
            looks += 1
            time.sleep(_POLL_SECONDS)
