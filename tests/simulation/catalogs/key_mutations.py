"""The switches of what keeps a table with a key right in a catalog, beside other engines."""

from __future__ import annotations

from streaming_sink.keyed import key_resolution, searched_files
from streaming_sink.keyed import row_deletes as batch_tombstones
from streaming_sink.removal import rewriting
from streaming_sink.table import table_keys
from tests.simulation.switch import Switch
from timeline.changes import key_changes
from timeline.changes.row_deltas import RowDelta
from timeline.versions.keys import Looked

KEYED_CATALOG_SWITCHES = (
    Switch("R31", "files of other engines are known by their sequence numbers", Looked, "find_unseen",
           "yield from self.find_added(head)",
           "seen = head.metadata.snapshot_by_id(self.snapshot_id or 0)\n"
           "    number = 0 if seen is None else seen.sequence_number\n"
           "    yield from (it.location for it in head.live_files() if it.sequence_number > number)",
           keyed_catalog=True, rare=True),
    Switch("R31", "deletes that a rollback takes back are not looked at", Looked, "find_unseen",
           "if self.deletes and self.was_set_back(head):", "if False:", keyed_catalog=True),
    Switch("R31", "rows that a rollback brings back are not looked for", key_resolution, "resolve_again",
           "if before.looked.was_set_back(head):", "if False:", keyed_catalog=True),
    Switch("R31", "a look for keys ignores deletes of other engines", searched_files.SearchedFiles, "at",
           "position_deletes_of(head, it) for",
           "tuple(each for each in position_deletes_of(head, it) if '/00000-' not in each) for",
           keyed_catalog=True),
    Switch("R31", "a row delta passes over deletes that others have added since", RowDelta, "find_conflict",
           "check_deletes_are_known(head, files, self.applied)", "pass", keyed_catalog=True),
    Switch("R31", "rows are looked for beside deletes by value", table_keys, "position_deletes_of",
           "if delete.content == DataFileContent.EQUALITY_DELETES:", "if False:", keyed_catalog=True),
    Switch("R31", "a key is looked for though a column of it was dropped", key_changes,
           "check_key_has_its_columns", "if gone := sorted(", "if False and sorted(", keyed_catalog=True,
           rare=True),
    Switch("R34", "deleted keys are in reach of orphan removal", batch_tombstones, "remember_deletes",
           "table.log.tombstone_folder", "names.DATA_FOLDER", keyed_catalog=True),
    Switch("R34", "what a purge remembers is in reach of orphan removal", rewriting, "_tombstones",
           "left.table.log.tombstone_folder", "names.DATA_FOLDER", keyed_catalog=True),
)  # fmt: skip
