"""Merges that copy row groups: rows and metrics are those of a decoded merge, and each page is found."""

from __future__ import annotations

import io
import struct
import tempfile
from collections import Counter
from dataclasses import replace

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planners.model import Bucket, InputFile, PositionDeletes
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.tasks.batches import conform
from streaming_sink.tasks.files import data_file_writer
from streaming_sink.tasks.files.delete_files import write_position_deletes
from streaming_sink.tasks.job import BloomFilter, PartitionSource, TaskBuckets
from streaming_sink.tasks.row_groups.compact import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Field,
    Values,
    decode_struct,
    encode_struct,
)
from streaming_sink.tasks.row_groups.copying import copy_pages, moved_group
from streaming_sink.tasks.row_groups.footer import FooterError, read_row_groups
from streaming_sink.tasks.rows.fill_task import Fill, FillSkipped, execute_fill
from streaming_sink.tasks.rows.write_task import TaskWriter
from tests.readers.reference_tables import every_type, rows_of_every_type
from tests.unit.streaming_sink.tasks.row_groups.joined_files import (
    DECODES,
    decoded,
    job_of,
    merged,
    metrics_of,
    rows_of,
    stored,
    walk,
    written,
)


def _field(name, kind, number):
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


SCHEMA = pa.schema([_field("id", pa.int64(), 1), _field("x", pa.float64(), 2), _field("s", pa.string(), 3)])
NAN = float("nan")


def _rows(start, count, nans=()):
    ids = range(start, start + count)
    xs = [NAN if it in nans else it / 4 for it in ids]
    return pa.table({"id": [*ids], "x": xs, "s": [f"text {it % 7}" for it in ids]}, SCHEMA)


def _ids(rows):
    return sorted(row["id"] for row in rows)


def test_every_type_is_joined_with_the_rows_and_the_metrics_of_a_decoded_merge():
    schema = arrow_schema(every_type())
    [batch] = rows_of_every_type(every_type()).combine_chunks().to_batches()
    rows = pa.Table.from_batches([conform(batch, schema)])
    job = job_of(schema, dictionary_page_bytes=64)
    files = [written(job, rows, rows.slice(1)), written(job, rows.slice(2)), written(job, rows)]
    [joined] = merged(job, *files)
    by_decoding = decoded(job, *files)
    assert pq.ParquetFile(pa.BufferReader(stored(job, joined))).num_row_groups == 4
    assert [repr(it) for it in rows_of(job, joined)] == [repr(it) for it in rows_of(job, by_decoding)]
    for name in ("rows", "value_counts", "null_counts", "nan_counts", "lower_bounds", "upper_bounds"):
        assert getattr(joined, name) == getattr(by_decoding, name), name
    assert joined.column_sizes.keys() == by_decoding.column_sizes.keys()


LISTS = pa.schema([_field("id", pa.int64(), 1), _field("l", pa.list_(_field("element", pa.int32(), 3)), 2)])


def _lists(start, count):
    ids = [*range(start, start + count)]
    return pa.table({"id": ids, "l": [[it] * (it % 3) for it in ids]}, LISTS)


def test_no_damaged_byte_of_a_page_changes_rows_where_lists_are_copied():
    """A damaged level would shift the rows of the next row group, and no header shows it."""
    job = job_of(LISTS, compression="none")
    file, other = written(job, _lists(0, 40)), written(job, _lists(40, 40))
    data = stored(job, file)
    extent = read_row_groups(io.BytesIO(data)).footer.groups[0].extent
    expected = [*map(repr, rows_of(job, file, other))]
    became = Counter()
    for at in range(extent.begin, extent.end):
        _store_again(job, file, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        inputs = tuple(InputFile(it.path, it.rows) for it in (file, other))
        done = execute_fill(
            replace(job, stated=metrics_of(file, other)), Fill(0, (), (), inputs, ()), attempt=0
        )
        if isinstance(done, FillSkipped):
            became["found"] += 1
            continue
        assert sorted(map(repr, rows_of(job, *done.files))) == sorted(expected), at
        became["harmless"] += 1
    assert became["found"] >= extent.end - extent.begin - 5


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4"])
@pytest.mark.parametrize(
    "values",
    [
        pa.array(["", "a", "bc"] * 20),
        pa.array([1, 2, None] * 20),
        pa.array([1.5, 2.5] * 30, pa.float32()),
        pa.array([b"abcd", b"efgh"] * 30, pa.binary(4)),
        pa.array([1, 2] * 30).cast(pa.decimal128(38, 0)),
    ],
    ids=lambda values: str(values.type),
)
def test_a_dictionary_that_states_other_entries_is_not_copied(compression, values):
    """The file could not be read, and sound rows that are merged with it neither."""
    schema = pa.schema([_field("v", values.type, 1)])
    job = job_of(schema, compression=compression)
    file, other = (written(job, pa.table([values], schema)) for _ in range(2))
    data = stored(job, file)
    chunk = read_row_groups(io.BytesIO(data)).footer.groups[0].chunks[0]
    assert chunk.has_dictionary
    header, end = decode_struct(data, chunk.extent.begin)
    inputs = tuple(InputFile(it.path, it.rows) for it in (file, other))
    sound = execute_fill(job, Fill(0, (), (), inputs, ()), attempt=0)
    assert len(rows_of(job, *sound.files)) == 120
    entries = header[7].value[1].value
    for wrong in (0, entries - 1, entries + 1, entries ^ 64):
        header[7].value[1] = Field(I32, wrong)
        spoiled = encode_struct(header)
        if len(spoiled) == end - chunk.extent.begin:
            _store_again(job, file, data[: chunk.extent.begin] + spoiled + data[end:])
            done = execute_fill(job, Fill(0, (), (), inputs, ()), attempt=0)
            assert (type(done), done.culprit) == (FillSkipped, file.path), wrong


def test_lists_without_checksums_are_decoded(monkeypatch):
    job, writer = job_of(LISTS), pq.ParquetWriter

    def groups_of(*files):
        [joined] = merged(job, *files)
        assert rows_of(job, joined) == rows_of(job, *files)
        return pq.read_metadata(pa.BufferReader(stored(job, joined))).num_row_groups

    with_them = [written(job, _lists(at, 40)) for at in (0, 40)]
    monkeypatch.setattr(
        pq,
        "ParquetWriter",
        lambda *given, **kwargs: writer(*given, **kwargs | {"write_page_checksum": False}),
    )
    without = [written(job, _lists(at, 40)) for at in (0, 40)]
    monkeypatch.undo()
    assert (groups_of(*with_them), groups_of(*without)) == (2, 1)


def test_a_page_of_lists_that_lacks_its_checksum_is_not_copied():
    job = job_of(LISTS)
    with io.BytesIO(stored(job, written(job, _lists(0, 40)))) as source:
        groups = read_row_groups(source)
        [group] = groups.footer.groups
        moved = moved_group(group, groups.footer, groups.indexes, 4)
        copy_pages(source, moved, bytes, needs_checksums=True)
    with io.BytesIO() as plain:
        pq.write_table(_lists(0, 40), plain, compression="zstd", write_page_index=True)
        groups = read_row_groups(plain)
        [group] = groups.footer.groups
        moved = moved_group(group, groups.footer, groups.indexes, 4)
        copy_pages(plain, moved, bytes)
        with pytest.raises(FooterError, match="a page has no checksum"):
            copy_pages(plain, moved, bytes, needs_checksums=True)


def test_every_page_is_where_the_footer_and_the_offset_index_say(monkeypatch):
    monkeypatch.setattr(data_file_writer, "SPLIT_BYTES", 1)
    job = job_of(SCHEMA, page_rows=50)
    files = [written(job, _rows(0, 300), _rows(300, 120)), written(job, _rows(420, 90))]
    [joined] = merged(job, *files)
    data, places = stored(job, joined), [*walk(stored(job, joined))]
    assert len(places) == 3 * len(SCHEMA)
    assert all(walked == indexed for walked, indexed in places)
    footer = pq.read_metadata(pa.BufferReader(data))
    assert joined.split_offsets == tuple(
        footer.row_group(at).column(0).dictionary_page_offset
        or footer.row_group(at).column(0).data_page_offset
        for at in range(3)
    )


def test_the_walk_finds_pages_that_were_not_moved(monkeypatch):
    """The test above can fail."""

    def beside(group, footer, indexes, begin):
        return moved_group(group, footer, indexes, begin + 1)

    monkeypatch.setattr(data_file_writer, "moved_group", beside)
    job = job_of(SCHEMA)
    [joined] = merged(job, written(job, _rows(0, 300)), written(job, _rows(300, 90)))
    with pytest.raises(Exception):  # noqa: B017, PT011 - wherever it stops
        assert all(walked == indexed for walked, indexed in walk(stored(job, joined)))


@pytest.mark.parametrize("bound", [1, 3000, DECODES])
def test_small_groups_become_one_and_large_ones_stay(bound):
    job = job_of(SCHEMA, copied_from_bytes=bound)
    large, small = [_rows(at * 2000, 2000) for at in range(3)], [_rows(6000 + at, 1) for at in range(4)]
    files = [
        written(job, small[0], large[0], small[1]),
        written(job, large[1]),
        written(job, *small[2:], large[2]),
    ]
    [joined] = merged(job, *files)
    footer = pq.read_metadata(pa.BufferReader(stored(job, joined)))
    rows = [footer.row_group(at).num_rows for at in range(footer.num_row_groups)]
    assert sorted(rows) == {1: [1] * 4 + [2000] * 3, 3000: [4, 2000, 2000, 2000], DECODES: [6004]}[bound]
    assert _ids(rows_of(job, joined)) == [*range(6004)]


@pytest.mark.parametrize("cuts", [(100,), (150,), (50, 100, 250), (310,)])
def test_a_file_ends_at_each_cut(cuts):
    job = job_of(SCHEMA)
    files = [
        written(job, _rows(0, 60), _rows(60, 40)),
        *(written(job, _rows(at * 100, 100)) for at in (1, 2, 3)),
    ]
    done = merged(job, *files, cuts=cuts)
    ends = (*cuts, 400)
    assert [it.rows for it in done] == [end - begin for begin, end in zip((0, *ends), ends, strict=False)]
    assert _ids(rows_of(job, *done)) == [*range(400)]


def test_row_groups_with_deleted_rows_are_decoded_and_the_others_copied():
    job = job_of(SCHEMA)
    first = written(job, *(_rows(at * 100, 100, nans=(5, 105, 205)) for at in range(3)))
    second = written(job, _rows(300, 100))
    [deleted] = _deleted(job, first, 105, 110, 199)
    done = execute_fill(
        replace(job, stated=metrics_of(first, second)),
        Fill(0, (), (), (InputFile(first.path, 300, (deleted,)), InputFile(second.path, 400 - 300)), ()),
        attempt=0,
    )
    [joined] = done.files
    assert (done.deleted_rows, joined.rows, joined.nan_counts) == (3, 397, {2: 2})
    assert _ids(rows_of(job, joined)) == [it for it in range(400) if it not in (105, 110, 199)]
    footer = pq.read_metadata(pa.BufferReader(stored(job, joined)))
    assert sorted(footer.row_group(at).num_rows for at in range(4)) == [97, 100, 100, 100]


@pytest.mark.parametrize("is_sorted", [False, True])
def test_a_file_that_is_folded_is_copied_but_for_its_worn_row_groups_unless_it_is_sorted(is_sorted):
    job = job_of(SCHEMA)
    file = written(job, *(_rows(at * 100, 100) for at in range(3)))
    [deleted] = _deleted(job, file, 3, 99)
    fill = Fill(0, (), (), (InputFile(file.path, 300, (deleted,)),), (), keeps_order=is_sorted)
    [joined] = execute_fill(job, fill, attempt=0).files
    rows = rows_of(job, joined)
    footer = pq.read_metadata(pa.BufferReader(stored(job, joined)))
    groups = [footer.row_group(at).num_rows for at in range(footer.num_row_groups)]
    assert groups == ([298] if is_sorted else [100, 100, 98])
    assert _ids(rows) == [it for it in range(300) if it not in (3, 99)]
    assert not is_sorted or _ids(rows) == [row["id"] for row in rows]


def _deleted(job, file, *positions):
    path = f"data/deletes-{len(positions)}.parquet"
    rows, _ = write_position_deletes(job.store, path, file.path, pa.array(positions, pa.int64()), job.parquet)
    yield PositionDeletes(job.store.uri(path), rows)


@pytest.mark.parametrize(("are_stated", "counts"), [(True, {2: 3}), (False, {})])
def test_nans_are_those_of_the_manifests_and_unknown_where_one_lacks_them(are_stated, counts):
    job = job_of(SCHEMA)
    files = [written(job, _rows(0, 10, nans=(3, 4))), written(job, _rows(10, 10, nans=(15,)))]
    [joined] = merged(job, *files, nans=are_stated)
    assert joined.nan_counts == counts


def test_a_file_whose_offset_index_is_damaged_is_decoded():
    job = job_of(SCHEMA)
    file, other = written(job, _rows(0, 100)), written(job, _rows(100, 100))
    whole = stored(job, file)
    index = read_row_groups(io.BytesIO(whole)).footer.groups[0].chunks[0].offset_index
    _store_again(job, file, whole[: index.begin] + bytes(index.end - index.begin) + whole[index.end :])
    assert _ids(rows_of(job, *merged(job, file, other))) == [*range(200)]


def _store_again(job, file, data):
    path = job.store.relative(file.path)
    job.store.delete([path])
    with job.store.open_output(path) as output:
        output.write(data)


@pytest.mark.parametrize(("bound", "others"), [(0, 100), (99, -100)])
def test_a_file_whose_footer_has_other_bounds_than_its_manifest_is_decoded(bound, others):
    """Readers pass over files by their bounds: copied, the damaged one would hide rows of the joined file."""
    job, first = job_of(SCHEMA), 123_456_700
    file, other = written(job, _rows(first, 100)), written(job, _rows(first + others, 100))
    whole = stored(job, file)
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    true, narrower = (struct.pack("<q", first + it) for it in (bound, 50))
    assert true in whole[footer:]
    _store_again(job, file, whole[:footer] + whole[footer:].replace(true, narrower))
    [joined] = merged(job, file, other)
    least, most = sorted([first, first + others])
    assert joined.lower_bounds[1] == struct.pack("<q", least)
    assert joined.upper_bounds[1] == struct.pack("<q", most + 99)


def test_a_file_whose_footer_has_other_nulls_or_lacks_a_bound_is_decoded():
    """Readers pass over row groups that are all null, and over files by their bounds."""
    job = job_of(SCHEMA)
    other = written(job, _rows(100, 100))
    for number, value in ((3, Field(I64, 50)), (6, Field(BINARY, b"\xfftext"))):
        file = written(job, _rows(0, 100))

        def changed(meta, number=number, value=value):
            return {**meta, 12: Field(STRUCT, {**meta[12].value, number: value})}

        _store_again(job, file, _with_chunk(stored(job, file), changed, 2 if number == 6 else 0))
        [joined] = merged(job, file, other)
        whole = decoded(job, file, other)
        assert (joined.null_counts, joined.lower_bounds) == (whole.null_counts, whole.lower_bounds)
        assert joined.null_counts == dict.fromkeys((1, 2, 3), 0)


def test_a_page_that_states_other_values_makes_its_file_the_culprit():
    """Its surplus would be read as values of the next row group, of another file."""
    job = job_of(SCHEMA, compression="none")
    file, other = written(job, _rows(0, 100)), written(job, _rows(100, 100))
    data = bytearray(stored(job, file))
    header, body = decode_struct(bytes(data), 4)
    assert header[1].value == 0
    header[5].value[1] = Field(I32, 102)
    data[4:body] = encode_struct(header)
    _store_again(job, file, bytes(data))
    inputs = tuple(InputFile(it.path, it.rows) for it in (file, other))
    done = execute_fill(job, Fill(0, (), (), inputs, ()), attempt=0)
    assert (type(done), done.culprit) == (FillSkipped, file.path)
    assert "a page has 100 rows by its index, and 102 by its header" in done.reason


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_pages_of_version_2_are_copied(compression, dictionary):
    """Arrow counts them among those of version 1 in the footer, and ingestion copies them into files."""
    job, files = job_of(SCHEMA, compression=compression), []
    for at in (0, 100):
        file = written(job, _rows(at, 100))
        with io.BytesIO() as given:
            pq.write_table(
                _rows(at, 100), given, compression=compression, use_dictionary=dictionary,
                data_page_version="2.0", write_page_index=True, store_schema=False,
            )  # fmt: skip
            _store_again(job, file, given.getvalue())
            files.append(replace(file, bytes=len(given.getvalue())))
    [joined] = merged(job, *files)
    assert pq.read_metadata(pa.BufferReader(stored(job, joined))).num_row_groups == 2
    assert _ids(rows_of(job, joined)) == [*range(200)]
    [again] = merged(job, joined, written(job, _rows(200, 100)))
    assert _ids(rows_of(job, again)) == [*range(300)]


def test_an_offset_index_with_other_first_rows_makes_its_file_the_culprit():
    """Readers that skip pages would align columns by it."""
    job = job_of(SCHEMA, page_rows=10, compression="none")
    file, other = written(job, _rows(0, 40)), written(job, _rows(100, 40))

    def beside(index):
        fields, _ = decode_struct(index)
        fields[1].value.items[1][3] = Field(I64, 8)
        return encode_struct(fields)

    _store_again(job, file, _with_offset_index(stored(job, file), beside))
    inputs = tuple(InputFile(it.path, it.rows) for it in (file, other))
    done = execute_fill(job, Fill(0, (), (), inputs, ()), attempt=0)
    assert (type(done), done.culprit) == (FillSkipped, file.path)
    assert "a page has 8 rows by its index, and 10 by its header" in done.reason


def test_a_file_that_lacks_a_column_which_its_manifest_counts_is_not_merged():
    """One flipped bit of a field id makes it a column of the future, and the merge one of nulls."""
    job = job_of(SCHEMA)
    file, other = written(job, _rows(0, 40)), written(job, _rows(100, 40))

    def moved(footer):
        footer[2].value.items[2][9] = Field(I32, 34)
        return footer

    _store_again(job, file, _with_footer(stored(job, file), moved))
    inputs = tuple(InputFile(it.path, it.rows) for it in (file, other))
    done = execute_fill(replace(job, stated=metrics_of(file, other)), Fill(0, (), (), inputs, ()), attempt=0)
    assert (type(done), done.culprit) == (FillSkipped, file.path)
    assert "lacks a column that its manifest counts" in done.reason


@pytest.mark.parametrize(
    ("element", "lacking"), [(3, "p.x"), (6, "l.list.element"), (10, "m.key_value.value")]
)
def test_nor_is_one_that_lacks_a_field_of_a_column(element, lacking):
    x, item, key, value = (_field(name, pa.int64(), number) for number, name in enumerate("xekv", 11))
    kinds = {
        "p": pa.struct([_field("y", pa.int64(), 10), x]),
        "l": pa.list_(item),
        "m": pa.map_(key.with_nullable(False), value),
    }
    schema = pa.schema([_field(name, kind, number) for number, (name, kind) in enumerate(kinds.items(), 1)])
    row = {"p": {"x": 1, "y": 2}, "l": [3], "m": [(4, 5)]}
    job = job_of(schema)
    file, other = (written(job, pa.Table.from_pylist([row] * 40, schema)) for _ in range(2))

    def moved(footer):
        footer[2].value.items[element][9] = Field(I32, 34)
        return footer

    assert file.null_counts.keys() == {10, 11, 12, 13, 14}
    _store_again(job, file, _with_footer(stored(job, file), moved))
    inputs = tuple(InputFile(it.path, it.rows) for it in (file, other))
    done = execute_fill(replace(job, stated=metrics_of(file, other)), Fill(0, (), (), inputs, ()), attempt=0)
    assert (type(done), done.culprit) == (FillSkipped, file.path)
    assert done.reason.endswith(f"a column that its manifest counts: {file.path}: {lacking}")


@pytest.mark.parametrize("change", ["all null", "of other nulls", "one page less", "unknown"])
def test_a_column_index_that_is_not_of_its_pages_is_left_out(change):
    """Spark skips pages by it, and the rows in them; a file without one is whole."""
    job = job_of(SCHEMA, page_rows=10)
    file, other = written(job, _rows(0, 100)), written(job, _rows(100, 100))
    data = stored(job, file)
    place = read_row_groups(io.BytesIO(data)).footer.groups[0].chunks[0].column_index
    index, _ = decode_struct(data[place.begin : place.end])
    pages = len(index[1].value.items)
    assert pages == 10
    if change == "all null":
        index[1].value.items[:] = [True] * pages
    elif change == "of other nulls":
        index[5].value.items[0] = 1
    elif change == "one page less":
        for number in (1, 2, 3, 5):
            index[number].value.items.pop()
    else:
        index[9] = Field(I32, 1)
    spoiled = encode_struct(index)

    def moved(footer):
        chunk = footer[4].value.items[0][1].value.items[0]
        chunk.update({6: Field(I64, len(data) - 8 - length), 7: Field(I32, len(spoiled))})
        return footer

    length = int.from_bytes(data[-8:-4], "little")
    _store_again(job, file, _with_footer(data[: -8 - length] + spoiled + data[-8 - length :], moved))
    [joined] = merged(job, file, other)
    groups = read_row_groups(io.BytesIO(stored(job, joined))).footer.groups
    assert [[chunk.column_index is None for chunk in it.chunks] for it in groups] == [
        [True, False, False],
        [False] * 3,
    ]
    assert _ids(rows_of(job, joined)) == [*range(200)]


def test_an_offset_index_whose_rows_do_not_follow_each_other_is_not_copied():
    job = job_of(SCHEMA, page_rows=10)
    file, other = written(job, _rows(0, 100)), written(job, _rows(100, 100))
    data = stored(job, file)
    place = read_row_groups(io.BytesIO(data)).footer.groups[0].chunks[0].offset_index
    index, _ = decode_struct(data[place.begin : place.end])
    index[1].value.items[3][3] = Field(I64, 10)  # as the page before it but one
    spoiled = encode_struct(index)
    assert len(spoiled) == place.end - place.begin
    _store_again(job, file, data[: place.begin] + spoiled + data[place.end :])
    assert _ids(rows_of(job, *merged(job, file, other))) == [*range(200)]


@pytest.mark.parametrize("of_a_page", [True, False])
def test_an_offset_index_with_a_field_of_the_future_is_not_copied(of_a_page):
    """It may be an offset."""
    job = job_of(SCHEMA)
    file, other = written(job, _rows(0, 100)), written(job, _rows(100, 100))

    def later(index):
        fields, _ = decode_struct(index)
        (fields[1].value.items[0] if of_a_page else fields)[9] = Field(I64, 4)
        return encode_struct(fields)

    _store_again(job, file, _with_offset_index(stored(job, file), later))
    [joined] = merged(job, file, other)
    data = stored(job, joined)
    indexes = [
        decode_struct(data[chunk.offset_index.begin : chunk.offset_index.end])[0]
        for group in read_row_groups(io.BytesIO(data)).footer.groups
        for chunk in group.chunks
    ]
    assert {key for index in indexes for key in index} <= {1, 2}
    assert {key for index in indexes for page in index[1].value.items for key in page} == {1, 2, 3}
    assert _ids(rows_of(job, joined)) == [*range(200)]


def test_bloom_filters_are_copied_and_a_file_without_one_that_is_asked_for_is_decoded():
    plain = job_of(SCHEMA)
    filtering = replace(plain, parquet=replace(plain.parquet, bloom_filters={3: BloomFilter()}))
    files = [
        written(filtering, _rows(0, 50)),
        written(filtering, _rows(50, 50)),
        written(plain, _rows(100, 50)),
    ]
    [joined] = merged(filtering, *files)
    data = stored(filtering, joined)
    footer = pq.read_metadata(pa.BufferReader(data))
    assert [footer.row_group(at).column(2).path_in_schema for at in range(3)] == ["s"] * 3
    stated, _ = decode_struct(data[-8 - int.from_bytes(data[-8:-4], "little") : -8])
    filters = [group[1].value.items[2][3].value for group in stated[4].value.items]
    assert all({14, 15} <= it.keys() for it in filters)
    for text in ("text 3", "text 99"):
        found = _rows_by_duckdb(data, f"SELECT count(*) FROM read_parquet('{{}}') WHERE s = '{text}'")
        assert found == (21 if text == "text 3" else 0)


def _rows_by_duckdb(data, query):
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        file.write(data)
        file.flush()
        [(count,)] = duckdb.connect().execute(query.format(file.name)).fetchall()
    return count


def test_a_batch_joins_files_whose_row_groups_are_copied():
    job = job_of(SCHEMA)
    files = [written(job, _rows(0, 60, nans=(7,))), written(job, _rows(60, 40))]
    inputs = tuple(InputFile(it.path, it.rows) for it in files)
    bucket = Bucket((), 20, inputs, input_bytes=sum(it.bytes for it in files), input_rows=100)
    shared = TaskBuckets(((0, bucket),))
    writer = TaskWriter(replace(job, shared=shared, stated=metrics_of(*files), first_free_bucket=1), 0, 0)
    writer.write(_rows(100, 20, nans=(105,)).to_batches()[0])
    _, merge = writer.finish()
    footer = pq.read_metadata(pa.BufferReader(stored(job, merge.merged)))
    assert [footer.row_group(at).num_rows for at in range(footer.num_row_groups)] == [60, 40, 20]
    assert (merge.merged.rows, merge.merged.nan_counts) == (120, {2: 2})
    assert _ids(rows_of(job, merge.merged)) == [*range(120)]


def _without_ids(schema):
    return pa.schema([field.remove_metadata() for field in schema])


@pytest.mark.parametrize(
    ("needs_ids", "groups"), [(False, 2), (True, 2)], ids=["by names", "by ids, which refuses such files"]
)
def test_a_file_without_field_ids_is_copied_where_names_say_what_they_mean(needs_ids, groups):
    job = job_of(SCHEMA, compression="snappy")
    other = replace(job, schema=_without_ids(SCHEMA), metrics={})
    with job.store.open_output("data/other.parquet") as output:
        pq.write_table(_rows(100, 100).cast(other.schema), output, write_page_index=True, store_schema=False)
    inputs = (
        InputFile(written(job, _rows(0, 100)).path, 100),
        InputFile(job.store.uri("data/other.parquet"), 100),
    )
    done = execute_fill(replace(job, needs_ids=needs_ids), Fill(0, (), (), inputs, ()), attempt=0)
    if needs_ids:
        assert "has no field ids" in done.reason
        return
    [joined] = done.files
    file = pq.ParquetFile(pa.BufferReader(stored(job, joined)))
    assert (file.num_row_groups, file.schema_arrow) == (groups, SCHEMA)
    assert _ids(rows_of(job, joined)) == [*range(200)]


def _first_column(**how):
    return pa.schema([SCHEMA.field(0).with_nullable(how.get("nullable", True)), *list(SCHEMA)[1:]])


def _bytes(rows, **how):
    output = io.BytesIO()
    asked = {"compression": "zstd", "store_schema": False, "write_page_index": True, **how}
    pq.write_table(rows, output, **asked)
    return output.getvalue()


_OTHERS = {
    "another codec": lambda rows: _bytes(rows, compression="gzip"),
    "another writer": lambda rows: _written_by(_bytes(rows), b"another one version 26.0.1"),
    "another encoding": lambda rows: _bytes(
        rows, use_dictionary=False, column_encoding={"id": "DELTA_BINARY_PACKED"}
    ),
    "another type": lambda rows: _bytes(
        rows.cast(pa.schema([SCHEMA.field(0).with_type(pa.int32()), *list(SCHEMA)[1:]]))
    ),
    "required": lambda rows: _bytes(rows.cast(_first_column(nullable=False))),
    "columns in another order": lambda rows: _bytes(rows.select(["s", "x", "id"])),
    "a column less": lambda rows: _bytes(rows.select(["id", "s"])),
    "a filter that is not asked for": lambda rows: _bytes(
        rows, bloom_filter_options={"s": {"ndv": 10, "fpp": 0.1}}
    ),
    "no statistics": lambda rows: _bytes(rows, write_statistics=False),
    "no page index": lambda rows: _bytes(rows, write_page_index=False),
    "an offset index of a megabyte": lambda rows: _with_a_long_offset_index(_bytes(rows)),
    "a chunk of another column": lambda rows: _with_chunk(_bytes(rows), _of_another_column),
    "pages that are not known": lambda rows: _with_chunk(_bytes(rows), _with_pages_of_no_kind),
    "statistics of no known order": lambda rows: _without(_bytes(rows), 7),
}


@pytest.mark.parametrize("other", ["as the table writes it", *_OTHERS])
def test_what_is_not_as_the_table_writes_it_is_decoded(other, monkeypatch):
    job, copied = job_of(SCHEMA), []
    copy = data_file_writer.DataFileWriter.copy

    def noted(self, stored, numbers):
        copied.extend(stored.footer.groups[number].rows for number in numbers)
        copy(self, stored, numbers)

    monkeypatch.setattr(data_file_writer.DataFileWriter, "copy", noted)
    with job.store.open_output("data/other.parquet") as output:
        output.write(_OTHERS.get(other, _bytes)(_rows(100, 100)))
    paths = {written(job, _rows(0, 90)).path: 90, job.store.uri("data/other.parquet"): 100}
    inputs = tuple(InputFile(path, rows) for path, rows in paths.items())
    [joined] = execute_fill(job, Fill(0, (), (), inputs, ()), attempt=0).files
    assert copied == ([90] if other in _OTHERS else [90, 100])
    file = pq.ParquetFile(pa.BufferReader(stored(job, joined)))
    assert _ids(rows_of(job, joined)) == [*range(90), *range(100, 200)]
    assert file.schema_arrow == SCHEMA
    assert joined.nan_counts == {}  # of what was copied they are unknown


def _of_another_column(meta):
    return {**meta, 3: Field(LIST, Values(BINARY, [b"x"]))}


def _with_pages_of_no_kind(meta):
    meta[13].value.items[0][1] = Field(I32, 77)
    return meta


def _with_chunk(data, change, place=0):
    """The file, one of whose column chunks has other metadata."""

    def changed(footer):
        chunk = footer[4].value.items[0][1].value.items[place]
        chunk[3] = Field(STRUCT, change(chunk[3].value))
        return footer

    return _with_footer(data, changed)


def _as_integers(meta):
    return {**meta, 1: Field(I32, 1)}


def _with_a_short_bound(meta):
    return {**meta, 12: Field(STRUCT, {**meta[12].value, 6: Field(BINARY, b"seven b")})}


def _with_bytes_of_texts(meta):
    return {**meta, 16: Field(STRUCT, {**meta[16].value, 1: Field(I64, 7)})}


def _with_levels(number):
    levels = Field(LIST, Values(I64, [1, 2, 3]))
    return lambda meta: {**meta, 16: Field(STRUCT, {**meta[16].value, number: levels})}


@pytest.mark.parametrize(
    "change", [_as_integers, _with_a_short_bound, _with_bytes_of_texts, _with_levels(2), _with_levels(3)]
)
def test_what_a_chunk_says_of_another_type_than_its_column_is_not_carried_along(change):
    """pyarrow ends the process on access to most of these."""
    job = job_of(SCHEMA)
    with job.store.open_output("data/other.parquet") as output:
        output.write(_with_chunk(_bytes(_rows(100, 100)), change))
    other = job.store.uri("data/other.parquet")
    inputs = (InputFile(written(job, _rows(0, 90)).path, 90), InputFile(other, 100))
    done = execute_fill(job, Fill(0, (), (), inputs, ()), attempt=0)
    assert (type(done), done.culprit) == (FillSkipped, other)


def _written_by(data, writer):
    return _with_footer(data, lambda footer: {**footer, 6: Field(BINARY, writer)})


def _without(data, number):
    return _with_footer(data, lambda footer: {key: it for key, it in footer.items() if key != number})


def _with_a_long_offset_index(data):
    """The file, of which the first offset index goes on beyond its end."""
    return _with_offset_index(data, lambda index: index.ljust(1024 * 1024 + 1, b"\0"))


def _with_offset_index(data, change):
    """The file, of which the first offset index is another one, behind all others."""
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = decode_struct(data[-8 - length : -8])
    chunk = footer[4].value.items[0][1].value.items[0]
    index = change(data[chunk[4].value :][: chunk[5].value])

    def moved(footer):
        chunk = footer[4].value.items[0][1].value.items[0]
        chunk.update({4: Field(I64, len(data) - 8 - length), 5: Field(I32, len(index))})
        return footer

    return _with_footer(data[: -8 - length] + index + data[-8 - length :], moved)


def _with_footer(data, change):
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = decode_struct(data[-8 - length : -8])
    changed = encode_struct(change(footer))
    return data[: -8 - length] + changed + struct.pack("<i", len(changed)) + b"PAR1"


def test_a_file_that_ends_before_its_row_groups_do_is_the_culprit_and_leaves_no_file():
    job = job_of(SCHEMA)
    good, bad = written(job, _rows(0, 100)), written(job, _rows(100, 100))
    before = {it.path for it in job.store.list_below("data")}
    whole = job.store.open_input

    class Short:
        def __init__(self, file):
            self._file = file

        def __getattr__(self, name):
            return getattr(self._file, name)

        def read(self, size=-1):
            data = self._file.read(size)
            return data[:-1] if self._file.tell() == 4 + len(data) else data

    job.store.open_input = lambda path: Short(whole(path)) if job.store.uri(path) == bad.path else whole(path)
    inputs = tuple(InputFile(it.path, it.rows) for it in (good, bad))
    done = execute_fill(job, Fill(0, (), (), inputs, ()), attempt=0)
    assert done.culprit == bad.path
    assert "cannot be copied" in done.reason
    assert {it.path for it in job.store.list_below("data")} == before


@pytest.mark.parametrize("bound", [1, DECODES], ids=["copied", "decoded"])
def test_files_of_a_partition_whose_column_was_dropped_are_merged(bound):
    job = job_of(SCHEMA, copied_from_bytes=bound)
    files = [written(job, _rows(0, 60)), written(job, _rows(60, 60))]
    inputs = tuple(InputFile(it.path, it.rows) for it in files)
    spec = (PartitionSource("city", (), "identity"),)
    job = replace(job, partition_by=spec)  # as a group of clustering has it
    done = execute_fill(job, Fill(0, ("eu",), spec, inputs, ()), attempt=0)
    assert _ids(rows_of(job, *done.files)) == [*range(120)]
    assert [it.partition for it in done.files] == [("eu",)]
    assert "/city=eu/" in done.files[0].path
