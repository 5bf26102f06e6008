"""Locations and the paths below them: one spelling, and its inverse."""

from __future__ import annotations


def join(location: str, path: str) -> str:
    """Return the absolute name of `path` below `location`."""
    return f"{location}/{path}"


def relative(location: str, uri: str) -> str:
    """Return the path below `location` that `join` spells as `uri`. ValueError if `uri` lies elsewhere."""
    prefix = f"{location}/"
    path = uri.removeprefix(prefix)
    if not uri.startswith(prefix) or not path or ".." in path.split("/"):
        raise ValueError(f"not a name below the table's location {location!r}: {uri!r}")
    return path
