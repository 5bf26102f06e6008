"""A quarantine in a real REST catalog: rows that fail are in it once, whatever happens to it (R24, R34)."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

from streaming_sink import CatalogTable, Checks, IcebergSink, SchemaContract, replay
from streaming_sink.checks.quarantine_table import QUARANTINE_SCHEMA
from streaming_sink.errors import (
    CommitStateUnknownError,
    CorruptTableError,
    TableRenamedError,
    TableReplacedError,
)
from streaming_sink.replaying import replay as replaying
from streaming_sink.seconds import quarantine as seconds
from tests.servers.catalog_case import Case, tens
from tests.tiers import only_in_soak
from timeline import names
from timeline.catalogs import state_files
from timeline.catalogs.catalog_log import CatalogLog
from timeline.versions.outbox import mains_of, second_tables_of

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]

WEEK_SECONDS = 7 * 24 * 3600
CHECKS = Checks({"id % 10 < 8": "quarantine"})


class Pair:
    """A table and its quarantine, into which two of ten rows of each batch go."""

    def __init__(self, case: Case) -> None:
        self.case, self.name = case, f"{case.name}__quarantine"
        self.table = case.table.default_quarantine

    def sink(self, **options: Any) -> IcebergSink:
        return self.case.new_sink(**{"checks": CHECKS, **options})

    def land(self, number: int, sink: IcebergSink | None = None) -> Any:
        return self.case.land(number, sink or self.sink())

    def rejected(self, name: str | None = None) -> list[int]:
        """Return the ids of quarantined rows that wait, as Spark reads them."""
        select = (
            f"SELECT get_json_object(row, '$.id') FROM lake.{name or self.name} WHERE replayed_row_id IS NULL"
        )
        return sorted(int(row[0]) for row in self.case.sql.run(select))

    def files(self) -> list[str]:
        """Return the live files of the quarantine below its location."""
        at = self.table.open()
        return sorted(at.store.relative(file.location) for file in at.head.live_files())

    def age(self, name: str) -> None:
        """Make all files of a table a week old."""
        week_ago = time.time() - WEEK_SECONDS
        for file in (self.case.catalog.warehouse / name.replace(".", "/")).rglob("*"):
            os.utime(file, (week_ago, week_ago))

    def remove_orphans(self, *by_prefix: bool) -> None:
        """Have Spark delete whatever no snapshot names of both tables, by each way of listing."""
        for name in (self.case.name, self.name):
            self.age(name)
            for each in by_prefix:
                self.case.sql.run(
                    f"CALL lake.system.remove_orphan_files(table => '{name}', prefix_listing => {each})"
                )


@pytest.fixture
def pair(case: Case) -> Pair:
    return Pair(case)


def fails(*batches: int) -> list[int]:
    return [each for each in tens(*batches) if each % 10 >= 8]


def passes(*batches: int) -> list[int]:
    return [each for each in tens(*batches) if each % 10 < 8]


def cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process end between the main table's commit and the delivery."""

    def killed(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(seconds, "deliver", killed)


def test_rows_that_fail_are_in_the_quarantine_of_the_same_catalog(pair: Pair) -> None:
    sink = pair.sink()
    reports = [pair.land(number, sink) for number in range(3)]
    assert [report.quarantined for report in reports] == [2, 2, 2]
    assert pair.case.ids() == passes(0, 1, 2)
    assert pair.rejected() == fails(0, 1, 2)
    assert all(path.startswith(f"{names.OUTBOX_FOLDER}/") for path in pair.files())
    delivered = [it for it in sink.reports if hasattr(it, "main_table")]
    assert {(it.table, it.main_table) for it in delivered} <= {
        (pair.table.location, pair.case.table.location)
    }
    main, second = pair.case.table.open().head, pair.table.open().head
    uuids = str(main.metadata.table_uuid), str(second.metadata.table_uuid)
    assert second_tables_of(main.properties) == {f"catalog:{pair.name}": uuids[1]}
    assert mains_of(second.properties) == {uuids[0]: f"catalog:{pair.case.name}"}


def test_a_quarantine_may_have_another_name_and_a_name_with_dots(pair: Pair) -> None:
    own = CatalogTable(("db", f"odd.{pair.case.name}"), pair.case.catalog.properties)
    sink = IcebergSink(own, app_id="app", checks=CHECKS)
    pair.case.land(0, sink)
    assert own.default_quarantine.table == ("db", f"odd.{pair.case.name}__quarantine")
    assert len(list(own.default_quarantine.open().head.live_files())) == 1
    named = pair.sink(checks=Checks(CHECKS.expectations, quarantine=f"{pair.case.name}_bad"))
    pair.land(0, named)
    assert pair.rejected(f"{pair.case.name}_bad") == fails(0)


@pytest.mark.parametrize(
    ("fault", "by_prefix"),
    [
        pytest.param("none", (False, True), id="none-by both"),
        *(
            pytest.param(fault, (by_prefix,), id=f"{fault}-{how}", marks=only_in_soak)
            for fault in ("outbox in data", "state in data")
            for by_prefix, how in ((False, "by listing"), (True, "by prefix listing"))
        ),
    ],
)
def test_what_waits_for_its_delivery_is_out_of_reach_of_orphan_removal(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, by_prefix: tuple[bool, ...], fault: str
) -> None:
    """R34. A process dies after its commit, and a week later Spark removes whatever no snapshot names."""
    monkeypatch.setattr(state_files, "MOST_VALUE_BYTES", 300)  # so that the entry is in a state file
    if fault == "outbox in data":
        monkeypatch.setattr(CatalogLog, "outbox_folder", names.DATA_FOLDER)
    if fault == "state in data":
        monkeypatch.setattr(names, "STATE_FOLDER", "data/state")
        monkeypatch.setattr(
            names, "state_file_parts", lambda path: tuple(path.rpartition("/")[2][:-4].split("-"))
        )
    sink = pair.sink()
    pair.land(0, sink)
    with monkeypatch.context() as killed:
        cut_off(killed)
        with pytest.raises(KeyboardInterrupt):
            pair.land(1, sink)
    assert pair.rejected() == fails(0)
    pair.remove_orphans(*by_prefix)
    if fault == "state in data":
        with pytest.raises(CorruptTableError, match=r"streaming-sink\.outbox\.app does not exist"):
            pair.land(1)
        return
    assert pair.land(1).outcome == "skipped"
    if fault != "none":
        with pytest.raises(AssertionError, match="REFUSED"):
            pair.rejected()
        return
    assert pair.rejected() == fails(0, 1)
    pair.remove_orphans(*by_prefix)
    pair.land(2)
    assert pair.case.ids() == passes(0, 1, 2)
    assert pair.rejected() == fails(0, 1, 2)


def test_a_delivery_that_was_cut_off_is_completed_once_however_often_the_batch_comes(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        cut_off(killed)
        with pytest.raises(KeyboardInterrupt):
            pair.land(0)
    assert pair.case.ids() == passes(0)
    for _ in range(2):
        assert pair.land(0).outcome == "skipped"
        assert pair.rejected() == fails(0)
    pair.land(1)
    assert pair.rejected() == fails(0, 1)


def test_a_quarantine_that_was_dropped_is_made_again_and_the_stream_goes_on(pair: Pair) -> None:
    pair.land(0)
    pair.case.sql.run(f"DROP TABLE lake.{pair.name}")
    pair.land(1)
    assert pair.case.ids() == passes(0, 1)
    assert pair.rejected() == fails(1)


def test_a_quarantine_that_is_dropped_under_a_running_sink_gets_the_rows_that_come_after(pair: Pair) -> None:
    """A commit that names files for the dropped one would give them up."""
    sink = pair.sink()
    pair.land(0, sink)
    pair.case.sql.run(f"DROP TABLE lake.{pair.name}")
    pair.land(1, sink)
    assert pair.case.ids() == passes(0, 1)
    assert pair.rejected() == fails(1)


@pytest.mark.parametrize("is_running", [False, True])
def test_a_quarantine_that_was_renamed_is_named_and_nothing_is_lost(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, is_running: bool
) -> None:
    sink = pair.sink()
    pair.land(0, sink)
    with monkeypatch.context() as killed:
        cut_off(killed)
        with pytest.raises(KeyboardInterrupt):
            pair.land(1, sink)
    sink = sink if is_running else pair.sink()
    other = f"{pair.case.name}_other"
    pair.case.sql.run(f"ALTER TABLE lake.{pair.name} RENAME TO {other}")
    uuid = str(CatalogTable(other, pair.case.catalog.properties).open().head.metadata.table_uuid)
    if is_running:
        with pytest.raises(CommitStateUnknownError, match="was dropped while a commit to it was sent"):
            pair.land(2, sink)
    for _ in range(2):
        with pytest.raises(TableRenamedError, match=f"is .*:{other} by now, by its uuid {uuid}"):
            pair.land(2, sink if is_running else pair.sink())
    assert pair.case.ids() == passes(0, 1)
    named = pair.sink(checks=Checks(CHECKS.expectations, quarantine=other))
    pair.land(2, named)  # the uuid decides: what waits goes to the table of another name
    assert pair.rejected(other) == fails(0, 1, 2)
    assert pair.case.ids() == passes(0, 1, 2)


def test_a_quarantine_that_was_replaced_stops_the_stream_until_that_is_accepted(pair: Pair) -> None:
    pair.land(0)
    types = {"string": "STRING", "timestamptz": "TIMESTAMP", "long": "BIGINT"}
    columns = ", ".join(
        f"`{it.name}` {types[str(it.field_type)]}{' NOT NULL' if it.required else ''}"
        f" COMMENT {json.dumps(it.doc)}"
        for it in QUARANTINE_SCHEMA.fields
    )
    pair.case.sql.run(f"CREATE OR REPLACE TABLE lake.{pair.name} ({columns}) USING iceberg")
    with pytest.raises(TableReplacedError, match="was replaced since"):
        pair.land(1)
    pair.table.accept()
    pair.land(1)
    assert pair.case.ids() == passes(0, 1)
    assert pair.rejected() == fails(1)


def test_quarantined_rows_are_repaired_and_replayed_once(pair: Pair) -> None:
    pair.land(0)
    pair.land(1)
    options = replaying._USUAL
    for expected in (4, 0):
        reports = replay(pair.case.spark, pair.case.table, options=options, where="true")
        assert sum(report.rows for report in reports) == expected
    assert pair.case.ids() == tens(0, 1)


def test_values_that_do_not_fit_are_quarantined(pair: Pair) -> None:
    pair.land(0)
    sink = pair.sink(checks=None, contract=SchemaContract(mismatch="quarantine"))
    rows = pair.case.spark.range(10, 13).selectExpr("if(id = 11, 'eleven', string(id)) id", "'ours' by")
    assert sink(rows, 1).quarantined == 1
    assert pair.case.ids() == [*passes(0), 10, 12]
