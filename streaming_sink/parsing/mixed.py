"""Keys of a batch with objects or lists in some texts, and with something else in others: the column has the
type of the objects, and each of the other texts is for the contract, alone.

Of a key that the table lacks, most texts decide, or the column that it may become: `after.tags` of an
envelope becomes `tags`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg import types as iceberg
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.options.values.contract import Difference, SchemaContract
from streaming_sink.parsing.columns import ParsePlan, plan_columns
from streaming_sink.parsing.given import given_conversions, without_other_cases
from streaming_sink.parsing.inference import SeenTypes, any_of, look_again, look_at, reads
from streaming_sink.parsing.inferred import MIXED
from streaming_sink.table.fitting import Path
from streaming_sink.table.sql_names import quoted

_OBJECT, _LIST = "OBJECT", "ARRAY"
_KEEPS_MORE = ("drop", "quarantine", "rescue")


def look_and_plan(
    batch: DataFrame,
    column: str,
    table: iceberg.StructType | None,
    stored: iceberg.StructType | None,
    given: spark.StructType,
    contract: SchemaContract,
) -> tuple[SeenTypes, ParsePlan]:
    """Return what the texts of a batch hold, and how to parse them. `table` has the columns that are known,
    `stored` those of the table itself. A key with values of several types takes two jobs more, and as many
    for keys of several types inside of its objects.
    """
    seen, certain = look_at(batch, column, table, given, contract), given_conversions(given)
    while True:
        known_here = without_other_cases(table, stored, given, seen.inferred.fieldNames())
        plan = plan_columns(
            seen.inferred, known_here, contract, seen.possible, seen.fractions, batch.columns, certain
        )
        mixed = {
            path: _kinds(kind or _may_become(stored, path))
            for path, kind in plan.mixed.items()
            if _sets_aside(contract, path, kind)
        }
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
    seen: SeenTypes,
    mixed: Mapping[Path, Mapping[str, bool]],
) -> list[Column]:
    """Return for each key whether a text has a value there that is none of its kind, where other texts have
    nothing else. If there are such keys, it is a job.
    """
    value = sf.col(quoted(column))
    excluded = seen.malformed_texts if seen.aside is None else seen.malformed_texts | seen.aside
    found = {
        (path, kind): (
            _reads(value, path, seen, table, kind, is_like=True),
            _reads(value, path, seen, table, kind, is_like=False),
        )
        for path, kinds in mixed.items()
        for kind in kinds
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
    for place, ((path, kind), (_, unlike)) in enumerate(found.items()):
        alike, others = counts[2 * place], counts[2 * place + 1]
        if alike and others and (alike >= others or not mixed[path][kind]):
            misplaced.setdefault(path, unlike)
    return list(misplaced.values())


def _reads(
    value: Column, path: Path, seen: SeenTypes, table: iceberg.StructType | None, kind: str, *, is_like: bool
) -> Column:
    """Return whether a text has at one path a value of a kind, or one of another kind; null is of none."""

    def is_it(found: Column) -> Column:
        has = sf.schema_of_variant(found)
        like = has.startswith(kind)
        return like if is_like else ~like & (has != "VOID")

    return any_of([reads(value, path, seen.inferred, table, is_it, MIXED)])


def _kinds(into: iceberg.IcebergType | None) -> Mapping[str, bool]:
    """Return the kinds of values of which a column may be, each with whether most texts must have it."""
    if into is None:
        return {_OBJECT: True, _LIST: True}
    if isinstance(into, iceberg.StructType | iceberg.MapType):
        return {_OBJECT: False}
    return {_LIST: False} if isinstance(into, iceberg.ListType) else {}


def _may_become(stored: iceberg.StructType | None, path: Path) -> iceberg.IcebergType | None:
    """Return the type of the table's column that a key below one which it lacks may become; None without."""
    found = (_type_at(stored, path[start:]) for start in range(1, len(path)))
    return next((kind for kind in found if kind is not None), None)


def _type_at(kind: iceberg.IcebergType | None, path: Path) -> iceberg.IcebergType | None:
    for name in path:
        if isinstance(kind, iceberg.StructType):
            kind = next((field.field_type for field in kind.fields if field.name == name), None)
        elif isinstance(kind, iceberg.ListType):
            kind = kind.element_type
        else:
            kind = kind.value_type if isinstance(kind, iceberg.MapType) else None
    return kind
