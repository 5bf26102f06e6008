"""The sieve of a write task: rows that fail a check stay out of the table's files; some are quarantined.

Where rows are replayed from the quarantine, the task that writes a row writes its mark too, whether it passes
or fails again: both are in one action's files, so no row is committed without its mark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from streaming_sink.tasks.batches import conform
from streaming_sink.tasks.errors import InvalidTextError, RowsDoNotFitError
from streaming_sink.tasks.job import Sieve
from streaming_sink.tasks.plain_arrays import places_array, text_array
from streaming_sink.tasks.results import Sifted, TaskResult, WrittenFile
from streaming_sink.tasks.rows.failures import (
    AS_IT_CAME,
    QUARANTINE,
    REFUSE,
    REPLAYED,
    UNPARSED,
    checks_failed,
    each_that_fits,
    split_failing,
    use_all,
)
from streaming_sink.tasks.rows.fingerprints import fingerprint_of
from streaming_sink.tasks.rows.row_json import rows_as_json

if TYPE_CHECKING:
    from streaming_sink.tasks.row_writer import JobWriter, RowWriter

ROWS_AT_ONCE_BYTES = 16 * 1024 * 1024
"""About so many Arrow bytes of failing rows become JSON at once."""
EXAMPLE_LETTERS = 500
_SOURCE = ("topic", "partition", "offset", "file_path")
"""Columns that say where a row came from, as Spark's sources call them."""
_METADATA, _FILE_PATH = "_metadata", "file_path"


class SiftingWriter:
    """Writes the rows of one task that pass to the table's files, and those that are quarantined to the
    quarantine's, as a `Sieve` says. In the place of a `TaskWriter`.
    """

    def __init__(self, writer: RowWriter, quarantine: JobWriter | None, sieve: Sieve, row_ids: str) -> None:
        self._writer = writer
        self._quarantine = quarantine
        self._sieve = sieve
        self._row_ids = row_ids
        self._counts: Counter[int] = Counter()
        self._examples: dict[int, str] = {}
        self._failing = 0
        self._dropped = 0
        self._marked = 0
        self._fingerprint = 0

    @property
    def rows(self) -> int:
        """The rows taken so far, failing ones too."""
        return self._writer.rows + self._failing

    @property
    def fingerprint(self) -> int:
        return (self._writer.fingerprint + self._fingerprint) % 2**64

    @property
    def spilled_bytes(self) -> int:
        return self._writer.spilled_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch of rows, as Spark sends it."""
        if (place := batch.schema.get_field_index(REPLAYED)) >= 0:
            self._mark(batch.column(place))
        passing, failing = split_failing(batch)
        if self._sieve.unfit is None:
            use_all(passing, self._writer.write)
        else:
            self._write_what_fits(passing, self._sieve.unfit)
        if failing is not None:
            verdicts = checks_failed(failing)
            if not all(verdicts):
                raise RowsDoNotFitError(
                    "a check of a row gave two answers; an expectation must give the same one whenever it is"
                    f" computed: {', '.join(check.name for check in self._sieve.checks)}"
                )
            self._set_aside(failing, verdicts, [self._names(failed) for failed in verdicts])

    def _write_what_fits(self, rows: pa.RecordBatch, unfit: int) -> None:
        rows = conform(rows, rows.schema)  # so that it may be cut: Spark's empty arrays may not
        places, reasons, start = [], [], 0
        for part, misfit in each_that_fits(rows, self._writer.write):
            if isinstance(misfit, InvalidTextError) and misfit.columns & self._sieve.apart:
                raise misfit
            if isinstance(misfit, RowsDoNotFitError):
                places.append(start)
                reasons.append(str(misfit))
            start += part.num_rows
        if places:
            self._set_aside(rows.take(places_array(places)), [[unfit]] * len(places), reasons)

    def _names(self, failed: Sequence[int]) -> str:
        return "; ".join(self._sieve.checks[number].name for number in failed)

    def _set_aside(
        self, rows: pa.RecordBatch, verdicts: Sequence[Sequence[int]], reasons: Sequence[str]
    ) -> None:
        """Take rows that fail checks: a row is quarantined if one of them says so, else dropped."""
        self._failing += rows.num_rows
        self._fingerprint = fingerprint_of(rows, self._fingerprint)
        kept = []
        for place, failed in enumerate(verdicts):
            self._counts.update(failed)
            actions = {self._sieve.checks[number].action for number in failed}
            if QUARANTINE in actions:
                kept.append(place)
            elif REFUSE in actions:
                self._keep_example(rows, place, failed)
            else:
                self._dropped += 1
        step = max(1, rows.num_rows * ROWS_AT_ONCE_BYTES // max(1, rows.nbytes))
        for begin in range(0, len(kept), step):
            places = kept[begin : begin + step]
            chosen = [verdicts[place] for place in places], [reasons[place] for place in places]
            self._write_quarantined(rows.take(places_array(places)), *chosen)

    def _keep_example(self, rows: pa.RecordBatch, place: int, failed: Sequence[int]) -> None:
        if any(number not in self._examples for number in failed):
            (text,), _ = _as_json(self._as_it_came(rows.take(places_array([place]))))
            self._add_example(text, failed)

    def _add_example(self, text: str, failed: Sequence[int]) -> None:
        for number in failed:
            self._examples.setdefault(number, text[:EXAMPLE_LETTERS])

    def _write_quarantined(
        self, rows: pa.RecordBatch, verdicts: Sequence[Sequence[int]], reasons: Sequence[str]
    ) -> None:
        assert self._quarantine is not None
        came = self._as_it_came(rows)
        texts, schemas = _as_json(came)
        for text, failed in zip(texts, verdicts, strict=True):
            self._add_example(text, failed)
        checks = [self._sieve.checks[failed[0]] for failed in verdicts]
        columns = {
            **self._origin(len(texts)),
            "check": text_array(check.name for check in checks),
            "column": text_array(check.column for check in checks),
            "reason": text_array(reasons),
            "row": text_array(texts),
            "schema": text_array(schemas),
            "source": text_array(_source(came)),
        }
        self._quarantine.write(pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)))

    def _mark(self, row_ids: pa.Array) -> None:
        assert self._quarantine is not None
        if row_ids.null_count:
            raise RowsDoNotFitError(
                f"a row has no {REPLAYED}, so which quarantined row it was is not known; nothing was"
                " committed. Keep that column of every row as it is in fix"
            )
        columns = {**self._origin(len(row_ids)), "replayed_row_id": row_ids}
        self._quarantine.write(pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)))
        self._marked += len(row_ids)

    def _origin(self, count: int) -> dict[str, pa.Array]:
        """Return the columns that say which rows these are, and which batch brought them."""
        assert self._quarantine is not None
        ids, first = self._quarantine.job.ids, self._quarantine.rows
        at = pa.scalar(ids.time_ms * 1000, pa.int64()).cast(pa.timestamp("us", "UTC"))
        return {
            "row_id": text_array(f"{self._row_ids}-{first + place}" for place in range(count)),
            "quarantined_at": pa.repeat(at, count),
            "table_uuid": pa.repeat(pa.scalar(self._sieve.table_uuid, pa.string()), count),
            "app_id": pa.repeat(pa.scalar(ids.app_id, pa.string()), count),
            "query_id": pa.repeat(pa.scalar(self._sieve.query_id, pa.string()), count),
            "batch": pa.repeat(pa.scalar(ids.batch, pa.int64()), count),
        }

    def _as_it_came(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of the batch, without what was made of them for the table."""
        values = {name: rows.column(name) for name in self._sieve.came}
        if AS_IT_CAME in rows.schema.names and not (came := rows.column(AS_IT_CAME)).null_count:
            values |= {field.name: came.field(field.name) for field in came.type}
        return pa.RecordBatch.from_arrays(list(values.values()), names=list(values))

    def finish(self) -> list[TaskResult]:
        """Write the remaining rows, and return the results."""
        results = self._writer.finish()
        if not self._failing and not self._marked:
            return results
        quarantined = [] if self._quarantine is None else self._quarantine.finish()
        files = tuple(each for each in quarantined if isinstance(each, WrittenFile))
        rows = sum(file.rows for file in files) - self._marked
        return [*results, Sifted(files, rows, self._dropped, dict(self._counts), self._examples)]

    def abort(self) -> None:
        """Delete all files of the task, best effort."""
        self._writer.abort()
        if self._quarantine is not None:
            self._quarantine.abort()


def _as_json(came: pa.RecordBatch) -> tuple[list[str], list[str]]:
    """As `rows_as_json`. Only rows with text that did not parse have the column of it."""
    place = came.schema.get_field_index(UNPARSED)
    if place < 0 or came.num_columns == 1:
        return rows_as_json(came)
    texts, schemas = rows_as_json(came.remove_column(place))
    unparsed = [row for row, holds in enumerate(came.column(place).is_valid().to_pylist()) if holds]
    for row, text, schema in zip(unparsed, *rows_as_json(came.take(places_array(unparsed))), strict=True):
        texts[row], schemas[row] = text, schema
    return texts, schemas


def _source(rows: pa.RecordBatch) -> list[str | None]:
    """Return where each row came from, as JSON: topic, partition, offset and file path, as far as the batch
    has them.
    """
    found = {name: rows.column(name) for name in _SOURCE if name in rows.schema.names}
    if _METADATA in rows.schema.names and pa.types.is_struct(rows.column(_METADATA).type):
        metadata = rows.column(_METADATA)
        if metadata.type.get_field_index(_FILE_PATH) >= 0:
            found[_FILE_PATH] = metadata.field(_FILE_PATH)
    if not found:
        return [None] * rows.num_rows
    texts, _ = rows_as_json(pa.RecordBatch.from_arrays(list(found.values()), names=list(found)))
    return list(texts)
