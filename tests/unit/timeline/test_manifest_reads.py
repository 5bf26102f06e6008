"""Which manifests are read, by what their names, lists and copies say, and what stays in memory."""

from __future__ import annotations

import datetime
import json
import zlib
from collections.abc import Iterator
from decimal import Decimal
from hashlib import blake2b
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import UNASSIGNED_SEQ, DataFile, ManifestContent, ManifestFile, PartitionFieldSummary
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    UUIDType,
)

from tests.unit.timeline.world import FaultyStore, Lake
from timeline import names
from timeline.changes.changes import Append, Replace
from timeline.commit import conflicts
from timeline.errors import CommitConflictError
from timeline.location_hashes import hash_locations
from timeline.manifests import contents, copies, lookup, manifests
from timeline.manifests.contents import is_data
from timeline.manifests.copies import copy_path
from timeline.manifests.entries import LiveFile
from timeline.manifests.list_encoder import numbered
from timeline.manifests.packed import PackedFiles, pack_files, unpack_files
from timeline.manifests.partition_values import read_value, spell_value
from timeline.manifests.pruning import PartitionPruning
from timeline.manifests.stated_files import StatedFiles, id_time, stated_files
from timeline.retention.policy import MAINTAIN_EVERY
from timeline.stores.base import Stored
from timeline.table import Table
from timeline.versions.head import Head

SMALL = 5_000
"""Files of a `Lake` are of 1,000 bytes."""


class Reading(FaultyStore):
    """Notes which manifests are read, and which copies of them."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.read_paths: list[str] = []

    def read(self, path: str) -> Stored:
        self.read_paths.append(path)
        return super().read(path)

    def manifests(self) -> int:
        """Return how many manifests were read since the last call."""
        read = sum(path.endswith("-manifest.avro") for path in self.read_paths)
        self.read_paths.clear()
        return read


def reading(lake: Lake) -> tuple[Table, Reading]:
    """Return the table as a new process opens it, and its store."""
    store = Reading(lake.name)
    return lake.open(store), store


# -------------------------------------------------------------------------------------- names


@given(
    st.lists(
        st.tuples(st.integers(0, 1 << 40), st.integers(0, 3), st.integers(0, 1 << 47), st.booleans()),
        max_size=9,
    ),
    st.integers(0, 1 << 40),
)
def test_a_name_states_what_its_files_are(files: list[tuple[int, int, int, bool]], below: int) -> None:
    made = [
        _file(f"{names.ulid(ms, 7)}-app-0-0-0" if own else "theirs", size, order)
        for size, order, ms, own in files
    ]
    stated = StatedFiles.of(made, below)
    path = names.manifest_path(names.ulid(1, 1), stated.text)
    assert stated_files(path) == stated
    assert names.written_id(path) == names.ulid(1, 1)
    assert stated.open == sum(size < below and not order for size, order, _, _ in files)
    assert stated.smallest == min((size for size, *_ in files), default=None)
    assert stated.smallest_open == min((size for size, order, *_ in files if not order), default=None)
    assert all(stated.may_hold(id_time(file.file_path)) for file in made)


def test_a_name_says_which_files_its_manifest_cannot_hold() -> None:
    stated = StatedFiles.of([_file(f"{names.ulid(ms, 0)}-app-0-0-0", 1, 0) for ms in (50, 90)], 10)
    assert [
        ms
        for ms in (1, 49, 50, 70, 90, 91)
        if stated.may_hold(id_time(f"{names.ulid(ms, 5)}-b-0-0-0.parquet"))
    ] == [
        50,
        70,
        90,
    ]
    assert not stated.may_hold(id_time("another-engines.parquet"))


@pytest.mark.parametrize(
    "name", ["m0.avro", f"{names.ulid(1, 1)}-manifest.avro", f"{names.ulid(1, 1)}-x-manifest.avro"]
)
def test_other_names_state_nothing(name: str) -> None:
    assert stated_files(f"s3://lake/t/metadata/m/{name}") is None


def _file(name: str, size: int, order: int) -> DataFile:
    return DataFile.from_args(
        _table_format_version=2,
        file_path=f"s3://lake/t/data/{name}.parquet",
        file_size_in_bytes=size,
        sort_order_id=order,
        record_count=1,
    )


# -------------------------------------------------------------------------------------- pruning


def _values() -> Iterator[tuple[PrimitiveType, list[Any]]]:
    day = datetime.date(2026, 1, 1).toordinal() - datetime.date(1970, 1, 1).toordinal()
    yield IntegerType(), [-(2**31), -1, 0, 9, 10, 2**31 - 1]
    yield LongType(), [-(2**63), -10, -9, 0, 2**63 - 1]
    yield StringType(), ["", "Z", "a", "é", "\U0001f600"]
    yield BinaryType(), [b"", b"\0", b"\x7f", b"\xff"]
    yield BooleanType(), [False, True]
    yield DateType(), [day, day + 9, day + 10]
    yield TimestampType(), [-5, 0, 1_700_000_000_000_000]
    yield DecimalType(10, 2), [Decimal("-9.99"), Decimal("-1.00"), Decimal("0.00"), Decimal("9.99")]
    yield FloatType(), [-1.5, 0.0, 2.5]
    yield DoubleType(), [-1.5, 0.0, 2.5, float("inf")]
    yield UUIDType(), [UUID(int=1), UUID(int=2**100), UUID(int=2**128 - 1)]


@pytest.mark.parametrize(
    ("kind", "ordered"), list(_values()), ids=lambda it: str(it) if isinstance(it, PrimitiveType) else ""
)
def test_bounds_never_exclude_a_partition_that_is_there(kind: PrimitiveType, ordered: list[Any]) -> None:
    pruning = PartitionPruning(
        [PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))], Schema(NestedField(1, "p", kind))
    )
    for first in range(len(ordered)):
        for last in range(first, len(ordered)):
            lower, upper = (to_bytes(kind, ordered[place]) for place in (first, last))
            manifest = _manifest([PartitionFieldSummary(False, False, lower, upper)])
            held = [value for value in ordered if list(pruning.near([manifest], [(0, (value,))]))]
            assert held[:0] == []
            assert set(ordered[first : last + 1]) <= set(held)
            if not isinstance(kind, UUIDType):
                assert held == ordered[first : last + 1]


def test_nulls_nan_unknown_bounds_and_other_specs() -> None:
    schema = Schema(NestedField(1, "p", DoubleType()))
    pruning = PartitionPruning([PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))], schema)
    low, high = to_bytes(DoubleType(), 1.0), to_bytes(DoubleType(), 2.0)

    def holds(value: object, summary: PartitionFieldSummary | None, spec_id: int = 0) -> bool:
        manifest = _manifest(None if summary is None else [summary])
        return bool(list(pruning.near([manifest], [(spec_id, (value,))])))

    assert not holds(None, PartitionFieldSummary(False, False, low, high))
    assert holds(None, PartitionFieldSummary(True, False, low, high))
    assert holds(float("nan"), PartitionFieldSummary(False, False, low, high))
    assert holds(5.0, PartitionFieldSummary(False, True, None, None))
    assert holds(5.0, PartitionFieldSummary(False, False, b"1", b"2"))
    assert holds(5.0, None)
    assert not holds(1.5, PartitionFieldSummary(False, False, low, high), spec_id=1)
    dropped = PartitionPruning([PartitionSpec(PartitionField(9, 1000, IdentityTransform(), "p"))], schema)
    assert list(dropped.near([_manifest([PartitionFieldSummary(False, False, low, high)])], [(0, (5.0,))]))


def _manifest(
    summaries: list[PartitionFieldSummary] | None,
    path: str = "s3://lake/t/metadata/m/x.avro",
    sequence_number: int = 3,
    spec_id: int = 0,
    added: int = 0,
) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=path,
        partition_spec_id=spec_id,
        sequence_number=sequence_number,
        partitions=summaries,
        added_files_count=added,
        existing_files_count=0,
        content=ManifestContent.DATA,
    )


# -------------------------------------------------------------------------------------- packed


_OF_ONE_TYPE = st.sampled_from(
    [
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.text(),
        st.binary(),
        st.uuids(),
        st.decimals(allow_nan=False, allow_infinity=False, places=2),
        st.floats(allow_infinity=True).filter(lambda it: it != 0),
    ]
)


@given(
    _OF_ONE_TYPE.flatmap(
        lambda kind: st.lists(st.tuples(st.text(), st.none() | kind, st.integers(0, 1 << 60)))
    )
)
def test_packed_files_come_back_equal(rows: list[tuple[str, Any, int]]) -> None:
    manifest = _manifest(None)
    files = [
        LiveFile(f"s3://lake/{name}", 0, (_one_nan(value),), size, size // 2, size % 2, 3)
        for name, value, size in rows
    ]
    data = pack_files(manifest, files)
    assert data is not None
    columns = unpack_files(manifest, data)
    assert columns is not None
    assert [repr(it) for it in columns.files()] == [repr(it) for it in files]
    assert (
        columns.hashed
        == hash_locations(it.location for it in files)
        == PackedFiles.of(manifest, files).hashes
    )
    for _, value, _ in rows:
        assert repr(read_value(spell_value(value))) == repr(value)


def _one_nan(value: Any) -> Any:
    return float("nan") if value != value else value


def test_bytes_that_are_damaged_or_of_another_manifest_are_no_packed_files() -> None:
    manifest = _manifest(None)
    data = pack_files(manifest, [LiveFile("s3://lake/a", 0, (1,), 5, 1, 0, 3)])
    assert data is not None
    assert unpack_files(manifest, data) is not None
    for damaged in (b"", data[:-1], data + b"x", data[:30] + b"?" + data[31:], b"{}"):
        assert unpack_files(manifest, damaged) is None
    for other in ({"path": "s3://lake/t/metadata/m/y.avro"}, {"sequence_number": 4}, {"spec_id": 1}):
        assert unpack_files(_manifest(None, **other), data) is None


def _written_before() -> bytes:
    """Return a copy as releases wrote it that kept no hashes of locations."""
    stated = {"partitions": [[1]], "manifest": "x.avro", "sequence_number": 3, "spec_id": 0}
    numbers = b"".join(it.to_bytes(8, "little") for it in (0, 5, 1, 0, 3))
    sections = [zlib.compress(it) for it in (json.dumps(stated).encode(), numbers, b'["s3://lake/a"]')]
    body = b"".join([*(len(it).to_bytes(4, "little") for it in sections), *sections])
    return b"files-2\n" + blake2b(body, digest_size=16).digest() + body


def test_a_copy_of_an_earlier_release_is_read_and_has_hashes_too() -> None:
    columns = unpack_files(_manifest(None), _written_before())
    assert columns is not None
    assert list(columns.files()) == [LiveFile("s3://lake/a", 0, (1,), 5, 1, 0, 3)]
    assert columns.hashes == hash_locations(["s3://lake/a"])


def test_a_copy_of_which_one_bit_has_turned_is_none() -> None:
    """Nor one of another release: their first bytes, of which there is no digest, differ by one bit."""
    manifest = _manifest(None)
    for data in (pack_files(manifest, [LiveFile("s3://lake/a", 0, (1,), 5, 1, 0, 3)]), _written_before()):
        assert data is not None
        for bit in range(8 * len(data)):
            turned = bytearray(data)
            turned[bit // 8] ^= 1 << bit % 8
            assert unpack_files(manifest, bytes(turned)) is None


def test_encrypted_files_are_not_packed() -> None:
    encrypted = LiveFile("s3://lake/a", 0, (1,), 5, 1, 0, 3, key_metadata=b"k")
    assert pack_files(_manifest(None), [encrypted]) is None


# -------------------------------------------------------------------------------------- reads, on tables


def test_an_append_of_a_new_process_reads_no_manifest_however_long_the_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = Lake()
    lake.table.commit([Append(tuple(lake.file() for _ in range(300)))])  # a full one, which no merge takes
    for _ in range(20):
        lake.table.commit([Append((lake.file(),))], open_below_bytes=SMALL)
    table, store = reading(lake)
    store.manifests()
    lake.clock.now_ms += 1_000
    table.commit([Append((lake.file(),))], open_below_bytes=SMALL)
    assert store.manifests() == 0


def test_a_long_list_of_small_manifests_is_merged_by_a_process_that_has_read_none() -> None:
    lake = Lake()
    for _ in range(130):
        process, _ = reading(lake)  # one that knows no other manifest, so that it merges none
        process.commit([Append((lake.file(),))], open_below_bytes=SMALL)
    table, store = reading(lake)
    assert len(table.head.manifests) < 130
    assert len(list(table.head.live_files())) == 130
    assert store.manifests() == len(table.head.manifests)


def test_small_files_are_looked_for_in_the_manifests_that_may_have_some_in_the_partition() -> None:
    lake = Lake()
    full = [lake.file(p=p, size=2 * SMALL) for p in (1, 2)]
    lake.table.commit([Append(tuple(full))], open_below_bytes=SMALL)
    for p in (1, 2, 3):
        lake.table.commit([Append((lake.file(p=p), lake.file(p=p)))], open_below_bytes=SMALL)
    table, store = reading(lake)
    store.manifests()
    found = {file.partition for file in table.head.files_below(SMALL, [(0, (2,))], fillable=True)}
    assert (found, store.manifests()) == ({(2,)}, 1)
    assert not list(table.head.files_below(SMALL, [(0, (7,))]))
    assert store.manifests() == 0
    assert len(list(table.head.files_below(SMALL))) == 6


def test_a_file_that_is_not_live_is_told_by_reading_all_or_by_the_names() -> None:
    lake = Lake()
    files = []
    for _ in range(4):
        lake.clock.now_ms += 1_000
        files.append(lake.file(p=1))
        lake.table.commit([Append((files[-1],))])
    lake.clock.now_ms += 1_000
    gone = lake.file(p=1)
    table, store = reading(lake)
    store.manifests()
    assert table.head.find_live(files[0].file_path) is not None
    assert store.manifests() == 1
    assert table.head.find_all_live([gone.file_path], likely=True) == {}
    assert store.manifests() <= 1
    assert table.head.find_live(gone.file_path) is None
    assert store.manifests() >= 2


def test_the_name_of_a_file_is_parsed_as_often_however_many_manifests_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake, parsed = Lake(), list[str]()
    files = []
    for _ in range(9):
        lake.clock.now_ms += 1_000
        files.append(lake.file(p=1))
        lake.table.commit([Append((files[-1],))])
    table, _ = reading(lake)
    monkeypatch.setattr(lookup, "id_time", lambda location: parsed.append(location) or id_time(location))
    sought = [it.file_path for it in files]
    assert table.head.find_all_live(sought).keys() == set(sought)
    assert len(parsed) == 2 * len(sought)


def test_manifests_that_lists_have_in_common_are_in_memory_once_unless_they_differ() -> None:
    lake = Lake()
    for _ in range(3):
        lake.table.commit([Append((lake.file(),))])
    table, store = reading(lake)
    files, lists = table.head.manifest_files, [it.manifest_list for it in table.head.metadata.snapshots]
    read = [files.lists.parse(it, store.read(store.relative(it)).data) for it in lists]
    assert [len(set(map(id, each)) & set(map(id, read[-1]))) for each in read] == [1, 2, 3]
    renumbered = files.list_encoder.encode(tuple(numbered(it, 9) for it in _unnumbered(read[-1])), {})
    again = files.lists.parse("another", renumbered)
    assert {it.sequence_number for it in again} == {9}
    assert {it.sequence_number for it in read[-1]} == {1, 2, 3}


def _unnumbered(manifests: tuple[ManifestFile, ...]) -> Iterator[ManifestFile]:
    for manifest in manifests:
        copy = ManifestFile(*(manifest[position] for position in range(len(manifest))))
        copy.sequence_number = UNASSIGNED_SEQ
        yield copy


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A table whose manifests of two files and more have copies."""
    monkeypatch.setattr(contents, "_CACHED_ENTRIES", 1)
    monkeypatch.setattr(manifests, "_COPIES_AT_ONCE", 100)
    lake = Lake()
    for number in range(MAINTAIN_EVERY + 1):
        lake.table.commit([Append((lake.file(p=number), lake.file(p=number)))])
    return lake


def test_maintenance_writes_copies_and_a_new_process_reads_them_in_the_place_of_manifests(
    copied: Lake,
) -> None:
    table, store = reading(copied)
    large = [it for it in table.head.manifests if is_data(it)]
    with_copy = {listed.path for listed in store.list_folder(names.COPY_FOLDER)}
    assert with_copy == {copy_path(it.manifest_path) for it in large[2:]}
    store.manifests()
    assert len(list(table.head.live_files())) == 2 * len(large)
    assert store.manifests() == 2
    expected = {it.location: it for it in copied.open().head.live_files()}
    assert {it.location: it for it in table.head.live_files()} == expected


def test_columns_that_are_asked_for_once_are_those_of_all_files_and_are_not_kept(copied: Lake) -> None:
    copied.table.commit([Append((copied.file(p=1),))])
    table, store = reading(copied)
    files, large = table.head.manifest_files, [it for it in table.head.manifests if is_data(it)]
    store.manifests()
    found = [it for manifest in large for it in files.columns(manifest, once=True).files()]
    assert sorted(map(repr, found)) == sorted(map(repr, copied.open().head.live_files()))
    read = store.manifests()
    assert read == len([it for it in large if not files.packed.find_copy(it)]) < len(large)
    assert not any(map(files.known, large))
    assert len([it for it in large if files.packed.keeps(it)]) == read
    for manifest in large:
        files.columns(manifest, once=True)
    assert store.manifests() == 0


@pytest.mark.parametrize("data", [b"", b"files-1\n", None])
def test_copies_that_are_damaged_or_gone_cost_reads_alone(copied: Lake, data: bytes | None) -> None:
    table, store = reading(copied)
    for listed in store.list_folder(names.COPY_FOLDER):
        if data is None:
            list(table.head.manifest_files.packed.without_copy(()))
            store.delete([listed.path])
        else:
            store.overwrite(listed.path, data)
    store.manifests()
    files = len(list(table.head.live_files()))
    assert files == 2 * len(table.head.manifests)
    assert store.manifests() == len(table.head.manifests)


@pytest.mark.parametrize("data", [b"", b"files-1\n"])
def test_maintenance_writes_a_copy_anew_that_was_found_damaged_or_of_another_release(
    copied: Lake, data: bytes
) -> None:
    table, store = reading(copied)
    for listed in store.list_folder(names.COPY_FOLDER):
        store.overwrite(listed.path, data)
    list(table.head.live_files())
    table.head.write_copies()
    table, store = reading(copied)
    list(table.head.live_files())
    assert store.manifests() == 0


def test_a_manifest_that_cannot_be_packed_is_read_for_its_copy_once_a_process(
    copied: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copied.store
    store.delete([listed.path for listed in store.list_folder(names.COPY_FOLDER)])
    table, reads = reading(copied)
    stuck = next(it for it in table.head.manifests if is_data(it))
    pack = copies.pack_files
    monkeypatch.setattr(copies, "pack_files", lambda it, files: None if it == stuck else pack(it, files))
    for written in (0, 1, 2):  # of which each reads one
        reads.manifests()
        table.head.write_copies()
        assert reads.manifests() == 1
        assert len(store.list_folder(names.COPY_FOLDER)) == written


def test_a_copy_of_another_manifest_is_not_taken_for_it(copied: Lake) -> None:
    table, store = reading(copied)
    paths = [listed.path for listed in store.list_folder(names.COPY_FOLDER)]
    stored = [store.read(path).data for path in paths]
    for path, data in zip(paths, stored[1:] + stored[:1], strict=True):
        store.overwrite(path, data)
    by_manifest = [table.head.manifest_files.contents(it).files for it in table.head.manifests]
    plain = without_copies(copied)
    assert by_manifest == [plain.manifest_files.contents(it).files for it in plain.manifests]


def without_copies(lake: Lake) -> Head:
    """Return the head as a process reads it that has no copies."""
    head = lake.open().head
    head.manifest_files.packed._copies = set()
    return head


def test_memory_is_bounded_and_a_file_is_found_and_kept_from_landing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contents, "KEPT_FILES", 5)
    lake = Lake()
    files = [lake.file(p=1) for _ in range(12)]
    for file in files:
        lake.clock.now_ms += 1_000
        lake.table.commit([Append((file,))])
    cache = lake.table.head.manifest_files.cache
    assert sum(it.weight for it in cache._contents.values()) <= 5
    with pytest.raises(CommitConflictError, match="in the table already"):
        lake.table.commit([Append((files[0],))])
    merged = lake.merged(*files[:3])
    lake.table.commit([Replace(frozenset(it.file_path for it in files[:3]), (merged,))])
    assert len(lake.live()) == 10


def test_maintenance_writes_few_copies_at_once_and_the_others_by_and_by(copied: Lake) -> None:
    table, store = reading(copied)
    store.delete([listed.path for listed in store.list_folder(names.COPY_FOLDER)])
    list(table.head.live_files())
    for _ in range(2):
        store.count()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(manifests, "_COPIES_AT_ONCE", 8)
            table.head.write_copies()
        assert store.count()["PUT"] == 8


def test_manifests_of_other_engines_get_no_copies_since_nobody_would_delete_them(copied: Lake) -> None:
    table, store = reading(copied)
    store.delete([listed.path for listed in store.list_folder(names.COPY_FOLDER)])
    theirs = [
        _manifest(None, f"{copied.store.location}/metadata/m/0f6a-m{number}.avro", added=9)
        for number in range(3)
    ]
    table.head.manifest_files.write_copies(theirs)
    assert store.list_folder(names.COPY_FOLDER) == []


def test_many_small_manifests_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "KEPT_FILES", 30)
    lake = Lake()
    for _ in range(20):
        lake.table.commit([Append(tuple(lake.file() for _ in range(3)))])
    table, store = reading(lake)
    for read in (20, 0, 0):
        store.manifests()
        assert len(list(table.head.live_files())) == 60
        assert store.manifests() == read


def test_a_file_that_another_engine_has_listed_twice_leaves_both_manifests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = Lake()
    file = lake.file()
    lake.table.commit([Append((file,))])
    monkeypatch.setattr(conflicts, "check_files_are_not_live", lambda *_: None)
    lake.table.commit([Append((file,))])
    merged = lake.merged(file)
    lake.table.commit([Replace(frozenset({file.file_path}), (merged,))])
    assert lake.live() == {merged.file_path}
