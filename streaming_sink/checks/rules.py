"""The rules of a batch's misfits, as Spark columns: values converted, values rescued, rows that fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyiceberg import types as iceberg
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql import types as spark

from streaming_sink.checks.row_checks import RowCheck, RowRules
from streaming_sink.table.conversions import converts, is_text, spark_type
from streaming_sink.table.fitting import Misfit, Path
from streaming_sink.table.rescue import NOT_UTF8, RESCUED
from streaming_sink.table.sql_names import quoted
from streaming_sink.tasks.rows.failures import UNPARSED

_JSON = {
    # Spark's defaults leave out microseconds, and write times in the session's zone.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
    "ignoreNullFields": "true",
}
_DATE = r"\s*\d{4}-\d{1,2}-\d{1,2}"
_TIME = r"[T ]\d{1,2}:\d{1,2}(:\d{1,2}(\.\d{1,6}0*)?)?"
_LARGEST: dict[tuple[type[spark.DataType], type[spark.DataType]], int] = {
    (spark.LongType, spark.DoubleType): 2**63 - 1,
    (spark.LongType, spark.FloatType): 2**63 - 1,
    (spark.IntegerType, spark.FloatType): 2**31 - 1,
}
"""The largest whole number of a type, which no number of the other type equals."""
_Make = Callable[[Column], Column]
_SPELLINGS = {
    # Spark's casts cut off what a type does not hold, and take a time without a date for one of today.
    "date": rf"^{_DATE}\s*$",
    "timestamp": rf"^{_DATE}{_TIME}\s*$",
    "timestamptz": rf"^{_DATE}{_TIME}\s*([-+A-Za-z][-+A-Za-z0-9:/_]*)?\s*$",
}


@dataclass(frozen=True)
class JsonText(Misfit):
    """Text of JSON in the place of a type that JSON lacks: bytes, as base64, or a number of a byte or two."""

    exact: spark.DataType


def rules_of(batch: spark.StructType, misfits: Mapping[Path, Misfit]) -> RowRules:
    """Return how rows of a batch with such misfits are written: each value that does not convert without loss
    is null in its column, and is rescued or makes its row fail.

    Rescued values are JSON text `{column: value, …}` in `_rescued`, which is null where all of a row fits; a
    field of a struct is inside an object of the struct's name; of a list or a map with a value that does not
    fit, the whole is rescued.
    """
    written: dict[str, Column] = {}
    checks: list[RowCheck] = []
    rescued: list[tuple[str, Column]] = []
    for field in batch.fields:
        fitted = fit_value(sf.col(quoted(field.name)), field.dataType, (field.name,), misfits)
        if fitted.value is not None:
            written[field.name] = fitted.value
        checks += [_check(path, misfits[path], unfit) for path, unfit in fitted.failing]
        if field.name == UNPARSED and fitted.rescued is not None:
            # Its one field has the name of the column that the text was in.
            names = field.dataType.fieldNames()  # type: ignore[attr-defined]
            rescued += [(name, fitted.rescued.getField(name)) for name in names]
        elif fitted.rescued is not None:
            rescued.append((field.name, fitted.rescued))
    if rescued:
        written[RESCUED] = sf.to_json(_struct_of(rescued), _JSON)
    return RowRules(tuple(checks), written)


@dataclass(frozen=True)
class FitRules:
    """A value of a batch, as the table's column takes it."""

    value: Column | None = None
    """None where it is written as it came."""
    rescued: Column | None = None
    """What of it is rescued; null where all of it fits. None where nothing can be."""
    failing: tuple[tuple[Path, Column], ...] = ()
    """For each misfit inside that makes rows fail: where it is, and whether this row has such a value."""


def fit_value(value: Column, kind: spark.DataType, path: Path, misfits: Mapping[Path, Misfit]) -> FitRules:
    """Return what becomes of the values at one path of a batch."""
    fitting = _fitting(kind, path, misfits)
    return FitRules(
        None if fitting.value is None else fitting.value(value),
        None if fitting.rescued is None else fitting.rescued(value),
        tuple((at, fails(value)) for at, fails in fitting.failing),
    )


@dataclass(frozen=True)
class _Fitting:
    """What `FitRules` has, as functions of a value. Each makes those inside once: with two, columns would be
    twice as large at every level, and text may have thirty.
    """

    value: _Make | None = None
    rescued: _Make | None = None
    rescues: _Make | None = None
    """Whether something of a value is rescued; None where nothing can be."""
    failing: tuple[tuple[Path, _Make], ...] = ()


def _fitting(kind: spark.DataType, path: Path, misfits: Mapping[Path, Misfit]) -> _Fitting:
    misfit = misfits.get(path)
    if misfit is not None:
        return _convert(misfit, path)
    if not any(other[: len(path)] == path for other in misfits):
        return _Fitting()
    if isinstance(kind, spark.StructType):
        return _fit_struct(kind, path, misfits)
    if isinstance(kind, spark.ArrayType):
        inside = _fitting(kind.elementType, (*path, "element"), misfits)
        return _fit_inside(kind, inside, lambda value: value, sf.transform)
    if isinstance(kind, spark.MapType):
        inside = _fitting(kind.valueType, (*path, "value"), misfits)
        return _fit_inside(
            kind,
            inside,
            sf.map_values,
            lambda value, new: sf.transform_values(value, lambda _, each: new(each)),
        )
    raise AssertionError(f"a misfit below a value without fields: {'.'.join(path)}")


def _convert(misfit: Misfit, path: Path) -> _Fitting:
    into = misfit.into
    new: _Make | None = None
    if isinstance(misfit, JsonText):
        new = _of_base64 if misfit.exact == spark.BinaryType() else lambda value: value.try_cast(misfit.exact)
    elif into is not None and converts(into, misfit.kind):
        new = lambda value: converted(value, misfit.kind, into)  # noqa: E731
    elif into is not None:
        new = lambda _: sf.lit(None).cast(spark_type(into))  # noqa: E731

    def unfit(value: Column) -> Column:
        return value.isNotNull() if new is None else value.isNotNull() & new(value).isNull()

    if misfit.action == "rescue":
        return _Fitting(new, lambda value: sf.when(unfit(value), _in_utf8(value, misfit.kind)), unfit)
    return _Fitting(new, failing=((path, unfit),))


def _in_utf8(value: Column, kind: spark.DataType) -> Column:
    """Return a value to be rescued: text that is not valid UTF-8 as `base64:` and its bytes, since JSON would
    have other characters in their place.
    """
    if is_text(kind):
        bytes_of_it = sf.concat(sf.lit(NOT_UTF8), sf.base64(value.cast("binary")))
        return sf.when(sf.is_valid_utf8(value), value).otherwise(bytes_of_it)
    if isinstance(kind, spark.StructType) and kind.fields:
        parts = [_in_utf8(value.getField(each.name), each.dataType).alias(each.name) for each in kind.fields]
        return sf.when(value.isNotNull(), sf.struct(*parts))
    if isinstance(kind, spark.ArrayType):
        return sf.transform(value, lambda each: _in_utf8(each, kind.elementType))
    if isinstance(kind, spark.MapType):
        keys = sf.transform_keys(value, lambda key, _: _in_utf8(key, kind.keyType))
        return sf.transform_values(keys, lambda _, each: _in_utf8(each, kind.valueType))
    return value


def _fit_struct(kind: spark.StructType, path: Path, misfits: Mapping[Path, Misfit]) -> _Fitting:
    fields = {field.name: _fitting(field.dataType, (*path, field.name), misfits) for field in kind.fields}

    def new(value: Column) -> Column:
        columns = []
        for name, fitting in fields.items():
            given = value.getField(name)
            columns.append((given if fitting.value is None else fitting.value(given)).alias(name))
        # A struct that is null stays null, instead of a struct of nulls.
        return sf.when(value.isNotNull(), sf.struct(*columns))

    inside = [(name, fitting) for name, fitting in fields.items() if fitting.rescued is not None]

    def rescued(value: Column) -> Column:
        parts = [_present(fitting.rescued)(value.getField(name)).alias(name) for name, fitting in inside]
        return sf.when(rescues(value), sf.struct(*parts))

    def rescues(value: Column) -> Column:
        return reduce(or_, (_present(fitting.rescues)(value.getField(name)) for name, fitting in inside))

    return _Fitting(
        new if any(fitting.value is not None for fitting in fields.values()) else None,
        rescued if inside else None,
        rescues if inside else None,
        tuple(
            (at, _of_field(name, fails)) for name, fitting in fields.items() for at, fails in fitting.failing
        ),
    )


def _of_field(name: str, fails: _Make) -> _Make:
    return lambda value: fails(value.getField(name))


def _fit_inside(
    kind: spark.DataType, inside: _Fitting, values: _Make, mapped: Callable[[Column, _Make], Column]
) -> _Fitting:
    """Return what becomes of a list or a map of whose values becomes what `inside` says."""

    def some(found: _Make) -> _Make:
        return lambda whole: sf.coalesce(sf.exists(values(whole), found), sf.lit(False))

    value, rescues = inside.value, None if inside.rescues is None else some(inside.rescues)
    return _Fitting(
        None if value is None else lambda whole: mapped(whole, value),
        None if rescues is None else lambda whole: sf.when(rescues(whole), _in_utf8(whole, kind)),
        rescues,
        tuple((path, some(fails)) for path, fails in inside.failing),
    )


def _present(make: _Make | None) -> _Make:
    assert make is not None
    return make


def converted(value: Column, kind: spark.DataType, into: iceberg.IcebergType) -> Column:
    """Return values as the table's type, null where they do not convert, or would lose something."""
    new = value.try_cast(spark_type(into))
    if isinstance(into, iceberg.StringType):
        return sf.when(sf.is_valid_utf8(new), new) if is_text(kind) else new
    if not is_text(kind):
        # Spark rounds and cuts off without a word, so what came back must be what was there.
        same = new.try_cast(kind).eqNullSafe(value)
        for whole, real in ((kind, spark_type(into)), (spark_type(into), kind)):
            # It also takes the power of two above the largest whole number for that number.
            if (largest := _LARGEST.get((type(whole), type(real)))) is not None:
                same = same & ((new if whole is not kind else value) != largest)
        return sf.when(same, new)
    if isinstance(into, iceberg.DecimalType):
        return sf.when(new.isNotNull() & (_digits(new.cast("string")) == _digits(value)), new)
    if isinstance(into, iceberg.FloatType | iceberg.DoubleType):
        # Spark takes what is too large for infinity, and what is too small for zero.
        infinite = sf.abs(new) == float("inf")
        kept = sf.when(infinite, value.rlike("(?i)inf")).when(new == 0, _digits(value) == "").otherwise(True)
        return sf.when(kept, new)
    if spelling := _SPELLINGS.get(str(into)):
        return sf.when(value.rlike(spelling), new)
    return new


def _of_base64(text: Column) -> Column:
    """Return the bytes that a text spells; null where it is spelled otherwise than they are encoded."""
    found = sf.try_to_binary(text, sf.lit("base64"))
    return sf.when(sf.base64(found) == text, found)


def _digits(number: Column) -> Column:
    """Return the significant digits of a number's text: equal ones before and after it was rounded mean that
    nothing was lost.
    """
    mantissa = sf.regexp_replace(number, "[eE].*", "")
    return sf.trim(sf.regexp_replace(mantissa, "[^0-9]", ""), sf.lit("0"))


def _check(path: Path, misfit: Misfit, unfit: Column) -> RowCheck:
    name = ".".join(path)
    if path == (UNPARSED,):
        return RowCheck("the text is a JSON object whose values the columns hold", unfit, misfit.action)
    if misfit.into is None:
        return RowCheck(f"the table has no column {name}", unfit, misfit.action, path[0])
    return RowCheck(f"{name} fits {misfit.into}", unfit, misfit.action, path[0])


def _struct_of(parts: list[tuple[str, Column]]) -> Column:
    """Return a struct of the parts, null where all of them are."""
    present = reduce(or_, (part.isNotNull() for _, part in parts))
    return sf.when(present, sf.struct(*(part.alias(name) for name, part in parts)))
