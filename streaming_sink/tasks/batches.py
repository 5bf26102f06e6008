"""Converts Arrow batches to a table's schema: columns matched by name or field id, in table order, with the
table's types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from streaming_sink.tasks.errors import InvalidTextError, RowsDoNotFitError
from streaming_sink.tasks.leaves import FIELD_ID

Match = Callable[[pa.Field], object]
"""Returns what matches a column: its name (rows from Spark), or its field id (rows of data files)."""

RESERVED_PREFIX = "__streaming_sink_"
"""Begins the names of columns that the sink adds while rows travel. No column of a table or a batch."""


def match_name(field: pa.Field) -> object:
    return field.name


def match_field_id(field: pa.Field) -> object:
    return (field.metadata or {}).get(FIELD_ID)


def conform(batch: pa.RecordBatch, schema: pa.Schema, match: Match = match_name) -> pa.RecordBatch:
    """Return `batch` with exactly the columns and types of `schema`; a column that it lacks becomes nulls.

    Raises RowsDoNotFitError for a null in a required column. Columns that need no cast are not copied.
    """
    given = {match(field): index for index, field in enumerate(batch.schema)}
    columns = []
    for target in schema:
        index = given.get(match(target))
        if index is None:
            column = _nulls(batch.num_rows, target.type)
        else:
            column = _conform_array(batch.column(index), target, match)
        _require_values(column, target)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def conform_valid(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """As `conform` by names. Raises InvalidTextError for text that is not valid UTF-8, too: a string of
    Spark's holds any bytes, and Parquet's readers refuse some.
    """
    rows = conform(batch, schema)
    invalid = {
        field.name: why
        for field, column in zip(rows.schema, rows.columns, strict=True)
        if _holds_text(field.type) and (why := _why_invalid(column))
    }
    if invalid:
        name, why = next(iter(invalid.items()))
        raise InvalidTextError(
            "text is not valid UTF-8; is_valid_utf8(column) is false in such rows, make_valid_utf8(column)"
            f' repairs them, SchemaContract(mismatch="quarantine") or "drop" keeps them out: {name} ({why})',
            frozenset(invalid),
        )
    return rows


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return True
    return any(_holds_text(kind.field(place).type) for place in range(kind.num_fields))


def _why_invalid(column: pa.Array) -> str | None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        return str(error)
    return None


def _require_values(column: pa.Array, target: pa.Field) -> None:
    if not target.nullable and column.null_count:
        raise RowsDoNotFitError(
            f"column is required by the table but holds nulls: {target.name} ({column.null_count})"
        )


def _conform_array(array: pa.Array, target: pa.Field, match: Match) -> pa.Array:
    wanted = target.type
    if not len(array) or pa.types.is_null(array.type):
        # Spark sends an empty nested array without the offset that Arrow wants, and reading it would crash.
        return _nulls(len(array), wanted)
    if not any(is_kind(array.type) for is_kind in _kinds_for(wanted)):
        raise RowsDoNotFitError(f"{array.type} does not fit the table's column {target.name} of {wanted}")
    if pa.types.is_struct(wanted):
        return _conform_struct(array, wanted, match)
    if pa.types.is_list(wanted):
        if not pa.types.is_list(array.type):  # of a fixed size, or with long offsets
            array = array.cast(pa.list_(array.type.value_field))
        values = _conform_array(array.values, wanted.value_field, match)
        _require_elements(array, values, wanted.value_field, target)
        return pa.ListArray.from_arrays(_offsets(array), values, type=wanted, mask=_null_mask(array))
    if pa.types.is_map(wanted):
        keys = _conform_array(array.keys, wanted.key_field, match)
        items = _conform_array(array.items, wanted.item_field, match)
        _require_elements(array, items, wanted.item_field, target)
        return pa.MapArray.from_arrays(_offsets(array), keys, items, type=wanted, mask=_null_mask(array))
    if array.type == wanted:
        return array
    if isinstance(wanted, pa.BaseExtensionType):
        return _uuids(array, wanted)
    if isinstance(array.type, pa.BaseExtensionType):
        return pa.array([None if each is None else str(each) for each in array.to_pylist()], wanted)
    try:
        return array.cast(wanted)
    except pa.ArrowInvalid as error:
        raise RowsDoNotFitError(f"a value does not fit the table's column {target.name}: {error}") from error


def _kinds_for(wanted: pa.DataType) -> tuple[Callable[[pa.DataType], bool], ...]:
    """Return what a type has to be one of, so that its values can be of the wanted one."""
    if pa.types.is_struct(wanted):
        return (pa.types.is_struct,)
    if pa.types.is_list(wanted):
        return pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list
    if pa.types.is_map(wanted):
        return (pa.types.is_map,)
    return (lambda given: not pa.types.is_nested(given),)


def _conform_struct(array: pa.Array, wanted: pa.StructType, match: Match) -> pa.Array:
    given = {match(array.type.field(index)): index for index in range(array.type.num_fields)}
    children = array.flatten()  # a child is null where its parent is
    fields = [wanted.field(index) for index in range(wanted.num_fields)]
    columns = []
    present = pc.sum(array.is_valid()).as_py() or 0
    for field in fields:
        index = given.get(match(field))
        column = (
            _nulls(len(array), field.type) if index is None else _conform_array(children[index], field, match)
        )
        if not field.nullable and len(column) - column.null_count < present:
            raise RowsDoNotFitError(f"column is required by the table but holds nulls: {field.name}")
        columns.append(column if field.nullable else _without_nulls(column))
    return pa.StructArray.from_arrays(columns, fields=fields, mask=_null_mask(array))


def _require_elements(array: pa.Array, values: pa.Array, element: pa.Field, target: pa.Field) -> None:
    """Raise RowsDoNotFitError for a null in a list or map that is there, where the table's has none: what is
    written for it would be a value.
    """
    if element.nullable or not values.null_count:
        return
    # Of what nulls among the lists have behind them nothing is written.
    absent = pa.ListArray.from_arrays(_offsets(array), values.is_null(), mask=_null_mask(array)).flatten()
    if pc.any(absent).as_py():
        raise RowsDoNotFitError(f"a value is required by the table but is null: {target.name}.{element.name}")


def _nulls(count: int, kind: pa.DataType) -> pa.Array:
    """Return nulls, with values in the required fields of structs, as `_without_nulls`."""
    if not count or not pa.types.is_struct(kind):
        return pa.nulls(count, kind)
    fields = list(kind)
    inside = [(_nulls(count, field.type), field) for field in fields]
    columns = [column if field.nullable else _without_nulls(column) for column, field in inside]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.repeat(True, count))


def _without_nulls(column: pa.Array) -> pa.Array:
    """Return a required field with a value where its struct is null: no file has it, but pyarrow writes none
    that is null there.
    """
    kind = column.type
    if not column.null_count:
        return column
    if isinstance(column, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(kind, _without_nulls(column.storage))
    if pa.types.is_struct(kind):
        inside = [(column.field(place), field) for place, field in enumerate(kind)]
        columns = [each if field.nullable else _without_nulls(each) for each, field in inside]
        return pa.StructArray.from_arrays(columns, fields=list(kind))
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(_offsets(column), column.keys, column.items, type=kind)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(_offsets(column), column.values, type=kind)
    places = pc.if_else(column.is_null(), len(column), pa.array(range(len(column)), pa.int64()))
    return pa.concat_arrays([column, pa.array([_blank(column.type)], column.type)]).take(places)


def _blank(kind: pa.DataType) -> Any:
    """Return some value of a type that is not nested."""
    if pa.types.is_fixed_size_binary(kind):
        return bytes(kind.byte_width)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ""
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return b""
    return False if pa.types.is_boolean(kind) else 0


def _null_mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _offsets(array: pa.Array) -> pa.Array:
    # from_arrays takes a mask only with offsets that are not themselves a slice
    return pc.add(array.offsets, pa.scalar(0, pa.int32())) if array.offset else array.offsets


def _uuids(array: pa.Array, wanted: pa.BaseExtensionType) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    if isinstance(array.type, pa.BaseExtensionType):
        storage = array.storage
    elif pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        try:
            values = [None if text is None else UUID(text).bytes for text in array.to_pylist()]
        except ValueError as error:
            raise RowsDoNotFitError(f"a string does not spell a uuid: {error}") from error
        storage = pa.array(values, wanted.storage_type)
    else:
        storage = array.cast(wanted.storage_type)
    return pa.ExtensionArray.from_storage(wanted, storage)
