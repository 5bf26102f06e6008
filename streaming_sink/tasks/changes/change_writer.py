"""The changes of one task: of each key the newest one counts, if the table has none that is newer. Rows go to
new files, and the rows that they replace are reported by file and position.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_sink.tasks.batches import RESERVED_PREFIX, conform, conform_valid
from streaming_sink.tasks.changes.finding import Decided, FoundRows, find_rows, stored_texts
from streaming_sink.tasks.changes.held_changes import HeldChanges, Newest
from streaming_sink.tasks.changes.live_positions import by_number
from streaming_sink.tasks.changes.partial import decide_by_column
from streaming_sink.tasks.errors import RowsDoNotFitError
from streaming_sink.tasks.job import DELETES, KeyJob
from streaming_sink.tasks.keys.hashing import coarse_words, hash_keys
from streaming_sink.tasks.keys.probing import KeyFilter
from streaming_sink.tasks.keys.scanning import KeyColumns, partition_salt, salted
from streaming_sink.tasks.keys.sequences import LONG, no_sequences, sequence_values
from streaming_sink.tasks.keys.tombstones import DeletedUntil, deleted_until
from streaming_sink.tasks.partitioning import source_columns, split
from streaming_sink.tasks.results import ChangeCounts, DamagedRun, DeletedKeys, DeletedRows, TaskResult
from streaming_sink.tasks.rows.failures import check_is_readable

if TYPE_CHECKING:
    from streaming_sink.tasks.row_writer import JobWriter

_PLACE = f"{RESERVED_PREFIX}place"


class ChangeWriter:
    """Takes the changes of one task, all that the batch has of their keys. In the place of a `TaskWriter`."""

    def __init__(self, writer: JobWriter, keys: KeyJob) -> None:
        self._writer = writer
        self._keys = keys
        schema = writer.job.schema
        self._columns = KeyColumns.of(
            keys.table_uuid, schema, keys.columns, keys.sequence_by, needs_ids=keys.needs_ids
        )
        self._seed = self._columns.seed
        self._sources = source_columns(writer.job.partition_by) if keys.in_partitions else []
        wanted = {*keys.columns, keys.sequence_by, *self._sources}
        self._delete_schema = pa.schema([field for field in schema if field.name in wanted])
        self._held = HeldChanges(schema, self._columns.kind or LONG)
        self._salts: set[bytes] = set()
        self._coarse: list[np.ndarray] = []
        self.rows = 0

    @property
    def fingerprint(self) -> int:
        return 0  # a batch of changes is not counted before it is written

    @property
    def spilled_bytes(self) -> int:
        return self._writer.spilled_bytes + self._held.spilled_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch of changes, as Spark sends it. Where it raises RowsDoNotFitError it takes none."""
        check_is_readable(batch)
        upserts, deletes = _split(self._brought(batch))
        rows = conform_valid(upserts, self._writer.job.schema)
        gone = conform_valid(deletes, self._delete_schema) if deletes.num_rows else None
        without_key = self._without_key(rows)
        if self._writer.job.sieve is not None and self._writer.job.partition_by:
            list(split(rows, self._writer.job.partition_by))  # later its error would be the whole batch's
        with_key = rows if without_key is None else rows.filter(pc.invert(without_key))
        added = self._hash(with_key)
        removed = None if gone is None else self._hash(gone)
        if without_key is not None:
            self._writer.write(rows.filter(without_key))
        self.rows += batch.num_rows
        self._held.add(with_key, *added)
        if removed is not None:
            self._held.add_deletes(*removed)

    def _brought(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns that bring values. The others came for conditions, and for quarantined rows."""
        left_out = [name for name in self._keys.except_columns if name in batch.schema.names]
        return batch.drop_columns(left_out) if left_out else batch

    def _without_key(self, rows: pa.RecordBatch) -> pa.Array | None:
        """Return which rows have no key and are inserted all the same; None where there are none such."""
        if not self._keys.inserts_null_keys:
            return None
        missing = [rows.column(name).is_null() for name in self._keys.columns]
        found = missing[0]
        for each in missing[1:]:
            found = pc.or_(found, each)
        return found if pc.any(found).as_py() else None

    def _in_scope(self, rows: pa.RecordBatch, hashes: np.ndarray) -> np.ndarray:
        """Return the hashes in the scopes in which the keys of these rows are unique."""
        if not self._keys.in_partitions:
            return hashes
        found = np.empty_like(hashes)
        columns = [*map(rows.column, self._sources), pa.array(np.arange(rows.num_rows))]
        fields = [*map(rows.schema.field, self._sources), pa.field(_PLACE, pa.int64())]
        sources = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        for partition, part in split(sources, self._writer.job.partition_by):
            salt, here = partition_salt(partition), part.column(_PLACE).to_numpy()
            self._salts.add(salt)
            found[here] = salted(hashes[here], salt)
        return found

    def _hash(self, rows: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return the hashes of the keys in their scope, and the sequences."""
        for name in self._keys.columns:
            if nulls := rows.column(name).null_count:
                rest = (
                    'or quarantine them by an expectation: null_keys="insert" takes rows, and these delete'
                    if self._keys.inserts_null_keys
                    else 'quarantine them by an expectation, or insert them with Upsert(null_keys="insert")'
                )
                raise RowsDoNotFitError(
                    f"{_have(nulls)} a null in the key's column {name!r}, so nothing says which row"
                    f" is changed: filter them, {rest}{self._place_of_null(rows, name)}"
                )
        keys = [rows.column(name) for name in self._keys.columns]
        hashes = self._in_scope(rows, hash_keys(keys, self._seed))
        self._coarse.append(coarse_words(keys))
        by = self._keys.sequence_by
        if by is None:
            return hashes, no_sequences(rows.num_rows, LONG)
        if nulls := rows.column(by).null_count:
            raise RowsDoNotFitError(
                f"{_have(nulls)} a null in {by!r}, by which sequence_by orders the changes of a key:"
                " fill it, filter them, or quarantine them by an expectation"
            )
        return hashes, sequence_values(rows.column(by))

    def _place_of_null(self, rows: pa.RecordBatch, name: str) -> str:
        """Return the sequence of the first row without a key, which is its place in a log, say."""
        by = self._keys.sequence_by
        if by is None:
            return ""
        place = rows.column(name).is_null().to_pylist().index(True)
        return f"; the first has {by} {rows.column(by)[place].as_py()}"

    def finish(self) -> list[TaskResult]:
        """Write the rows that count, and return the results."""
        newest = self._held.newest(has_sequence=self._keys.sequence_by is not None)
        store = self._writer.job.store
        salts = self._salts if self._keys.in_partitions else None
        found = find_rows(
            store,
            self._keys.files,
            self._columns,
            newest.hashes,
            covered=self._keys.covered,
            deletes=self._keys.deletes,
            indexed_from=self._keys.indexed_from,
            salts=salts,
            wanted=KeyFilter(np.concatenate([np.empty(0, np.uint64), *self._coarse])),
        )
        until = deleted_until(store, self._keys.tombstones, newest.hashes, newest.sequences.dtype)
        if self._keys.partial:
            decided = decide_by_column(store, self._keys, self._held, newest, found, until)
        else:
            decided = self._decide(newest, found, until)
        for rows in decided.rows:
            self._writer.write(rows)
        leaves = decided.leaves[found.change]
        files, positions = found.file[leaves], found.position[leaves]
        deleted = [
            DeletedRows(found.files[number].location, positions[rows].tobytes())
            for number, rows in by_number(files)
        ]
        self._held.close()
        hashes, sequences = newest.hashes[decided.remembered], decided.deleted_at[decided.remembered]
        keys = DeletedKeys(hashes.tobytes(), sequences.tobytes(), sequences.dtype.str)
        repeated = int((np.bincount(found.change) > 1).sum())
        counts, damaged = replace(decided.counts, repeated=repeated), map(DamagedRun, found.damaged)
        return [*self._writer.finish(), *deleted, keys, counts, *damaged]

    def _decide(self, newest: Newest, found: FoundRows, until: DeletedUntil) -> Decided:
        """Return what becomes of the keys where each change is a whole row: the newest one counts."""
        late, unchanged = self._compare(newest, found, until)
        held = np.zeros(len(newest.hashes), bool)
        held[found.change] = True
        lands = ~late & ~unchanged
        upserts, deletes = ~newest.deletes & lands, newest.deletes & lands
        counts = ChangeCounts(
            inserted=int((upserts & ~held).sum()),
            updated=int((upserts & held).sum()),
            deleted=int((deletes & held).sum()),
            absent=int((deletes & ~held).sum()),
            late=int(late.sum()),
            unchanged=int(unchanged.sum()),
            superseded=newest.superseded,
            tied=newest.tied,
        )
        return Decided(self._held.rows_of(newest.places[upserts]), lands, deletes, newest.sequences, counts)

    def _compare(
        self, newest: Newest, found: FoundRows, until: DeletedUntil
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return which changes are older than what the table holds of their key, and which are the same."""
        unchanged = np.zeros(len(newest.hashes), bool)
        if self._keys.sequence_by is None:
            return unchanged.copy(), unchanged
        store, mine = self._writer.job.store, newest.sequences
        late = until.covers(np.arange(len(mine)), mine)
        late[found.change[found.sequence > mine[found.change]]] = True
        tied = (found.sequence == mine[found.change]) & ~newest.deletes[found.change] & ~late[found.change]
        if not tied.any():
            return late, unchanged
        places = np.unique(newest.places[found.change[tied]])  # others may have added a key twice
        texts = dict(zip(places.tolist(), self._held.texts_of(places), strict=True))
        for number in np.unique(found.file[tied]):
            here = np.flatnonzero(tied & (found.file == number))
            here = here[np.argsort(found.position[here])]
            location = found.files[number].location
            stored = stored_texts(
                store,
                location,
                self._writer.job.schema,
                found.position[here],
                needs_ids=self._keys.needs_ids,
            )
            for change, text in zip(found.change[here], stored, strict=True):
                came = texts[int(newest.places[change])]
                late[change] |= text > came
                unchanged[change] |= text == came
        return late, unchanged & ~late

    def abort(self) -> None:
        """Delete all files of the task, best effort."""
        self._held.close()
        self._writer.abort()


def _split(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the rows that are to be in the table, and those that delete their key."""
    place = batch.schema.get_field_index(DELETES)
    if place < 0 or not pc.any(batch.column(place)).as_py():
        return batch, batch.slice(0, 0)
    # Conformed to itself, since filtering reads the empty arrays that Spark sends without an offset.
    whole = conform(batch, batch.schema)
    deletes = whole.column(place)
    return whole.filter(pc.invert(deletes)), whole.filter(deletes)


def _have(rows: int) -> str:
    return "1 row has" if rows == 1 else f"{rows:,} rows have"
