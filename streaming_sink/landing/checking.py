"""The checks of a batch: of its rows, of what tasks count and write, and of a batch that is skipped."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.checks.expectations import (
    absent_columns,
    check_conditions,
    expectation_checks,
    respelled_columns,
)
from streaming_sink.checks.quarantine_table import RowsRefusedError
from streaming_sink.checks.row_checks import RowRules, as_written, came_schema
from streaming_sink.checks.rules import rules_of
from streaming_sink.seconds.quarantine import Quarantine
from streaming_sink.spark.batch_claims import batch_claimed_twice
from streaming_sink.table.conversions import spark_type
from streaming_sink.table.fitting import Misfit, Path
from streaming_sink.tasks.job import FileIds, Sieve
from streaming_sink.tasks.results import delete_files
from streaming_sink.tasks.rows.failures import ACTIONS, REFUSE, REPLAYED
from streaming_sink.writing.planning import Planned
from streaming_sink.writing.target import Target
from streaming_sink.writing.writer import WriteResult
from timeline.errors import CommitConflictError
from timeline.stores.base import Store
from timeline.versions.head import Head
from timeline.versions.transactions import Transaction

if TYPE_CHECKING:
    from streaming_sink.options.table_options import SinkOptions

_COMMONEST = 3


class RulesOfBatches:
    """The rules of a sink for its batches. They are made, and conditions analysed, once for all batches of
    the same columns that fit the same table in the same way.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._known: object = None
        self._rules = RowRules()

    def of(self, batch: DataFrame, table: Schema, misfits: Mapping[Path, Misfit]) -> RowRules:
        """Return the rules for a batch: expectations, and what becomes of values that do not fit the table.

        An expectation is over the values that are written, and over nulls where the batch lacks a column of
        the table. ValueError for one that the columns do not allow.
        """
        expectations = self._options.checks.expectations
        absent, unwritten = _nulls(table, batch) if expectations else ({}, {})
        if (batch.schema, absent, misfits) != self._known:
            fitting = rules_of(came_schema(batch), misfits)
            mismatch = self._options.contract.mismatch
            rules = RowRules(
                (*expectation_checks(expectations), *fitting.checks),
                {**fitting.written, **unwritten},
                absent,
                mismatch if mismatch in ACTIONS else REFUSE,
                self._options.contract.apart,
                REPLAYED in batch.columns,
            )
            if expectations:
                check_conditions(as_written(batch, rules), expectations)
            self._rules, self._known = rules, (batch.schema, absent, misfits)
        return self._rules


def _nulls(table: Schema, batch: DataFrame) -> tuple[Mapping[str, spark.DataType], Mapping[str, Column]]:
    """Return the columns that conditions read as nulls: those of the table that a batch lacks, and those of
    the batch in another case than the table's, which are not written.
    """
    absent = dict(absent_columns(table, batch.schema))
    respelled = respelled_columns(table, batch.schema)
    kinds = {name: spark_type(field.field_type) for name, field in respelled.items()}
    if respelled and batch.sparkSession.conf.get("spark.sql.caseSensitive") == "true":
        absent |= {field.name: kinds[name] for name, field in respelled.items()}
    return absent, {name: sf.lit(None).cast(kind) for name, kind in kinds.items()}


def sieve_of(
    rules: RowRules, batch: DataFrame, ids: FileIds, query_id: str, quarantine: Quarantine, target: Target
) -> Sieve | None:
    """Return what tasks do with rows that fail, or None where none is checked and none was quarantined."""
    checks = rules.sieve_checks
    if not checks and not rules.replays:
        return None
    return Sieve(
        checks=checks,
        came=tuple(came_schema(batch).names),
        query_id=query_id,
        quarantine=quarantine.job(ids) if rules.quarantine else None,
        table_uuid="" if target.head is None else str(target.head.metadata.table_uuid),
        unfit=None if rules.unfit == REFUSE else len(checks) - 1,
        apart=rules.apart,
    )


def failed_checks(rules: RowRules, result: WriteResult) -> Mapping[str, int]:
    """Return the name of a check → the rows of the batch that failed it, most of them first."""
    failed: dict[str, int] = {}
    for sifted in result.sifted:
        for number, rows in sifted.counts.items():
            name = rules.sieve_checks[number].name
            failed[name] = failed.get(name, 0) + rows
    return dict(sorted(failed.items(), key=lambda it: (-it[1], it[0])))


def delete_written(result: WriteResult, store: Store, quarantine: Quarantine) -> None:
    """Delete what was written of a batch that is not committed, best effort."""
    delete_files(store, [*result.new, *(merge.merged for merge in result.merges)])
    quarantine.delete(result)


def check_failed_rows(rules: RowRules, result: WriteResult, options: SinkOptions) -> None:
    """Raise RowsRefusedError where a row failed a check whose action is "refuse", or where more rows are to
    be quarantined than `at_most` allows. Nothing of the batch is committed yet.
    """
    refusing = {check.name for check in rules.sieve_checks if check.action == REFUSE}
    refused = {name: rows for name, rows in failed_checks(rules, result).items() if name in refusing}
    if refused:
        raise RowsRefusedError(
            f'the batch of {result.all_rows:,} rows has some that fail checks whose action is "refuse",'
            " and nothing of it was committed; correct the stream, or let the sink set such rows aside:"
            f' "quarantine" in the place of "refuse": {_with_examples(refused, rules, result)}'
        )
    most = _most(options.checks.at_most, result.all_rows)
    if most is not None and result.quarantined > most:
        raise RowsRefusedError(
            f"{result.quarantined:,} of {result.all_rows:,} rows would be quarantined, and"
            f" at_most={options.checks.at_most} allows {most:,}; nothing of the batch was committed."
            " Correct the stream or the expectations, or allow more:"
            f" {_with_examples(failed_checks(rules, result), rules, result)}"
        )


def _most(bound: float | None, rows: int) -> int | None:
    """Return how many of so many rows may be quarantined; a float is a share of them."""
    # As the caller spelled it: as a float, 0.29 of 100 rows is 28.999999999999996.
    return int(Fraction(repr(bound)) * rows) if isinstance(bound, float) else bound


def _with_examples(failed: Mapping[str, int], rules: RowRules, result: WriteResult) -> str:
    names = [check.name for check in rules.sieve_checks]
    examples: dict[str, str] = {}
    for sifted in result.sifted:
        for number, row in sifted.examples.items():
            examples.setdefault(names[number], row)
    parts = [
        f"{name} ({rows:,} {'row' if rows == 1 else 'rows'}), such as {examples.get(name, 'none at hand')}"
        for name, rows in list(failed.items())[:_COMMONEST]
    ]
    return "; ".join(parts)


def check_is_a_replay(head: Head, transaction: Transaction, written: WriteResult | None = None) -> None:
    """Raise ValueError if this very run has committed the batch by another call: skipping this call would
    lose its rows.

    `written` is what this call wrote: if its files are live, the commit is its own, acknowledged late.
    """
    known = head.transaction(transaction.app_id)
    if known is None or known.run_id != transaction.run_id:
        return
    paths = (
        []
        if written is None
        else [*(file.path for file in written.new), *(merge.merged.path for merge in written.merges)]
    )
    if not head.find_all_live(paths):
        raise batch_claimed_twice(transaction.app_id, transaction.batch)


def check_as_counted(planned: Planned, written: WriteResult) -> None:
    """Raise CommitConflictError if the rows that were written are not the rows that were counted (R10)."""
    if planned.fingerprint not in (None, written.fingerprint):
        raise CommitConflictError(
            "an executor was lost with rows that were persisted since they were counted, and computing them"
            " again gave other rows; nothing of the batch is live"
        )
