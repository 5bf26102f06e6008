"""A REST server's clock, which no commit is ahead of (R12), and requests that end."""

from __future__ import annotations

import socket
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.catalogs.clients import rest
from timeline.catalogs.clients.rest import ServerClock
from timeline.catalogs.opening import connect_catalog
from timeline.errors import StoreUnavailableError

DAY_MS = 24 * 3600 * 1000


@given(
    st.integers(-2 * DAY_MS, 2 * DAY_MS),
    st.lists(st.integers(0, 5_000), min_size=1, max_size=20),
)
def test_it_is_behind_the_server_by_a_second_at_most_and_ever_nearer(
    ahead_ms: int, pauses: list[int]
) -> None:
    now = [1_750_000_000_000]
    clock = ServerClock(lambda: now[0])
    lags = []
    for pause in pauses:
        now[0] += pause
        server = now[0] + ahead_ms
        clock.see(formatdate(server // 1000, usegmt=True))
        lags.append(server - clock.now_ms())
    assert all(2 <= lag <= 1002 for lag in lags)
    assert lags == sorted(lags, reverse=True)


def test_without_a_time_of_the_server_it_is_this_machines() -> None:
    clock = ServerClock(lambda: 7)
    for nothing in (None, "", "soon"):
        clock.see(nothing)
        assert clock.now_ms() == 7


def test_a_clock_that_is_set_back_is_followed() -> None:
    now = [1_750_000_000_000]
    clock = ServerClock(lambda: now[0])
    clock.see(formatdate(now[0] // 1000, usegmt=True))
    clock.see(formatdate(now[0] // 1000 - 3600, usegmt=True))
    assert clock.now_ms() <= now[0] - 3_600_000


@pytest.mark.parametrize("given", [{}, {"credential": "a:b"}], ids=["settings", "token"])
def test_a_request_that_is_not_answered_ends(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    """Of a token too, for which pyiceberg asks while it makes its session."""
    monkeypatch.setattr(rest, "_SECONDS", (1, 0.2))
    monkeypatch.setattr(rest, "_READ_AGAIN", 0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StoreUnavailableError, match="does not answer"):
            connect_catalog({"uri": uri, "oauth2-server-uri": f"{uri}/token", **given})
