"""What becomes of rows that fail checks, inside of a task: split off, quarantined, dropped, counted."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink.checks.quarantine_table import QUARANTINE_SCHEMA
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.tasks.errors import InvalidTextError, RowsDoNotFitError
from streaming_sink.tasks.job import (
    FileIds,
    ParquetSettings,
    PartitionSource,
    Sieve,
    SiftedCheck,
    TaskBuckets,
    WorkerJob,
)
from streaming_sink.tasks.results import Sifted, WrittenFile, decode_result
from streaming_sink.tasks.rows.count_task import CountTask
from streaming_sink.tasks.rows.failures import AS_IT_CAME, FAILED
from streaming_sink.tasks.rows.fingerprints import FINGERPRINT
from streaming_sink.tasks.rows.key_task import KeyTask
from streaming_sink.tasks.rows.sieve import SiftingWriter
from streaming_sink.tasks.rows.write_task import TaskWriter
from timeline.stores.memory import MemoryStore

_NAMES = count()
SCHEMA = pa.schema(
    [
        pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})
        for number, (name, kind) in enumerate([("id", pa.int32()), ("p", pa.string())], 1)
    ]
)
_ELEMENT = pa.struct([pa.field("k", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "5"})])
LISTS = SCHEMA.append(
    pa.field(
        "list",
        pa.list_(pa.field("element", _ELEMENT, metadata={"PARQUET:field_id": "4"})),
        metadata={"PARQUET:field_id": "3"},
    )
)
CHECKS = (
    SiftedCheck("quarantines", "quarantine", "id"),
    SiftedCheck("drops", "drop"),
    SiftedCheck("refuses", "refuse"),
)
ROW_IDS = pa.array(["A-1", "A-2", "A-3"])


def _job(schema, **given):
    return WorkerJob(
        store=MemoryStore(f"sieve-{next(_NAMES)}"),
        schema=schema,
        partition_by=(),
        parquet=ParquetSettings(),
        metrics={},
        ids=FileIds(1_700_000_000_000, "app", 7),
        tasks={},
        shared=TaskBuckets(),
        rows_per_new_file=1000,
        max_file_bytes=1 << 30,
        **given,
    )


def _batch(ids, failed, **columns):
    failed = [None if each is None else "".join(f"{number}," for number in each) for each in failed]
    columns = {"id": pa.array(ids, pa.int64()), "p": pa.array([f"p{each}" for each in ids]), **columns}
    return pa.RecordBatch.from_pydict({**columns, FAILED: pa.array(failed, pa.string())})


def _sift(*batches, came=("id", "p"), unfit=None, checks=CHECKS, schema=SCHEMA):
    main, second = _job(schema), _job(arrow_schema(QUARANTINE_SCHEMA))
    sieve = Sieve(checks, came, "query", second, unfit, "UUID")
    writer = SiftingWriter(TaskWriter(main, 0, 5), TaskWriter(second, 0, 5), sieve, "ROWID")
    for batch in batches:
        writer.write(batch)
    results = writer.finish()
    sifted = next((each for each in results if isinstance(each, Sifted)), None)
    rows = [row for file in results if isinstance(file, WrittenFile) for row in _read(main.store, file)]
    set_aside = [] if sifted is None else [row for file in sifted.files for row in _read(second.store, file)]
    return rows, set_aside, sifted, writer


def _read(store, file):
    with store.open_input(store.relative(file.path)) as source:
        return pq.read_table(pa.BufferReader(source.read())).to_pylist()


def test_rows_that_pass_are_in_the_tables_files_and_rows_that_fail_in_none_of_them():
    rows, set_aside, sifted, writer = _sift(_batch(range(6), [None, [0], [1], [2], [0, 1], None]))
    assert [row["id"] for row in rows] == [0, 5]
    assert [json.loads(row["row"])["id"] for row in set_aside] == [1, 4]
    assert (sifted.quarantined, sifted.dropped, sifted.counts) == (2, 1, {0: 2, 1: 2, 2: 1})
    assert writer.rows == 6
    assert json.loads(sifted.examples[2]) == {"id": 3, "p": "p3"}


def test_a_quarantined_row_says_what_failed_and_where_it_came_from():
    source = {"topic": pa.array(["t"]), "partition": pa.array([3], pa.int32()), "offset": pa.array([99])}
    came = ("id", "p", "topic", "partition", "offset")
    _, (row,), _, _ = _sift(_batch([5], [[0, 1]], **source), came=came)
    assert row.pop("quarantined_at").timestamp() == 1_700_000_000
    assert json.loads(row.pop("row"))["id"] == 5
    assert json.loads(row.pop("source")) == {"topic": "t", "partition": 3, "offset": 99}
    assert row.pop("schema").startswith("`id` BIGINT, `p` STRING, `topic` STRING")
    assert row == {
        "row_id": "ROWID-0",
        "app_id": "app",
        "query_id": "query",
        "batch": 7,
        "check": "quarantines",
        "column": "id",
        "reason": "quarantines; drops",
        "table_uuid": "UUID",
        "replayed_row_id": None,
    }


def test_each_quarantined_row_has_an_id_of_its_own():
    batches = [_batch(range(10), [[0]] * 10), _batch(range(10), [[0], None] * 5)]
    _, set_aside, _, _ = _sift(*batches)
    assert len({row["row_id"] for row in set_aside}) == len(set_aside) == 15


def test_no_failing_row_means_no_result_and_no_copy():
    batch = _batch(range(3), [None] * 3)
    rows, _, sifted, _ = _sift(batch)
    assert len(rows) == 3
    assert sifted is None


def test_a_column_that_is_written_otherwise_is_quarantined_as_it_came():
    came = pa.array([None, {"id": "x7"}], pa.struct([("id", pa.string())]))
    added = {"_rescued": pa.array([None, "not of the batch"]), AS_IT_CAME: came}
    rows, (row,), _, _ = _sift(_batch([1, 2], [None, [0]], **added))
    assert [row["id"] for row in rows] == [1]
    assert json.loads(row["row"]) == {"id": "x7", "p": "p2"}
    assert row["schema"] == "`id` STRING, `p` STRING"


def test_a_value_that_the_table_does_not_hold_costs_its_row_alone():
    checks = (*CHECKS, SiftedCheck("fits the table", "quarantine"))
    ids = [0, 1, 2**31, 3, 4, -(2**40), 6]
    rows, set_aside, sifted, writer = _sift(
        _batch(ids, [None] * 6 + [[1]]), _batch([2**50], [None]), unfit=3, checks=checks
    )
    assert [row["id"] for row in rows] == [0, 1, 3, 4]
    assert [json.loads(row["row"])["id"] for row in set_aside] == [2**31, -(2**40), 2**50]
    assert "does not fit the table's column id" in set_aside[0]["reason"]
    assert {row["check"] for row in set_aside} == {"fits the table"}
    assert (sifted.counts, writer.rows) == ({3: 3, 1: 1}, 8)


def test_a_list_with_a_value_that_does_not_fit_costs_its_row_alone():
    checks = (SiftedCheck("fits the table", "quarantine"),)
    lists = pa.array([[{"k": 1}], [{"k": None}, {"k": 2}], [{"k": 3}], []])
    rows, (row,), _, _ = _sift(
        _batch([1, 2, 3, 4], [None] * 4, list=lists), unfit=0, checks=checks, schema=LISTS
    )
    assert [each["id"] for each in rows] == [1, 3, 4]
    assert json.loads(row["row"])["id"] == 2


def test_text_that_is_not_valid_utf8_costs_its_row_alone():
    checks = (SiftedCheck("fits the table", "quarantine"),)
    texts = pa.array([b"a", b"\xe9t\xe9", "\U0001f600".encode()]).view(pa.string())
    rows, (row,), _, _ = _sift(_batch([1, 2, 3], [None] * 3, p=texts), unfit=0, checks=checks)
    assert rows == [{"id": 1, "p": "a"}, {"id": 3, "p": "\U0001f600"}]
    assert (json.loads(row["row"]), row["schema"]) == ({"id": 2, "p": "6XTp"}, "`id` BIGINT, `p` BINARY")
    assert row["reason"].startswith("text is not valid UTF-8")


@pytest.mark.parametrize("transform", ["identity", "truncate[2]", "bucket[4]"])
def test_text_that_is_not_valid_utf8_has_no_partition(transform):
    fields = (PartitionSource("p", ("p",), transform),)
    texts = pa.array([b"a", b"\xe9t\xe9", b"b"]).view(pa.string())
    batch = _batch([1, 2, 3], [None] * 3, p=texts)
    counted = decode_result(
        next(CountTask(SCHEMA, fields, skips_unfit=True)(iter([batch]))).column(0)[0].as_py()
    )
    assert sum(counted.rows.values()) == 2
    keyed = pa.Table.from_batches(KeyTask(SCHEMA, fields, skips_unfit=True)(iter([batch])))
    assert [each is None for each in keyed["__streaming_sink_key_0"].to_pylist()] == [False, True, False]
    for task in (CountTask, KeyTask):
        with pytest.raises(RowsDoNotFitError, match="not valid UTF-8"):
            next(task(SCHEMA, fields)(iter([batch])))


def test_a_row_that_a_task_sets_aside_is_quarantined_as_it_came():
    came = pa.array([{"p": " 1"}, {"p": "x"}], pa.struct([("p", pa.string())]))
    batch = _batch([1, 2**31], [None] * 2, **{AS_IT_CAME: came}).drop_columns([FAILED])
    rows, (row,), _, _ = _sift(batch, unfit=0)
    assert [each["id"] for each in rows] == [1]
    assert json.loads(row["row"]) == {"id": 2**31, "p": "x"}


def test_a_check_that_gives_two_answers_for_one_row_loses_no_row():
    with pytest.raises(ValueError, match=r"gave two answers.*quarantines, drops, refuses"):
        _sift(_batch([0, 1], [None, []]))


def test_without_such_a_check_the_value_refuses_the_batch():
    with pytest.raises(ValueError, match="does not fit the table's column id"):
        _sift(_batch([0, 2**31], [None, None]))


def test_the_fingerprint_is_of_all_rows():
    hashes = {FINGERPRINT: pa.array([1, 2**62, -5, 7], pa.int64())}
    batch = _batch(range(4), [None, [0], [1], None], **hashes)
    *_, writer = _sift(batch)
    assert writer.fingerprint == (1 + 2**62 - 5 + 7) % 2**64


def test_failing_rows_count_for_no_partition_and_have_no_key():
    fields = (PartitionSource("p", ("p",), "bucket[4]"),)
    batch = _batch(range(4), [None, [0], None, [1]])
    counted = decode_result(next(CountTask(SCHEMA, fields)(iter([batch]))).column(0)[0].as_py())
    assert sum(counted.rows.values()) == 2
    keyed = pa.Table.from_batches(KeyTask(SCHEMA, fields)(iter([batch]))).sort_by("id").to_pylist()
    assert [row["__streaming_sink_key_0"] is None for row in keyed] == [False, True, False, True]


def test_values_that_do_not_fit_count_for_no_partition_where_their_rows_are_kept_out():
    fields = (PartitionSource("id", ("id",), "identity"),)
    batch = _batch([1, 2**31, 1], [None] * 3)
    task = CountTask(SCHEMA, fields, skips_unfit=True)
    assert decode_result(next(task(iter([batch]))).column(0)[0].as_py()).rows == {(1,): 2}
    keyed = pa.Table.from_batches(KeyTask(SCHEMA, fields, skips_unfit=True)(iter([batch]))).to_pylist()
    assert [row["__streaming_sink_key_0"] for row in keyed] == ["1", None, "1"]


def test_a_replayed_row_is_marked_whether_it_passes_or_fails_again():
    rows, set_aside, sifted, _ = _sift(_batch([1, 2, 3], [None, [0], [1]], __streaming_sink_row_id=ROW_IDS))
    assert rows == [{"id": 1, "p": "p1"}]
    marks = [row for row in set_aside if row["replayed_row_id"] is not None]
    (again,) = (row for row in set_aside if row["replayed_row_id"] is None)
    assert [row["replayed_row_id"] for row in marks] == ["A-1", "A-2", "A-3"]
    assert {(row["row"], row["check"], row["table_uuid"], row["batch"]) for row in marks} == {
        (None, None, "UUID", 7)
    }
    assert json.loads(again["row"]) == {"id": 2, "p": "p2"}
    assert len({row["row_id"] for row in set_aside}) == 4
    assert (sifted.quarantined, sifted.dropped) == (1, 1)


def test_a_replayed_row_without_its_id_is_refused():
    with pytest.raises(RowsDoNotFitError, match="Keep that column"):
        _sift(_batch([1, 2], [None, None], __streaming_sink_row_id=pa.array(["A-1", None])))


def test_what_is_aborted_leaves_no_file():
    main, second = _job(SCHEMA), _job(arrow_schema(QUARANTINE_SCHEMA))
    main, second = replace(main, rows_per_new_file=1), replace(second, rows_per_new_file=1)
    sieve = Sieve(CHECKS, ("id", "p"), "query", second)
    writer = SiftingWriter(TaskWriter(main, 0, 5), TaskWriter(second, 0, 5), sieve, "ROWID")
    writer.write(_batch(range(4), [None, [0], None, [0]]))
    assert [len(list(it.store.list_folder("data"))) for it in (main, second)] == [2, 2]
    writer.abort()
    assert [len(list(it.store.list_folder("data"))) for it in (main, second)] == [0, 0]


@pytest.mark.parametrize("route", ["written", "counted", "keyed"])
def test_where_replayed_rows_are_refused_the_error_says_which_one_is_at_fault(route: str) -> None:
    texts = pa.array([b"a", b"b", b"\xff"]).view(pa.string())
    batch = _batch([1, 2, 3], [None] * 3, p=texts, __streaming_sink_row_id=ROW_IDS)
    fields = (PartitionSource("p", ("p",), "identity"),)
    tasks = {"counted": CountTask(SCHEMA, fields), "keyed": KeyTask(SCHEMA, fields)}
    with pytest.raises(InvalidTextError, match=r"row_id <> 'A-3': text is not valid UTF-8.*: p "):
        _sift(batch) if route == "written" else list(tasks[route](iter([batch])))


def test_only_rows_whose_text_did_not_parse_have_the_column_of_it() -> None:
    unparsed = pa.array([None, {"value": "no JSON"}, None], pa.struct([("value", pa.string())]))
    came = ("id", "__streaming_sink_unparsed")
    batch = _batch([1, 2, 3], [[0]] * 3, __streaming_sink_unparsed=unparsed)
    _, set_aside, _, _ = _sift(batch, came=came)
    assert [json.loads(row["row"]) for row in set_aside] == [
        {"id": 1},
        {"id": 2, "__streaming_sink_unparsed": {"value": "no JSON"}},
        {"id": 3},
    ]
    assert [row["schema"] for row in set_aside[:2]] == [
        "`id` BIGINT",
        "`id` BIGINT, `__streaming_sink_unparsed` STRUCT<`value`: STRING>",
    ]
    _, alone, _, _ = _sift(batch, came=came[1:])
    assert len(alone) == 3
