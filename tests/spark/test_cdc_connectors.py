"""The order of changes by the position of each connector of Debezium: which tie, and what decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streaming_sink import cdc
from streaming_sink.tasks.rows.failures import UNREADABLE
from tests.spark.envelopes import MYSQL, POSTGRESQL, TRANSACTION, envelope, parsed
from timeline.errors import SchemaMismatchError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SQL_SERVER = "struct<change_lsn: string, commit_lsn: string, event_serial_no: bigint>"
ORACLE = "struct<scn: string, commit_scn: string, rs_id: string, ssn: bigint>"
INFORMIX = "struct<commit_lsn: string, change_lsn: string>"
MONGODB = "struct<ts_ms: bigint, ord: int, txnNumber: bigint, lsid: string>"
SPANNER = "struct<ts_us: bigint, sequence: string, mod_number: int>"
VITESS = "struct<vgtid: string>"
VITESS_TRANSACTION = (
    "struct<id: string, total_order: bigint, transaction_rank: string, transaction_epoch: int>"
)


def _binlog(file: str, pos: int, row: int = 0) -> dict[str, Any]:
    return {"file": file, "pos": pos, "row": row}


def _wal(commit: Any, lsn: Any) -> dict[str, Any]:
    text = "null" if commit is None else f'"{commit}"'
    return {"lsn": lsn, "sequence": f'[{text},"{lsn}"]'}


def _logminer(commit: int | None, scn: int, rs_id: str | None) -> dict[str, Any]:
    return {"scn": str(scn), "commit_scn": None if commit is None else str(commit), "rs_id": rs_id, "ssn": 0}


def _lsn(commit: str, change: str | None, serial: int | None = 1) -> dict[str, Any]:
    return {"commit_lsn": commit, "change_lsn": change, "event_serial_no": serial}


def _order(number: int, **more: Any) -> dict[str, Any]:
    return {"id": "t", "total_order": number, **more}


Change = tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], dict[str, Any]]
ORDERS: dict[str, tuple[str, list[Change]]] = {
    "MySQL and MariaDB: file, then event, then row of the event, then the halves of a change": (
        MYSQL,
        [
            ("r", _binlog("binlog.000009", 157)),
            ("c", _binlog("binlog.000009", 157)),
            ("u", _binlog("binlog.000009", 900)),
            ("d", _binlog("binlog.000009", 1000, 0)),
            ("c", _binlog("binlog.000009", 1000, 0)),
            ("d", _binlog("binlog.000009", 1000, 1)),
            ("c", _binlog("binlog.000009", 1000, 1)),
            ("u", _binlog("binlog.000009", 1000, 10)),
            ("u", _binlog("mysql-bin.000010", 4)),
            ("u", _binlog("mysql-bin.1000000", 4)),
            ("u", _binlog("mysql-bin.1000000", 2**33)),
        ],
    ),
    "PostgreSQL: the commit before, since a transaction that commits later may have changed a row before": (
        POSTGRESQL,
        [
            ("r", _wal(None, 5000)),
            ("u", _wal(None, 4000)),  # written before the snapshot was taken, committed after it
            ("u", _wal(None, 6000)),
            ("u", _wal(6500, 6100)),
            ("r", _wal(7000, 6900)),  # of an incremental snapshot
            ("d", _wal(7000, 6600)),
            ("c", _wal(7000, 6600)),
            ("u", _wal(7000, 16**9)),
            ("u", _wal(2 * 16**9, 16**9 + 1)),
        ],
    ),
    "PostgreSQL, places as text": (
        "struct<lsn: string, sequence: string>",
        [
            ("u", _wal("0/16B3740", "0/16B3748")),
            ("u", _wal("0/16B3740", "0/F6B3748")),
            ("u", _wal("0/F6B3750", "0/F6B3758")),
            ("u", _wal("0/F6B3750", "1/0")),
            ("u", _wal("1/8", "1/10")),
            ("u", _wal("10/8", "10/10")),
        ],
    ),
    "SQL Server and Db2: change_lsn, then event_serial_no": (
        SQL_SERVER,
        [
            ("r", _lsn("00000025:00000d98:00a2", None, None)),
            ("c", _lsn("00000027:00000758:0005", "00000027:00000758:0003")),
            ("d", _lsn("00000027:00000ac0:0007", "00000027:00000ac0:0002", 1)),
            ("c", _lsn("00000027:00000ac0:0007", "00000027:00000ac0:0002", 2)),
            ("u", _lsn("00000027:00000ac0:0007", "00000027:00000ac0:0003", 1)),
            ("u", _lsn("00000027:0001ac00:0007", "00000027:00010000:0002", 1)),
            ("u", _lsn("ffffffff:ffffffff:ffff", "ffffffff:ffffffff:fffe", 1)),
        ],
    ),
    "SQL Server with transactions: commit_lsn, then total_order": (
        SQL_SERVER,
        [
            ("c", _lsn("00000027:00000758:0005", "00000027:00000758:0003"), _order(1)),
            ("r", _lsn("00000027:00000760:0001", None, None)),
            # Written before the snapshot, and committed after it.
            ("u", _lsn("00000027:00000ac0:0007", "00000027:00000750:0003"), _order(9)),
            ("u", _lsn("00000027:00000ac0:0007", "00000027:00000750:0002"), _order(10)),
        ],
    ),
    "Oracle: the commit, then the place in the redo log, where several changes share a scn": (
        ORACLE,
        [
            ("r", _logminer(None, 1513700, None)),
            ("u", _logminer(1513754, 1513600, " 0x000124.00016c0c.0010 ")),
            ("u", _logminer(1513754, 1513600, " 0x000124.00016c0c.0118 ")),
            ("u", _logminer(1513754, 1513600, " 0x000124.00016c0d.0010 ")),
            ("u", _logminer(1513754, 1513600, " 0x000125.00000002.0010 ")),
            ("u", _logminer(1513755, 1513600, "001234.00012345.0124")),
        ],
    ),
    "Oracle with transactions: the commit, then total_order": (
        ORACLE,
        [
            ("u", _logminer(1513754, 1513600, None), _order(9)),
            ("u", _logminer(1513754, 1513600, None), _order(10)),
            ("u", _logminer(1513760, 1513500, None), _order(1)),
        ],
    ),
    "Informix: commit_lsn, then change_lsn": (
        INFORMIX,
        [
            ("r", {"commit_lsn": "0", "change_lsn": "0"}),
            ("u", {"commit_lsn": "627404540760620", "change_lsn": "627404540485812"}),
            ("u", {"commit_lsn": "627404540760620", "change_lsn": "627404540485813"}),
            ("u", {"commit_lsn": "627404540760621", "change_lsn": "627404540485811"}),
        ],
    ),
    "MongoDB: the cluster's time, its ordinal, and total_order in a transaction": (
        MONGODB,
        [
            ("r", {}),
            ("c", {"ts_ms": 1558965508000, "ord": 2}),
            ("u", {"ts_ms": 1558965508000, "ord": 31}),
            ("u", {"ts_ms": 1558965509000, "ord": 1, "txnNumber": 7}, _order(1)),
            ("u", {"ts_ms": 1558965509000, "ord": 1, "txnNumber": 7}, _order(2)),
        ],
    ),
    "Spanner: the time of the commit, then the record of the transaction, then its mod": (
        SPANNER,
        [
            ("c", {"ts_us": 1670955531785000, "sequence": "00000009", "mod_number": 0}),
            ("d", {"ts_us": 1670955531785000, "sequence": "00000010", "mod_number": 0}),
            ("c", {"ts_us": 1670955531785000, "sequence": "00000010", "mod_number": 1}),
            ("u", {"ts_us": 1670955531785001, "sequence": "00000000", "mod_number": 0}),
        ],
    ),
    "Vitess: the epoch, then the transaction's rank, then total_order": (
        VITESS,
        [
            ("r", {"vgtid": "[]"}),
            ("u", {"vgtid": "[]"}, _order(2, transaction_rank="9", transaction_epoch=0)),
            ("u", {"vgtid": "[]"}, _order(1, transaction_rank="68", transaction_epoch=0)),
            ("u", {"vgtid": "[]"}, _order(2, transaction_rank="68", transaction_epoch=0)),
            ("u", {"vgtid": "[]"}, _order(1, transaction_rank="3", transaction_epoch=1)),
        ],
    ),
}


def _changes(spark: SparkSession, source: str, changes: list[Change], **options: Any) -> list[Any]:
    images = {"c": (None, {"id": 1}), "r": (None, {"id": 1}), "u": ({"id": 1},) * 2, "d": ({"id": 1}, None)}
    envelopes = [
        envelope(op, *images[op], position, transaction=transaction[0] if transaction else None)
        for op, position, *transaction in changes
    ]
    kind = VITESS_TRANSACTION if source == VITESS else TRANSACTION
    batch = parsed(spark, envelopes, source, transaction=kind)
    return cdc.debezium(batch, **options).collect()


@pytest.mark.parametrize("what", ORDERS)
def test_changes_are_in_the_order_in_which_they_happened(spark: SparkSession, what: str) -> None:
    source, changes = ORDERS[what]
    rows = _changes(spark, source, changes)
    assert [row[UNREADABLE] for row in rows] == [None] * len(changes)
    found = [row["_sequence"] for row in rows]
    assert found == sorted(set(found))


UNORDERED: dict[str, tuple[str, Change, str]] = {
    "a binlog without a number": (MYSQL, ("u", _binlog("binlog", 4)), "source.file, which ends in a number"),
    "a binlog without a row": (MYSQL, ("u", {"file": "b.01", "pos": 4}), "source.row"),
    "no position at all": (MYSQL, ("u", {}), "source.pos"),
    "a negative position": (MYSQL, ("u", _binlog("b.01", -4)), "source.pos"),
    "a place that is none": ("struct<lsn: string, sequence: string>", ("u", _wal("1", "0/G")), "source.lsn"),
    "a sequence that is none": (POSTGRESQL, ("u", {"lsn": 5, "sequence": "5"}), "source.sequence"),
    "no sequence": (POSTGRESQL, ("u", {"lsn": 5}), "source.sequence"),
    "SQL Server's number without its parts": (SQL_SERVER, ("u", _lsn("27:1", "27:1")), "source.change_lsn"),
    "Oracle's commit alone": (ORACLE, ("u", _logminer(5, 4, None)), "provide.transaction.metadata=true"),
    "a transaction of MongoDB": (
        MONGODB,
        ("u", {"ts_ms": 1558965509000, "ord": 1, "txnNumber": 7}),
        "provide.transaction.metadata=true",
    ),
    "a place beyond all logs": (POSTGRESQL, ("u", _wal("1", 2**63 - 1)), "or is too large"),
    "Vitess without ranks": (VITESS, ("u", {"vgtid": "[]"}), "VitessOrderedTransactionMetadataFactory"),
}


@pytest.mark.parametrize("what", UNORDERED)
def test_a_change_that_nothing_orders_has_a_reason_that_says_what_it_takes(
    spark: SparkSession, what: str
) -> None:
    source, change, says = UNORDERED[what]
    (row,) = _changes(spark, source, [change])
    assert row["_sequence"] is None
    beginnings = "nothing orders the change: ", "the position of the change cannot be read, or is too large: "
    assert row[UNREADABLE].startswith(tuple(f"{each}it takes " for each in beginnings))
    assert says in row[UNREADABLE]
    assert '"source":{' in row[UNREADABLE]


def test_a_row_of_a_snapshot_without_a_position_is_older_than_every_change(spark: SparkSession) -> None:
    first, second = _changes(spark, MYSQL, [("r", {}), ("d", _binlog("binlog.000001", 4))])
    assert first["_sequence"] == 0 < second["_sequence"]


def test_an_epoch_comes_before_the_position_where_files_begin_again(spark: SparkSession) -> None:
    before = _changes(spark, MYSQL, [("u", _binlog("binlog.999999", 9999))])
    after = _changes(spark, MYSQL, [("r", {}), ("u", _binlog("binlog.000001", 4))], epoch=1)
    found = [row["_sequence"] for row in [*before, *after]]
    assert found == sorted(set(found))
    with pytest.raises(ValueError, match="epoch must be a whole number from 0 to 99, not 100"):
        _changes(spark, MYSQL, [], epoch=100)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("struct<file: string, pos: bigint>", "add `row int` to its type: file, pos"),
        ("struct<lsn: bigint>", "add `sequence string` to its type: lsn"),
        ("struct<ts_ms: bigint>", 'no position in a log, .*sequence="source.ts_us": ts_ms'),
    ],
)
def test_a_source_that_cannot_order_any_change_is_refused(
    spark: SparkSession, source: str, says: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=says):
        _changes(spark, source.replace(">", ">"), [])
