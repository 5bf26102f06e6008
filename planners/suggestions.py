"""Suggestions for names that are not known: "did you mean ...?".

The one place for `planners` and `streaming_sink`. `timeline` imports neither, so its storage options have
their own (`timeline.stores._options`).
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_SIMILARITY = 0.5


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar known name, in any case of letters; None if none is similar."""
    by_lower = {it.lower(): it for it in sorted(known, reverse=True)}
    near = get_close_matches(name.lower(), sorted(by_lower), n=1, cutoff=_SIMILARITY)
    return by_lower[near[0]] if near else None


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ValueError:
    """Return the error for an unknown name; it suggests the nearest known one, or lists all of them."""
    names = sorted(known)
    near = nearest_name(name, names)
    hint = f"did you mean {near!r}?" if near else f"known are: {', '.join(names) or 'none'}"
    return ValueError(f"unknown {kind} {name!r}; {hint}")
