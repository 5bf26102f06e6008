"""What the logs of a buffer zone hold, as Avro: announcements of source files, and plans of work items."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import fastavro

from planners.ingestion.buffering import BufferedFile, PlannedItem
from timeline import names
from timeline.errors import CorruptTableError

KIND = "consolidation"
"""The kind of the plans that workers execute: it names the folder of their claims."""


def _field(name: str, kind: Any, doc: str = "") -> dict[str, Any]:
    return {"name": name, "type": kind, "doc": doc}


def _record(name: str, doc: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "doc": doc, "fields": list(fields)}


def _many(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


_FILE = _record(
    "SourceFile",
    "One version of a file that a producer announced.",
    _field("path", "string", "Absolute."),
    _field("identity", "string", "Changes with the file's bytes: an ETag, or size and time on a disk."),
    _field("bytes", "long"),
    _field("arrived_ms", "long", "When it was announced, by the producer's clock."),
    _field("format", "string", "Such as parquet."),
    _field("partition", "string", "What the producer says of its partition; may be empty."),
)
_ANNOUNCEMENT = fastavro.parse_schema(
    _record(
        "Announcement",
        "Files that wait in the buffer zone. Announcing a file twice changes nothing.",
        _field("id", "string", "A ULID, of this announcement alone."),
        _field("files", _many(_FILE)),
    )
)
_PLAN = fastavro.parse_schema(
    _record(
        "ConsolidationPlan",
        "Work items, recorded before a worker sees them.",
        _field("id", "string", "A ULID, of this plan alone."),
        _field("position", "string", "Where a planner that starts anew begins to read announcements."),
        _field(
            "items",
            _many(
                _record(
                    "WorkItem",
                    "Files that land together, once.",
                    _field("number", "long", "Counts from 0, without gaps over all plans."),
                    _field("why", "string", "Why it was planned when it was, in words."),
                    _field("files", _many(_FILE)),
                )
            ),
        ),
    )
)


MARK_BYTES = 16
"""Of a plan's id, at its end; the bytes of the plan end with them."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of files that a producer announced."""

    files: int
    bytes: int
    missing: tuple[str, ...] = ()
    """Names of which there is no file; nothing was announced of them."""
    left_out: tuple[str, ...] = ()
    """Files of a folder that are hidden, symbolic links, or of no known format; nothing was announced of
    them. Hidden files of no known format, which are marks and checksums, are not among them.
    """


@dataclass(frozen=True, slots=True)
class Plan:
    """The work items of one entry of the plan log."""

    id: str
    """A ULID; its time is the planner's clock."""
    position: str
    items: tuple[PlannedItem, ...]

    def claim_id(self, item: PlannedItem) -> str:
        """Return the id under which workers claim an item."""
        return _claim_id(self.id, item.number)


@dataclass(frozen=True, slots=True)
class ItemSummary:
    """A work item of a plan, without its files."""

    number: int
    why: str
    files: int
    bytes: int
    claim_id: str


def _claim_id(plan_id: str, number: int) -> str:
    return names.plan_id(KIND, names.ulid(names.ulid_time_ms(plan_id), number))


def item_of_claim(claim_id: str) -> int:
    """Return the number of the work item that a claim's id names; the inverse of `Plan.claim_id`."""
    return names.ulid_random_bits(names.plan_ulid(claim_id))


def encode_announcement(announcement_id: str, files: Iterable[BufferedFile]) -> bytes:
    return _encode(_ANNOUNCEMENT, {"id": announcement_id, "files": [_to_record(file) for file in files]})


def decode_announcement(data: bytes, where: str) -> list[BufferedFile]:
    """Return the files of an announcement. CorruptTableError, which names `where`, for other bytes."""
    return [BufferedFile(**file) for file in _decode(_ANNOUNCEMENT, data, where)["files"]]


def encode_plan(plan: Plan) -> bytes:
    items = [
        {"number": item.number, "why": item.why, "files": [_to_record(file) for file in item.files]}
        for item in plan.items
    ]
    return _encode(_PLAN, {"id": plan.id, "position": plan.position, "items": items})


def decode_plan(data: bytes, where: str) -> Plan:
    """Return a plan. CorruptTableError, which names `where`, for other bytes."""
    stored = _decode(_PLAN, data, where)
    return Plan(
        stored["id"],
        stored["position"],
        tuple(
            PlannedItem(item["number"], tuple(BufferedFile(**file) for file in item["files"]), item["why"])
            for item in stored["items"]
        ),
    )


def summarize_plan(data: bytes, where: str) -> list[ItemSummary]:
    """Return the work items of a plan without their files, in less time and memory than `decode_plan` takes.
    Raises as that.
    """
    stored = _decode(_PLAN, data, where)
    return [
        ItemSummary(
            item["number"],
            item["why"],
            len(item["files"]),
            sum(file["bytes"] for file in item["files"]),
            _claim_id(stored["id"], item["number"]),
        )
        for item in stored["items"]
    ]


def mark_of(plan: Plan) -> str:
    """Return what the bytes of a plan end with, and those of no other plan: the random half of its id."""
    return plan.id[-MARK_BYTES:]


def ends_with_mark(data: bytes, mark: str) -> bool:
    """Return whether these are the bytes of the plan with a mark, without decoding them."""
    return data.endswith(mark.encode("ascii"))


def _to_record(file: BufferedFile) -> dict[str, Any]:
    return {each["name"]: getattr(file, each["name"]) for each in _FILE["fields"]}


def _encode(schema: Any, value: dict[str, Any]) -> bytes:
    written = io.BytesIO()
    # The marker after each block is random by default. The id's random half makes it the same in a replay,
    # and names the plan (`mark_of`).
    marker = value["id"][-MARK_BYTES:].encode("ascii")
    fastavro.writer(written, schema, [value], codec="deflate", sync_marker=marker)
    return written.getvalue()


def _as_written(schema: Any) -> str:
    """Return a schema as the files that are written under it state it."""
    empty = io.BytesIO()
    fastavro.writer(empty, schema, [])
    return str(fastavro.reader(io.BytesIO(empty.getvalue())).metadata["avro.schema"])


_SCHEMAS: tuple[Any, ...] = (_ANNOUNCEMENT, _PLAN)
_AS_WRITTEN = {schema["name"]: _as_written(schema) for schema in _SCHEMAS}


def _decode(schema: Any, data: bytes, where: str) -> dict[str, Any]:
    try:
        entry = fastavro.reader(io.BytesIO(data))
        # To resolve a schema against an equal one takes longer than all else: 24 of 52 ms for 10,000 files.
        if entry.metadata["avro.schema"] != _AS_WRITTEN[schema["name"]]:
            entry = fastavro.reader(io.BytesIO(data), schema)
        (value,) = entry
    except Exception as failure:
        raise CorruptTableError(
            f"an entry of the buffer zone cannot be read, so which files wait is not known; nothing was"
            f" changed. Restore it from a copy: {where}: {failure}",
            files=[where],
        ) from failure
    assert isinstance(value, dict)
    return value
