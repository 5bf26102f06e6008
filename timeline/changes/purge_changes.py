"""The changes of a purge: manifests without the files that left them, and an append of nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from timeline.changes.changes import Change, Over
from timeline.versions.head import Head


@dataclass(frozen=True)
class RewriteManifests(Change):
    """Write manifests again without the files that have left them: such entries hold bounds of values. What
    the commit itself removes is named in manifests of its own, which no later snapshot carries.

    A manifest that the head does not list any more is left out.
    """

    over: ClassVar[Over] = Over(when="manifests that left are passed over")

    manifests: frozenset[str] = frozenset()
    """Locations, as manifest lists spell them."""

    def find_idleness(self, head: Head) -> str | None:
        if any(each.manifest_path in self.manifests for each in head.manifests):
            return None
        return "its manifests are not in the table any more"


@dataclass(frozen=True)
class AppendNothing(Change):
    """Add an append without files, as an engine does for a batch without rows.

    The newest snapshot that changed rows never expires (R7). After this one, that is it, so that an earlier
    one can expire whose files are to be deleted.
    """
