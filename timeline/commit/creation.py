"""Create a table: its first version, published as any commit."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2, new_table_metadata
from pyiceberg.table.sorting import SortOrder

from timeline import properties
from timeline.clock import Environment
from timeline.commit.attempts import Candidate
from timeline.commit.log import CommitLog, Standing
from timeline.commit.publish import Published, Unneeded, publish_version
from timeline.drafts import succession
from timeline.manifests.manifest_format import check_partition_names
from timeline.manifests.manifests import ManifestFiles
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
    metadata: TableMetadataV2, manifest_files: ManifestFiles, environment: Environment, probed: str | None
) -> Candidate:
    """Return version 1 of a new, empty table."""
    now_ms = succession.commit_time(environment, None)
    commit_id = environment.new_id(now_ms)
    stated = succession.lineage_properties(commit_id, None, probed)
    metadata = metadata.model_copy(
        update={"properties": {**metadata.properties, **stated}, "last_updated_ms": now_ms}
    )
    data, arrays = encode_metadata(metadata)
    return Candidate(Head(Version(1, metadata, arrays=arrays), (), manifest_files), data)


def publish_first_version(
    log: CommitLog, schema: Schema, spec: PartitionSpec, sort_order: SortOrder, given: Mapping[str, str]
) -> Published | Unneeded:
    """Create the table in a log; Unneeded where another writer was first."""
    metadata = new_metadata(log.store.location, schema, spec, sort_order, given, log.environment)
    probed = log.store.signature if log.needs_probe else None

    def build(head: Head | None) -> Candidate | None:
        if head is not None:
            return None
        return first_version(metadata, log.manifest_files, log.environment, probed)

    def judge(head: Head, _: Candidate) -> Standing:
        ours = head.metadata.table_uuid == metadata.table_uuid
        return Standing.COMMITTED if ours else Standing.LOST

    return publish_version(log, None, build, judge)
