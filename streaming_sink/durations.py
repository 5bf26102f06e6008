"""Spans of time as people write them: "1 day", "90 minutes"."""

from __future__ import annotations

import re
from datetime import timedelta

Duration = str | timedelta
_SPELLED = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*(second|minute|hour|day)s?\s*$")


def spelled(name: str, value: object) -> str:
    """Return an option's span of time as text, in the largest unit of which it is a whole number. Raises as
    `duration`.
    """
    span = duration(name, value)
    for unit in ("days", "hours", "minutes", "seconds"):
        count, rest = divmod(span, timedelta(**{unit: 1}))
        if count and not rest:
            return f"{count} {unit.removesuffix('s') if count == 1 else unit}"
    return f"{span.total_seconds():.6f}".rstrip("0").rstrip(".") + " seconds"


def duration(name: str, value: object) -> timedelta:
    """Return an option's span of time. TypeError or ValueError, naming the option and its value, where it is
    none.
    """
    if isinstance(value, str) and (match := _SPELLED.match(value)):
        try:
            return timedelta(**{f"{match[2]}s": float(match[1])})
        except OverflowError:
            raise ValueError(f"{name} must be shorter than a million years, not {value!r}") from None
    if not isinstance(value, str | timedelta):
        raise TypeError(f'{name} must be a span of time such as "1 day" or a timedelta, not {value!r}')
    if isinstance(value, str) or value < timedelta(0):
        raise ValueError(
            f'{name} must be a number of seconds, minutes, hours or days, such as "90 minutes", not {value!r}'
        )
    return value
