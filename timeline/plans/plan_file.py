"""The Avro file of a plan, of any kind: builders of schemas, and encoding and decoding of plans.

A plan is plain data here: nested dicts and lists of strings, integers and booleans. Every record of a schema
ends in `extra`, a map from names to JSON text, which carries the keys that the schema does not know. So an
older version can read and rewrite a file of a newer one, and the newer one finds its own fields again. A new
field needs a default; no existing field is ever renamed, removed, or given another type.
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

from timeline import names

Plan = dict[str, Any]

STRINGS = {"type": "array", "items": "string"}
TEXTS = {"type": "map", "values": "string"}


def field(name: str, kind: Any, doc: str, **default: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "doc": doc, **default}


def array_of(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def record(name: str, doc: str, *fields: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a record, with `extra` for the fields of newer versions."""
    extra = field("extra", TEXTS, "Fields of newer versions: name to JSON text.", default={})
    return {"type": "record", "name": name, "doc": doc, "fields": [*fields, extra]}


class UnreadablePlanError(ValueError):
    """The bytes are no plan, or are another plan's."""


class PlanSchema:
    """The schema of one kind's plan files, and the way to bytes and back.

    `name` and `doc` are those of the outer record; `plan` is the record of the plan itself. `version` counts
    the fields that were added since. It is for people: readers look at the fields.
    """

    def __init__(self, name: str, doc: str, plan: dict[str, Any], *, version: int = 1) -> None:
        self.version = version
        self.avro = {
            **record(
                name,
                doc,
                field("schema_version", "int", "The version of this schema that the writer knew."),
                field(
                    "plan_id", "string", "The plan's ULID, as in the file's name; its time is the table's."
                ),
                field("table_version", "long", "The version of the table that was planned on."),
                field("plan", plan, "The plan itself."),
            ),
            "namespace": "streaming_sink.timeline",
        }
        self._records = _records_by_name(self.avro)
        self._parsed = fastavro.parse_schema(self.avro)

    def encode(self, plan_id: str, table_version: int, plan: Mapping[str, Any]) -> bytes:
        """Return the file of a plan. ValueError where the plan lacks a field of the schema, or has one of
        another type.
        """
        whole = {
            "schema_version": self.version,
            "plan_id": plan_id,
            "table_version": table_version,
            "plan": plan,
        }
        packed = self._pack(whole, self.avro)
        self._check(packed)
        written = io.BytesIO()
        # The marker between blocks is random by default. The id's random half makes it the same in a replay.
        marker = names.plan_ulid(plan_id)[-16:].encode("ascii")
        fastavro.writer(written, self._parsed, [packed], codec="deflate", sync_marker=marker)
        return written.getvalue()

    def decode(self, plan_id: str, data: bytes) -> Plan:
        """Return the plan that a file holds, with the fields of newer versions that it carries.

        UnreadablePlanError where the bytes are no plan of this id.
        """
        try:
            (whole,) = fastavro.reader(io.BytesIO(data))
            unpacked = _unpack(whole)
            self._check(self._pack(unpacked, self.avro))
        except _UNREADABLE as failure:
            raise UnreadablePlanError(
                f"{type(failure).__name__}: {' '.join(str(failure).split())[:200]}"
            ) from failure
        if unpacked["plan_id"] != plan_id:
            raise UnreadablePlanError(f"it is the plan {unpacked['plan_id']}")
        plan: Plan = unpacked["plan"]
        return plan

    def _pack(self, value: Any, kind: Any) -> Any:
        """Move the keys that the schema does not know into `extra`."""
        kind = self._records.get(kind, kind) if isinstance(kind, str) else kind
        if isinstance(kind, str) or kind["type"] == "map":
            return value
        if kind["type"] == "array":
            _check_type(value, list, "an array")
            return [self._pack(item, kind["items"]) for item in value]
        _check_type(value, Mapping, f"a {kind['name']}")
        fields = [it for it in kind["fields"] if it["name"] != "extra"]
        if missing := [it["name"] for it in fields if it["name"] not in value and "default" not in it]:
            raise ValueError(f"the plan does not fit its schema: a {kind['name']} lacks {', '.join(missing)}")
        packed = {
            it["name"]: self._pack(value[it["name"]], it["type"]) for it in fields if it["name"] in value
        }
        known = {it["name"] for it in fields}
        extra = {name: json.dumps(value[name], sort_keys=True) for name in value if name not in known}
        return {**packed, "extra": extra}

    def _check(self, packed: Any) -> None:
        try:
            validate(packed, self._parsed)
        except ValidationError as failure:
            wrong = failure.errors[0]
            message = f"the plan does not fit its schema: {wrong.field} is {wrong.datum!r:.80}"
            raise ValueError(message) from None


_UNREADABLE = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RecursionError, SchemaParseException,
    StructError, TypeError, ValueError, zlib.error,
)  # fmt: skip
"""What fastavro raises on bytes that are no Avro: the errors of each step that may meet them."""


def _records_by_name(schema: Any) -> dict[str, Any]:
    """Return the records of a schema, which names each again where it occurs a second time."""
    if isinstance(schema, list):
        return {name: it for item in schema for name, it in _records_by_name(item).items()}
    if not isinstance(schema, dict):
        return {}
    inner = {name: it for value in schema.values() for name, it in _records_by_name(value).items()}
    return {**inner, schema["name"]: schema} if schema.get("type") == "record" else inner


def _unpack(value: Any) -> Any:
    """Merge what `extra` carries with the other keys. A map of strings has no dict under `extra`."""
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


def _check_type(value: Any, kind: type, expected: str) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"the plan does not fit its schema: {expected} is expected, not {value!r:.80}")
