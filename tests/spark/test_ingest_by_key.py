"""Files of changes wait in a buffer zone, and land by key: equal to a dictionary, in any order of items."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink import Checks, IcebergSink, Upsert, ingest
from streaming_sink.ingest.running import plan_waiting
from streaming_sink.ingest.worker import Worker
from tests.readers import judges
from tests.sinks import flat_zone
from timeline.errors import KeyConflictError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BY_KEY = {"key": ["id"], "sequence_by": "at", "delete_where": "op = 'D'", "except_columns": ["op"]}


class Change(NamedTuple):
    id: int
    at: int
    name: str | None
    op: str = "U"


def zone_at(folder: Path, **given: Any) -> ingest.BufferZone:
    return flat_zone(str(folder / "zone"), table=str(folder / "table"), by_key=BY_KEY, **given)


def write_changes(path: Path, changes: Iterable[Change]) -> str:
    path.parent.mkdir(exist_ok=True)
    rows = [change._asdict() for change in changes]
    if path.suffix == ".json":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        kinds = [("id", pa.int64()), ("at", pa.int64()), ("name", pa.string()), ("op", pa.string())]
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(kinds)), path)
    return str(path)


def latest(changes: Iterable[Change]) -> dict[int, tuple[int, str | None]]:
    """Judge by a dictionary: the last change of a key in sequence counts."""
    last: dict[int, Change] = {}
    for change in changes:
        if change.id not in last or last[change.id].at < change.at:
            last[change.id] = change
    return {key: (change.at, change.name) for key, change in last.items() if change.op != "D"}


def rows_in(location: str) -> dict[int, tuple[int, str | None]]:
    names = ["id", "at", "name"]
    read = judges.read("pyiceberg", location, names).to_pylist()
    other = judges.read("duckdb", location, names).to_pylist()
    assert sorted(read, key=lambda row: row["id"]) == sorted(other, key=lambda row: row["id"])
    assert len(read) == len({row["id"] for row in read})
    return {row["id"]: (row["at"], row["name"]) for row in read}


def land(spark: SparkSession, zone: ingest.BufferZone) -> list[ingest.Landed]:
    return ingest.run(spark, zone, available_now=True)


def test_changes_land_in_any_order_and_late_ones_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(3)
    changes = [
        Change(rng.randrange(60), at, f"n{at}", "D" if rng.random() < 0.2 else "U") for at in range(400)
    ]
    rng.shuffle(changes)
    zone = zone_at(tmp_path)
    for start in range(0, 400, 100):
        for place in range(start, start + 100, 25):
            ending = rng.choice(("parquet", "json"))
            zone.push(write_changes(tmp_path / "drop" / f"{place:03}.{ending}", changes[place : place + 25]))
        (landed,) = land(spark, zone)
        assert (landed.rejected, landed.files_in) == ({}, 4)
        assert rows_in(str(tmp_path / "table")) == latest(changes[: start + 100])
    again = write_changes(tmp_path / "drop" / "again.parquet", changes)
    zone.push(again)
    (landed,) = land(spark, zone)
    assert (landed.published_before, landed.rows) == (False, 0)
    assert rows_in(str(tmp_path / "table")) == latest(changes)


@pytest.mark.parametrize("kind", ["by_key", "checked"])
def test_each_share_of_an_item_is_read_once_however_many_tasks_write_it(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Small items are written by one task, which also reads all of their shares: it read the first one each
    time. With as many rows in each share nothing told that the others had not come.
    """
    rules = ingest.Rules(max_files=2)
    if kind == "by_key":
        zone = zone_at(tmp_path, rules=rules)
    else:
        where, table = str(tmp_path / "zone"), str(tmp_path / "table")
        zone = ingest.BufferZone(where, table=table, rules=rules, checks=Checks({"at >= 0": "drop"}))
    changes = [Change(number, number, f"n{number}") for number in range(24)]
    worker = Worker(zone)
    for start in range(0, 24, 4):
        for place in (start, start + 2):
            zone.push(write_changes(tmp_path / "drop" / f"{place:02}.parquet", changes[place : place + 2]))
        plan_waiting(zone, flush=True)
        landed = worker.land_next(spark)
        assert landed is not None
        assert (landed.files_in, landed.rejected) == (2, {})
    worker.finish()
    assert rows_in(str(tmp_path / "table")) == latest(changes)


def test_workers_and_a_stream_change_the_same_keys(spark: SparkSession, tmp_path: Path) -> None:
    zone = zone_at(tmp_path, rules=ingest.Rules(max_files=1))
    changes = [Change(number % 7, number, f"n{number}") for number in range(40)]
    zone.push(write_changes(tmp_path / "drop" / "0.parquet", changes[:4]))
    land(spark, zone)
    for place in range(1, 7):
        zone.push(write_changes(tmp_path / "drop" / f"{place}.parquet", changes[place * 4 : place * 4 + 4]))
        plan_waiting(zone)
    landed: list[ingest.Landed] = []

    def work() -> None:
        other = ingest.BufferZone(zone.store.location)
        landed.extend(ingest.run(spark, other, available_now=True))

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    sink = IcebergSink(str(tmp_path / "table"), Upsert(key=["id"], sequence_by="at"), app_id="stream")
    for batch in range(3):
        rows = [each[:3] for each in changes[28 + batch * 4 : 32 + batch * 4]]
        sink(spark.createDataFrame(rows, "id bigint, at bigint, name string"), batch)
    for worker in workers:
        worker.join()
    sink.finish()
    assert sorted(each.number for each in landed) == [1, 2, 3, 4, 5, 6]
    assert rows_in(str(tmp_path / "table")) == latest(changes)


def test_a_damaged_file_of_changes_is_rejected_and_the_others_land_also_what_a_path_states(
    spark: SparkSession, tmp_path: Path
) -> None:
    zone = zone_at(tmp_path)
    zone.push(write_changes(tmp_path / "drop" / "0.parquet", [Change(0, 0, "zero"), Change(7, 0, "seven")]))
    land(spark, zone)
    many = [Change(number, 1, f"name {number}") for number in range(5000)]
    path = Path(write_changes(tmp_path / "drop" / "1.parquet", many))
    damaged = bytearray(path.read_bytes())
    damaged[300:340] = bytes(40)  # a page; its footer is whole
    path.write_bytes(bytes(damaged))
    without_op = tmp_path / "drop" / "2.parquet"
    pq.write_table(pa.table({"id": [9], "at": [9], "name": ["nine"]}), without_op)
    zone.push(write_changes(tmp_path / "drop" / "3.parquet", [Change(3, 3, "three")]))
    stated = tmp_path / "drop" / "op=D" / "4.parquet"  # the table does not get this column, and has none
    stated.parent.mkdir()
    pq.write_table(pa.table({"id": [7], "at": [7], "name": ["seven"]}), stated)
    zone.push(str(path), str(without_op), str(stated))
    (landed,) = land(spark, zone)
    assert {Path(name).name for name in landed.rejected} == {"1.parquet", "2.parquet"}
    assert "op" in landed.rejected[str(without_op)]
    assert rows_in(str(tmp_path / "table")) == {0: (0, "zero"), 3: (3, "three")}


def test_a_table_with_rows_and_no_key_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    sink = IcebergSink(str(tmp_path / "table"), app_id="stream")
    sink(spark.createDataFrame([(1, 1, "one")], "id bigint, at bigint, name string"), 0)
    zone = zone_at(tmp_path)
    zone.push(write_changes(tmp_path / "drop" / "0.parquet", [Change(1, 2, "two")]))
    plan_waiting(zone, flush=True)
    with pytest.raises(KeyConflictError, match="the table has rows and no key"):
        Worker(zone).land_next(spark)


def test_rows_that_meet_no_expectation_are_set_aside_with_their_item(
    spark: SparkSession, tmp_path: Path
) -> None:
    zone = ingest.BufferZone(
        str(tmp_path / "zone"),
        table=str(tmp_path / "table"),
        checks=Checks({"at >= 0": "quarantine", "name <> 'x'": "drop"}),
    )
    bad, good = [Change(1, -1, "early"), Change(2, 2, "x")], [Change(3, 3, "three"), Change(4, 4, None)]
    zone.push(write_changes(tmp_path / "drop" / "0.parquet", [*bad, *good]))
    (landed,) = land(spark, zone)
    assert (landed.rows, landed.quarantined, landed.dropped) == (2, 1, 1)
    zone.push(write_changes(tmp_path / "drop" / "1.json", [Change(5, -5, "early"), Change(6, 6, "six")]))
    (landed,) = land(spark, zone)
    assert (landed.rows, landed.quarantined) == (1, 1)
    assert rows_in(str(tmp_path / "table")) == {3: (3, "three"), 4: (4, None), 6: (6, "six")}
    pq.write_table(pa.table({"id": [1], "at": [1], "name": ["x"]}), tmp_path / "drop" / "2.parquet")
    pq.write_table(
        pa.table({"id": [1], "at": [1], "name": ["x"]}).slice(0, 0), tmp_path / "drop" / "3.parquet"
    )
    for name, dropped in (("2.parquet", 1), ("3.parquet", 0)):  # no row is left, or there was none
        zone.push(str(tmp_path / "drop" / name))
        (landed,) = land(spark, zone)
        assert (landed.rejected, landed.rows, landed.dropped) == ({}, 0, dropped)
    set_aside = judges.read("duckdb", f"{tmp_path}/table__quarantine", ["row"]).to_pylist()
    assert sorted(json.loads(each["row"])["id"] for each in set_aside) == [1, 5]


@pytest.mark.parametrize("suffix", ["json", "csv"])
def test_text_files_in_which_a_column_that_is_left_out_is_null_land(
    spark: SparkSession, tmp_path: Path, suffix: str
) -> None:
    """Nulls alone have no type: the file passed for one without the column."""

    def write(name: str, *changes: tuple[int, int, str, str | None]) -> None:
        rows = [dict(zip(("id", "at", "name", "op"), change, strict=True)) for change in changes]
        lines = [",".join("" if value is None else str(value) for value in row.values()) for row in rows]
        texts = {"json": map(json.dumps, rows), "csv": ["id,at,name,op", *lines]}
        (tmp_path / f"{name}.{suffix}").write_text("\n".join(texts[suffix]) + "\n")

    zone = zone_at(tmp_path)
    write("a", (1, 1, "x", None))
    zone.push(f"{tmp_path}/a.{suffix}")
    assert plan_waiting(zone, flush=True) == 1
    assert Worker(zone).land_next(spark).rejected == {}  # type: ignore[union-attr]
    write("b", (2, 1, "y", None))
    write("c", (1, 2, "x", "D"), (3, 1, "z", None))
    zone.push(f"{tmp_path}/b.{suffix}", f"{tmp_path}/c.{suffix}")
    assert plan_waiting(zone, flush=True) == 1
    assert Worker(zone).land_next(spark).rejected == {}  # type: ignore[union-attr]
    assert rows_in(str(tmp_path / "table")) == {2: (1, "y"), 3: (1, "z")}


def test_json_lands_in_a_table_of_partial_updates(spark: SparkSession, tmp_path: Path) -> None:
    """The table has a map of the sink's own, which the parser of JSON does not know."""
    partial = Upsert(key=["id"], sequence_by="at", partial_update=True)
    zone = flat_zone(str(tmp_path / "zone"), table=str(tmp_path / "table"), write=partial)
    for number, row in enumerate(({"id": 1, "at": 1, "name": "x"}, {"id": 1, "at": 2, "name": None})):
        (tmp_path / f"{number}.json").write_text(json.dumps(row))
        zone.push(f"{tmp_path}/{number}.json")
        assert plan_waiting(zone, flush=True) == 1
        assert Worker(zone).land_next(spark).rejected == {}  # type: ignore[union-attr]
    assert rows_in(str(tmp_path / "table")) == {1: (2, "x")}


def test_a_null_in_a_key_rejects_its_file_also_where_that_is_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    zone = zone_at(tmp_path)
    write_changes(tmp_path / "a.parquet", [Change(1, 1, "x")])
    write_changes(tmp_path / "b.parquet", [Change(None, 1, "y")])  # type: ignore[arg-type]
    for name in ("a", "b"):
        zone.push(f"{tmp_path}/{name}.parquet")
        assert plan_waiting(zone, flush=True) == 1
        landed = Worker(zone).land_next(spark)
        assert landed is not None
        assert [Path(path).stem for path in landed.rejected] == (["b"] if name == "b" else [])
    assert rows_in(str(tmp_path / "table")) == {1: (1, "x")}
