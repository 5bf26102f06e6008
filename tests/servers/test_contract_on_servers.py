"""The contract that every store keeps, on real servers: as they are, 60 ms away, and behind a bad network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.conftest import SAFE, StartServer
from tests.servers.proxy import Fault, Proxy, Request
from tests.tiers import only_in_soak
from tests.unit.timeline.stores.test_store_contract import *  # noqa: F403
from timeline.stores import Store

pytestmark = pytest.mark.servers

_FAULTS = [Fault.RESET_BEFORE, Fault.RESET_AFTER, Fault.ERROR_BEFORE, Fault.ERROR_AFTER]


class EveryRequestOnceSpoiled:
    """Spoils the first sending of each request that may be repeated, each in another way.

    A create is not repeated by the store; its faults have tests of their own. Nor is the end of a multipart
    upload spoiled after it was carried out: S3 itself promises nothing there.
    """

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def __call__(self, request: Request) -> Fault | None:
        key = f"{request.method} {request.path} {request.query}"
        if request.is_create or key in self.seen:
            return None
        self.seen.add(key)
        uploads = request.method == "POST" and "delete" not in request.query
        choices = _FAULTS[::2] if uploads else _FAULTS
        return choices[len(self.seen) % len(choices)]


@pytest.fixture(params=[*SAFE, pytest.param("60 ms away", marks=only_in_soak), "a bad network"])
def store(request: pytest.FixtureRequest, start_server: StartServer, folder: str) -> Iterator[Store]:
    if request.param not in ("60 ms away", "a bad network"):
        yield start_server(request.param).store(folder)
        return
    server = start_server("ministack")
    with Proxy(server.endpoint).running() as proxy:
        if request.param == "60 ms away":
            proxy.latency = 0.06
        else:
            proxy.fault = EveryRequestOnceSpoiled()
        yield server.at(proxy.endpoint).store(folder)
