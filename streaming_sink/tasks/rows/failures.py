"""The columns in which rows carry what did not parse, the checks that they fail, and which quarantined rows
they were: added by the driver, read by tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from streaming_sink.tasks.batches import RESERVED_PREFIX, conform
from streaming_sink.tasks.errors import RowsDoNotFitError
from streaming_sink.tasks.plain_arrays import places_array

QUARANTINE = "quarantine"
REFUSE = "refuse"
DROP = "drop"
ACTIONS = (QUARANTINE, REFUSE, DROP)

FAILED = f"{RESERVED_PREFIX}failed"
"""Null where a row passes all checks; else the numbers of those that it fails, as "0,2,"."""
AS_IT_CAME = f"{RESERVED_PREFIX}came"
"""A struct of the values that came, of columns that are written otherwise; absent without such columns. Null
in rows that pass all checks, unless the tasks' own check may quarantine them."""
UNPARSED = f"{RESERVED_PREFIX}unparsed"
"""The column by which `parse_json` hands the sink texts that did not parse: a struct of one text, whose name
is that of the text's column; null in rows that fit. No column of a table."""
UNREADABLE = f"{RESERVED_PREFIX}unreadable"
"""The column by which `cdc` hands the sink changes that cannot be read or put in order: why, and the change
as it came; null in rows that can. No column of a table, nor of a quarantined row, whose reason has it."""
REPLAYED = f"{RESERVED_PREFIX}row_id"
"""The `row_id` of the quarantined row that a row was: it is marked as replayed by the commit of its batch."""

_Made = TypeVar("_Made")


def checks_failed(failing: pa.RecordBatch) -> list[list[int]]:
    """Return the numbers of the checks that each of some failing rows fails."""
    return [[int(number) for number in text.split(",") if number] for text in failing[FAILED].to_pylist()]


def split_failing(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Return the rows that pass all checks, and those that fail one; None where none does."""
    place = batch.schema.get_field_index(FAILED)
    if place < 0 or batch.column(place).null_count == batch.num_rows:
        return batch, None
    # Conformed to itself, since filtering reads the empty arrays that Spark sends without an offset.
    whole = conform(batch, batch.schema)
    fails = whole.column(place).is_valid()
    return whole.filter(pc.invert(fails)), whole.filter(fails)


def check_is_readable(batch: pa.RecordBatch) -> None:
    """Raise RowsDoNotFitError where a change cannot be read or put in order, by the column `UNREADABLE`."""
    place = batch.schema.get_field_index(UNREADABLE)
    if place < 0 or not (found := batch.num_rows - batch.column(place).null_count):
        return
    example = next(text for text in batch.column(place).to_pylist() if text is not None)
    raise RowsDoNotFitError(
        f"{found} changes cannot be read or put in order; correct the stream, or have the sink set such rows"
        f' aside: SchemaContract(mismatch="quarantine"); {example}'
    )


def use_all(rows: pa.RecordBatch, use: Callable[[pa.RecordBatch], _Made]) -> _Made:
    """Return what `use` makes of `rows`. RowsDoNotFitError where it cannot use them; where they are replayed,
    `use` is called again, with parts, and the error says which row it is of.
    """
    try:
        return use(rows)
    except RowsDoNotFitError:
        if REPLAYED not in rows.schema.names:
            raise
        whole = conform(rows, rows.schema)  # so that it may be cut
        for part, misfit in each_that_fits(whole, use):
            if isinstance(misfit, RowsDoNotFitError):
                row_id = part.column(REPLAYED)[0].as_py()
                raise type(misfit)(
                    "a quarantined row does not fit; repair it with `set`, or leave it out with `where`:"
                    f" row_id <> '{row_id}': {misfit}"
                ) from misfit
        raise


def each_that_fits(
    rows: pa.RecordBatch, use: Callable[[pa.RecordBatch], _Made]
) -> Iterator[tuple[pa.RecordBatch, _Made | RowsDoNotFitError]]:
    """Yield parts of `rows`, each with what `use` made of it, or with why it cannot use it; such a part is a
    single row. `use` must take nothing of rows that it raises RowsDoNotFitError for.
    """
    try:
        yield rows, use(rows)
    except RowsDoNotFitError as misfit:
        if rows.num_rows == 1:
            yield rows, misfit
            return
        half = rows.num_rows // 2
        for begin, end in ((0, half), (half, rows.num_rows)):
            # A copy: in a slice, a list or a map still has the values of the other rows, which may not fit.
            yield from each_that_fits(rows.take(places_array(range(begin, end))), use)
