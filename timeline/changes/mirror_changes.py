"""The kinds of change of a mirror (R36): from which version on cleaners keep what catalogs name."""

from __future__ import annotations

from dataclasses import dataclass

from timeline import properties
from timeline.changes.changes import Change
from timeline.drafts.draft import Draft
from timeline.features import MIRROR, release_feature, require_feature
from timeline.versions.head import Head
from timeline.versions.mirrors import mirrors_of, mirrors_to_property


@dataclass(frozen=True)
class AddMirror(Change):
    """From this version on each cleaner of the table looks which versions a mirror names."""

    mirror: str

    def find_idleness(self, head: Head) -> str | None:
        if self.mirror in mirrors_of(head.properties):
            return f"the table has the mirror: {self.mirror}"
        return None

    def apply(self, draft: Draft) -> None:
        known = mirrors_of(draft.properties)
        draft.properties[properties.MIRRORS] = mirrors_to_property((*known, self.mirror))
        # A writer that does not know it would delete the versions after an hour.
        require_feature(draft.properties, MIRROR)


@dataclass(frozen=True)
class RemoveMirror(Change):
    """From this version on nothing is kept for a mirror."""

    mirror: str

    def find_idleness(self, head: Head) -> str | None:
        if self.mirror not in mirrors_of(head.properties):
            return f"the table has no such mirror: {self.mirror}"
        return None

    def apply(self, draft: Draft) -> None:
        left = [each for each in mirrors_of(draft.properties) if each != self.mirror]
        if left:
            draft.properties[properties.MIRRORS] = mirrors_to_property(left)
        else:
            draft.properties.pop(properties.MIRRORS, None)
            release_feature(draft.properties, MIRROR)  # nothing is left that a writer had to know
