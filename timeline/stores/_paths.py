"""Locations and the paths below them: one spelling, and its inverse."""

from __future__ import annotations


def local_path(uri: str) -> str:
    """Return the path that a `file:` URI of another engine names: `file:/x` and `file:///x` are `/x`, whose
    characters are not escaped. Any other name stays.
    """
    path = uri.removeprefix("file:")
    return "/" + path.lstrip("/") if path != uri and path.startswith("/") else uri


def s3_url(uri: str) -> str:
    """Return an `s3a:` or `s3n:` URL of another engine as `s3:`. Any other name stays."""
    scheme, _, rest = uri.partition("://")
    return f"s3://{rest}" if scheme in ("s3a", "s3n") else uri


def relative(location: str, uri: str) -> str:
    """Return the path below `location` that `join` spells as `uri`. ValueError if `uri` lies elsewhere."""
    prefix = f"{location}/"
    path = uri.removeprefix(prefix)
    if not uri.startswith(prefix) or not path or ".." in path.split("/"):
        raise ValueError(f"not a name below the table's location {location!r}: {uri!r}")
    return path
