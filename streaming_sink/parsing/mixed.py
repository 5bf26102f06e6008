"""Keys of a batch with objects or lists in some texts, and with something else in others: the column has the
type of the objects, and each of the other texts is for the contract, alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyiceberg import types as iceberg
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.options.values.contract import Difference, SchemaContract
from streaming_sink.parsing.columns import ParsePlan, plan_columns
from streaming_sink.parsing.given import given_conversions
from streaming_sink.parsing.inference import Seen, any_of, look_again, look_at, reads
from streaming_sink.parsing.inferred import MIXED
from streaming_sink.table.fitting import Path
from streaming_sink.table.sql_names import quoted

_OBJECT, _LIST = "OBJECT", "ARRAY"
_KEEPS_MORE = ("drop", "quarantine", "rescue")


def look_and_plan(
    batch: DataFrame,
    column: str,
    table: iceberg.StructType | None,
    given: spark.StructType,
    contract: SchemaContract,
) -> tuple[Seen, ParsePlan]:
    """Return what the texts of a batch hold, and how to parse them. A key with values of several types takes
    two jobs more, and as many for keys of several types inside of its objects.
    """
    seen, certain = look_at(batch, column, table, given, contract), given_conversions(given)
    while True:
        plan = plan_columns(
            seen.inferred, table, contract, seen.possible, seen.fractions, batch.columns, certain
        )
        mixed = {path: kind for path, kind in plan.mixed.items() if _sets_aside(contract, path, kind)}
        misplaced = _misplaced(batch, column, table, seen, mixed)
        if not misplaced:
            return seen, plan
        known = [] if seen.aside is None else [seen.aside]
        seen = look_again(batch, column, table, given, seen, any_of([*known, *misplaced]))


def _sets_aside(contract: SchemaContract, path: Path, table: iceberg.IcebergType | None) -> bool:
    """Return whether a row with an unlike value may be set aside as a whole: the contract of its key refuses
    no such value, and would keep no more of it.
    """
    choices = [contract.choice(Difference.UNFIT, path)]
    if "refuse" in (contract.mismatch, *choices):
        return False
    if table is None:
        choices.append(
            contract.choice(Difference.NEW_COLUMN if len(path) == 1 else Difference.NEW_FIELD, path)
        )
    keeps = [_KEEPS_MORE.index(choice) for choice in choices if choice in _KEEPS_MORE]
    return max(keeps) <= _KEEPS_MORE.index(contract.mismatch)


def _misplaced(
    batch: DataFrame,
    column: str,
    table: iceberg.StructType | None,
    seen: Seen,
    mixed: Mapping[Path, iceberg.IcebergType | None],
) -> list[Column]:
    """Return for each key whether a text has a value there that is no object, or no list, where other texts
    have nothing else. If there are such keys, it is a job.
    """
    value = sf.col(quoted(column))
    excluded = seen.malformed_texts if seen.aside is None else seen.malformed_texts | seen.aside
    found = {
        (path, kind): (
            _reads(value, path, seen, table, kind, is_like=True),
            _reads(value, path, seen, table, kind, is_like=False),
        )
        for path, into in mixed.items()
        for kind in _wanted(into)
    }
    if not found:
        return []
    counts = batch.select(
        *(
            sf.count_if(~excluded & each)
            for like, unlike in found.values()
            for each in (like & ~unlike, unlike)
        )
    ).first()
    assert counts is not None
    misplaced: dict[Path, Column] = {}
    for place, ((path, _), (_, unlike)) in enumerate(found.items()):
        if counts[2 * place] and counts[2 * place + 1]:
            misplaced.setdefault(path, unlike)
    return list(misplaced.values())


def _reads(
    value: Column, path: Path, seen: Seen, table: iceberg.StructType | None, kind: str, *, is_like: bool
) -> Column:
    """Return whether a text has at one path a value of a kind, or one of another kind; null is of none."""

    def is_it(found: Column) -> Column:
        has = sf.schema_of_variant(found)
        like = has.startswith(kind)
        return like if is_like else ~like & (has != "VOID")

    return any_of([reads(value, path, seen.inferred, table, is_it, MIXED)])


def _wanted(table: iceberg.IcebergType | None) -> Iterator[str]:
    if not isinstance(table, iceberg.ListType):
        yield _OBJECT
    if isinstance(table, iceberg.ListType | None):
        yield _LIST
