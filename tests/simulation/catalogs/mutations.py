"""The switches of what holds a table in a catalog together."""

from __future__ import annotations

from tests.simulation.switch import Switch
from timeline.catalogs import catalog_draft, loaded, memory, updates
from timeline.catalogs.catalog_draft import CatalogDraft
from timeline.catalogs.catalog_log import CatalogLog
from timeline.changes.changes import Replace
from timeline.manifests.deletes import DeleteIndex
from timeline.retention import garbage
from timeline.versions import partitioning

_ERRORS = "__import__('timeline.errors', fromlist=['x'])"

CATALOG_SWITCHES = (
    Switch("R29", "main is not asserted", updates, "_requirements",
           "for name in sorted({MAIN_BRANCH, *beside}):", "for name in ():",
           catalog=True),
    Switch("R29", "the current schema is not asserted", updates, "_requirements",
           "yield AssertCurrentSchemaId(current_schema_id=base.current_schema_id)", "pass", catalog=True),
    Switch("R29", "the last field id is not asserted", updates, "_requirements",
           "yield AssertLastAssignedFieldId(last_assigned_field_id=base.last_column_id)", "pass",
           catalog=True, rare=True),
    Switch("R29", "a refusal passes for a loss", CatalogLog, "publish",
           "in_doubt = in_doubt or not is_refusal(failure)",
           "in_doubt = in_doubt or not is_refusal(failure)\n"
           "            if not in_doubt:\n"
           f"                raise {_ERRORS}.CommitConflictError('409')",
           catalog=True),
    Switch("R29", "no answer passes for a loss", CatalogLog, "publish",
           "in_doubt = in_doubt or not is_refusal(failure)",
           f"raise {_ERRORS}.CommitConflictError('no answer')", catalog=True),
    Switch("R29", "at the deadline unknown passes for lost", CatalogLog, "publish",
           "return StateUnknown(self._unknown(candidate, failure.__cause__))",
           f"raise {_ERRORS}.CommitConflictError('no answer')", catalog=True),
    Switch("R29", "a commit that main has left passes for lost, also by a load from a cache", loaded,
           "is_older", "if now.table_uuid", "if True or now.table_uuid", catalog=True),
    Switch("R29", "an old load with the number of a newer one passes for the head", loaded, "is_older",
           "return not (is_as_built", "return False and (is_as_built", catalog=True, rare=True),
    Switch("R29", "a commit that lost to one beside main is not looked for again", CatalogLog, "publish",
           "doubtful = in_doubt", "doubtful = False", catalog=True, rare=True),
    Switch("R29", "a commit is known by the snapshot that all its attempts share", CatalogLog,
           "_has_landed", "if any(commit_of(snapshot) == ours for snapshot in known):",
           "if candidate.appended_snapshot_id in {it.snapshot_id for it in known}:", catalog=True),
    Switch("R29", "a commit that decides moves no main", CatalogDraft, "finish",
           "if not self.snapshots:",
           "if not self.snapshots:\n"
           "        finished, expiry = self.complete()\n"
           "        version = CatalogVersion(self.number, finished)\n"
           "        return Head(version, self.manifests, self.manifest_files), b'', expiry\n"
           "    if False:", catalog=True),
    Switch("R29", "properties of others are set to what they were", updates, "_difference",
           "if base.properties.get(key) != value", "", catalog=True),
    Switch("R12", "a commit in a catalog is not later than all snapshots", catalog_draft, "newest_ms",
           "return max(times)", "return 0", catalog=True),
    Switch("R13", "deletes of other engines are ignored", DeleteIndex, "find",
           "if each.sequence_number >= file.sequence_number", "if False", catalog=True),
    Switch("R13", "a file that another engine has replaced passes for live", Replace, "find_conflict",
           'return f"another commit has replaced an input: {location}"', "continue", catalog=True),
    Switch("R30", "what the table remembers is not checked", CatalogLog, "check_writable",
           "if not self.accepts:", "if False:", catalog=True),
    Switch("R30", "parent links alone say whether a table was replaced", memory, "find_descent",
           "if oldest is not None and oldest <= witness.sequence_number:", "if False:", catalog=True),
    Switch("R30", "a witness that is not in the metadata has expired", memory, "find_descent",
           "if oldest is not None and oldest <= witness.sequence_number:", "if True:", catalog=True),
    Switch("R30", "any log of metadata files shows that main was continued", memory, "was_continued",
           "if not continued:", "if False:", catalog=True),
    Switch("R30", "what is remembered is not compared with its digest", memory, "check_memory",
           "if _digest(stated) != witness.digest:", "if False:", catalog=True),
    Switch("partitions", "manifests have no place for a column that another engine has dropped", partitioning,
           "schemas_of_spec", "if not dropped:", "if True:", partitioned=True),
    Switch("partitions", "manifests state columns that their schema does not have", partitioning,
           "schemas_of_spec", "schema_id=schema.schema_id), _newest_schema(metadata, spec)",
           "schema_id=schema.schema_id), None", partitioned=True),
    Switch("partitions", "a column that was dropped has the first of its types", partitioning,
           "_dropped_columns", "reverse=True", "reverse=False", partitioned=True),
    Switch("partitions", "manifests whose types are lost are written again", partitioning,
           "specs_without_types", "if None in", "if 0 in", partitioned=True),
    Switch("R13", "a replace of files whose types are lost fails its batch", Replace, "find_conflict",
           "if lost := find_lost_types(head.metadata, known.values()):", "if lost := None:",
           partitioned=True),
    Switch("R7", "a note in its grace period that cannot be read has expired nothing", garbage, "sweep",
           "[] if unknown else ", "", partitioned=True, rare=True),
)  # fmt: skip
