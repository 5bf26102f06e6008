"""A proxy of bytes before a server that speaks no HTTP: it drops connections before or after an effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.servers.proxy import Fault, Proxy, reset

_MOST_BYTES = 1 << 20


@dataclass
class ByteProxy(Proxy):
    """A proxy that looks at what clients send, of which an answer is awaited; `choose` may be changed at any
    time. Of the faults it has RESET_BEFORE and RESET_AFTER.
    """

    choose: Callable[[bytes], Fault | None] = field(default=lambda _: None)
    spoiled: bool = False
    """Whether `spoil_once` has dropped its connection."""

    @property
    def port(self) -> int:
        return int(self.endpoint.rpartition(":")[2])

    def spoil_once(self, *said: bytes, fault: Fault) -> None:
        """Drop one connection, at the last of what one client says in this order."""
        awaited, self.spoiled = list(said), False

        def choose(data: bytes) -> Fault | None:
            if awaited and awaited[0] in data:
                awaited.pop(0)
                self.spoiled = not awaited
                return fault if self.spoiled else None
            return None

        self.choose = choose

    async def _serve(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        server, forward = await self._connect()
        dropping = False

        async def send_on() -> None:
            nonlocal dropping
            while data := await client.read(_MOST_BYTES):
                fault = self.choose(data)
                if fault is Fault.RESET_BEFORE:
                    return
                dropping = dropping or fault is Fault.RESET_AFTER
                forward.write(data)
                await forward.drain()

        async def send_back() -> None:
            while (data := await server.read(_MOST_BYTES)) and not dropping:
                answer.write(data)
                await answer.drain()

        ways = [asyncio.ensure_future(way()) for way in (send_on, send_back)]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            reset(answer)
            forward.close()
