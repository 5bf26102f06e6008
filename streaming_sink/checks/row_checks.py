"""Row checks: which rows of a batch fail, and what becomes of them. One extra column carries the verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.table.sql_names import quoted
from streaming_sink.tasks.job import SiftedCheck
from streaming_sink.tasks.rows.failures import (
    ACTIONS,
    AS_IT_CAME,
    FAILED,
    QUARANTINE,
    REFUSE,
    REPLAYED,
    UNREADABLE,
)

if TYPE_CHECKING:
    from pyspark.sql._typing import ColumnOrName

REPLAY_APP = "replay-"
"""Begins the name of the application that replays a quarantine; the quarantine's uuid follows."""
UNFIT = "fits the table"
"""The name of the check that tasks make themselves."""


@dataclass(frozen=True)
class RowCheck:
    """One check of every row of a batch. It must be a function of the row alone."""

    name: str
    """What reports and the quarantine call it: an expectation's own text, for example."""
    fails: Column
    """True where a row fails; false and null where it passes."""
    action: str
    """One of `ACTIONS`. "refuse" refuses the whole batch; a row that fails several checks is quarantined if
    one of them says so, else dropped."""
    column: str | None = None
    """The column at fault, where it is one."""
    of_written: bool = False
    """Whether `fails` is over the values that are written to the table, which are null where a value that
    came does not convert; else over the batch as it came."""

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise ValueError(f"action must be one of {', '.join(ACTIONS)}, not {self.action!r}: {self.name}")


@dataclass(frozen=True)
class RowRules:
    """How the rows of a batch become rows of the table: what is checked, and what is written otherwise than
    it came.
    """

    checks: tuple[RowCheck, ...] = ()
    written: Mapping[str, Column] = field(default_factory=dict)
    """Column of the table → its value, over the columns of the batch as it came; other columns are written as
    they came. The quarantine gets the values that came."""
    absent: Mapping[str, spark.DataType] = field(default_factory=dict)
    """Columns of the table that the batch lacks, which checks read as nulls. They are not written."""
    unfit: str = REFUSE
    """What becomes of a row whose values the table's columns do not hold, which only a task finds out (a
    number out of range, for example): one of `ACTIONS`."""
    apart: frozenset[str] = frozenset()
    """Columns for which `unfit` does not hold: a task refuses text in them that is not valid UTF-8."""
    replays: bool = False
    """Whether the rows come from the quarantine, which is to mark them as replayed (column `REPLAYED`)."""

    @cached_property
    def unfit_values(self) -> Column | None:
        """The numbers of the checks of values as they came that a row fails, as text; None without such."""
        return _numbers(each for each in enumerate(self.checks) if not each[1].of_written)

    @cached_property
    def failed(self) -> Column:
        """The numbers of all checks that a row fails, as text, each check computed once, over `as_written`.
        It serves every batch: to make it takes as long as Spark's analysis of it.

        Not as an array: Spark takes half a second to pass 50,000 null arrays to Python.
        """
        unmet = _numbers(each for each in enumerate(self.checks) if each[1].of_written)
        verdicts = [] if unmet is None else [unmet]
        if self.unfit_values is not None:
            verdicts.append(sf.col(FAILED))
        return sf.nullif(sf.concat(*verdicts), sf.lit(""))

    @property
    def quarantine(self) -> bool:
        """Whether the batch may add rows to the quarantine."""
        return self.replays or QUARANTINE in (self.unfit, *(check.action for check in self.checks))

    @property
    def sieve_checks(self) -> tuple[SiftedCheck, ...]:
        """The checks as tasks need them; the tasks' own is the last, unless `unfit` refuses the batch."""
        checks = [SiftedCheck(check.name, check.action, check.column) for check in self.checks]
        return (*checks, *([] if self.unfit == REFUSE else [SiftedCheck(UNFIT, self.unfit)]))


def came_schema(batch: DataFrame) -> spark.StructType:
    """Return the schema of a batch's own rows, without the columns `REPLAYED` and `UNREADABLE`."""
    return spark.StructType([each for each in batch.schema.fields if each.name not in (REPLAYED, UNREADABLE)])


def apply_rules(batch: DataFrame, rules: RowRules) -> DataFrame:
    """Return the rows to write; where there are checks, with a column `FAILED` more, the numbers of the
    checks that a row fails, and with a column `AS_IT_CAME` where columns are written otherwise and a row may
    be set aside. Intervals of months are text: no table has a column of them, and they are quarantined.
    """
    rows = _checked(batch, rules)
    if _without_months(batch.schema) == batch.schema:
        return rows
    kinds = [(field.name, _without_months(field.dataType)) for field in rows.schema.fields]
    return rows.select(*(sf.col(quoted(name)).cast(kind).alias(name) for name, kind in kinds))


def _checked(batch: DataFrame, rules: RowRules) -> DataFrame:
    if not rules.checks and not rules.written:
        return batch
    rows = as_written(batch, rules)
    if not rules.checks:
        return rows
    made = {*rules.absent, AS_IT_CAME, FAILED} - rules.written.keys()  # `_rescued` may be both
    kept: list[ColumnOrName] = [sf.col(quoted(name)) for name in rows.columns if name not in made]
    if AS_IT_CAME in rows.columns:
        came = sf.col(AS_IT_CAME)
        # A task may quarantine any row for a value that it cannot write, whichever it is.
        kept.append(
            came if rules.unfit == QUARANTINE else sf.when(rules.failed.isNotNull(), came).alias(AS_IT_CAME)
        )
    return rows.select(*kept, rules.failed.alias(FAILED))


def _without_months(kind: spark.DataType) -> spark.DataType:
    """Return a type with text for the intervals that Spark cannot pass to a Python task and back."""
    if isinstance(kind, (spark.YearMonthIntervalType, spark.CalendarIntervalType)):
        return spark.StringType()
    if isinstance(kind, spark.StructType):
        fields = ((field, _without_months(field.dataType)) for field in kind.fields)
        return spark.StructType(
            [spark.StructField(field.name, into, field.nullable, field.metadata) for field, into in fields]
        )
    if isinstance(kind, spark.ArrayType):
        return spark.ArrayType(_without_months(kind.elementType), kind.containsNull)
    if isinstance(kind, spark.MapType):
        key, value = _without_months(kind.keyType), _without_months(kind.valueType)
        return spark.MapType(key, value, kind.valueContainsNull)
    return kind


def as_written(batch: DataFrame, rules: RowRules) -> DataFrame:
    """Return the columns that checks of written values are over: each with the values that are written, those
    that the batch lacks with nulls, and as `apply_rules` needs them `FAILED` and `AS_IT_CAME`.
    """
    rows = with_nulls(batch, rules.absent)
    if not rules.written and rules.unfit_values is None:
        return rows
    columns: list[ColumnOrName] = [
        rules.written.get(name, sf.col(quoted(name))).alias(name) for name in rows.columns
    ]
    columns += [value.alias(name) for name, value in rules.written.items() if name not in rows.columns]
    came = [sf.col(quoted(name)) for name in batch.columns if name in rules.written]
    if came and rules.checks:
        columns.append(sf.struct(*came).alias(AS_IT_CAME))
    if rules.unfit_values is not None:
        columns.append(rules.unfit_values.alias(FAILED))
    return rows.select(*columns)


def _numbers(checks: Iterable[tuple[int, RowCheck]]) -> Column | None:
    texts = [sf.when(check.fails, sf.lit(f"{n},")).otherwise(sf.lit("")) for n, check in checks]
    return sf.concat(*texts) if texts else None


def with_nulls(batch: DataFrame, absent: Mapping[str, spark.DataType]) -> DataFrame:
    """Return a batch with columns of nulls, for conditions that name them."""
    if not absent:
        return batch
    return batch.select("*", *(sf.lit(None).cast(kind).alias(name) for name, kind in absent.items()))
