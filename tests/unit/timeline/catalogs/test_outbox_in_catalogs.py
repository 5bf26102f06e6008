"""An outbox between two tables of one catalog: they know each other by name and uuid (R24, R34)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record

from tests.unit.timeline.logs.kinds import ARROW, LANDED, NOT_LANDED, Answers, CatalogKind
from tests.unit.timeline.world import BY_P, SCHEMA, data_file
from timeline import names
from timeline.catalogs import state_files
from timeline.catalogs.opening import create_in_catalog, open_in_catalog
from timeline.changes.changes import Append
from timeline.changes.outbox_changes import PutOutbox
from timeline.errors import CommitConflictError, TableNotFoundError
from timeline.maintenance.orphans import remove_orphan_files
from timeline.outbox import Outcome, deliver, register_main, retire_main
from timeline.stores import LocalStore
from timeline.table import Table
from timeline.versions.outbox import Delivery, identifier_of, mains_of, second_tables_of

APP = "flights"
SECOND = ("lake", "odd.name")


class Pair:
    """A main table and a second one in one catalog."""

    def __init__(self, kind: CatalogKind) -> None:
        self.kind, self.main = kind, kind.create()
        self.second = create_in_catalog(
            kind._catalog(kind.answers), SECOND, LocalStore, SCHEMA, BY_P, {},
            environment=kind._environment(),
        )  # fmt: skip
        register_main(self.second, self.main)

    def open_table(self, address: str) -> Table:
        identifier = identifier_of(address)
        assert identifier is not None
        catalog = self.kind._catalog(Answers())
        return open_in_catalog(catalog, identifier, LocalStore, self.kind._environment())

    def open_second(self) -> Table:
        return self.open_table(self.second.log.address)

    def file(self, rows: list[int]) -> DataFile:
        """Write a file of rows that do not fit, where it waits for its delivery."""
        second = self.second
        file_id = names.ulid(self.kind.clock.now_ms, rows[0])
        path = f"{second.log.outbox_folder}/{names.data_file_name(file_id, APP, 0, 0, 0)}"
        with second.store.open_output(path) as output:
            pq.write_table(
                pa.table({"id": rows, "p": [0] * len(rows)}, schema=ARROW), pa.PythonFile(output, mode="w")
            )
        size = len(second.store.read(path).data)
        written = data_file(second.store.uri(path), len(rows), partition=Record(0), size=size)
        written._data[10] = written._data[11] = None
        return written

    def put(self, *files: DataFile, delivered: int | None = None) -> None:
        head = self.second.head
        delivery = Delivery(self.second.log.address, str(head.metadata.table_uuid), 0, files)
        new = self.kind.file([1])
        self.main.commit([Append((new,)), PutOutbox(APP, (delivery,), delivered)])

    def deliver(self) -> list[Outcome]:
        return [each.outcome for each in deliver(self.main, APP, self.open_table)]

    def second_rows(self) -> list[int]:
        scan = self.kind.beside().load_table(SECOND).scan()
        return sorted(scan.to_arrow()["id"].to_pylist())


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    kind = CatalogKind(tmp_path)
    kind.clock.now_ms = int(time.time() * 1000)  # pyiceberg's own commits have this machine's time
    yield Pair(kind)
    kind.close()


def test_they_name_each_other_by_identifier_and_uuid(pair: Pair) -> None:
    pair.put(pair.file([7]))
    uuids = str(pair.main.head.metadata.table_uuid), str(pair.second.head.metadata.table_uuid)
    assert second_tables_of(pair.main.head.properties) == {"catalog:lake.odd%2Ename": uuids[1]}
    assert mains_of(pair.open_second().head.properties) == {uuids[0]: "catalog:lake.table"}
    before = pair.second.head
    register_main(pair.second, pair.main)
    assert pair.second.head is before
    with pytest.raises(ValueError, match="cannot be its own second table"):
        register_main(pair.main, pair.kind.open())


@pytest.mark.parametrize("answer", [LANDED, NOT_LANDED])
def test_a_delivery_whose_answer_is_lost_adds_its_rows_once(pair: Pair, answer: str) -> None:
    pair.kind.answers.append(answer)
    pair.put(pair.file([7, 8]))
    assert pair.kind.rows() == [1]
    assert pair.deliver() == [Outcome.DELIVERED]
    assert pair.deliver() == [Outcome.DELIVERED_BEFORE]
    assert pair.second_rows() == [7, 8]
    with pytest.raises(CommitConflictError, match="left files to deliver"):
        pair.put(pair.file([9]))


@pytest.mark.parametrize("long", [False, True], ids=["in a property", "in a state file"])
def test_what_waits_stays_when_orphans_are_removed_and_what_nothing_names_leaves(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, long: bool
) -> None:
    if long:
        monkeypatch.setattr(state_files, "MOST_VALUE_BYTES", 100)
    lost = pair.file([99])
    pair.put(pair.file([7, 8]))
    pair.kind.clock.now_ms += timedelta(days=7) // timedelta(milliseconds=1)
    pair.main.commit([])  # by which the table's time goes on
    pair.second.commit([])
    for table in (pair.open_second(), pair.kind.open()):
        remove_orphan_files(table, open_table=pair.open_table)
    left = {each.path for each in pair.second.store.list_below(names.OUTBOX_FOLDER)}
    assert pair.second.store.relative(lost.file_path) not in left
    assert len(left) == 1
    assert bool(list(pair.main.store.list_below(names.STATE_FOLDER))) == long
    pair.main = pair.kind.open()  # as a process that starts anew reads it
    assert pair.deliver() == [Outcome.DELIVERED]
    assert pair.second_rows() == [7, 8]
    remove_orphan_files(pair.open_second(), open_table=pair.open_table)
    assert pair.second_rows() == [7, 8]


def test_a_second_table_that_was_dropped_is_missing_and_one_in_its_place_gets_nothing(pair: Pair) -> None:
    pair.put(pair.file([7]))
    pair.kind.beside().drop_table(SECOND)
    with pytest.raises(TableNotFoundError, match="1 rows of application 'flights' wait"):
        pair.deliver()
    pair.kind.beside().create_table(SECOND, SCHEMA)
    assert pair.deliver() == [Outcome.UNDELIVERABLE]
    assert pair.second_rows() == []


def test_a_main_table_that_was_dropped_is_retired(pair: Pair) -> None:
    uuid = str(pair.main.head.metadata.table_uuid)
    with pytest.raises(ValueError, match="the table is there"):
        retire_main(pair.second, uuid, pair.open_table)
    pair.kind.beside().drop_table(("lake", "table"))
    retire_main(pair.second, uuid, pair.open_table)
    assert mains_of(pair.open_second().head.properties) == {uuid: None}
