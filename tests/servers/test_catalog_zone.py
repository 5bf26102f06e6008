"""Buffer zones over tables of a real REST catalog, whose staged items Spark may touch (R26, R27)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink import CatalogTable, ingest
from streaming_sink.errors import TableNotFoundError, TableRenamedError, UnsupportedTableError
from streaming_sink.zones import deciding
from streaming_sink.zones.ledger import Ledger
from streaming_sink.zones.status import status
from tests.servers.catalog_case import Case, tens
from tests.tiers import only_in_soak
from timeline import staging
from timeline.changes import staging_changes
from timeline.versions.staged import staged_items
from timeline.versions.work_items import discarded_items, published_items

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]


class Zone:
    """A zone over a table of a catalog, whose files have ten rows each."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder
        self._files = itertools.count()

    def open(self, table: CatalogTable | None = None, **given: Any) -> ingest.BufferZone:
        return ingest.BufferZone(str(self.folder / "zone"), table or self.case.table, **given)

    def push(self, zone: ingest.BufferZone) -> None:
        number = next(self._files)
        path = self.folder / "drop" / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        ids = pa.array(range(number * 10, number * 10 + 10), pa.int64())
        pq.write_table(pa.table({"id": ids, "by": ["ours"] * 10}), path)
        zone.push(str(path))

    def land(self, zone: ingest.BufferZone) -> list[ingest.Landed]:
        return ingest.run(self.case.spark, zone, available_now=True)

    def staged(self, zone: ingest.BufferZone) -> dict[int, int]:
        items = staged_items(self.case.loaded().metadata, zone.app_id)
        return {number: snapshot.snapshot_id for number, snapshot in items.items()}

    def published(self, zone: ingest.BufferZone) -> list[int]:
        head = self.case.table.open().head
        return [number for number in range(9) if number in published_items(head.properties, zone.app_id)]

    def audited(self, happens: Callable[[ingest.StagedItem], object]) -> ingest.BufferZone:
        """Return a zone in which something happens once, while its second item is staged."""
        self.audits: list[int] = []

        def look(item: ingest.StagedItem) -> None:
            self.audits.append(item.snapshot_id)
            if item.number == 1 and len(self.audits) == 2:
                happens(item)

        zone = self.open(audit=look)
        for _ in range(2):
            self.push(zone)
            self.land(zone)
        return zone


@pytest.fixture
def over(case: Case, tmp_path: Path) -> Zone:
    return Zone(case, tmp_path)


def test_files_land_and_the_zone_names_its_table_by_its_uuid(over: Zone) -> None:
    zone = over.open()
    for number in range(2):
        over.push(zone)
        (landed,) = over.land(zone)
        assert (landed.number, landed.rows, landed.published_before) == (number, 10, False)
        assert landed.version == over.case.table.open().head.number
    assert over.case.ids() == tens(0, 1)
    assert over.published(zone) == [0, 1]
    assert status(zone).table == over.case.table.location
    assert [entry.state for entry in Ledger(zone).entries()] == ["landed", "landed"]
    stored = json.loads(max((over.folder / "zone" / "definition").iterdir()).read_text())
    assert stored["table"] == f"catalog:{over.case.name}"
    loaded = over.case.loaded()
    assert stored["catalog"]["uuid"] == str(loaded.metadata.table_uuid)
    assert stored["catalog"]["name"] == ""
    assert over.case.catalog.uri not in json.dumps(stored)
    with pytest.raises(ValueError, match="source files lie outside of the table"):
        zone.push(f"{stored['catalog']['location']}/data/a.parquet")


def test_a_catalog_that_was_given_by_its_properties_is_given_again_and_one_by_its_name_is_not(
    over: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    over.push(over.open())
    place = str(over.folder / "zone")
    with pytest.raises(ValueError, match="give it again, as BufferZone"):
        over.land(ingest.BufferZone(place))
    for key, value in over.case.catalog.properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{key.upper()}", value)
    assert over.open(CatalogTable(over.case.name, "lake")).definition.catalog["name"] == "lake"
    over.land(ingest.BufferZone(place))
    assert over.case.ids() == tens(0)
    with pytest.raises(
        ValueError, match=f"is for the table catalog:{over.case.name}, and this is catalog:db.x"
    ):
        over.land(over.open(CatalogTable("db.x", "lake")))


def test_audited_items_are_published_once_and_outlive_an_expiry_while_they_are_staged(over: Zone) -> None:
    later = "TIMESTAMP '2100-01-01 00:00:00'"

    def expire(_: Any) -> None:
        over.case.do(
            f"CALL lake.system.expire_snapshots(table => '{{name}}', retain_last => 1, older_than => {later})"
        )

    zone = over.audited(expire)
    assert over.case.ids() == tens(0, 1)
    assert over.published(zone) == [0, 1]
    assert over.staged(zone) == {}
    assert len(over.audits) == 2


@pytest.mark.parametrize(
    ("how", "fault"),
    [
        ("cherrypick_snapshot", "none"),
        ("cherrypick_snapshot", "picks are not looked for"),
        ("set_current_snapshot", "none"),
        pytest.param("set_current_snapshot", "picks are not looked for", marks=only_in_soak),
    ],
)
def test_an_item_that_spark_has_brought_to_main_is_not_appended_again(
    over: Zone, monkeypatch: pytest.MonkeyPatch, how: str, fault: str
) -> None:
    if fault != "none":
        for module in (staging, staging_changes):
            monkeypatch.setattr(module, "find_picked", lambda *_: None)
    call = f"CALL lake.system.{how}('{{name}}', %d)"
    zone = over.audited(lambda item: over.case.do(call % item.snapshot_id))
    assert over.case.ids() == sorted(tens(0, 1) if fault == "none" else tens(0, 1, 1))
    assert over.published(zone) == [0, 1]
    assert over.staged(zone) == {}
    over.push(zone)
    over.land(zone)
    assert over.case.ids() == sorted(tens(0, 1, 2) if fault == "none" else tens(0, 1, 1, 2))


def test_spark_cannot_publish_an_item_by_its_id(over: Zone) -> None:
    def publish(item: ingest.StagedItem) -> None:
        with pytest.raises(AssertionError, match=r"REFUSED.*Cannot apply unknown WAP ID"):
            over.case.do(f"CALL lake.system.publish_changes('{{name}}', '{zone_id()}-{item.number}')")

    def zone_id() -> str:
        return over.open().app_id

    over.audited(publish)
    assert len(over.audits) == 2
    assert over.case.ids() == tens(0, 1)


def test_a_tag_that_spark_has_removed_is_written_anew(over: Zone) -> None:
    def drop(_: Any) -> None:
        (tag,) = (name for name in over.case.loaded().metadata.refs if name.startswith("wap-"))
        over.case.do(f"ALTER TABLE {{t}} DROP TAG `{tag}`")

    zone = over.audited(drop)
    assert len(over.audits) == 3
    assert over.case.ids() == tens(0, 1)
    assert over.staged(zone) == {}


def test_an_item_that_is_discarded_moves_main_and_never_lands(over: Zone) -> None:
    def fail(item: ingest.StagedItem) -> bool:
        return item.number != 1

    zone = over.open(audit=fail)
    for _ in range(2):
        over.push(zone)
        over.land(zone)
    assert over.case.ids() == tens(0)
    assert list(over.staged(zone)) == [1]
    main = over.case.loaded().metadata.current_snapshot_id
    deciding.discard(zone, 1)
    assert over.case.loaded().metadata.current_snapshot_id != main
    head = over.case.table.open().head
    assert 1 in discarded_items(head.properties, zone.app_id)
    assert over.land(zone) == []
    assert over.case.ids() == tens(0)


def test_an_operator_who_publishes_a_held_item_that_spark_has_picked_settles_it(over: Zone) -> None:
    zone = over.open(audit=lambda item: item.number != 1)
    for _ in range(2):
        over.push(zone)
        over.land(zone)
    over.case.do(f"CALL lake.system.cherrypick_snapshot('{{name}}', {over.staged(zone)[1]})")
    deciding.publish(zone, 1)
    assert over.case.ids() == tens(0, 1)
    assert over.published(zone) == [0, 1]


def test_a_zone_stays_with_its_table_by_its_uuid(over: Zone) -> None:
    zone = over.open()
    over.push(zone)
    over.land(zone)
    over.push(zone)
    other = f"{over.case.name}_other"
    over.case.do(f"ALTER TABLE {{t}} RENAME TO {other}")
    with pytest.raises(TableRenamedError, match=f"is .*:{other} by now, by its uuid"):
        over.land(over.open())
    over.case.do("CREATE TABLE {t} (id BIGINT, by STRING) USING iceberg")
    with pytest.raises(UnsupportedTableError, match=f"has the folder of {other}, which had its name once"):
        over.land(over.open())
    over.case.do("DROP TABLE {t}")
    over.case.do(f"ALTER TABLE lake.{other} RENAME TO {{name}}")
    over.land(over.open())
    assert over.case.ids() == tens(0, 1)
    over.push(zone)
    over.case.do("DROP TABLE {t}")
    for _ in range(2):
        with pytest.raises(TableNotFoundError, match="was dropped: its uuid was"):
            over.land(over.open())
        over.case.do("CREATE TABLE IF NOT EXISTS {t} (id BIGINT, by STRING) USING iceberg")
    assert over.case.ids() == []


def test_files_by_reference_are_refused(over: Zone) -> None:
    sources = ingest.SourceFolders((str(over.folder),), by_reference=True)
    with pytest.raises(ValueError, match="files by reference are not offered for a table in a catalog"):
        over.push(over.open(sources=sources))
