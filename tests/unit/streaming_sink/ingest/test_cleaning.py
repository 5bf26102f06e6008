"""A staged file is deleted only where it is known that its rows are in the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink import ingest
from streaming_sink.zones.cleaning import Cleaned, clean
from streaming_sink.zones.landed import Landed, write_landed
from streaming_sink.zones.planning.flux import Flux
from tests.unit.timeline.world import SCHEMA
from timeline.stores import LocalStore
from timeline.table import Table
from timeline.versions.work_items import WorkItem

LANDED = Landed(0, published_before=False, version=2, snapshot_id=7)


@pytest.mark.parametrize(
    ("note", "deletes"),
    [
        (LANDED, True),
        (replace(LANDED, snapshot_id=None), False),
        (replace(LANDED, rejected_in="rejected/gone.json"), False),
    ],
    ids=["what landed", "its snapshot has expired, and no worker noted it", "the reasons are lost"],
)
def test_a_staged_file_stays_where_it_may_have_been_rejected(
    tmp_path: Path, note: Landed, deletes: bool
) -> None:
    zone = ingest.BufferZone(str(tmp_path / "zone"), table=str(tmp_path / "table"))
    staged = tmp_path / "zone" / "staged" / "app" / "0.parquet"
    staged.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), staged)
    zone.announce(zone.find([str(staged)])[0])
    Flux(zone).plan(flush=True)
    table = Table.create(LocalStore(str(tmp_path / "table")), SCHEMA, store_is_checked=True)
    table.commit([], transaction=WorkItem(zone.app_id, 0))
    write_landed(zone.store, note)
    assert clean(zone, "0 seconds") == Cleaned(1, int(deletes))
    assert staged.exists() is not deletes
