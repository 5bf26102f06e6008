"""A clustering plan as an Avro file: the schema, and the way there and back.

A plan is plain data here: nested dicts and lists of strings, integers and booleans. Every record of the
schema ends in `extra`, a map from names to JSON text, which carries the keys that the schema does not know.
So a file of a newer version, with fields of its own, can be read and written again by an older one, and the
newer one finds its fields where they were. A new field needs a default; nothing that is here is ever renamed,
removed, or given another type.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Mapping
from struct import error as StructError  # noqa: N812
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException
from fastavro.validation import ValidationError, validate

SCHEMA_VERSION = 1
"""Raised by one with each new field. Readers go by the fields, never by this number; it is for people."""

Plan = dict[str, Any]


def _field(name: str, kind: Any, doc: str, **default: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "doc": doc, **default}


def _record(name: str, doc: str, *fields: dict[str, Any]) -> dict[str, Any]:
    extra = _field("extra", _map("string"), "Fields of newer versions: name to JSON text.", default={})
    return {"type": "record", "name": name, "doc": doc, "fields": [*fields, extra]}


def _map(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


_STRATEGY = _record(
    "Strategy",
    "What chose files, or rewrites a group's rows. A name that a registry knows: never an import path.",
    _field("name", "string", "Its registered name."),
    _field("parameters", _map("string"), "Its parameters by name."),
)
_GROUP = _record(
    "Group",
    "Files of one partition that are rewritten together: one task, one all-or-nothing replacement.",
    _field("inputs", _array("string"), "Locations of the files, as manifests spell them."),
    _field("partition", _array("string"), "The partition's values as text, for people."),
    _field("bytes", "long", "Size of the inputs together."),
    _field("rows", "long", "Rows of the inputs together."),
    _field("output_files", "long", "How many files the rows are expected to make."),
    _field("sort_by", _array("string"), "What the rows are ordered by; empty where files are only joined."),
    _field("strategy", "Strategy", "What rewrites the rows."),
    _field("remainder", "boolean", "The bytes are less than a whole number of target files."),
    _field("level", "long", "How often the rows will have been clustered."),
    _field("files_saved", "long", "The benefit: how many files fewer queries open."),
    _field("reasons", _array("string"), "Why these files, in words."),
)
_LEFT_OUT = _record(
    "LeftOut",
    "A file that the plan leaves alone.",
    _field("path", "string", "Its location."),
    _field("partition", _array("string"), "Its partition's values as text, for people."),
    _field("bytes", "long", "Its size."),
    _field("reason", "string", "Why, in words."),
)
_PLAN = _record(
    "Plan",
    "What one pass of clustering rewrites.",
    _field("planned_at", "long", "When it was planned, by the planner's measure of time."),
    _field("target_file_bytes", "long", "The size that output files aim at."),
    _field("selected_by", _array(_STRATEGY), "What chose the files."),
    _field("groups", _array(_GROUP), "The groups, most benefit per byte first."),
    _field(
        "left_out",
        _array(_LEFT_OUT),
        "Files that were considered and left alone; may be missing.",
        default=[],
    ),
)
SCHEMA = {
    **_record(
        "ClusteringPlan",
        "The instant `requested`: a plan of clustering, waiting to be carried out.",
        _field("schema_version", "int", "The version of this schema that the writer knew."),
        _field("plan_id", "string", "The plan's ULID, as in the file's name; its time is the table's."),
        _field("table_version", "long", "The version of the table that was planned on."),
        _field("plan", _PLAN, "The plan itself."),
    ),
    "namespace": "streaming_sink.timeline",
}
"""The Avro schema of a plan file."""

_NAMED = {"Strategy": _STRATEGY}
_PARSED = fastavro.parse_schema(SCHEMA)


class UnreadablePlanError(ValueError):
    """The bytes are no plan, or are another one's."""


def encode(plan_id: str, table_version: int, plan: Mapping[str, Any]) -> bytes:
    """Return the file of a plan. ValueError where the plan lacks a field of the schema, or has one of another
    type.
    """
    whole = {
        "schema_version": SCHEMA_VERSION,
        "plan_id": plan_id,
        "table_version": table_version,
        "plan": plan,
    }
    packed = _pack(whole, SCHEMA)
    _check(packed)
    written = io.BytesIO()
    # The marker between blocks is random if left out; the id's random half is that already, and replays.
    marker = plan_id[-16:].encode("ascii")
    fastavro.writer(written, _PARSED, [packed], codec="deflate", sync_marker=marker)
    return written.getvalue()


def decode(plan_id: str, data: bytes) -> Plan:
    """Return the plan that a file holds, with the fields of newer versions that it carries.

    UnreadablePlanError where the bytes are no plan of this id.
    """
    try:
        (whole,) = fastavro.reader(io.BytesIO(data))
        unpacked = _unpack(whole)
        _check(_pack(unpacked, SCHEMA))
    except _UNREADABLE as failure:
        raise UnreadablePlanError(
            f"{type(failure).__name__}: {' '.join(str(failure).split())[:200]}"
        ) from failure
    if unpacked["plan_id"] != plan_id:
        raise UnreadablePlanError(f"it is the plan {unpacked['plan_id']}")
    plan: Plan = unpacked["plan"]
    return plan


_UNREADABLE = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RecursionError, SchemaParseException,
    StructError, TypeError, ValueError, zlib.error,
)  # fmt: skip
"""What fastavro raises on bytes that are no Avro: whatever the step that met them does."""


def _pack(value: Any, kind: Any) -> Any:
    """Move the keys that the schema does not know into `extra`."""
    kind = _NAMED.get(kind, kind) if isinstance(kind, str) else kind
    if isinstance(kind, str) or kind["type"] == "map":
        return value
    if kind["type"] == "array":
        _check_type(value, list, "an array")
        return [_pack(item, kind["items"]) for item in value]
    _check_type(value, Mapping, f"a {kind['name']}")
    fields = [field for field in kind["fields"] if field["name"] != "extra"]
    if missing := [it["name"] for it in fields if it["name"] not in value and "default" not in it]:
        raise ValueError(f"the plan does not fit its schema: a {kind['name']} lacks {', '.join(missing)}")
    packed = {it["name"]: _pack(value[it["name"]], it["type"]) for it in fields if it["name"] in value}
    known = {field["name"] for field in fields}
    extra = {name: json.dumps(value[name], sort_keys=True) for name in value if name not in known}
    return {**packed, "extra": extra}


def _unpack(value: Any) -> Any:
    """Put what `extra` carries back beside the other keys. A map of strings has no dict under `extra`."""
    if isinstance(value, list):
        return [_unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {name: _unpack(item) for name, item in value.items()}
    extra = fields.get("extra")
    if isinstance(extra, dict):
        del fields["extra"]
        fields |= {name: json.loads(text) for name, text in extra.items()}
    return fields


def _check_type(value: Any, kind: type, called: str) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"the plan does not fit its schema: {called} is expected, not {value!r:.80}")


def _check(packed: Any) -> None:
    try:
        validate(packed, _PARSED)
    except ValidationError as failure:
        wrong = failure.errors[0]
        raise ValueError(f"the plan does not fit its schema: {wrong.field} is {wrong.datum!r:.80}") from None


__all__ = ["SCHEMA", "SCHEMA_VERSION", "Plan", "UnreadablePlanError", "decode", "encode"]
