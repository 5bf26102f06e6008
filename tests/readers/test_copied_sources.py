"""Readers see the rows of source files whose row groups were copied into data files, of every type."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.data_files import data_file
from streaming_sink.table.file_jobs import file_job
from streaming_sink.tasks.ingest.consolidation_task import Share, consolidate
from streaming_sink.tasks.ingest.sources import Sources
from streaming_sink.tasks.job import FileIds
from streaming_sink.tasks.results import WrittenFile
from tests.readers import judges
from tests.readers.reference_tables import LISTS, every_type, rows_of_every_type
from timeline.changes.changes import Append
from timeline.properties import COPIED_FROM_BYTES
from timeline.stores import LocalStore
from timeline.table import Table

_SPARK = pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.jar])
_SOURCES = Sources(("/",))
_NESTED = ("a_struct", *LISTS)


def _made(folder: Path, without: tuple[str, ...], copied_from: int = 1, group_rows: int = 2) -> WrittenFile:
    """Make a table of one file, of rows in files without field ids: row groups of all of them, of two and of
    one, and decoded ones. Where rows are nested, the files say where their pages are.
    """
    properties = {COPIED_FROM_BYTES: str(copied_from), "write.metadata.metrics.default": "full"}
    store, schema = LocalStore(str(folder / "t")), every_type(without)
    table = Table.create(store, schema, table_properties=properties, store_is_checked=True)
    own = pa.schema([_plain(field) for field in arrow_schema(table.head.schema)])
    given, paths = rows_of_every_type(schema).cast(own), []
    indexed = not set(_NESTED) <= set(without)
    for number, options in enumerate(({}, {"row_group_size": group_rows}, {"compression": "gzip"})):
        paths.append(str(folder / f"{number}.parquet"))
        written = {"write_page_index": indexed, "compression": "zstd", **options}
        pq.write_table(given, paths[-1], store_decimal_as_integer=True, **written)
    found, _ = _SOURCES.find(paths, 0)
    job = file_job(table.store, table.head, FileIds(1_800_000_000_000, "zone", 0), 1 << 30)
    share = Share(_SOURCES, tuple(enumerate(found)), copied=frozenset(range(len(paths))))
    [file] = [it for it in consolidate(job, share, 0) if isinstance(it, WrittenFile)]
    table.commit([Append((data_file(file, table.head.spec),))])
    return file


def _plain(field: pa.Field) -> pa.Field:
    """Return a field without ids, at any depth."""
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_plain(each) for each in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(_plain(kind.key_field), _plain(kind.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_plain(kind.value_field))
    return pa.field(field.name, kind, field.nullable)


@pytest.mark.parametrize("left_out", [(), LISTS, _NESTED], ids=["no types", "lists", "nested types"])
@pytest.mark.parametrize("reader", ["pyiceberg", "duckdb", "chdb", "polars", _SPARK])
def test_readers_see_the_rows_of_copied_sources(
    reader: str, left_out: tuple[str, ...], tmp_path: Path
) -> None:
    """Rows with lists and maps are decoded."""
    without = (("a_time",) if reader == "spark" else ()) + left_out
    rows = rows_of_every_type(every_type(without))
    groups = pq.read_metadata(_made(tmp_path, without).path).num_row_groups
    assert groups == (1 + 2 + 1 if left_out else 1)
    judges.assert_reader_agrees(reader, tmp_path / "t", pa.concat_tables([rows] * 3))


@pytest.mark.parametrize("without", [(), LISTS, _NESTED])
def test_what_is_stated_of_copied_sources_is_stated_of_decoded_ones(
    without: tuple[str, ...], tmp_path: Path
) -> None:
    stated = []  # (a row group of a NaN and a null has no bounds, and so has its file)
    for copied_from in (1, 1 << 40):
        folder = tmp_path / str(copied_from)
        folder.mkdir()
        known = dataclasses.asdict(_made(folder, without, copied_from, group_rows=3))
        stated.append({name: known[name] for name in known if name not in ("path", "bytes", "column_sizes")})
    assert stated[0] == stated[1]
