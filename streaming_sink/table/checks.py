"""Row checks: which rows of a batch fail, and what becomes of them. One extra column carries the verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.table.sql_names import quoted
from streaming_sink.tasks.failures import ACTIONS, AS_IT_CAME, FAILED, QUARANTINE, REFUSE, REPLAYED
from streaming_sink.tasks.job import SiftedCheck

if TYPE_CHECKING:
    from pyspark.sql._typing import ColumnOrName

UNFIT = "fits the table"
"""The name of the check that tasks make themselves."""


@dataclass(frozen=True)
class RowCheck:
    """One check of every row of a batch. It must be a function of the row alone."""

    name: str
    """What reports and the quarantine call it: an expectation's own text, for example."""
    fails: Column
    """True where a row fails; false and null where it passes. Over the columns of the batch as it came."""
    action: str
    """One of `ACTIONS`. "refuse" refuses the whole batch; a row that fails several checks is quarantined if
    one of them says so, else dropped."""
    column: str | None = None
    """The column at fault, where it is one."""

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
    replays: bool = False
    """Whether the rows come from the quarantine, which is to mark them as replayed (column `REPLAYED`)."""

    @cached_property
    def failed(self) -> Column | None:
        """The numbers of the checks that a row fails, as text, each check computed once; None without checks.
        It serves every batch: to make it takes as long as Spark's analysis of it.

        Not as an array: Spark takes half a second to pass 50,000 null arrays to Python.
        """
        if not self.checks:
            return None
        numbers = [
            sf.when(check.fails, sf.lit(f"{n},")).otherwise(sf.lit("")) for n, check in enumerate(self.checks)
        ]
        return sf.nullif(sf.concat(*numbers), sf.lit(""))

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
    """Return the schema of a batch's own rows, without the column `REPLAYED`."""
    return spark.StructType([field for field in batch.schema.fields if field.name != REPLAYED])


def apply_rules(batch: DataFrame, rules: RowRules) -> DataFrame:
    """Return the rows to write, in one projection; where there are checks, with a column `FAILED` more, and
    with a column `AS_IT_CAME` where columns are written otherwise and a row may be set aside.
    """
    if not rules.checks and not rules.written:
        return batch
    kept: list[ColumnOrName] = ["*"]
    if rules.written or rules.absent:
        kept = [rules.written.get(name, sf.col(quoted(name))).alias(name) for name in batch.columns]
    added = [column.alias(name) for name, column in rules.written.items() if name not in batch.columns]
    came = [sf.col(quoted(name)) for name in batch.columns if name in rules.written]
    carried = [] if rules.failed is None else [rules.failed.alias(FAILED)]
    if came and rules.unfit == QUARANTINE:  # a task may quarantine any row, whichever it is
        carried.append(sf.struct(*came).alias(AS_IT_CAME))
    elif came and rules.failed is not None:
        carried.append(sf.when(rules.failed.isNotNull(), sf.struct(*came)).alias(AS_IT_CAME))
    return with_nulls(batch, rules.absent).select(*kept, *added, *carried)


def with_nulls(batch: DataFrame, absent: Mapping[str, spark.DataType]) -> DataFrame:
    """Return a batch with columns of nulls, for conditions that name them."""
    if not absent:
        return batch
    return batch.select("*", *(sf.lit(None).cast(kind).alias(name) for name, kind in absent.items()))
