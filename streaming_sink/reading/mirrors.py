"""The mirrors of a table at a location: what each names, as the last call that moved it has noted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planners.printing import span_text
from timeline.retention.mirrored import read_mirrors
from timeline.versions.head import Head


@dataclass(frozen=True, kw_only=True)
class MirrorDetails:
    """A table of a catalog that names a version of this one. The catalog itself is not asked."""

    name: str
    version: int | None
    """The version that it names; None where it has named none yet."""
    behind: int | None
    """How many versions are newer."""
    behind_seconds: int | None
    """How much older than the newest version that one is."""
    fork: str
    """What it was found to name, where that is no version of this table; "" where it was not."""
    outdated: bool
    """Whether what it names may be deleted, since that was superseded more than a day ago."""


def list_mirrors(head: Head) -> tuple[MirrorDetails, ...]:
    """Return the mirrors that a head has. No request where it has none, else a LIST, and a GET for each."""
    return tuple(
        MirrorDetails(
            name=state.mirror,
            version=state.version,
            behind=None if state.version is None else head.number - state.version,
            behind_seconds=None if (ms := state.behind_ms(head.version)) is None else ms // 1000,
            fork=state.fork,
            outdated=state.is_outdated,
        )
        for state in read_mirrors(head.manifest_files.store, head)
    )


def warn_of_mirrors(mirrors: tuple[MirrorDetails, ...]) -> Iterator[str]:
    """Yield what needs attention."""
    for each in mirrors:
        if each.fork:
            yield each.fork
        elif each.outdated:
            behind = span_text((each.behind_seconds or 0) * 1000)
            yield (
                f"the mirror {each.name} is {behind} behind, so that what it names may be deleted: run"
                " `streaming-sink mirror`"
            )
