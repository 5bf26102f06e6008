"""The switches of what holds the names of snapshots together."""

from __future__ import annotations

from tests.simulation.switch import Switch
from timeline.catalogs import updates
from timeline.changes.ref_changes import RemoveRef

REF_SWITCHES = (
    Switch("refs", "a name that others have moved is removed", RemoveRef, "find_conflict",
           "if (known.snapshot_id, known.snapshot_ref_type) != (self.snapshot_id, self.kind):", "if False:",
           named=True),
    Switch("refs", "a removal is acknowledged, and the name stays", RemoveRef, "apply",
           "draft.release_ref(self.name)", "pass", named=True),
    Switch("refs", "what a removed name held expires with its removal", RemoveRef, "apply",
           "draft.release_ref(self.name)", "draft.drop_ref(self.name)", named=True),
    Switch("refs", "a name that another engine has moved beside main is removed", updates, "_requirements",
           "beside = _moved_refs(base, after) if base.snapshots else {}", "beside = {}",
           named=True, catalog=True),
)  # fmt: skip
