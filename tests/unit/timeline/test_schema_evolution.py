"""Schemas merge by name: ids converge, types widen, and the version passes the checks of its batch."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from tests.unit.timeline.world import Audit, Lake
from timeline import properties
from timeline.changes.changes import Append
from timeline.changes.schema_changes import MergeSchema
from timeline.errors import CheckpointRegressionError, CommitConflictError, FencedError, SchemaMismatchError
from timeline.table import AlreadyCommitted, Committed
from timeline.versions.evolution import find_misfit, holds, merge_schemas
from timeline.versions.transactions import Transaction


def field(name: str, kind: IcebergType, number: int = 0, required: bool = False) -> NestedField:
    return NestedField(number, name, kind, required=required)


def wanted(**kinds: IcebergType) -> StructType:
    return StructType(*(field(name, kind) for name, kind in kinds.items()))


KNOWN = Schema(
    field("id", IntegerType(), 1, required=True),
    field("place", StructType(field("lat", FloatType(), 3)), 2),
    field("tags", ListType(5, StructType(field("name", StringType(), 6)), element_required=False), 4),
    field("prices", MapType(8, StringType(), 9, DecimalType(9, 2), value_required=False), 7),
)


def test_new_fields_get_new_ids_at_every_depth_and_known_ones_keep_theirs() -> None:
    merged = merge_schemas(
        KNOWN,
        wanted(
            place=wanted(lon=FloatType()),
            tags=ListType(0, wanted(kind=StringType()), element_required=False),
            note=wanted(text=StringType()),
        ),
        last_column_id=20,
    )
    ids = {merged.find_column_name(number): number for number in merged.field_ids}
    assert {name: ids[name] for name in ("id", "place.lat", "tags.element.name", "prices.value")} == {
        "id": 1,
        "place.lat": 3,
        "tags.element.name": 6,
        "prices.value": 9,
    }
    new = {name: number for name, number in ids.items() if number > 20}
    assert set(new) == {"place.lon", "tags.element.kind", "note", "note.text"}
    assert sorted(new.values()) == [21, 22, 23, 24]
    assert (merged.schema_id, find_misfit(KNOWN, merged)) == (KNOWN.schema_id + 1, None)
    assert find_misfit(merged, KNOWN) is not None


def test_a_new_map_is_no_misfit_for_older_rows_though_the_keys_of_a_map_are_required() -> None:
    added = MapType(0, StringType(), 0, LongType(), value_required=False)
    deep = wanted(note=added, place=wanted(names=added), tags=ListType(0, wanted(names=added), False))
    assert find_misfit(KNOWN, merge_schemas(KNOWN, deep, 9)) is None
    required = field("note", LongType(), 10, required=True)
    place = field("place", StructType(*KNOWN.find_type(2).fields, required), 2)
    assert find_misfit(KNOWN, Schema(*KNOWN.fields, required)) == "column 'note' was added as required"
    [first, _, *others] = KNOWN.fields
    assert find_misfit(KNOWN, Schema(first, place, *others)) == "column 'note' was added as required"


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (IntegerType(), LongType()),
        (FloatType(), DoubleType()),
        (DecimalType(9, 2), DecimalType(12, 2)),
    ],
)
def test_the_wider_of_two_types_stays_whichever_comes_first(narrow: IcebergType, wide: IcebergType) -> None:
    for first, second in ((narrow, wide), (wide, narrow)):
        merged = merge_schemas(Schema(field("x", first, 1)), wanted(x=second), 1)
        assert merged.find_field("x") == field("x", wide, 1)
    assert holds(wide, narrow)
    assert not holds(narrow, wide)


@pytest.mark.parametrize(
    ("known", "other"),
    [
        (StringType(), IntegerType()),
        (LongType(), DoubleType()),
        (StringType(), BinaryType()),
        (DateType(), LongType()),
        (DecimalType(9, 2), DecimalType(12, 3)),
        (StringType(), StructType(field("x", StringType(), 5))),
        (MapType(5, StringType(), 6, LongType()), MapType(5, LongType(), 6, LongType())),
    ],
)
def test_one_name_with_two_types_is_refused_and_both_are_named(
    known: IcebergType, other: IcebergType
) -> None:
    with pytest.raises(SchemaMismatchError, match="neither type holds the other") as refusal:
        merge_schemas(Schema(field("x", known, 1)), wanted(x=other), 9)
    assert "column x" in str(refusal.value)


def test_a_column_that_becomes_optional_is_no_misfit_for_older_rows() -> None:
    merged = merge_schemas(KNOWN, wanted(id=IntegerType()), 9)
    assert not merged.find_field("id").required
    assert find_misfit(KNOWN, merged) is None


_KINDS = st.sampled_from([IntegerType(), LongType(), FloatType(), DoubleType(), StringType()])
_STRUCTS = st.dictionaries(st.sampled_from("abcd"), _KINDS, min_size=1).map(lambda kinds: wanted(**kinds))


@given(_STRUCTS, _STRUCTS, _STRUCTS)
def test_the_order_of_merges_changes_ids_and_places_alone(
    known: StructType, first: StructType, second: StructType
) -> None:
    def merged(*steps: StructType) -> dict[str, str] | None:
        schema = Schema(field("_", LongType(), 1))
        try:
            for step in steps:
                schema = merge_schemas(schema, step, schema.highest_field_id)
                assert merge_schemas(schema, step, schema.highest_field_id) is schema
        except SchemaMismatchError:
            return None
        assert len(set(schema.field_ids)) == len(schema.field_ids)
        return {each.name: str(each.field_type) for each in schema.fields}

    assert merged(known, first, second) == merged(known, second, first)


NOTE = MergeSchema(wanted(note=StringType()))


def test_two_writers_that_add_one_column_converge_on_one_id() -> None:
    lake = Lake()
    other = lake.open()
    first = lake.table.commit([NOTE])
    assert isinstance(first, Committed)
    with pytest.raises(CommitConflictError, match="has these fields already"):
        other.commit([NOTE])
    assert other.refresh().schema == lake.table.head.schema
    other.commit([MergeSchema(wanted(note=StringType(), more=LongType()))])
    assert [(each.field_id, each.name) for each in other.head.schema.fields[-2:]] == [
        (3, "note"),
        (4, "more"),
    ]
    assert other.head.metadata.last_column_id == 4
    assert [schema.schema_id for schema in other.head.metadata.schemas] == [0, 1, 2]
    Audit(lake.store).check()


def test_two_writers_that_add_one_name_with_two_types_are_told_both() -> None:
    lake = Lake()
    other = lake.open()
    lake.table.commit([NOTE])
    with pytest.raises(SchemaMismatchError, match="column note as string, and it is to become long"):
        other.commit([MergeSchema(wanted(note=LongType()))])


def test_a_column_that_another_writer_has_added_in_another_case_is_refused() -> None:
    """The writer's own check has seen an older head."""
    lake = Lake()
    other = lake.open()
    lake.table.commit([NOTE])
    with pytest.raises(SchemaMismatchError, match=r"in another case.*Note \(table: note\)"):
        other.commit([MergeSchema(wanted(Note=StringType()))])
    place = wanted(place=wanted(LAT=FloatType()))
    with pytest.raises(SchemaMismatchError, match=r"place\.LAT \(table: place\.lat\)"):
        merge_schemas(KNOWN, place, last_column_id=20)
    assert [each.name for each in other.refresh().schema.fields][-1] == "note"


def test_a_new_column_is_not_named_as_a_partition_field() -> None:
    bucket = PartitionField(source_id=1, field_id=1000, transform=BucketTransform(4), name="id_bucket")
    lake = Lake(spec=PartitionSpec(bucket))
    with pytest.raises(SchemaMismatchError, match=r"name of a partition field.*: id_bucket"):
        lake.table.commit([MergeSchema(wanted(id_bucket=LongType()))])
    assert lake.open().head.number == 1


def test_two_columns_never_get_one_full_name() -> None:
    known = Schema(field("a", StructType(field("b", StructType(field("c", LongType(), 3)), 2)), 1))
    with pytest.raises(SchemaMismatchError, match=r"multiple fields for name a\.b\.c"):
        merge_schemas(known, wanted(a=StructType(field("b.c", LongType()))), last_column_id=3)


def test_a_column_that_identifies_rows_stays_required() -> None:
    known = Schema(field("id", LongType(), 1, required=True), identifier_field_ids=[1])
    with pytest.raises(SchemaMismatchError, match="cannot become optional; add it to the batch: id"):
        merge_schemas(known, wanted(id=LongType()), last_column_id=1)
    assert merge_schemas(known, wanted(note=StringType()), last_column_id=1).field_ids == {1, 2}


def test_an_append_under_the_older_schema_lands_after_the_schema_has_grown() -> None:
    lake = Lake()
    late = lake.open()
    lake.table.commit([NOTE])
    late.commit([Append((lake.file(p=0),))], schema_id=0)
    head = lake.open().head
    assert head.snapshot is not None
    assert head.snapshot.schema_id == 1
    assert "note" in json.dumps(json.loads(head.properties[properties.NAME_MAPPING]))


def test_an_append_lands_after_the_schema_has_got_a_map() -> None:
    lake = Lake()
    written = lake.file(rows=2)
    kind = MapType(0, StringType(), 0, LongType(), value_required=False)
    lake.open().commit([MergeSchema(wanted(labels=kind))])
    assert isinstance(lake.table.commit([Append((written,))], schema_id=0), Committed)


def test_no_file_is_appended_beside_a_schema_that_it_cannot_know() -> None:
    lake = Lake()
    with pytest.raises(ValueError, match="a version of its own"):
        lake.table.commit([NOTE, Append((lake.file(p=0),))])


def batch(number: int, run: str, epoch: int | None) -> Transaction:
    return Transaction("app", "query", run, number, epoch, records=False)


def test_a_schema_version_passes_the_fence_of_its_run_and_advances_no_batch() -> None:
    lake = Lake()
    table = lake.table
    landed = Transaction("app", "query", "old", 0)
    table.commit([Append((lake.file(p=0),))], transaction=landed)
    before = table.head.transaction("app")
    table.commit([NOTE], transaction=batch(1, "old", 1))
    assert table.head.transaction("app") == before
    table.commit([Append((lake.file(p=0),))], transaction=Transaction("app", "query", "new", 1))
    more = MergeSchema(wanted(more=LongType()))
    with pytest.raises(FencedError):
        table.commit([more], transaction=batch(2, "old", 1))
    with pytest.raises(CheckpointRegressionError):
        table.commit([more], transaction=batch(0, "new", 2))
    assert isinstance(table.commit([more], transaction=batch(1, "new", 2)), AlreadyCommitted)
    assert table.head.schema.highest_field_id == 3
