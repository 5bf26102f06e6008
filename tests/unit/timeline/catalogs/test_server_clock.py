"""The time of a commit is never ahead of the server's clock, however wrong this machine's is (R12)."""

from __future__ import annotations

from email.utils import formatdate

from hypothesis import given
from hypothesis import strategies as st

from timeline.catalogs.rest import ServerClock

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
