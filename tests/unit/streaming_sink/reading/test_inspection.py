"""What is found in a head: sizes by class, files of any spec, rates, and what a status warns of."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.typedef import Record

from planners import FileSizing
from streaming_sink.commands.rendering import say_status
from streaming_sink.reading.description import describe, size_classes
from streaming_sink.reading.files import list_files, list_partitions
from streaming_sink.reading.plans import list_plans
from streaming_sink.reading.snapshots import list_snapshots
from streaming_sink.reading.status import RECENT_BATCHES, TableStatus, status_of
from tests.unit.streaming_sink.commands import command_tables
from tests.unit.streaming_sink.commands.command_tables import MIB, MINUTE_MS, land
from tests.unit.timeline.logs.kinds import ARROW, CatalogKind
from tests.unit.timeline.test_manifest_reads import reading
from tests.unit.timeline.world import Lake, data_file
from timeline.changes.changes import Append
from timeline.changes.outbox_changes import RetireMain
from timeline.manifests import contents
from timeline.manifests.entries import LiveFile
from timeline.table import open_table

sizings = st.integers(1, 10_000).flatmap(
    lambda largest: st.integers(0, largest).map(
        lambda small: FileSizing(max_file_bytes=largest, small_file_bytes=small)
    )
)


@given(st.lists(st.integers(0, 12_000)), sizings)
def test_each_size_is_in_one_class(sizes: list[int], sizing: FileSizing) -> None:
    classes = size_classes(sizes, sizing)
    assert sum(it.files for it in classes) == len(sizes)
    assert sum(it.bytes for it in classes) == sum(sizes)
    assert classes[0].files == sum(size < sizing.small_file_bytes for size in sizes)


@given(sizings)
def test_a_file_of_the_maximum_is_full(sizing: FileSizing) -> None:
    classes = {it.name: it.files for it in size_classes([sizing.max_file_bytes], sizing)}
    assert classes == {"small": 0, "below_max": 0, "full": 1, "above_max": 0}


def test_files_of_an_earlier_spec_keep_the_names_of_their_partitions() -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(p=3), lake.file(p=4)))])
    lake.change_metadata(
        lambda metadata: {
            "partition_specs": [*metadata.partition_specs, PartitionSpec(spec_id=1)],
            "default_spec_id": 1,
        }
    )
    head = lake.open().head
    assert head.spec.spec_id == 1
    assert sorted(it.partition for it in list_partitions(head, 1)) == ["p=3", "p=4"]
    assert {it.spec_id for it in list_files(head, {})} == {0}


@pytest.mark.parametrize("has_copies", [False, True])
def test_a_description_and_a_status_read_each_manifest_once_and_sum_up_its_files(
    has_copies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_copies:
        monkeypatch.setattr(contents, "_CACHED_ENTRIES", 1)
    lake = Lake()
    for number in range(5):
        files = [lake.file(rows, p=rows % 3, size=1_000 * rows) for rows in range(1, 4 + number)]
        nulls = data_file(lake.file().file_path, 7, partition=Record(None), size=500)
        lake.table.commit([Append((*files, nulls))])
    lake.table.head.write_copies()
    by_name = defaultdict[str, list[LiveFile]](list)
    for file in lake.open().head.live_files():
        by_name["p=null" if file.partition == (None,) else f"p={file.partition[0]}"].append(file)
    table, store = reading(lake)
    manifests = len(table.head.manifests)
    store.manifests()
    steps = list[int]()
    described = describe(table.head, FileSizing(), lambda: steps.append(1))
    assert (len(steps), store.manifests()) == (manifests, 0 if has_copies else manifests)
    assert described.bytes == sum(it.bytes for files in by_name.values() for it in files)
    table, store = reading(lake)
    store.manifests()
    assert status_of(table.head, (), 2_000, 0).files == described.files
    assert store.manifests() == (0 if has_copies else manifests)
    found = {it.partition: it for it in list_partitions(table.head, 2_000)}
    assert {name: (it.files, it.rows, it.bytes, it.small_files) for name, it in found.items()} == {
        name: (
            len(files),
            sum(it.rows for it in files),
            sum(it.bytes for it in files),
            sum(it.bytes < 2_000 for it in files),
        )
        for name, files in by_name.items()
    }


def test_a_description_counts_what_is_live_in_the_newest_version() -> None:
    lake = command_tables.partitioned()
    described = describe(lake.open().head, FileSizing())
    live = [file.bytes for file in lake.open().head.live_files()]
    assert (described.files, described.bytes) == (len(live), sum(live))
    assert described.rows == lake.live_rows().total()


def test_both_snapshots_of_a_fill_belong_to_its_batch_and_those_of_others_to_none() -> None:
    lake = command_tables.partitioned()
    lake.table.commit([Append((lake.file(),))])
    of = [(it.operation, it.app_id, it.batch_id) for it in list_snapshots(lake.open().head)]
    assert of[:3] == [("append", None, None), ("replace", "events", 2), ("append", "events", 2)]


def test_in_a_catalog_the_snapshots_of_every_engine_have_versions(tmp_path: Path) -> None:
    kind = CatalogKind(tmp_path)
    table = kind.create()
    table.commit([Append((kind.file([1]),))])
    kind.read().append(pa.table({"id": [2], "p": [0]}, ARROW))
    table.commit([Append((kind.file([3]),))])
    kind.close()
    head = table.refresh()
    assert [it.version for it in list_snapshots(head)] == [3, 2, 1]
    first, theirs, last = head.metadata.snapshots
    unnumbered = theirs.model_copy(update={"sequence_number": 0})  # from before the table had such numbers
    metadata = head.metadata.model_copy(update={"snapshots": [first, unnumbered, last]})
    without = replace(head.version, metadata=metadata)
    assert [it.version for it in list_snapshots(replace(head, version=without))] == [3, None, 1]


def test_rates_are_those_of_the_last_batches_and_need_two() -> None:
    lake = Lake()
    land(lake, "a", 0, lake.file(7_000_000))
    assert _rates(lake) == (None, None)
    lake.clock.now_ms += 59 * MINUTE_MS
    land(lake, "a", 1, lake.file(10))
    assert _rates(lake) == (round(1 / 60, 1), round(10 / 60, 1))
    for batch in range(2, RECENT_BATCHES + 1):
        land(lake, "a", batch, lake.file(10))
    assert _rates(lake) == (1.0, 10.0)


def test_a_status_warns_of_what_the_table_shows() -> None:
    lake = Lake()
    land(lake, "a", 0, *(lake.file(1, size=MIB) for _ in range(101)))
    assert _status(lake).warnings == (
        f"partitions with more than 100 files below {2 * MIB:,} bytes: 1, such as p=0 with 101; cluster them",
    )
    key = "streaming-sink.txn.a"
    lake.change_metadata(lambda metadata: {"properties": {**metadata.properties, key: "{"}})
    found = _status(lake)
    assert "what the table remembers of 'a' cannot be read" in found.warnings[0]
    (application,) = found.applications
    assert (application.batch_id, application.age_seconds) == (None, None)


def test_a_status_counts_plans_that_are_pending_and_names_those_that_are_void() -> None:
    found = _status(command_tables.clustered())
    assert found.pending_plans == 3
    (warning,) = found.warnings
    assert "is void, since its file is lost" in warning


def test_the_status_of_a_quarantine_names_the_streams_whose_rows_it_holds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake = command_tables.quarantined()
    second, uuid = open_table(f"memory://{lake.name}__quarantine"), str(lake.table.head.metadata.table_uuid)
    found = status_of(second.head, [], MIB, lake.clock.now_ms)
    (delivery,) = found.applications
    assert (delivery.app_id, delivery.delivers_from) == ("events", f"memory://{lake.name}")
    assert (delivery.batch_id, delivery.query_id) == (None, None)
    say_status(found)
    assert f"events, delivered from memory://{lake.name}  " in capsys.readouterr().out
    second.commit([RetireMain(uuid)])
    (delivery,) = status_of(second.head, [], MIB, lake.clock.now_ms).applications
    assert delivery.delivers_from == uuid
    assert {it.delivers_from for it in _status(lake).applications} == {None}


def _status(lake: Lake) -> TableStatus:
    table = lake.open()
    plans = list_plans(table, lake.clock.now_ms)
    return status_of(table.head, plans, 2 * MIB, lake.clock.now_ms)


def _rates(lake: Lake) -> tuple[float | None, float | None]:
    (application,) = _status(lake).applications
    return application.batches_per_minute, application.rows_per_minute
