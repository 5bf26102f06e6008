"""What the logs of a zone hold: entries of other versions are read, and plans without their files."""

from __future__ import annotations

import io
from copy import deepcopy

import fastavro
import pytest

from planners.ingestion.buffering import BufferedFile, PlannedItem
from streaming_sink.zones import records
from streaming_sink.zones.records import Plan, decode_plan, encode_plan, summarize_plan
from timeline.errors import CorruptTableError

FILES = tuple(BufferedFile(f"/drop/{at}.parquet", f"v{at}", 10 * at, 1_000 + at) for at in range(5))
PLAN = Plan(
    "01KB0000000000000000000000",
    "7",
    (PlannedItem(3, FILES[:2], "enough"), PlannedItem(4, FILES[2:], "late")),
)


def of_another_version(plan: Plan) -> bytes:
    """Return a plan as a version writes it that knows more of a file."""
    (value,) = fastavro.reader(io.BytesIO(encode_plan(plan)))
    schema = deepcopy(records._PLAN)
    file = schema["fields"][2]["type"]["items"]["fields"][2]["type"]["items"]
    file["fields"].append({"name": "note", "type": "string", "default": "new"})
    written = io.BytesIO()
    fastavro.writer(written, schema, [value])
    return written.getvalue()


@pytest.mark.parametrize("data", [encode_plan(PLAN), of_another_version(PLAN)], ids=["this", "another"])
def test_a_plan_is_read_as_it_was_written_by_this_version_or_another(data: bytes) -> None:
    assert decode_plan(data, "here") == PLAN
    assert [
        (item.number, item.why, item.files, item.bytes, item.claim_id)
        for item in summarize_plan(data, "here")
    ] == [(it.number, it.why, len(it.files), it.bytes, PLAN.claim_id(it)) for it in PLAN.items]


def test_bytes_that_are_no_plan_are_told() -> None:
    for damaged in (b"", encode_plan(PLAN)[:-40], b"Obj\x01" + bytes(50)):
        with pytest.raises(CorruptTableError, match="Restore it from a copy: here"):
            summarize_plan(damaged, "here")
