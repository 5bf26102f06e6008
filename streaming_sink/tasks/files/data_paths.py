"""Paths of new data files below the table's location: `data/<partition>/<name>`, or below another folder."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from hashlib import sha1
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa

from planners.model import PartitionKey
from streaming_sink.tasks.job import PartitionSource, WorkerJob
from streaming_sink.tasks.partitioning import source_type
from timeline.clock import SYSTEM

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LONGEST_NAME = 200
"""File systems take 255 bytes."""


def new_data_path(job: WorkerJob, partition: PartitionKey, name: Callable[[str], str]) -> str:
    """Return the path of a new data file; `name` makes its last part of a fresh file id.

    The id's time is the driver's (R6), its random bits are this process's own.
    """
    folder = partition_path(partition, job.partition_by, job.schema)
    file_id = SYSTEM.new_id(job.ids.time_ms)
    return "/".join(part for part in (job.folder, folder, name(file_id)) if part)


def partition_path(key: PartitionKey, fields: Sequence[PartitionSource], schema: pa.Schema) -> str:
    """Return the folder of a partition below `data/`, as Hive and Iceberg spell it: `name=value/…`, "" for no
    fields.

    Engines never read values from it. A name too long for a file system is truncated and ends in its hash.
    """
    parts = []
    for value, field in zip(key, fields, strict=True):
        kind = source_type(schema, field.source)
        text = "null" if value is None else _value_text(value, field.transform, kind)
        part = f"{quote_plus(field.name, safe='')}={quote_plus(text, safe='')}"
        if len(part) > _LONGEST_NAME:
            part = part[: _LONGEST_NAME - 41] + "~" + sha1(part.encode()).hexdigest()
        parts.append(part)
    return "/".join(parts)


def _value_text(value: Any, transform: str, kind: pa.DataType) -> str:
    try:
        return _format_value(value, transform, kind)
    except (OverflowError, ValueError):  # years beyond 9999 and before 1, which Iceberg has and Python lacks
        return str(value)


def _format_value(value: Any, transform: str, kind: pa.DataType) -> str:
    if transform == "year":
        return f"{1970 + value:04}"
    if transform == "month":
        return f"{1970 + value // 12:04}-{value % 12 + 1:02}"
    if transform == "hour":
        return (_EPOCH + timedelta(hours=value)).strftime("%Y-%m-%d-%H")
    if transform == "day" or (transform == "identity" and pa.types.is_date32(kind)):
        return (_EPOCH + timedelta(days=value)).date().isoformat()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if transform == "identity" and pa.types.is_time64(kind):
        return (_EPOCH + timedelta(microseconds=value)).time().isoformat()
    if transform == "identity" and pa.types.is_timestamp(kind):
        at = _EPOCH + timedelta(microseconds=value)
        return (at if kind.tz else at.replace(tzinfo=None)).isoformat()
    return str(value)
