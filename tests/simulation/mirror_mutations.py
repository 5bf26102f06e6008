"""The switches of what holds a mirror together (R36)."""

from __future__ import annotations

from tests.simulation.switch import Switch
from timeline.catalogs.mirrors.mirroring import Mirror
from timeline.retention import mirrored, policy
from timeline.retention.grace import GracePeriods

MIRROR_SWITCHES = (
    Switch("R36", "a mirror is moved over a fork", Mirror, "_move",
           "at = 0 if place is None else", "at = 0 if place is None or '-0a1b' in place else", mirrored=True),
    Switch("R36", "a version that a mirror names is deleted early", policy, "versions_to_delete",
           "and number not in held", "", mirrored=True),
    Switch("R36", "what a mirrored version reaches is deleted early", GracePeriods, "has",
           " or pending.version > self.held_from", "", mirrored=True),
    Switch("R36", "a mirror names a version before there is a note", Mirror, "_note",
           "table.store.overwrite(note.path", "(lambda *_: None)(note.path", mirrored=True),
    Switch("R36", "a note is not looked at again before the mirror is moved", Mirror, "_note",
           "if note.version > table.refresh().number - policy.VERSIONS_ALWAYS_KEPT:", "if True:",
           mirrored=True),
    Switch("R36", "the note on what a mirror names leaves with those before", Mirror, "_move",
           "if each.version < at]", "if each.version <= at]", mirrored=True),
    Switch("R36", "a note on a version that is not named yet ends that on the one that is", Mirror, "_move",
           "self._move_to(table, place, store.uri(version_path(at)))",
           "store.delete([n.path for n in notes_of_mirror(store, digest) if n.version < at])\n"
           "            self._move_to(table, place, store.uri(version_path(at)))", mirrored=True),
    Switch("R36", "a mirror holds nothing once its note is a moment old", mirrored, "is_outdated",
           "> HELD_MS", "> 0", mirrored=True),
)  # fmt: skip
