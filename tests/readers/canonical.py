"""One form of a table's rows, in which the results of different readers are equal.

A row is a tuple in the order of the schema: structs and lists are tuples, maps are tuples of pairs in a
fixed order, uuids are `UUID`, timestamps are naive or in UTC as their type says, and NaN is the string "NaN"
(it must equal itself). Rows have no order: compare them as multisets.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyiceberg.types as it

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyiceberg.schema import Schema

Row = tuple[Any, ...]
Rows = Counter[Row]

_WIDEST_DECIMAL = Context(prec=38)


def canonical(table: pa.Table, schema: Schema, columns: list[str]) -> Rows:
    """Return the multiset of the rows, these columns in this order, whatever Arrow types a reader chose."""
    parts = []
    for name in columns:
        convert = _converter(schema.find_field(name).field_type)
        values = table.column(name).to_pylist()
        parts.append(values if convert is None else [None if v is None else convert(v) for v in values])
    return Counter(zip(*parts, strict=True))


def with_nulls_as_empty(
    rows: Rows, schema: Schema, columns: list[str], affected: Callable[[it.IcebergType], bool]
) -> Rows:
    """Return the rows as a reader sees them that cannot tell null from empty in the affected nested types.

    Null lists and maps become empty, and a null struct becomes a struct of nulls.
    """
    fill = [_filler(schema.find_field(name).field_type, affected) for name in columns]
    filled: Rows = Counter()
    for row, times in rows.items():
        filled[tuple(f(v) for f, v in zip(fill, row, strict=True))] += times
    return filled


def _converter(kind: it.IcebergType) -> Callable[[Any], Any] | None:
    """Return what makes a value canonical that is not None, or None where every reader's value already is."""
    match kind:
        case it.FloatType() | it.DoubleType():
            return lambda v: "NaN" if math.isnan(v) else v
        case it.DecimalType():
            unit = Decimal(1).scaleb(-kind.scale)
            return lambda v: v.quantize(unit, context=_WIDEST_DECIMAL)
        case it.TimestampType():
            return _naive
        case it.TimestamptzType():
            return lambda v: v.astimezone(dt.timezone.utc)
        case it.UUIDType():
            return _uuid
        case it.StringType():
            return lambda v: v.decode() if isinstance(v, bytes) else v
        case it.StructType():
            fields = [(f.name, _nullable(f.field_type)) for f in kind.fields]
            return lambda v: tuple(convert(v[name]) for name, convert in fields)
        case it.ListType():
            element = _nullable(kind.element_type)
            return lambda v: tuple(map(element, v))
        case it.MapType():
            key, value = _nullable(kind.key_type), _nullable(kind.value_type)
            return lambda v: tuple(sorted(((key(k), value(x)) for k, x in v), key=repr))
        case _:
            return None


def _nullable(kind: it.IcebergType) -> Callable[[Any], Any]:
    convert = _converter(kind)
    return (lambda v: v) if convert is None else (lambda v: None if v is None else convert(v))


def _naive(value: dt.datetime) -> dt.datetime:
    """ClickHouse labels a timestamp without a zone as UTC; its digits are those stored."""
    if value.tzinfo is not None and value.utcoffset() != dt.timedelta():
        raise ValueError(f"a timestamp without a zone came back in {value.tzinfo}")
    return value.replace(tzinfo=None)


def _uuid(value: Any) -> UUID:
    if isinstance(value, UUID):
        return value
    return UUID(bytes=value) if isinstance(value, bytes) else UUID(value)


def _filler(kind: it.IcebergType, affected: Callable[[it.IcebergType], bool]) -> Callable[[Any], Any]:
    match kind:
        case it.StructType():
            fields = [_filler(f.field_type, affected) for f in kind.fields]
            empty: Row = (None,) * len(fields)
            fill = lambda v: tuple(f(x) for f, x in zip(fields, v, strict=True))  # noqa: E731
        case it.ListType():
            element = _filler(kind.element_type, affected)
            empty = ()
            fill = lambda v: tuple(map(element, v))  # noqa: E731
        case it.MapType():
            value = _filler(kind.value_type, affected)
            empty = ()
            fill = lambda v: tuple((k, value(x)) for k, x in v)  # noqa: E731
        case _:
            return lambda v: v
    if affected(kind):
        return lambda v: fill(empty if v is None else v)
    return lambda v: None if v is None else fill(v)
