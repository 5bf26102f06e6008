"""Partition fields as people write them, `day(event_time)`, and as Iceberg holds them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.transforms import VoidTransform, parse_transform
from pyiceberg.types import NestedField, PrimitiveType, StructType

from planners.suggestions import nearest_name
from streaming_sink.tasks.job import PartitionSource
from timeline.errors import SchemaMismatchError

_CALL = re.compile(r"^\s*([A-Za-z]+)\s*\(\s*(.+?)\s*\)\s*$")
_SIMPLE = {"identity": "", "year": "_year", "month": "_month", "day": "_day", "hour": "_hour"}
_SIZED = {"bucket": "_bucket", "truncate": "_trunc"}
"""Transform -> what Iceberg appends to the column's name."""
_SYNONYMS = {
    "years": "year",
    "months": "month",
    "days": "day",
    "date": "day",
    "hours": "hour",
    "date_hour": "hour",
}
_KNOWN = (*_SIMPLE, *_SIZED)
_LISTED = f"(known: {', '.join(_KNOWN)})"


@dataclass(frozen=True)
class _Term:
    """A partition field as its text says it, before a schema is known."""

    text: str
    transform: str
    column: str
    suffix: str

    @property
    def name(self) -> str:
        """The field's name. Manifests spell it in Avro, which takes ASCII only; a reader was seen to abort on
        anything else.
        """
        column = "".join(each if each.isascii() else f"_x{ord(each):X}" for each in self.column)
        return column + self.suffix


def partition_terms(given: Any) -> tuple[str, ...]:
    """Return the text of partition fields, checked as far as it is without a schema.

    TypeError for what is not a list of text, ValueError for text that spells no transform of a column, and
    for two fields of one name.
    """
    if not isinstance(given, list | tuple) or not all(isinstance(text, str) for text in given):
        raise TypeError(
            f'partition_by must be a list of transforms such as ["day(event_time)"], not {given!r}'
        )
    _terms(given)
    return tuple(given)


def partition_spec(fields: Sequence[str], schema: Schema) -> PartitionSpec:
    """Return the spec that `fields` spell: a column's name, or identity, year, month, day, hour (plural too)
    of a
    column, bucket(n, column) or truncate(width, column). Fields are named as Iceberg names them.

    ValueError for text that spells no transform; SchemaMismatchError for an unknown column or one whose type
    the transform does not take.
    """
    parsed = [
        _field(term, schema, number) for number, term in enumerate(_terms(fields), PARTITION_FIELD_ID_START)
    ]
    spelled = [make_compatible_name(field.name) for field in parsed]
    for text, field, in_manifests in zip(fields, parsed, spelled, strict=True):
        if spelled.count(in_manifests) > 1:
            raise ValueError(
                f"two partition fields come to the same name in manifests, {in_manifests}; rename a column:"
                f" {text}"
            )
        clash = schema.find_field(field.name) if field.name in schema.column_names else None
        if clash and (clash.field_id != field.source_id or str(field.transform) != "identity"):
            raise ValueError(
                f"a partition field would be named as a column of the table, rename that: {field.name}"
            )
    return PartitionSpec(*parsed, spec_id=0)


def partition_sources(schema: Schema, spec: PartitionSpec) -> tuple[PartitionSource, ...]:
    """Return the fields of `spec` with their source columns by name; a `void` one, which other engines leave
    where they remove a field, has none.
    """
    columns = schema.as_struct()
    return tuple(
        PartitionSource(
            field.name,
            () if isinstance(field.transform, VoidTransform) else _names(columns, field.source_id),
            str(field.transform),
        )
        for field in spec.fields
    )


def _names(struct: StructType, field_id: int) -> tuple[str, ...]:
    """Return the names from a top-level column down to a field; a name may itself hold a dot."""
    for field in struct.fields:
        if field.field_id == field_id:
            return (field.name,)
        if isinstance(field.field_type, StructType) and (below := _names(field.field_type, field_id)):
            return (field.name, *below)
    return ()


def _terms(fields: Sequence[str]) -> list[_Term]:
    terms = [_term(text) for text in fields]
    names = [term.name for term in terms]
    for term in terms:
        if names.count(term.name) > 1:
            raise ValueError(
                f"two partition fields come to the same name, {term.name}; keep one of them: {term.text}"
            )
    return terms


def _term(text: str) -> _Term:
    call = _CALL.match(text)
    if call is not None:
        name = call.group(1).lower()
        arguments = [part.strip() for part in call.group(2).split(",", 1)]
    elif "(" in text or ")" in text:
        raise _no_field(text)
    else:
        name, arguments = "identity", [text.strip()]
    name = _SYNONYMS.get(name, name)
    if name in _KNOWN and name != "identity" and text.count("(") != text.count(")"):
        raise _no_field(text)
    if name in _SIZED:
        return _sized(text, name, arguments)
    if name not in _SIMPLE:
        near = nearest_name(name, _KNOWN)
        hint = f"; did you mean {near}?" if near else ""
        raise ValueError(f"unknown partition transform{hint} {_LISTED}: {text}")
    if len(arguments) != 1:
        raise ValueError(f"partition transform {name} takes one column, as in {name}(event_time): {text}")
    return _of_a_column(text, name, arguments[0], _SIMPLE[name])


def _no_field(text: str) -> ValueError:
    return ValueError(
        f"a partition field is a column or a transform of one {_LISTED}, as in day(event_time) or bucket(16,"
        f" id); a column with a parenthesis in its name is spelled identity(…): {text!r}"
    )


def _sized(text: str, name: str, arguments: list[str]) -> _Term:
    if len(arguments) == 2 and arguments[1].isdecimal() and not arguments[0].isdecimal():
        arguments.reverse()  # some engines write bucket(column, n)
    if len(arguments) != 2 or not arguments[0].isdecimal() or not 0 < int(arguments[0]) < 2**31:
        raise ValueError(
            f"partition transform {name} takes a positive number (below 2^31) and a column, as in "
            f"{name}(16, id): {text}"
        )
    return _of_a_column(text, f"{name}[{int(arguments[0])}]", arguments[1], _SIZED[name])


def _of_a_column(text: str, transform: str, column: str, suffix: str) -> _Term:
    if not column:
        raise ValueError(
            f"a partition field names no column; write one, or a transform of one {_LISTED}, as in"
            f" day(event_time), or leave it out: {text!r}"
        )
    return _Term(text, transform, column, suffix)


def _field(term: _Term, schema: Schema, number: int) -> PartitionField:
    source = _column(term.text, term.column, schema)
    transform = parse_transform(term.transform)
    if not isinstance(source.field_type, PrimitiveType) or not transform.can_transform(source.field_type):
        raise SchemaMismatchError(
            f"partition transform {term.transform.partition('[')[0]} does not take a column of type "
            f"{source.field_type}: {term.text}"
        )
    if any(part in ("element", "key", "value") for part in term.column.split(".")[1:]) and _is_repeated(
        term.column, schema
    ):
        raise SchemaMismatchError(
            f"a column inside a list or a map has many values a row and cannot partition: {term.text}"
        )
    return PartitionField(source.field_id, number, transform, term.name)


def _is_repeated(column: str, schema: Schema) -> bool:
    parts = column.split(".")
    return any(not schema.find_type(".".join(parts[:end])).is_struct for end in range(1, len(parts)))


def _column(text: str, column: str, schema: Schema) -> NestedField:
    names = schema.column_names
    if column in names:
        return schema.find_field(column)
    near = nearest_name(column, names)
    hint = f"; did you mean {near}?" if near else ""
    raise SchemaMismatchError(f"a partition field names a column that the table lacks{hint}: {text}")
