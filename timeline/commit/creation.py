"""Create a table: its first version, published as any commit."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2, new_table_metadata
from pyiceberg.table.sorting import SortOrder

from timeline import properties
from timeline.changes.drop_changes import is_dropped
from timeline.clock import Environment
from timeline.commit.attempts import Candidate
from timeline.commit.log import CommitLog, Standing
from timeline.commit.publish import Published, Unneeded, publish_version
from timeline.drafts import succession
from timeline.manifests.manifest_format import check_partition_names
from timeline.manifests.manifests import ManifestFiles
from timeline.names import version_path
from timeline.versions.head import Head
from timeline.versions.version_file import Version, encode_metadata


def new_metadata(
    location: str,
    schema: Schema,
    spec: PartitionSpec,
    sort_order: SortOrder,
    given: Mapping[str, str],
    environment: Environment,
) -> TableMetadataV2:
    """Return the metadata of a new, empty table, with fresh field ids. ValueError for partition fields whose
    names manifests cannot spell, or spell alike.
    """
    table_uuid = uuid.UUID(int=environment.random.getrandbits(128), version=4)
    metadata = new_table_metadata(schema, spec, sort_order, location, {"format-version": "2"}, table_uuid)
    assert isinstance(metadata, TableMetadataV2)
    check_partition_names(metadata.spec().partition_type(metadata.schema()))
    merged = {**properties.DEFAULTS, **given, **properties.guards(location, metadata.schema())}
    return metadata.model_copy(update={"properties": merged})


def first_version(
    metadata: TableMetadataV2,
    manifest_files: ManifestFiles,
    environment: Environment,
    probed: str | None,
    dropped: Head | None = None,
) -> Candidate:
    """Return the first version of a new, empty table: number 1, or the one after the last of a table that was
    `dropped` there, which it states then. Of that it keeps which work items have landed, since none lands
    twice (R26).
    """
    now_ms = succession.commit_time(environment, dropped)
    commit_id = environment.new_id(now_ms)
    before = None if dropped is None else dropped.version
    stated = succession.lineage_properties(commit_id, before, probed)
    whole = {**metadata.properties, **({} if dropped is None else _stated_after(dropped)), **stated}
    update: dict[str, object] = {"properties": whole, "last_updated_ms": now_ms}
    if dropped is not None:  # whose version files leave as those of any version
        before_it = manifest_files.store.uri(version_path(dropped.number))
        update["metadata_log"] = succession.metadata_log(dropped.metadata, before_it, whole)
    metadata = metadata.model_copy(update=update)
    data, arrays = encode_metadata(metadata)
    number = int(stated[properties.VERSION])
    return Candidate(Head(Version(number, metadata, arrays=arrays), (), manifest_files), data)


def _stated_after(dropped: Head) -> dict[str, str]:
    kept = (
        properties.WORK_ITEMS_PREFIX,
        properties.DISCARDED_ITEMS_PREFIX,
        properties.PLAN_OF_ITEMS_PREFIX,
    )
    items = {key: value for key, value in dropped.properties.items() if key.startswith(kept)}
    return {**items, properties.FIRST_VERSION: str(dropped.number + 1)}


def publish_first_version(
    log: CommitLog,
    schema: Schema,
    spec: PartitionSpec,
    sort_order: SortOrder,
    given: Mapping[str, str],
    dropped: Head | None,
) -> Published | Unneeded:
    """Create the table in a log, after one that was `dropped` there; Unneeded where another one was first."""
    metadata = new_metadata(log.store.location, schema, spec, sort_order, given, log.environment)
    probed = log.store.signature if log.needs_probe else None

    def build(head: Head | None) -> Candidate | None:
        if head is not None and not is_dropped(head):
            return None
        return first_version(metadata, log.manifest_files, log.environment, probed, head)

    def judge(head: Head, _: Candidate) -> Standing:
        ours = head.metadata.table_uuid == metadata.table_uuid
        return Standing.COMMITTED if ours else Standing.LOST

    return publish_version(log, dropped, build, judge)
