"""Which rows of a file have a wanted key: by the hashes of its columns, and by JSON text in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.types import PrimitiveType

from streaming_sink.removal.places import location_of
from streaming_sink.removal.texts import TextMatcher
from streaming_sink.removal.wanted import WantedKeys
from streaming_sink.table.arrow_types import arrow_schema, needs_field_ids
from streaming_sink.tasks.batches import conform
from streaming_sink.tasks.errors import DataFileError
from streaming_sink.tasks.keys.hashing import hash_keys
from streaming_sink.tasks.keys.probing import KeyProbe
from streaming_sink.tasks.keys.scanning import SCAN_ROWS, KeyColumns
from streaming_sink.tasks.leaves import FIELD_ID
from streaming_sink.tasks.whole_reads import check_count, check_groups
from timeline.stores.base import Store, open_by_name
from timeline.versions.head import Head
from timeline.versions.keys import TableKey, key_of

RESCUED = "_rescued"
_DELETED_ROW = "row"
"""The column of a position-delete file that holds deleted rows, which some engines write (Iceberg spec)."""


@dataclass(frozen=True)
class RowMatcher:
    """Finds the rows of wanted keys in the files of one table."""

    keys: pa.Schema
    """The columns of the keys, in the table's types; none, where rows are found by text alone."""
    hashes: np.ndarray
    """Those of the wanted keys."""
    seed: bytes
    bounds: tuple[tuple[tuple[int, bytes], ...], ...]
    """Of each key the field ids and values of its columns, as the bounds of a file spell them."""
    text: TextMatcher
    rows_as_text: pa.Field | None = None
    """The column that holds whole rows as JSON."""
    rescued: pa.Field | None = None
    """The column of what did not fit, as JSON, which may be a key."""
    of_table: tuple[pa.Field, str] | None = None
    """Where the rows of several tables are in one: the column that names the table, and the wanted one."""
    needs_ids: bool = False
    """Whether a file without field ids cannot be looked into, since columns may have been renamed."""

    @cached_property
    def _probe(self) -> KeyProbe:
        return KeyProbe(self.hashes)

    def find(self, store: Store, path: str, partitioned_by: Collection[int] = ()) -> np.ndarray:
        """Return the positions of the rows of a Parquet file that have a wanted key, ascending. A row is also
        one of a file of deletes, where that holds values of rows.

        Columns are found by field id, in a file without ids by name. `partitioned_by`: the ids of columns
        whose value may be the file's partition alone. FileNotFoundError; DataFileError where the file is
        damaged or encrypted, its values are not of the table's types, or it has no such column.
        """
        found, start = [np.empty(0, np.int64)], 0
        try:
            with open_by_name(store, location_of(store, path)) as source:
                given = pa.PythonFile(source, mode="r")
                file = pq.ParquetFile(given, page_checksum_verification=True)
                check_groups(file.metadata)
                columns = self._columns_in(file.schema_arrow)
                match = _match(file.schema_arrow)
                stored = {match(field) for field in file.schema_arrow}
                for field in self.keys:
                    if _id_of(field) in partitioned_by and match(field) not in stored:
                        raise ValueError(f"it keeps a partition column only in its path: {field.name}")
                if not columns:
                    return found[0]
                for batch in file.iter_batches(SCAN_ROWS, columns=sorted(columns)):
                    found.append(start + np.flatnonzero(self._matches(batch)))
                    start += batch.num_rows
                check_count(start, file.metadata.num_rows)
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError, ValueError, TypeError) as damage:
            raise DataFileError(
                f"a file cannot be read: {path}: {' '.join(str(damage).split())[:200]}"
            ) from damage
        return np.concatenate(found)

    def _wanted(self) -> list[pa.Field]:
        of_table = None if self.of_table is None else self.of_table[0]
        return [*self.keys, *(it for it in (self.rows_as_text, self.rescued, of_table) if it is not None)]

    def _columns_in(self, schema: pa.Schema) -> set[str]:
        """Return the columns of a file that are to be read."""
        if {"file_path", "pos"} <= set(schema.names):  # deletes by position
            return {_DELETED_ROW} & set(schema.names)
        if self.needs_ids and not _has_ids(schema):
            raise ValueError("it has no field ids, and the table's columns may have been renamed since")
        named = {_match(schema)(field): field.name for field in schema}
        wanted = {_match(schema)(field) for field in self._wanted()}
        return {name for key, name in named.items() if key in wanted}

    def _matches(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return which rows have a wanted key, as booleans."""
        if batch.schema.names == [_DELETED_ROW] and pa.types.is_struct(batch.schema.field(0).type):
            rows = batch.column(0)
            batch = pa.RecordBatch.from_arrays(rows.flatten(), schema=pa.schema(list(rows.type)))
        matched = np.zeros(batch.num_rows, bool)
        match = _match(batch.schema)
        if len(self.keys):
            keys = conform(batch, pa.schema([it.with_nullable(True) for it in self.keys]), match)
            whole = np.ones(batch.num_rows, bool)
            for column in keys.columns:
                whole &= column.is_valid().to_numpy(zero_copy_only=False)
            hashes = hash_keys(keys.filter(pa.array(whole)).columns, self.seed)
            matched[np.flatnonzero(whole)[np.unique(self._probe.match_rows(hashes)[1])]] = True
            for place, rescued in _texts(batch, self.rescued, match, ~whole):
                row = keys.slice(place, 1).to_pylist()[0]
                known = {name: value for name, value in row.items() if value is not None}
                matched[place] = self.text.is_rescued(known, rescued)
        mine = np.ones(batch.num_rows, bool)
        if self.of_table is not None:
            tables = conform(batch, pa.schema([self.of_table[0].with_nullable(True)]), match).column(0)
            mine = pc.fill_null(pc.equal(tables, self.of_table[1]), False).to_numpy(zero_copy_only=False)
        for place, row_as_text in _texts(batch, self.rows_as_text, match, mine):
            matched[place] |= self.text.holds(row_as_text)
        return matched


def _texts(
    batch: pa.RecordBatch, field: pa.Field | None, match: Any, of: np.ndarray
) -> Iterator[tuple[int, str]]:
    """Yield the texts of a column in some rows, with their places."""
    if field is not None:
        texts = conform(batch, pa.schema([field.with_nullable(True)]), match).column(0)
        for place in np.flatnonzero(of & texts.is_valid().to_numpy(zero_copy_only=False)):
            yield int(place), texts[int(place)].as_py()


def _match(schema: pa.Schema) -> Any:
    """Return what matches the columns of a file: field ids, or names where it has none."""
    if _has_ids(schema):
        return lambda field: (field.metadata or {}).get(FIELD_ID, field.name)
    return lambda field: field.name


def _id_of(field: pa.Field) -> int:
    return int((field.metadata or {}).get(FIELD_ID, 0))


def _has_ids(schema: pa.Schema) -> bool:
    return all((field.metadata or {}).get(FIELD_ID) for field in schema)


def matcher_of(wanted: WantedKeys, head: Head) -> RowMatcher:
    """Return the matcher of a table that has the columns of the keys: the main one, or a change log.

    SchemaMismatchError and ValueError as `WantedKeys.values`; TypeError for columns that no key has.
    """
    schema = arrow_schema(head.schema)
    arrays = dict(zip(wanted.names, wanted.arrays(head.schema), strict=True))
    columns = find_key_columns(wanted, head)
    hashes = hash_keys([arrays[field.name] for field in columns.keys], columns.seed)
    rescued = schema.field(RESCUED) if RESCUED in schema.names else None
    kinds = [field for name in wanted.names for field in head.schema.fields if field.name == name]
    bounds = tuple(
        tuple(
            (kind.field_id, to_bytes(cast(PrimitiveType, kind.field_type), value))
            for kind, value in zip(kinds, key, strict=True)
        )
        for key in zip(*wanted.values(head.schema), strict=True)
    )
    text = TextMatcher(wanted, head.schema)
    needs_ids = needs_field_ids(head)
    return RowMatcher(columns.keys, hashes, columns.seed, bounds, text, rescued=rescued, needs_ids=needs_ids)


def quarantine_matcher(wanted: WantedKeys, main: Head, quarantine: Head) -> RowMatcher:
    """Return the matcher of a quarantine, for the rows of one main table."""
    columns, nothing = arrow_schema(quarantine.schema), np.empty((0, 2), np.uint64)
    of_table = columns.field("table_uuid"), str(main.metadata.table_uuid)
    text = TextMatcher(wanted, main.schema)
    rows = columns.field("row")
    needs_ids = needs_field_ids(quarantine)
    return RowMatcher(
        pa.schema([]), nothing, b"", (), text, rows_as_text=rows, of_table=of_table, needs_ids=needs_ids
    )


def find_key_columns(wanted: WantedKeys, head: Head) -> KeyColumns:
    """Return the columns of the keys, in the order of the table's own key where they are that."""
    schema, key, find_name = arrow_schema(head.schema), key_of(head.properties), head.schema.find_column_name
    names: Iterable[str] = wanted.names
    sequence_by = None
    if is_own_key(wanted, head) and key is not None:
        names = [find_name(each) or "" for each in key.column_ids]
        sequence_by = None if key.sequence_id is None else find_name(key.sequence_id)
    return KeyColumns.of(head.metadata.table_uuid, schema, names, sequence_by, needs_ids=False)


def is_own_key(wanted: WantedKeys, head: Head) -> bool:
    """Return whether the columns are those of the table's key, in any order."""
    key: TableKey | None = key_of(head.properties)
    return key is not None and {head.schema.find_column_name(it) for it in key.column_ids} == set(
        wanted.names
    )
