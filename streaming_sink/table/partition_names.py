"""A table's partitions as people know them: by the names of their folders."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from datetime import date
from typing import Any
from urllib.parse import quote, unquote_plus

from pyiceberg.partitioning import PartitionField
from pyiceberg.types import BooleanType, DateType, IntegerType, LongType, StringType

from planners.model import TablePartition
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.spec import partition_sources
from streaming_sink.tasks.files.data_paths import partition_path
from timeline.versions.head import Head

Spell = Callable[[TablePartition], tuple[str, ...]]


def speller(head: Head) -> Spell:
    """Return what spells partitions of a table as ("region=eu", "day=2026-01-01"): the names of their
    folders, read as URLs are. () where a spec has no fields.
    """
    schema, specs = arrow_schema(head.schema), head.metadata.specs()
    sources = {number: partition_sources(head.schema, spec) for number, spec in specs.items()}

    def spell(partition: TablePartition) -> tuple[str, ...]:
        path = partition_path(partition.values, sources[partition.spec_id], schema)
        return tuple(unquote_plus(part) for part in path.split("/") if part)

    return spell


def as_terms(partition: Sequence[str]) -> tuple[str, ...]:
    """Return a spelled partition as the terms of a filter: what has a meaning there is escaped as in URLs."""
    return tuple(_END_SPACES.sub(_escaped, _MEANING.sub(_escaped, part)) for part in partition)


_MEANING = re.compile(r"[%+,]")
_END_SPACES = re.compile(r"^\s+|\s+$|\s+(?==)|(?<==)\s+")


def _escaped(found: re.Match[str]) -> str:
    return quote(found.group(), safe="")


def values_of(head: Head, field: PartitionField, named: Collection[str]) -> Collection[Any] | None:
    """Return the values of a partition field whose folders may have one of these names, "day=2026-01-01", and
    maybe others; None where that is not known.
    """
    try:
        kind = field.transform.result_type(head.schema.find_field(field.source_id).field_type)
    except ValueError:  # another engine has dropped the column
        return None
    texts = [each.partition("=")[2] for each in named]
    if any("~" in text for text in texts):  # it may be the end of a name that was cut off
        return None
    nulls = [None for text in texts if text == "null"]
    if isinstance(kind, StringType):
        return [*texts, *nulls]
    if isinstance(kind, BooleanType):
        return [True, False, *nulls]
    if isinstance(kind, IntegerType | LongType | DateType):
        return [value for text in texts for value in _integers(text)] + nulls
    return None


_EPOCH = date(1970, 1, 1)
_TIME = re.compile(r"^(-?[0-9]+)-([0-9]{2})(?:-([0-9]{2})(?:-([0-9]{2}))?)?$")


def _integers(text: str) -> Iterator[int]:
    """Yield the numbers that a text may spell: itself; a year, month, day or hour as counted from 1970."""
    if text.lstrip("-").isdecimal():
        yield from (int(text), int(text) - _EPOCH.year)
    if (time := _TIME.match(text)) is None:
        return
    year, month, day, hour = (int(part or 0) for part in time.groups())
    if time[3] is None:
        yield (year - _EPOCH.year) * 12 + month - 1
        return
    with suppress(ValueError):  # no such day
        days = (date(year, month, day) - _EPOCH).days
        yield days if time[4] is None else days * 24 + hour
