"""Retries until a deadline: after lost races, and after answers without a clear outcome (R15)."""

from __future__ import annotations

from collections.abc import Callable

from tenacity import RetryCallState, Retrying, retry_if_exception_type

from timeline.clock import Environment

_AT_ONCE = 2
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 10.0


class StillUnknownError(Exception):
    """No answer so far shows whether the request took effect."""


def retrying(
    environment: Environment,
    on: type[Exception],
    give_up_at: float,
    longest_wait: Callable[[RetryCallState], float],
) -> Retrying:
    """Retry on an exception until the deadline, after full-jitter waits of up to `longest_wait`."""

    def wait(state: RetryCallState) -> float:
        longest = longest_wait(state)
        return environment.random.uniform(0, longest) if longest else 0.0

    def stop(_: RetryCallState) -> bool:
        return environment.monotonic() >= give_up_at

    return Retrying(
        retry=retry_if_exception_type(on), wait=wait, stop=stop, sleep=environment.sleep, reraise=True
    )


def until_known(environment: Environment, give_up_at: float) -> Retrying:
    """Retry while the outcome of a request is unknown: twice at once, then with full jitter."""
    return retrying(environment, StillUnknownError, give_up_at, _backoff)


def _backoff(state: RetryCallState) -> float:
    """Return the longest wait after a request without a clear answer: 0 twice, then 0.05, 0.1, 0.2 … 10 s."""
    doubled = state.attempt_number - _AT_ONCE - 1
    return 0.0 if doubled < 0 else min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(doubled, 10))
