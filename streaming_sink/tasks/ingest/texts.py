"""Values that a source file spells as text, in the types of the table's columns: JSON, CSV and paths."""

from __future__ import annotations

import base64
import binascii

import pyarrow as pa
import pyarrow.compute as pc

from streaming_sink.tasks.ingest.large_numbers import narrowed

_OFFSET = r"(Z|[+-]\d\d:?\d\d)$"


def parsed_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which a parser of text reads a column, for `cast_parsed` to make the column's of it:
    text in the place of what parsers do not know, or read each in its own way.
    """
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(parsed_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(parsed_type(kind.value_type)))
    if pa.types.is_float32(kind):
        return pa.float64()  # so that a number that no float holds is not infinite yet
    return pa.string() if _is_text(kind) else kind


def without_times(kind: pa.DataType) -> pa.DataType:
    """Return an inferred type with text in the place of times, at any depth."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(without_times(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(without_times(kind.value_type)))
    return pa.string() if pa.types.is_temporal(kind) else kind


def holds_map(kind: pa.DataType) -> bool:
    """Return whether a type is a map, or has one inside of it."""
    return pa.types.is_map(kind) or any(holds_map(kind.field(place).type) for place in range(kind.num_fields))


def _is_text(kind: pa.DataType) -> bool:
    return (
        pa.types.is_temporal(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or isinstance(kind, pa.BaseExtensionType)
    )


def cast_parsed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values that were read as `parsed_type` says in the type of the column; fields that a struct has
    beside the column's stay as they are. Text of a uuid stays text, which the column takes.

    Dates and times are ISO 8601. A time of a column with a zone is in UTC where it states no offset, and a
    column without a zone takes none that states one. Bytes are base64. pa.ArrowInvalid for other text.
    """
    if pa.types.is_struct(kind) and pa.types.is_struct(values.type):
        columns = [
            cast_parsed(column, kind.field(field.name).type)
            if kind.get_field_index(field.name) >= 0
            else column
            for field, column in zip(values.type, values.flatten(), strict=True)
        ]
        fields = [field.with_type(column.type) for field, column in zip(values.type, columns, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=values.is_null())
    if pa.types.is_list(kind) and pa.types.is_list(values.type):
        inner = cast_parsed(values.values, kind.value_type)
        made = pa.list_(values.type.value_field.with_type(inner.type))
        return pa.ListArray.from_arrays(values.offsets, inner, type=made, mask=values.is_null())
    if pa.types.is_floating(kind) and (pa.types.is_floating(values.type) or pa.types.is_string(values.type)):
        return narrowed(values, kind)
    if not pa.types.is_string(values.type) or isinstance(kind, pa.BaseExtensionType):
        return values
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.array([_bytes_of(text) for text in values.to_pylist()], pa.binary()).cast(kind)
    if pa.types.is_time(kind):
        day = pc.binary_join_element_wise(pa.scalar("1970-01-01T"), values, "")
        return day.cast(pa.timestamp(kind.unit)).cast(pa.int64()).cast(kind)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        stated = pc.match_substring_regex(values, _OFFSET)
        nothing = pa.scalar(None, pa.string())
        local = pc.if_else(stated, nothing, values).cast(pa.timestamp(kind.unit))
        with_offset = pc.if_else(stated, values, nothing).cast(kind)
        return pc.coalesce(with_offset, pc.assume_timezone(local, "UTC").cast(kind))
    return values.cast(kind)


def _bytes_of(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        found = base64.b64decode(text, validate=True)
        if base64.b64encode(found).decode() != text:
            raise binascii.Error("more padding than it takes, or bits beside the bytes")
        return found
    except binascii.Error as error:
        raise pa.ArrowInvalid(f"text does not spell bytes in base64: {error}: {text[:50]}") from error
