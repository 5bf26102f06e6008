"""Partition specs evolve by Iceberg's rules; of two writers that ask for different ones the later wins."""

from __future__ import annotations

import json
from collections import Counter
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import VoidTransform, parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from tests.unit.timeline.world import BY_P, Audit, Lake, OneFile, data_file, dropping
from timeline import properties
from timeline.changes.changes import Append, Replace
from timeline.changes.delete_merges import MergeDeletes
from timeline.changes.row_deltas import RowDelta
from timeline.changes.schema_changes import MergeSchema, SetPartitioning
from timeline.errors import (
    CheckpointRegressionError,
    CommitConflictError,
    FencedError,
    SchemaMismatchError,
    UnsupportedTableError,
)
from timeline.manifests.entries import added_entry
from timeline.manifests.manifest_format import ReadBytes, encode_manifest
from timeline.table import AlreadyCommitted, Committed
from timeline.versions.partitioning import (
    describe_spec,
    evolve_spec,
    partitions_alike,
    repartitioned_by,
    schemas_of_spec,
    specs_without_types,
)
from timeline.versions.transactions import Transaction

COLUMNS = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "at", TimestamptzType(), required=False),
    NestedField(4, "id_bucket_4", StringType(), required=False),
)
SUFFIXES = {"bucket": "_bucket", "truncate": "_trunc", "identity": ""}


def spec(*fields: str) -> PartitionSpec:
    """A spec of fields such as "1 bucket[16]": the ids are those that the table has to replace."""
    made = []
    for number, text in enumerate(fields):
        source, transform = text.split()
        kind = transform.partition("[")[0]
        column = COLUMNS.find_column_name(int(source))
        name = f"{column}{SUFFIXES.get(kind, '_' + kind)}"
        made.append(PartitionField(int(source), 1000 + number, parse_transform(transform), name))
    return PartitionSpec(*made)


def evolved(*steps: tuple[str, ...]) -> TableMetadataV2:
    """The metadata of a table that was created with the first spec, and has got each other one in turn."""
    first = spec(*steps[0]) if steps[0] else UNPARTITIONED_PARTITION_SPEC
    metadata = new_table_metadata(COLUMNS, first, UNSORTED_SORT_ORDER, "memory://t", {"format-version": "2"})
    assert isinstance(metadata, TableMetadataV2)
    for step in steps[1:]:
        metadata = after(metadata, evolve_spec(metadata, spec(*step)))
    return metadata


def after(metadata: TableMetadataV2, new: PartitionSpec) -> TableMetadataV2:
    specs = metadata.partition_specs
    return metadata.model_copy(
        update={
            "partition_specs": specs if new in specs else [*specs, new],
            "default_spec_id": new.spec_id,
            "last_partition_id": max(
                metadata.last_partition_id or 0, *(field.field_id for field in new.fields)
            ),
        }
    )


def spelled(metadata: TableMetadataV2) -> list[str]:
    return [f"{it.field_id} {it.name} {it.transform}" for it in metadata.spec().fields]


@pytest.mark.parametrize(
    ("steps", "fields"),
    [
        ([(), ("2 identity",)], ["1000 region identity"]),
        ([("2 identity",), ("2 identity", "3 day")], ["1000 region identity", "1001 at_day day"]),
        ([("2 identity", "3 day"), ("3 day",)], ["1001 at_day day"]),
        ([("3 day",), ("3 hour",)], ["1001 at_hour hour"]),
        ([("1 bucket[8]",), ("1 bucket[16]",)], ["1001 id_bucket_16 bucket[16]"]),
        ([("2 truncate[2]",), ("2 truncate[3]",)], ["1001 region_trunc_3 truncate[3]"]),
        ([("3 day",), ("3 hour",), ("2 identity", "3 day")], ["1002 region identity", "1000 at_day day"]),
        ([("3 day", "2 identity"), ("2 identity", "3 day")], ["1001 region identity", "1000 at_day day"]),
        # An id that only an old spec has is not free again.
        ([("3 day",), ("2 identity",), ("1 bucket[8]",)], ["1002 id_bucket bucket[8]"]),
    ],
)
def test_a_field_keeps_its_id_and_name_for_good_and_a_new_one_gets_its_own(
    steps: list[tuple[str, ...]], fields: list[str]
) -> None:
    metadata = evolved(*steps)
    assert spelled(metadata) == fields
    assert metadata.default_spec_id == len(steps) - 1


_FIELDS = st.sampled_from(
    ["1 identity", "1 bucket[8]", "1 bucket[16]", "2 identity", "2 truncate[2]", "3 day", "3 hour", "3 year"]
)
_SPECS = st.lists(_FIELDS, min_size=1, max_size=3, unique=True).filter(
    lambda fields: not {"1 bucket[8]", "1 bucket[16]"} <= set(fields)
)


@given(st.lists(_SPECS, min_size=1, max_size=6))
def test_over_any_history_an_id_and_a_name_mean_one_transform_of_one_column(steps: list[list[str]]) -> None:
    metadata = evolved(*map(tuple, steps))
    ever = [field for each in metadata.partition_specs for field in each.fields]
    meanings = {(field.source_id, str(field.transform)) for field in ever}
    assert len({field.field_id for field in ever}) == len({field.name for field in ever}) == len(meanings)
    assert metadata.last_partition_id == max(field.field_id for field in ever)
    assert partitions_alike(metadata.spec(), spec(*steps[-1]))
    assert len({tuple(spec.fields) for spec in metadata.partition_specs}) == len(metadata.partition_specs)
    for step in steps:
        assert evolve_spec(metadata, spec(*step)) in metadata.partition_specs


def test_ids_are_never_used_again_though_the_spec_that_had_them_is_no_longer_listed() -> None:
    """Other engines may remove specs that no file has."""
    metadata = evolved(("2 identity",), ("2 identity", "3 day"), ("3 hour",))
    metadata = metadata.model_copy(
        update={"partition_specs": [it for it in metadata.partition_specs if it.spec_id != 1]}
    )
    new = evolve_spec(metadata, spec("3 day"))
    assert [(it.field_id, it.name) for it in new.fields] == [(1003, "at_day")]
    assert new.spec_id == 3


def test_a_field_is_not_named_as_a_column() -> None:
    metadata = evolved(("1 bucket[8]",))
    with pytest.raises(SchemaMismatchError, match=r"name of a column, or .*rename the column: id_bucket_4"):
        evolve_spec(metadata, spec("1 bucket[4]"))
    named = PartitionSpec(PartitionField(1, 1, parse_transform("bucket[4]"), "region"))
    with pytest.raises(SchemaMismatchError, match=r"region_4|region"):
        evolve_spec(
            metadata.model_copy(
                update={"schemas": [Schema(*COLUMNS.fields, NestedField(9, "region_4", LongType()))]}
            ),
            named,
        )


def test_two_fields_that_manifests_spell_alike_are_refused() -> None:
    metadata = evolved(())
    fields = [
        PartitionField(1, 0, parse_transform("identity"), "a.b"),
        PartitionField(2, 0, parse_transform("identity"), "a_x2Eb"),
    ]
    with pytest.raises(SchemaMismatchError, match="cannot be partitioned so"):
        evolve_spec(metadata, PartitionSpec(*fields))


def test_a_void_transform_of_another_engine_is_no_field() -> None:
    """It keeps the id and the name of the field that it replaces."""
    metadata = evolved(("2 identity", "3 day"))
    _, day = metadata.spec().fields
    gone = PartitionField(2, 1000, VoidTransform(), "region")
    metadata = after(metadata, PartitionSpec(gone, day, spec_id=1))
    assert partitions_alike(metadata.spec(), spec("3 day"))
    assert describe_spec(metadata.spec(), COLUMNS) == "day(at)"
    assert evolve_spec(metadata, spec("3 day")).spec_id == 1
    assert evolve_spec(metadata, spec("2 identity", "3 day")).spec_id == 0
    new = evolve_spec(metadata, spec("3 day", "2 identity"))
    assert [(it.field_id, it.name) for it in new.fields] == [(1001, "at_day"), (1000, "region")]


def without(metadata: TableMetadataV2, column: int, *, is_remembered: bool = True) -> TableMetadataV2:
    return metadata.model_copy(update=dropping(metadata, column, is_remembered=is_remembered))


def kinds(metadata: TableMetadataV2, of: PartitionSpec) -> list[IcebergType]:
    """The types of the values of a spec's manifests."""
    return [it.field_type for it in of.partition_type(schemas_of_spec(metadata, of)[0]).fields]


def test_manifests_of_a_spec_have_the_types_of_columns_that_are_gone() -> None:
    metadata = evolved(("2 identity", "3 day"), ("3 day",))
    one, other = metadata.partition_specs
    assert schemas_of_spec(metadata, one) == (metadata.schema(), None)
    dropped = without(without(metadata, 4), 2)
    assert kinds(dropped, one) == [StringType(), DateType()]
    written, stated = schemas_of_spec(dropped, one)
    assert written.column_names == ["id", "at", "dropped_2"]
    assert stated == dropped.schemas[1]
    assert schemas_of_spec(dropped, other) == (dropped.schema(), None)


def test_columns_that_are_left_have_their_present_types() -> None:
    """One was widened after another had gone: no schema that has both has the type of new values."""
    metadata = without(evolved(("2 identity", "1 identity")), 2)
    wide = Schema(
        NestedField(1, "id", DecimalType(20, 0)), NestedField(9, "dropped_2", LongType()), schema_id=7
    )
    metadata = metadata.model_copy(update={"schemas": [*metadata.schemas, wide], "current_schema_id": 7})
    assert kinds(metadata, metadata.spec()) == [StringType(), DecimalType(20, 0)]


def test_a_spec_whose_column_no_schema_has_is_refused_where_values_have_its_type() -> None:
    metadata = without(evolved(("2 identity", "3 day")), 2, is_remembered=False)
    region, day = metadata.spec().fields
    assert specs_without_types(metadata) == {0}
    with pytest.raises(UnsupportedTableError, match="a column of partition spec 0 and removed a schema"):
        schemas_of_spec(metadata, metadata.spec())
    for transform in (VoidTransform(), parse_transform("bucket[4]")):
        gone = PartitionSpec(PartitionField(2, 1000, transform, region.name), day)
        assert kinds(metadata, gone) == [IntegerType(), DateType()]


def test_a_void_field_may_have_lost_its_column_before_the_spec_got_another_one() -> None:
    """No schema has ever had both columns: a manifest states the one that has the column in use."""
    metadata = without(evolved(("2 identity", "3 day")), 2)
    later = Schema(*metadata.schema().fields, NestedField(9, "shop", LongType()), schema_id=7)
    metadata = metadata.model_copy(update={"schemas": [*metadata.schemas, later], "current_schema_id": 7})
    gone = PartitionField(2, 1000, VoidTransform(), "region")
    shop = PartitionField(9, 1002, parse_transform("identity"), "shop")
    spec = PartitionSpec(gone, shop, spec_id=1)
    metadata = without(metadata, 9)
    assert kinds(metadata, spec) == [StringType(), LongType()]
    assert schemas_of_spec(metadata, spec)[1] == later


def test_a_manifest_states_a_schema_of_the_table() -> None:
    """ClickHouse refuses a table in which one id has two schemas."""
    metadata = without(evolved(("2 identity",), ("3 day",)), 2)
    of = metadata.partition_specs[0]
    schema, stated = schemas_of_spec(metadata, of)
    entry = added_entry(7, data_file("memory://t/data/a.parquet", 1, partition=Record("eu")))
    data, _ = encode_manifest("memory://t/m", of, schema, 7, [entry], ManifestContent.DATA, stated)
    header: Any = fastavro.reader(BytesIO(data))
    assert Schema.model_validate_json(header.metadata["schema"]) == metadata.schemas[0]


def test_a_spec_is_described_as_the_option_spells_it() -> None:
    described = describe_spec(spec("2 identity", "3 day", "1 bucket[16]", "2 truncate[3]"), COLUMNS)
    assert described == "region, day(at), bucket(16, id), truncate(3, region)"
    assert describe_spec(UNPARTITIONED_PARTITION_SPEC, COLUMNS) == "nothing"


# ----------------------------------------------------------------------------------------------- as commits

BUCKETS = PartitionSpec(PartitionField(1, 0, parse_transform("bucket[4]"), "id_bucket"))
BOTH = PartitionSpec(*BY_P.fields, *BUCKETS.fields)


def asks(wanted: PartitionSpec, app_id: str = "app") -> SetPartitioning:
    return SetPartitioning(wanted, app_id)


def bucketed(lake: Lake, bucket: int = 0, spec_id: int = 1, rows: int = 10) -> DataFile:
    file = data_file(lake.file(rows).file_path, rows, partition=Record(bucket))
    file.spec_id = spec_id
    return file


def test_two_writers_that_ask_for_one_spec_converge_on_one_id() -> None:
    lake = Lake()
    other = lake.open()
    assert isinstance(lake.table.commit([asks(BUCKETS)]), Committed)
    with pytest.raises(CommitConflictError, match="partitioned so already"):
        other.commit([asks(BUCKETS, "other")])
    assert other.refresh().spec == lake.table.head.spec
    metadata = lake.open().head.metadata
    assert (metadata.default_spec_id, metadata.last_partition_id) == (1, 1001)
    assert [each.spec_id for each in metadata.partition_specs] == [0, 1]
    assert lake.open().head.number == 2
    Audit(lake.store).check()


def test_of_two_writers_that_ask_for_different_ones_the_later_wins_and_they_never_take_turns() -> None:
    lake = Lake()
    other = lake.open()
    lake.table.commit([asks(BUCKETS, "first")])
    other.commit([asks(BOTH, "second")])  # rebased: nobody asked for it before
    assert other.head.spec.spec_id == 2
    for _ in range(2):
        lake.table.refresh()
        with pytest.raises(SchemaMismatchError, match=r"partitioned by bucket\(4, id\) before.*'second'"):
            lake.table.commit([asks(BUCKETS, "first")])
    with pytest.raises(SchemaMismatchError, match="partitioned by p before"):
        lake.table.commit([asks(BY_P, "first")])
    assert lake.open().head.number == 3
    assert isinstance(other.commit([asks(BUCKETS, "second")]), Committed), "it has changed its own mind"
    assert lake.open().head.spec.spec_id == 1
    assert len(lake.open().head.metadata.partition_specs) == 3


def test_a_spec_of_the_tables_creation_or_of_another_engine_belongs_to_no_application() -> None:
    lake = Lake()
    assert repartitioned_by(lake.table.head.metadata) is None
    lake.table.commit([asks(BUCKETS, "first")])
    assert repartitioned_by(lake.table.head.metadata) == "first"
    lake.change_metadata(lambda _: {"default_spec_id": 0})
    assert repartitioned_by(lake.open().head.metadata) is None
    assert isinstance(lake.open().commit([asks(BUCKETS, "second")]), Committed)


@pytest.mark.parametrize("damaged", ["", "[]", "7", '{"spec-id": 1}', "null"])
def test_a_damaged_record_of_the_last_change_is_none(damaged: str) -> None:
    lake = Lake()
    lake.table.commit([asks(BUCKETS)])
    metadata = lake.table.head.metadata
    stored: dict[str, Any] = {**metadata.properties, properties.REPARTITIONED: damaged}
    assert repartitioned_by(metadata.model_copy(update={"properties": stored})) is None


def test_a_batch_under_the_older_spec_lands_under_the_newer() -> None:
    lake = Lake()
    late = lake.open()
    lake.table.commit([asks(BUCKETS)])
    late.commit([Append((lake.file(p=3),))])
    late.commit([Append((lake.file(p=4), bucketed(lake, 2)))])
    live = {(file.spec_id, file.partition) for file in lake.open().head.live_files()}
    assert live == {(0, (3,)), (0, (4,)), (1, (2,))}
    manifests = [(m.partition_spec_id, m.added_files_count) for m in lake.open().head.manifests]
    assert sorted(manifests) == [(0, 1), (0, 1), (1, 1)], "a manifest is of one spec"
    Audit(lake.store).check()


def test_files_keep_the_partitions_of_a_column_that_another_engine_has_dropped() -> None:
    lake = Lake()
    ones, two = [lake.file(p=1) for _ in range(2)], lake.file(p=2)
    lake.table.commit([Append((*ones, two))])
    lake.table.commit([asks(BUCKETS)])
    lake.change_metadata(lambda metadata: dropping(metadata, 2))
    merge = Replace(frozenset(it.file_path for it in ones), (lake.merged(*ones),))
    lake.open().commit([merge])
    lake.open().commit([RowDelta((), (lake.deletes(two, 0, 3),))])
    head = lake.open().head
    assert {(it.spec_id, it.partition) for it in head.live_files()} == {(0, (1,)), (0, (2,))}
    assert [(it.spec_id, it.partition) for it in head.delete_files()] == [(0, (2,))]
    assert lake.live_rows().total() == 28
    Audit(lake.store).check()


def test_a_fill_and_a_clustering_of_the_older_spec_land_under_the_newer() -> None:
    lake = Lake()
    files = [lake.file(p=1) for _ in range(4)]
    lake.table.commit([Append(tuple(files))])
    late = lake.open()
    lake.table.commit([asks(BUCKETS)])
    lake.table.commit([Append((bucketed(lake, 1),))])
    fill = Replace(frozenset(it.file_path for it in files[:2]), (lake.merged(*files[:2]),))
    group = Replace(frozenset(it.file_path for it in files[2:]), (lake.merged(*files[2:]),))
    before = lake.live_rows()
    outcome = late.commit([fill, group])
    assert isinstance(outcome, Committed)
    assert outcome.dropped == ()
    assert lake.live_rows() == before
    assert sorted(file.spec_id for file in lake.open().head.live_files()) == [0, 0, 1]
    Audit(lake.store).check()


def test_a_table_may_have_no_partitions_any_more() -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(p=1),))])
    lake.table.commit([asks(PartitionSpec())])
    head = lake.open().head
    assert (head.spec.fields, head.metadata.last_partition_id) == ((), BY_P.fields[0].field_id)
    file = lake.file(p=None)
    file.spec_id = head.spec.spec_id
    lake.open().commit([Append((file,))])
    assert len(list(lake.open().head.live_files())) == 2


def test_no_file_is_appended_beside_a_spec_that_it_cannot_know() -> None:
    lake = Lake()
    with pytest.raises(ValueError, match="a version of its own"):
        lake.table.commit([asks(BUCKETS), Append((lake.file(p=0),))])


def test_a_column_and_a_partition_field_of_one_name_meet_in_either_order() -> None:
    column = MergeSchema(StructType(NestedField(0, "id_bucket", StringType(), required=False)))
    lake = Lake()
    other = lake.open()
    lake.table.commit([asks(BUCKETS)])
    with pytest.raises(SchemaMismatchError, match="name of a partition field"):
        other.commit([column])
    lake = Lake()
    other = lake.open()
    lake.table.commit([column])
    other.commit([asks(BUCKETS)])
    assert [field.name for field in other.head.spec.fields] == ["id_bucket_4"], "the column has the name"


def test_a_source_that_has_widened_since_keeps_its_fields() -> None:
    lake = Lake()
    other = lake.open()
    lake.table.commit([MergeSchema(StructType(NestedField(0, "p", LongType(), required=False)))])
    other.commit([asks(BOTH)])
    assert [(field.field_id, field.name) for field in other.head.spec.fields] == [
        (1000, "p"),
        (1001, "id_bucket"),
    ]
    assert isinstance(COLUMNS.find_type(1), LongType)
    assert not isinstance(other.head.schema.find_type("p"), IntegerType)


def batch(number: int, run: str, epoch: int | None) -> Transaction:
    return Transaction("app", "query", run, number, epoch, records=False)


def test_a_partitioning_version_passes_the_fence_of_its_run_and_advances_no_batch() -> None:
    lake = Lake()
    table = lake.table
    table.commit([Append((lake.file(p=0),))], transaction=Transaction("app", "query", "old", 0))
    before = table.head.transaction("app")
    table.commit([asks(BUCKETS)], transaction=batch(1, "old", 1))
    assert table.head.transaction("app") == before
    table.commit([Append((lake.file(p=0),))], transaction=Transaction("app", "query", "new", 1))
    with pytest.raises(FencedError):
        table.commit([asks(BOTH)], transaction=batch(2, "old", 1))
    with pytest.raises(CheckpointRegressionError):
        table.commit([asks(BOTH)], transaction=batch(0, "new", 2))
    assert isinstance(table.commit([asks(BOTH)], transaction=batch(1, "new", 2)), AlreadyCommitted)
    assert table.head.spec.spec_id == 1


def test_a_lost_reply_is_no_second_spec() -> None:
    lake = Lake()
    lake.store.creates.append("unknown-applied")
    lake.table.commit([asks(BUCKETS)])
    assert lake.open().head.number == 2
    stored = json.loads(lake.open().head.properties[properties.REPARTITIONED])
    assert stored == {"spec-id": 1, "app-id": "app"}


def test_a_value_may_be_missing_where_its_column_may_not() -> None:
    """The column is required, and the field has no transform any more, or lies in a struct that is null."""
    region = NestedField(2, "region", StringType(), required=True)
    place = NestedField(5, "place", StructType(region), required=False)
    for columns, transform in (
        (Schema(region), VoidTransform()),
        (Schema(place), parse_transform("identity")),
    ):
        of = PartitionSpec(PartitionField(2, 1000, transform, "region"))
        entry = added_entry(7, data_file("memory://t/data/a.parquet", 1, partition=Record(None)))
        data, manifest = encode_manifest("memory://t/m", of, columns, 7, [entry], ManifestContent.DATA)
        (read,) = manifest.fetch_manifest_entry(OneFile(ReadBytes("memory://t/m", data)))
        assert (read.data_file.partition[0], manifest.partitions[0].contains_null) == (None, True)


def test_files_whose_manifests_cannot_be_written_stay_and_the_table_takes_others() -> None:
    """Another engine has dropped their column, and the schemas that had it. The policy would merge them."""
    lake = Lake(table_properties={properties.MANIFEST_MIN_MERGE_COUNT: "2"})
    olds = [lake.file(p=1) for _ in range(7)]
    for old in olds:
        lake.open().commit([Append((old,))])
    lake.open().commit([asks(BUCKETS)])
    lake.change_metadata(lambda metadata: dropping(metadata, 2, is_remembered=False))
    for _ in range(12):
        lake.open().commit([Append((bucketed(lake, 2),))])
    manifests = Counter(it.partition_spec_id for it in lake.open().head.manifests)
    assert (manifests[0], manifests[1] < 12) == (7, True)
    table, rows = lake.open(), lake.live_rows()
    stale = Replace(frozenset(it.file_path for it in olds), (lake.merged(*olds),))
    with pytest.raises(CommitConflictError, match="a column of partition spec 0 and removed a schema"):
        table.commit([stale])
    committed = table.commit([Append((bucketed(lake, 2),)), stale])  # of a batch that was planned before
    assert isinstance(committed, Committed)
    assert [it.change for it in committed.dropped] == [stale]
    assert len(list(table.head.live_files())) == 20
    assert lake.live_rows() > rows


def test_delete_files_whose_manifests_cannot_be_written_are_not_merged() -> None:
    lake = Lake()
    old, new = lake.file(p=1), bucketed(lake, 2)
    lake.table.commit([Append((old,))])
    deletes = [lake.deletes(old, position) for position in (1, 4)]
    for number, each in enumerate(deletes):
        known = frozenset(it.file_path for it in deletes[:number])
        lake.table.commit([RowDelta((), (each,), known)])
    merge = MergeDeletes(frozenset(it.file_path for it in deletes), (lake.deletes(old, 1, 4),))
    lake.table.commit([asks(BUCKETS)])
    lake.change_metadata(lambda metadata: dropping(metadata, 2, is_remembered=False))
    committed = lake.open().commit([Append((new,)), merge])
    assert isinstance(committed, Committed)
    assert [it.change for it in committed.dropped] == [merge]
    with pytest.raises(UnsupportedTableError, match="a column of partition spec 0 and removed a schema"):
        lake.open().commit([RowDelta((), (lake.deletes(old, 2),), merge.removed)])


def widened_and_dropped(lake: Lake, kind: IcebergType, value: object) -> None:
    """Have a column of partitions widened, and files with a value of it; then another engine drops it."""
    lake.table.commit([Append((lake.file(p=1),))])
    lake.open().commit([MergeSchema(StructType(NestedField(0, "p", kind, required=False)))])
    wide = lake.open().head.schema.schema_id
    for _ in range(6):
        lake.open().commit([Append((lake.file(p=value),))], schema_id=wide)  # type: ignore[arg-type]
    lake.open().commit([asks(BUCKETS)])
    lake.change_metadata(lambda metadata: dropping(metadata, 2))


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_type_is_not_known_where_the_schema_after_it_was_removed(is_removed: bool) -> None:
    """It had a wider one, as a tag's older snapshot keeps only its own schema."""
    lake = Lake(table_properties={properties.MANIFEST_MIN_MERGE_COUNT: "2"})
    widened_and_dropped(lake, LongType(), 2**40)
    if is_removed:
        lake.change_metadata(lambda it: {"schemas": [each for each in it.schemas if each.schema_id != 1]})
    assert specs_without_types(lake.open().head.metadata) == ({0} if is_removed else set())
    before = {it.location: it.partition for it in lake.open().head.live_files()}
    for _ in range(8):
        lake.open().commit([Append((bucketed(lake, 2),))])
    head = lake.open().head
    assert before.items() <= {it.location: it.partition for it in head.live_files()}.items()
    of_old = sum(it.partition_spec_id == 0 for it in head.manifests)
    assert of_old == 7 if is_removed else of_old < 7


def test_a_batch_of_a_schema_whose_id_was_given_again_is_written_again() -> None:
    """Another engine has dropped the column, removed the schema that had it, and added another column."""
    lake = Lake()
    lake.table.commit([Append((lake.file(p=1),))])
    lake.open().commit([MergeSchema(StructType(NestedField(0, "x", StringType(), required=False)))])
    late, file, old = lake.open(), lake.file(p=1), next(iter(lake.open().head.live_files()))
    other = NestedField(4, "y", StringType(), required=False)
    lake.change_metadata(lambda _: {"current_schema_id": 0})
    lake.change_metadata(lambda it: {"schemas": [it.schema()]})
    lake.change_metadata(
        lambda it: {
            "schemas": [*it.schemas, Schema(*it.schema().fields, other, schema_id=1)],
            "current_schema_id": 1,
            "last_column_id": 4,
        }
    )
    merge = Replace(frozenset({old.location}), (lake.file(lake.rows[old.location], p=1),))
    for change in (Append((file,)), merge):
        with pytest.raises(CommitConflictError, match="under schema 1, which the table no longer has"):
            late.commit([change], schema_id=1)
    lake.open().commit([Append((file,))], schema_id=1)
