"""One switch for each rule that the code can break: the simulator is as good as what it catches of these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planners import fills as fills_planner
from streaming_sink.ingest.worker import Worker
from streaming_sink.keyed import by_key, key_resolution, row_deletes, searched_files
from streaming_sink.keyed import row_deletes as batch_tombstones
from streaming_sink.removal import purge as purging
from streaming_sink.removal import rewriting, table_purge
from streaming_sink.removal.table_purge import TablePurge
from streaming_sink.seconds import change_log
from streaming_sink.seconds.change_log import ChangeLog
from streaming_sink.tasks.changes.change_writer import ChangeWriter
from streaming_sink.tasks.keys import sequences
from streaming_sink.tasks.keys import tombstones as key_tombstones
from streaming_sink.upkeep import fills
from streaming_sink.zones import write_audit_publish
from streaming_sink.zones.planning.flux import Flux
from tests.simulation.catalogs.key_mutations import KEYED_CATALOG_SWITCHES
from tests.simulation.catalogs.mutations import CATALOG_SWITCHES
from tests.simulation.derived_mutations import DERIVED_SWITCHES
from tests.simulation.mirror_mutations import MIRROR_SWITCHES
from tests.simulation.ref_mutations import REF_SWITCHES
from tests.simulation.switch import Switch
from timeline import outbox
from timeline.changes import key_changes
from timeline.changes.changes import Change, RaiseFence, Replace
from timeline.changes.delete_merges import MergeDeletes
from timeline.changes.follow_changes import Follow
from timeline.changes.intent import Intent
from timeline.changes.key_changes import DeclareKey, KeysResolved, PutTombstones
from timeline.changes.outbox_changes import Deliver, PutOutbox
from timeline.changes.plan_changes import Withdraw
from timeline.changes.ref_changes import Rollback
from timeline.changes.row_deltas import RowDelta
from timeline.changes.schema_changes import MergeSchema, SetPartitioning
from timeline.changes.staging_changes import Publish
from timeline.commit import confirm, conflicts, creation, descent, publish, standing, version_log
from timeline.commit.attempts import Attempts
from timeline.commit.snapshots import AppendWriter
from timeline.commit.version_log import VersionLog
from timeline.drafts import rewriting as draft_rewriting
from timeline.drafts import succession
from timeline.drafts.draft import Draft
from timeline.drafts.rewriting import Rewrite
from timeline.maintenance import orphans
from timeline.manifests import deletes, pruning
from timeline.manifests.deletes import DeleteIndex
from timeline.plans import claims, instants, reservations
from timeline.retention import garbage, policy
from timeline.retention.path_index import PathIndex
from timeline.slots import settling
from timeline.slots.numbered import NumberedLog
from timeline.table import Table
from timeline.versions import evolution, partitioning, pending, transactions, work_items
from timeline.versions.head import Head
from timeline.versions.keys import Looked
from timeline.versions.listing import VersionFiles
from timeline.versions.work_items import DiscardedItem, WorkItem


def only_once(intent: Intent, check: Callable[..., Any]) -> Callable[..., Any]:
    """Return a check that looks at the first head only."""

    def checked(*args: Any) -> Any:
        if "checked" not in intent.__dict__:
            intent.__dict__["checked"] = check(*args)
        return intent.__dict__["checked"]

    return checked


def mixed_manifest(writer: AppendWriter, draft: Draft) -> list[Any]:
    """Write one manifest of what the head's first one holds and of what is appended, merged."""
    from timeline import names
    from timeline.manifests.entries import added_entry, existing_entry

    carried = draft.carried_manifests()
    if not carried:
        return writer._manifests
    entries = [existing_entry(entry) for entry in writer.manifest_files.entries(carried[0])]
    entries += [added_entry(writer._snapshot_id, file) for file in writer.intent.appended_files]
    path = names.manifest_path(draft.new_id())
    spec, schema = draft.head.metadata.specs()[0], draft.head.schema
    draft.manifests = tuple(m for m in draft.manifests if m is not carried[0])
    written = writer.manifest_files.write_manifest(path, spec, schema, writer._snapshot_id, entries)
    writer._files[written.manifest_path] = list(writer.intent.appended_files)
    return [written]


_HERE = "__import__('tests.simulation.mutations', fromlist=['x'])"
_ERRORS = "__import__('timeline.errors', fromlist=['x'])"

SWITCHES = (
    # ------------------------------------------------------------------------------------ publishing
    Switch("R1", "a commit is acknowledged without a listing", VersionLog, "publish",
           "confirm(self, candidate, holds_slot, judge, give_up_at)",
           "Won(candidate, candidate.head, self.list())"),
    Switch("R1", "a higher head passes for a descendant", descent, "descends",
           "if ours.version.commit_id in head.version.recent_commits:", "if True:"),
    Switch("R1", "only the base file is looked for", confirm, "confirm",
           "if descends(head, candidate, judge, log.store.location):",
           "if ours.number - 1 in listing.versions:"),
    Switch("R1", "a commit older than the head's memory passes for lost", standing, "judge_standing",
           "state = head.transaction(txn.app_id)", "return Standing.LOST", stormy=True),
    Switch("R1", "a commit older than the head's memory passes for committed", descent,
           "descends", "verdict = judge(head, candidate)", "verdict = Standing.COMMITTED"),
    Switch("R1", "a read that fails while an old commit is judged passes for a refusal", confirm, "confirm",
           "except (StoreUnavailableError, MissingMetadataError) as failure:  # judging reads manifests",
           "except ZeroDivisionError as failure:", stormy=True, rare=True),
    Switch("R2", "'exists' passes for a loss, unread", settling, "settle_slot",
           "if isinstance(outcome, Created):",
           "if type(outcome).__name__ == 'Exists':\n"
           f"            raise {_ERRORS}.CommitConflictError('exists')\n"
           "        if isinstance(outcome, Created):"),
    Switch("R2", "'exists' and others' bytes pass for a loss, unlisted", version_log, "create_version",
           "Lost(theirs, doubtful=True)", "Lost(theirs)", stormy=True, rare=True),
    Switch("R2", "'exists' passes for our own create, unread", settling, "settle_slot",
           "if isinstance(outcome, Created):", "if type(outcome).__name__ != 'Unknown':"),
    Switch("R3", "no answer passes for a failure", settling, "settle_slot",
           "if isinstance(outcome, Created):",
           "if type(outcome).__name__ == 'Unknown':\n"
           f"            raise {_ERRORS}.CommitConflictError('no answer')\n"
           "        if isinstance(outcome, Created):"),
    Switch("R3", "no answer passes for success", settling, "settle_slot",
           "if isinstance(outcome, Created):", "if type(outcome).__name__ != 'Exists':"),
    Switch("R3", "an empty slot passes for a loss", settling, "settle_slot",
           "except (FileNotFoundError, StoreUnavailableError) as failure:",
           "except FileNotFoundError:\n"
           f"            raise {_ERRORS}.CommitConflictError('an empty slot')\n"
           "        except StoreUnavailableError as failure:"),
    Switch("R3", "at the deadline unknown passes for lost", version_log, "create_version",
           "raise CommitStateUnknownError(", f"raise {_ERRORS}.CommitConflictError("),
    Switch("R3", "a fill beside the stream passes for lost though its commit is unknown", fills,
           "commit_merges", "except CommitConflictError as conflict:",
           f"except (CommitConflictError, {_ERRORS}.CommitStateUnknownError) as conflict:"),
    Switch("R3", "another's bytes after an unanswered create pass for a loss", settling, "settle_slot",
           "refused = creates == 1 and isinstance(outcome, Exists)", "refused = True",
           stormy=True, rare=True),
    Switch("R4", "another object is read than the one that was listed", VersionFiles, "latest",
           "stored.identity == listed", "True", stormy=True),
    Switch("R4", "an unlisted winner decides that there is nothing to do", publish._Run, "attempt",
           "if candidate is None:\n        if self.attempts > 1:",
           "if candidate is None and self.winner is not None:\n"
           "        return Unneeded(self.log.head(self.winner))\n"
           "    if candidate is None:\n        if self.attempts > 1:", stormy=True),
    Switch("R5", "the hint is set back", VersionFiles, "write_hint",
           "if hinted is None or hinted < number:", "if True:"),
    Switch("R20", "a version file is put after a look, not created if absent", settling, "settle_slot",
           "outcome = store.create(path, data)", f"outcome = {_HERE}.put_after_a_look(store, path, data)"),
    # ------------------------------------------------------------------------------- the garbage fence
    Switch("R6", "files from below the fence are committed", conflicts, "check_files_are_above_the_fence",
           "if cutoff is None:", "if True:"),
    Switch("R6", "the cleaner raises no fence", orphans, "_raise_fence",
           "table.commit([RaiseFence(cutoff)])", "pass"),
    Switch("R6", "the cleaner does not look again behind its fence", orphans, "remove_orphan_files",
           "referred.add(table.refresh())", "pass"),
    Switch("R6", "the cleaner takes a damaged note of an expiry for none", orphans._Referred, "add",
           "if grace.has_of_commit(pending)]", "if False]", rare=True),
    Switch("R6", "the cleaner forgets some of what is referred to", PathIndex, "find",
           "if number < 0 else number", "if number < 0 or number % 3 == 0 else number"),
    Switch("R6", "manifests from below the fence are committed", AppendWriter, "_renew_manifests",
           'if any((names.file_id(m.manifest_path) or "") < cutoff for m in self._manifests):',
           "if False:", stormy=True),
    Switch("R6", "a replace's files from below the fence are committed", Change, "fenced_files",
           "*self.rewritten_files", "*()", stormy=True),
    Switch("R6", "the fence sinks", RaiseFence, "apply",
           "max(known, self.cutoff)", "self.cutoff", stormy=True),
    # ------------------------------------------------------------------------------------------ expiry
    Switch("R7", "files go as soon as their snapshots expire", garbage, "sweep",
           "(waiting if grace.has(pending) else due)", "due"),
    Switch("R7", "the note of a lost commit ends the grace of another's expiry", garbage, "sweep",
           "for note in waits for record in note.expired", "for note in () for record in note.expired"),
    Switch("R7", "the note of a lost commit ends the grace of what a tag had kept", garbage, "sweep",
           "*unpinned]", "]", rare=True),
    Switch("R7", "the note of a lost commit passes for an expiry", garbage, "sweep",
           "and _of_none(note, live)", ""),
    Switch("R7", "the note of a fork passes for one of main", garbage, "_notes_of_main",
           "if note.kept.manifest_list in of_main:", "if True:", rare=True),
    Switch("R7", "the note of an attempt that lost passes for the one that won", garbage, "_notes_of_main",
           "if note.kept.manifest_list in of_main:",
           "if note.kept.manifest_list in of_main"
           " or note.kept.snapshot_id in {it.snapshot_id for it in head.metadata.snapshots}:",
           keyed=True, rare=True),
    Switch("R7", "a staged file goes with its published twin", garbage, "_spare",
           "older or manifest.added_snapshot_id == pin.snapshot_id", "older", audited=True, rare=True),
    Switch("R7", "what a tag still reads is deleted", garbage, "find_garbage",
           "for pin in _find_pins(head, note)]", "for pin in ()]"),
    Switch("R7", "what a tag had kept has no grace of its own", garbage, "find_garbage",
           "for pin in unpinned]", "for pin in ()]", rare=True),
    Switch("R7", "a commit's head is taken for damaged after a sleep past the grace", publish._Run,
           "_build_on_confirmed",
           "except MissingMetadataError:", "except ZeroDivisionError:", rare=True),
    Switch("R7", "a new head is taken for damaged after a sleep past the grace", VersionFiles, "newest",
           "except MissingMetadataError:", "except ZeroDivisionError:"),
    Switch("R7", "the head of a plan is taken for damaged after a sleep past the grace", Table, "on_head",
           "except MissingMetadataError:", "except ZeroDivisionError:", rare=True),
    Switch("R7", "a tag pins nothing", policy, "_find_unpinned", " - pinned", ""),
    Switch("R7", "the newest snapshot that changed rows expires", policy, "snapshots_to_expire",
           "next((s for s in main if _changes_rows(s)), main[0])", "main[0]"),
    Switch("R7", "an append expires without its replace", policy, "_group_by_commit",
           "commit_of(snapshots[end]) != commit_of(snapshots[start])", "True"),
    Switch("R7", "a file that a rollback brought back is deleted as one that has left", garbage,
           "_may_return", "> note.expired[0].sequence_number", "> 10**9"),
    Switch("R7", "a rollback does not say that files are live again", Rollback, "apply",
           "draft.properties[properties.ROLLED_BACK] = str(draft.sequence_number)", "pass"),
    Switch("R7", "a rollback makes files younger than they are", Rewrite, "_sort_entries",
           "returned_entry(snapshot_id, entry)", "added_entry(snapshot_id, entry.data_file)"),
    Switch("R12", "snapshots expire before enough later versions exist", policy, "snapshots_to_expire",
           "near = _later_commits(group[-1], version, places) < SAFE_DISTANCE", "near = False"),
    # ---------------------------------------------------------------------------------- building on a head
    Switch("R8", "a retry carries the manifests of the head that it lost on", Attempts, "build",
           "draft = self.draft.begin(head, self.manifest_files, self.environment, intent.summary)",
           "draft = self.draft.begin(head, self.manifest_files, self.environment, intent.summary)\n"
           "    draft.manifests = self.__dict__.setdefault('_first', head.manifests)"),
    # ----------------------------------------------------------------------------------- clustering plans
    Switch("R11", "a claim takes the place of another's", claims, "take_claim",
           "outcome = store.create(path, claim_bytes(executor, 0))",
           "store.overwrite(path, claim_bytes(executor, 0))\n    outcome = Created()",
           stormy=True, rare=True),
    Switch("R11", "another executor's claim passes for the own one", claims, "take_claim",
           "_executor(read_if_there(store, path)) != executor", "False", stormy=True, rare=True),
    Switch("R11", "a completed plan stays pending", pending, "withdraw", "if plan.plan_id != plan_id", ""),
    Switch("R11", "a plan that timed out stays pending", instants, "schedule_plan",
           "if has_timed_out(each, head)]", "if False]"),
    Switch("R11", "an announcement drops those before it", pending, "announce", "(*known, ",
           "(*known[:0], "),
    Switch("R11", "the orphan cleaner deletes instants", orphans, "remove_orphan_files",
           "for folder in folders\n        for listed in store.list_below(folder)\n"
           "        if (file_id := names.written_id(listed.path))",
           "for folder in (*folders, names.plan_folder('clustering'))\n"
           "        for listed in store.list_below(folder)\n"
           "        if (file_id := names.file_id(listed.path))"),
    Switch("R12", "a plan times out before enough later versions exist", reservations, "has_timed_out",
           " and head.version.commits_since(plan.version) >= SAFE_DISTANCE", ""),
    Switch("R13", "a late executor's commit passes though nothing of it fits", Withdraw, "find_idleness",
           'return f"the plan is not pending: {self.plan_id}"', "return None", stormy=True),
    Switch("R12", "a version carries the writer's own time", succession, "commit_time",
           "max(environment.now_ms(), head.metadata.last_updated_ms + 1)", "environment.now_ms()"),
    Switch("R12", "append and replace carry one time", Draft, "_write_snapshot",
           "self.now_ms + len(self.snapshots)", "self.now_ms"),
    Switch("R13", "a replace commits though an input is not live", Replace, "find_conflict",
           'return f"another commit has replaced an input: {location}"', "continue"),
    Switch("R13", "a replace commits though an input has deletes", Replace, "find_conflict",
           "found = head.deletes_of(live)", "found = []"),
    Switch("R13", "a row delta commits though a data file is not live", RowDelta, "find_conflict",
           "check_data_files_are_live(head, live)", "pass"),
    Switch("R13", "a row delta commits over another's deletes of its file", RowDelta, "find_conflict",
           "check_deletes_are_known(head, files, self.applied)", "pass"),
    Switch("R13", "a fold commits though it has not applied all deletes", Replace, "find_conflict",
           "if sizes.keys() - self.applied:", "if False:"),
    Switch("R13", "the deletes of a folded file stay", draft_rewriting, "with_idle_deletes",
           "if it.refers_to in removed}", "if False}"),
    Switch("R13", "a fold takes the deletes of other files away", draft_rewriting, "with_idle_deletes",
           "if it.refers_to in removed}", "if it.refers_to}"),
    Switch("R13", "a shared delete file leaves though it applies to files in other manifests",
           draft_rewriting, "with_idle_deletes",
           "data = (file for each in of_data", "data = (file for each in of_data[:0]"),
    Switch("R13", "bounds of a manifest list exclude the greatest partition", pruning, "_is_within",
           "bounds[0] <= value <= bounds[1]", "bounds[0] <= value < bounds[1]"),
    Switch("R13", "a shared delete file leaves with the first of its data files", deletes, "_applies_to_any",
           "if sequence_number <= delete.sequence_number:", "if False:"),
    Switch("R13", "a shared delete file stays without its data files", deletes, "find_idle",
           "if not _applies_to_any(each, paths[_where(each, partitioned)])", "if False"),
    Switch("R13", "a merge of delete files commits though its data file has left", MergeDeletes,
           "find_conflict", 'return f"another commit has replaced the data file: {location}"', "continue"),
    Switch("R13", "a merge of delete files commits though one of them has left", MergeDeletes,
           "find_conflict", "if gone := self.removed - known.keys():", "if gone := frozenset():"),
    Switch("R13", "a fold and a merge of its delete files go into one version", MergeDeletes,
           "find_conflict", "if taken := (alone | self.removed) & beside.taken:",
           "if taken := frozenset():"),
    Switch("R13", "delete files that were merged stay", Rewrite, "_sort_entries",
           "if entry.data_file.file_path in self.removed:",
           "if entry.data_file.content.value == 0 and entry.data_file.file_path in self.removed:"),
    Switch("R13", "deletes that may be of several data files are ignored", DeleteIndex, "__init__",
           "wide[_where(delete, partitioned)].append(delete)", "pass"),
    Switch("R13", "deletes that name their data file are ignored", DeleteIndex, "__init__",
           "self._by_file[location].append(delete)", "pass"),
    Switch("R13", "a fill beside the stream passes for lost though its commit kept it", fills,
           "commit_merges",
           "lost += [replace for replace in wanted if replace in dropped]", "lost += wanted"),
    Switch("R13", "a fill beside the stream adds its files though an input is dead", fills,
           "commit_merges",
           "wanted, schema_id=schema_id",
           "[__import__('timeline.changes.changes', fromlist=['x']).Append(it.added) for it in wanted],"
           " schema_id=schema_id"),
    Switch("R13", "two groups of a commit take one file", Replace, "find_conflict",
           "if location in beside.taken:", "if False:"),
    Switch("R16", "another query's checkpoint is accepted", transactions, "_is_another_query",
           "state.query_id != txn.query_id", "False"),
    Switch("R16", "a takeover names no query", transactions, "check_transaction",
           "if txn.takeover_from != state.query_id:", "if False:"),
    Switch("R16", "the same batch commits again", transactions, "check_transaction",
           "if txn.batch == state.batch:\n        return None",
           "if txn.batch == state.batch:\n        return 1"),
    Switch("R16", "a lower batch commits", transactions, "check_transaction",
           "if txn.batch < state.batch:", "if False:"),
    Switch("R16", "a superseded run goes on", transactions, "check_transaction",
           "if (state.epoch, state.run_id) != (txn.epoch, txn.run_id):", "if False:"),
    Switch("R16", "the state is checked once, not on every head", conflicts, "check_conflicts",
           "epoch = transaction.check(",
           f"epoch = {_HERE}.only_once(intent, transaction.check)("),
    Switch("R16", "the state is not committed with the batch", transactions.Transaction, "record",
           "properties[self.key] =", "_ ="),
    Switch("R17", "a new table at the location passes for the old one", conflicts, "check_table_is_the_same",
           "if str(head.metadata.table_uuid) != table_uuid:", "if False:"),
    Switch("R17", "a writer does not look whether the table was dropped", conflicts,
           "check_table_is_the_same", "check_not_dropped(head)", "pass"),
    Switch("R17", "a table that is made where one was dropped begins anew", creation, "first_version",
           "before = None if dropped is None else dropped.version", "before = None"),
    Switch("R19", "all versions but the highest are deleted", policy, "versions_to_delete",
           "number <= highest - VERSIONS_ALWAYS_KEPT", "number < highest"),
    Switch("R19", "the hint is not refreshed before a version goes", VersionFiles, "write_hint",
           "self.store.overwrite(HINT_PATH, hint_text(number))", "pass"),
    Switch("R13", "a replace loses a column that its writer did not know", evolution, "find_unread_column",
           "if misfit := find_misfit(head.schema_at(file.sequence_number), written):",
           "if False:"),
    Switch("R13", "an input is judged by the oldest schema that is left", Head, "schema_at",
           "(snapshot.sequence_number or 0) >= sequence_number", "True"),
    Switch("schema", "a schema that loses its race is not merged again", MergeSchema, "apply",
           "schema = self.merged(draft.metadata)",
           "self.__dict__.setdefault('once', self.merged(draft.metadata)); schema = self.__dict__['once']"),
    Switch("schema", "new columns begin at the ids of the current schema", MergeSchema, "merged",
           "self.wanted, metadata.last_column_id", "self.wanted, 2"),
    Switch("partitioning", "a spec that loses its race is not assigned anew", SetPartitioning, "apply",
           "spec = evolve_spec(metadata, self.wanted)",
           "spec = self.__dict__.setdefault('once', evolve_spec(metadata, self.wanted))"),
    Switch("partitioning", "new fields begin at the ids of the current spec", partitioning,
           "last_partition_id",
           "max(PARTITION_FIELD_ID_START - 1, metadata.last_partition_id or 0, *ever)",
           "max(999, *(field.field_id for field in metadata.spec().fields))"),
    Switch("partitioning", "an equal spec is added again", partitioning, "evolve_spec",
           "if partitions_alike(known, wanted):", "if False:"),
    Switch("partitioning", "a field of an older spec gets a new id", partitioning, "evolve_spec",
           "for spec in metadata.partition_specs for field in _used(spec)",
           "for field in metadata.spec().fields"),
    Switch("partitioning", "two transforms of a column share a name", partitioning, "_free_name",
           "name not in taken and", ""),
    Switch("partitioning", "two applications take turns", SetPartitioning, "find_conflict",
           "other not in (None, self.app_id)", "False"),
    Switch("partitioning", "who changed the spec is not recorded", SetPartitioning, "apply",
           "draft.properties[properties.REPARTITIONED] =", "_ ="),
    Switch("partitioning", "an append lists its files under the current spec", AppendWriter, "prepare",
           "by_kind[ManifestContent.DATA, file.spec_id]",
           "by_kind[ManifestContent.DATA, head.spec.spec_id]"),
    Switch("partitioning", "a replace lists its files under the current spec", Rewrite, "_sort_entries",
           "live[_content_of(file), file.spec_id].append(",
           "live[_content_of(file), self.draft.head.spec.spec_id].append("),
    Switch("partitioning", "a fill merges files of two specs", fills_planner, "plan_fills",
           "free.setdefault(partition_of(file), [])",
           "free.setdefault(partition_of(file)._replace(spec_id=0), [])"),
    Switch("R21", "an append merges manifests", AppendWriter, "add_snapshot",
           "self._manifests, carried, added", f"{_HERE}.mixed_manifest(self, draft), carried, added"),
    Switch("R21", "a row delta passes for an append", AppendWriter, "add_snapshot",
           "if deletes:", "if False:"),
    Switch("R21", "a summary counts a file too few", Draft, "_write_snapshot",
           "operation, added, removed,", "operation, list(added)[1:], removed,"),
    Switch("R21", "a manifest that could not be written again is left out", AppendWriter, "prepare",
           "manifests, written = [], {}",
           "manifests, written = [], {}\n"
           "    self._manifests, self._files = manifests, written", rare=True),
    Switch("R22", "the append is in the snapshot log", Draft, "complete",
           "SnapshotLogEntry(snapshot_id=current.snapshot_id, timestamp_ms=current.timestamp_ms),",
           "*(SnapshotLogEntry(snapshot_id=s.snapshot_id, timestamp_ms=s.timestamp_ms)"
           " for s in self.snapshots),"),
    Switch("R22", "the replace does not continue its append", Draft, "parent_id",
           "self.snapshots[-1].snapshot_id if self.snapshots else self.head.", "self.head."),
    Switch("R22", "sequence numbers skip", Draft, "_write_snapshot",
           "self.sequence_number + 1", "self.sequence_number + 2"),
    # ------------------------------------------------------------------------------------------- the outbox
    Switch("R24", "a commit forgets files that were not delivered", PutOutbox, "find_conflict",
           "known.sequence != self.delivered", "False", two_tables=True),
    Switch("R24", "an entry is looked at once, not on every head", conflicts,
           "drop_changes_that_no_longer_fit", "change.find_conflict(head,",
           f"{_HERE}.only_once(intent, change.find_conflict)(head,", two_tables=True),
    Switch("R24", "deliveries are counted, and the count starts again", PutOutbox, "apply",
           "OutboxEntry(draft.now_ms,",
           "OutboxEntry((known.sequence if (known := draft.head.outbox(self.app_id)) else 0) + 1,",
           two_tables=True),
    Switch("R24", "a delivery is not known by its number", outbox, "_deliver_one",
           ", transaction=transaction", "", two_tables=True),
    Switch("R24", "applications share the numbers of their deliveries", outbox, "delivery_app",
           ".{app_id}", "", two_tables=True),
    Switch("R24", "an old delivery passes for an error", outbox, "_deliver_one",
           "except CheckpointRegressionError:", "except ZeroDivisionError:", two_tables=True),
    Switch("R24", "the main table has no fence for what its outbox names", PutOutbox, "fenced_files",
           "tuple(file for delivery in self.deliveries for file in delivery.files)", "()",
           two_tables=True),
    Switch("R24", "a delivery from behind the second table's fence is refused", Deliver, "fenced_files",
           "return ()", "return self.files", two_tables=True),
    Switch("R24", "the second table's cleaner reads no outbox", orphans, "remove_orphan_files",
           "referred.add_locations(locations_in_outboxes(main))", "pass", two_tables=True),
    Switch("R24", "the second table's cleaner raises no fence in the main table", orphans,
           "remove_orphan_files", "for each in (*mains, table):", "for each in (table,):",
           two_tables=True),
    Switch("R24", "the second table's cleaner reads the outboxes last", orphans, "remove_orphan_files",
           "for main in mains:\n        referred.add_locations(locations_in_outboxes(main))\n"
           "    if orphans:\n"
           "        # Later commits add no file below the cutoff, so this state decides.\n"
           "        referred.add(table.refresh())",
           "referred.add(table.refresh())\n    for main in mains:\n        main.refresh()\n"
           "        referred.add_locations(locations_in_outboxes(main))\n    if orphans:",
           two_tables=True),
    # --------------------------------------------------------------------------------------------- keys
    Switch("R26", "an entry of another planner passes for its own", NumberedLog, "create",
           ".is_own", ".stored is not None", buffered=True),
    Switch("R26", "a create without an answer passes for a success", settling, "settle_slot",
           "if isinstance(outcome, Created):", "if type(outcome).__name__ != 'Exists':", buffered=True),
    Switch("R26", "a copy of a zone passes for the one that the table knows", work_items, "check_lineage",
           "mark_of(int(number)) != mark", "False", buffered=True),
    Switch("R26", "the newest plan of which the table has an item is not named", work_items.WorkItem,
           "_name_plan", "if self.plan is None:", "if True:", buffered=True),
    Switch("R26", "files of another planner's plan still wait", Flux, "_apply",
           "self._forget(file.key for item in plan.items for file in item.files)", "pass", buffered=True),
    Switch("R26", "a planner forgets what was planned", Flux, "_index_plan",
           "self._planned.add(run.rows.files)", "pass", buffered=True),
    Switch("R26", "a planner that starts does not know what the index has", Flux, "_load_index",
           "self._planned.add(files)", "pass", buffered=True),
    Switch("R26", "a planner that starts passes over a plan after the index", Flux, "_load_index",
           "self._plans_read = facts.last", "self._plans_read = facts.last + 1", buffered=True),
    Switch("R26", "a planner that starts numbers items from an older plan", Flux, "_load_index",
           "max(self._next_item, facts.next_item)", "facts.first_items[0]", buffered=True),
    Switch("R26", "a plan states a position behind files that wait", Flux, "_position_after",
           "min(waiting) - 1 if waiting else self._log_read", "self._log_read", buffered=True),
    Switch("R26", "items are numbered anew by each planner", Flux, "_apply",
           "self._next_item = plan.items[-1].number + 1", "pass", buffered=True),
    Switch("R26", "the table is not asked whether it has the item", WorkItem, "check",
           "None if self.number in settled_items(properties, self.app_id) else 1", "1", buffered=True),
    Switch("R26", "the item is not recorded with its rows", WorkItem, "record",
           "properties[self.key] =", "_ =", buffered=True),
    Switch("R26", "the table remembers the last item alone", WorkItem, "record",
           "settled_items(properties, self.app_id).with_number(self.number).to_text()",
           "str(self.number)", buffered=True),
    Switch("R26", "a worker begins after a plan that has landed in part", Worker, "_first_open",
           "plan.items[-1].number < all_below", "plan.items[0].number < all_below", buffered=True),
    Switch("R26", "an item is not tried again after its worker has died", Worker, "_claim",
           "return take_claim(", "return None if held else take_claim(", buffered=True),
    Switch("R27", "what is staged is staged again", conflicts, "check_staged_item_is_published_as_it_is",
           "if not any(isinstance(change, (Publish, Discard)) for change in intent.changes):", "if False:",
           audited=True),
    Switch("R27", "an item is published from where it is not staged any more", Publish, "find_conflict",
           "if staged is None or staged.snapshot_id != self.snapshot_id or picked is not None:", "if False:",
           audited=True),
    Switch("R27", "the fence refuses what is staged", Publish, "fenced_files", "return ()",
           "return self.files", audited=True),
    Switch("R27", "what was staged and unstaged is taken for never staged", standing, "judge_standing",
           "and not staged and", "and", audited=True, rare=True),
    Switch("R27", "no tag holds what is staged", Draft, "stage_snapshot",
           "self.update_metadata(refs={**self.metadata.refs, tag: ref})", "pass", audited=True),
    Switch("R27", "the tag of a published item stays", Publish, "apply", "draft.drop_ref(self.item.tag)",
           "pass", audited=True),
    Switch("R27", "a discarded number is not remembered", DiscardedItem, "record",
           "WorkItem.record(self, properties, epoch, commit_id)", "pass", audited=True),
    Switch("R27", "a worker does not look for what is staged", write_audit_publish, "settle",
           "staged = find_staged(table.head, item)", "staged = None", audited=True),
    Switch("R27", "an item is published without its audit", write_audit_publish, "settle",
           "check(staged, files)", "pass", audited=True),
    Switch("R27", "files that are staged are orphans", orphans._Referred, "add",
           "in reversed(head.metadata.snapshots):", "in head.main_snapshots():", audited=True),
    Switch("R27", "what is staged expires", policy, "_find_unpinned",
           "pinned.add(ref.snapshot_id)", "pass", audited=True),
    Switch("R28", "expiry deletes files by reference", garbage, "find_garbage",
           "in found\n        if (path := find_path(files.store, location)) is not None",
           "in found\n        if (path := find_path(files.store, location) or location)", buffered=True),
    Switch("R25", "files that were added since are not looked at", KeysResolved, "find_conflict",
           "if unseen:", "if False:", keyed=True),
    Switch("R25", "a second look passes over files that a replace has added", key_resolution,
           "resolve_again", "before.looked.find_added(head)",
           "{path: file for path, file in before.looked.find_added(head).items()"
           " if not {'fill', 'fold', 'cluster'} & set(path.split('-'))}",
           keyed=True),
    Switch("R31", "files that came while a manifest has left pass for seen", Looked, "find_added",
           "find_files(head.manifest_files, unread, added, likely=True)", "list(added) if left else ()",
           keyed=True),
    Switch("R31", "a look passes over what has come as manifests have left since the last one",
           searched_files.SearchedFiles, "_move_to",
           "self._held = {path: held for path, held in self._held.items() if path in present}",
           "self._held = {path: _Held((), {}) for path in present if self._held.keys() - present} | {\n"
           "        path: held for path, held in self._held.items() if path in present}",
           keyed=True),
    Switch("R31", "files in a manifest that was written again pass for seen", Looked, "_not_seen",
           "it.manifest_path not in seen", "it.manifest_path not in seen and not it.has_existing_files()",
           keyed=True),
    Switch("R25", "keys that were deleted since are not looked at", KeysResolved, "find_conflict",
           "if deleted:", "if False:", keyed=True),
    Switch("R25", "a second look sees no deleted keys", key_resolution, "resolve_again",
           "sorted(now.tombstones - before.tombstones)", "()", keyed=True),
    Switch("R25", "a first look sees no deleted keys", ChangeWriter, "_compare",
           "until.covers(np.arange(len(mine)), mine)", "unchanged.copy()", keyed=True),
    Switch("R25", "an older change replaces a newer row", ChangeWriter, "_compare",
           "late[found.change[found.sequence > mine[found.change]]] = True", "pass", keyed=True),
    Switch("R25", "a second look replaces newer rows", key_resolution, "_are_older",
           "found.sequence > mine", "np.zeros(len(mine), bool)", keyed=True),
    Switch("R25", "of equal sequences the later commit counts", key_resolution, "_are_older",
           "late[place] = theirs >= own", "pass", keyed=True),
    Switch("R25", "a row that was late at the second look is back at the third", key_resolution,
           "resolve_again", "if before.withdrawn is None", "if True", keyed=True),
    Switch("R25", "a change that is withdrawn replaces a row all the same", key_resolution,
           "resolve_again", "leaves = ~withdrawn[found.change]",
           "leaves = ~_are_older(store, keys, [it.location for it in added], schema, found, needs_ids=False)"
           " if columns.sequence is not None else ~withdrawn[found.change]", keyed=True, rare=True),
    Switch("R25", "a delete file that the next try needs is deleted", row_deletes.RowDeletes, "write",
           "for group, held in self._written.items() if group not in kept",
           "for group, held in self._written.items()", keyed=True),
    Switch("R25", "a merge forgets the keys of its inputs", batch_tombstones, "remember_deletes",
           "[*older, own]", "[own]", keyed=True),
    Switch("R25", "a merge keeps the smaller sequence", key_tombstones, "merge_tombstones",
           "np.append((hashes[1:] != hashes[:-1]).any(axis=1), True)",
           "np.append(True, (hashes[1:] != hashes[:-1]).any(axis=1))", keyed=True),
    Switch("R25", "negative sequences of 16 bytes are the largest", sequences, "_wide",
           "high ^ _SIGN", "high", keyed=True),
    Switch("R25", "of sequences of 16 bytes 8 decide", sequences, "_wide",
           "high ^ _SIGN, low", "high ^ _SIGN, 0", keyed=True),
    Switch("R25", "a merge forgets deletes as of the time that their batch began", batch_tombstones,
           "remember_deletes", "np.full(count, AT_COMMIT)", "np.full(count, ids.time_ms)", keyed=True),
    Switch("R25", "deleted keys are as old as their file's name", PutTombstones, "apply",
           "self.rows, draft.now_ms", "self.rows, names.ulid_time_ms(names.file_id(self.location))",
           keyed=True),
    Switch("R25", "deleted keys are forgotten before their time", PutTombstones, "apply",
           "oldest = draft.now_ms - ", "oldest = draft.now_ms - 0 * ", keyed=True),
    Switch("R25", "deleted keys from below the fence are committed", PutTombstones, "find_conflict",
           "(names.file_id(self.location) or cutoff) < cutoff", "False", keyed=True),
    Switch("R25", "the orphan cleaner deletes deleted keys", orphans, "remove_orphan_files",
           "referred.add_locations(locations_named_by(table.head))",
           "pass", keyed=True),
    Switch("R25", "an append passes without a look at its keys", conflicts,
           "check_keys_of_new_rows_are_known", "if (key := key_of(head.properties)) is not None:",
           "if False:", keyed=True),
    Switch("R25", "a key is declared over rows", DeclareKey, "find_conflict",
           "next(self.checked.find_unseen(head), None) is not None", "False", keyed=True),
    Switch("R25", "a key is declared over rows that came while the batch was written", by_key, "_to_commit",
           "DeclareKey(write.key)", "DeclareKey(write.key, resolution.looked)", keyed=True),
    Switch("R25", "another key passes for the table's", key_changes, "check_key_is",
           "if declared != wanted:", "if False:", keyed=True),
    # ------------------------------------------------------------------------------ purges, change logs
    Switch("purge", "a file whose rows of the key are deleted already is not rewritten", rewriting,
           "files_to_rewrite", "LeftoverKind.LIVE, LeftoverKind.DELETED", "LeftoverKind.LIVE", keyed=True),
    Switch("purge", "its deletes are not remembered", rewriting, "_tombstones",
           "if not count:", "if True:", keyed=True),
    Switch("purge", "it looks no second time where other writers were first", TablePurge, "rewrite",
           "while lost < _TRIES:", "while lost < 1:", keyed=True),
    Switch("purge", "manifests keep the bounds of files that have left", rewriting, "stale_manifests",
           "return found", "return {}", keyed=True, rare=True),
    Switch("purge", "files that it has put are deleted with those that were dropped", rewriting, "rewrite",
           "_discard(table, _added(dropped))", "_discard(table, _added(replaces))", keyed=True),
    Switch("purge", "the newest change of rows keeps the old files", AppendWriter, "add_snapshot",
           "if any(isinstance(change, AppendNothing) for change in kept):", "if False:", keyed=True),
    Switch("purge", "snapshots that have the old files do not expire", table_purge, "_expiry_age",
           "if not times:", "if True:", keyed=True),
    Switch("purge", "snapshots that a tag had kept do not expire", table_purge, "_history",
           "[*cut_off(metadata.snapshots, main), *main[::-1]]", "main[::-1]", keyed=True, rare=True),
    Switch("purge", "orphans that hold a key stay", TablePurge, "clean",
           "if due_ms <= self.table.head.metadata.last_updated_ms:", "if False:", keyed=True),
    Switch("purge", "a change log passes over what it lacks", purging, "skip_purges",
           "or _missing(main, after) != []", "", keyed=True),
    Switch("change log", "what a purge deletes is appended", change_log, "_pieces",
           "purges=False", "purges=True", keyed=True),
    Switch("change log", "the last version that it has is appended again", change_log, "_pieces",
           "after + 1, ", "after, ", keyed=True),
    Switch("change log", "two processes append the same versions", Follow, "find_conflict",
           "if now != self.after:", "if False:", keyed=True),
    Switch("change log", "versions are appended without their number", ChangeLog, "_commit",
           "transaction=following(change.main_uuid, number),", "", keyed=True),
    Switch("R7", "the head of a look at keys is taken for damaged after a sleep past the grace",
           by_key, "_look_again",
           "return table.on_head(look_at)", "return look_at(table.head)", keyed=True, rare=True),
    *CATALOG_SWITCHES,
    *KEYED_CATALOG_SWITCHES,
    *MIRROR_SWITCHES,
    *REF_SWITCHES,
    *DERIVED_SWITCHES,
)  # fmt: skip

ELSEWHERE = (
    ("R9", "a half-written or vanished version after a power cut", "power-cut replay in tests/processes"),
    ("R10", "rows routed by more than their values", "executor loss in tests/spark/test_executor_loss.py"),
    ("R14", "an acknowledgement before the sync", "power-cut replay in tests/processes"),
    (
        "R17",
        "what follows a table that was dropped is acknowledged",
        "tests/unit/timeline/test_corrupt_tables.py",
    ),
    ("R18", "a store that ignores the condition", "the probe's tests in tests/unit/timeline/stores"),
    ("R19", "versions whose time the deleter does not know are deleted", "a unit test of its own"),
    ("R23", "field ids and sizes in Parquet", "the readers' tests in tests/readers"),
    (
        "R25",
        "files that a replace has added are not looked at a second time",
        "tests/unit/timeline/test_key_changes.py",
    ),
    ("R25", "a key that was declared since is not noticed", "tests/unit/timeline/test_key_changes.py"),
    (
        "R25",
        "more rows of a commit's own file are deleted than it has",
        "tests/unit/timeline/test_key_changes.py",
    ),
    (
        "R25",
        "a key is declared, and the feature is not required of other writers",
        "tests/unit/timeline/test_key_changes.py",
    ),
    (
        "R26",
        "an item that the table has is declared lost once its snapshot has left",
        "seed 3100263; tests/unit/timeline/test_work_items.py",
    ),
    ("R28", "a file by reference is added twice", "tests/unit/timeline/test_references.py"),
    (
        "R29",
        "what was not answered passes for lost before its number is taken",
        "tests/unit/timeline/catalogs/test_answers.py",
    ),
    (
        "R35",
        "a copy of another manifest is taken for one of this",
        "tests/unit/timeline/test_manifest_reads.py",
    ),
    (
        "R35",
        "a file by reference is looked for where names of manifests lead to alone",
        "tests/unit/timeline/test_references.py",
    ),
    (
        "R28",
        "a commit is known by a file that another one may have added",
        "seed 4000181; tests/unit/timeline/test_references.py",
    ),
    (
        "R36",
        "where nothing is compared, later notes are not looked at after a move",
        "tests/unit/timeline/catalogs/test_mirrors.py",
    ),
    (
        "features",
        "a writer commits though the table requires a feature that it lacks",
        "tests/unit/timeline/test_required_features.py",
    ),
)
"""Rules that a memory store cannot show broken, and what catches them."""


def put_after_a_look(store: Any, path: str, data: bytes) -> Any:
    """What a store without create-if-absent would do."""
    from timeline.stores.base import Created, Exists

    try:
        store.read(path)
    except FileNotFoundError:
        store.overwrite(path, data)
        return Created()
    return Exists()
