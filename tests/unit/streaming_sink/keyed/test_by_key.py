"""Changes by key on the driver, without Spark: what a batch commits, and looks on heads that grow old."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2

from streaming_sink import Upsert
from streaming_sink.keyed import by_key
from streaming_sink.keyed.by_key import ChangesByKey, KeyedWrite
from streaming_sink.keyed.key_resolution import BatchKeys
from streaming_sink.keyed.searched_files import Searched, SearchedFiles
from streaming_sink.landing import outcomes
from streaming_sink.reports.batch_report import BatchReport
from streaming_sink.reports.reporting import Steps
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.tasks.job import FileIds
from streaming_sink.tasks.key_index.index import KeyIndex
from streaming_sink.tasks.keys.scanning import KeyColumns
from streaming_sink.upkeep.maintenance import Maintained
from streaming_sink.upkeep.small_files import SmallFiles
from streaming_sink.writing.target import Target
from streaming_sink.writing.writer import WriteResult
from tests.unit.timeline.cleaning import Shore
from tests.unit.timeline.test_sleepers import oversleep, shore
from tests.unit.timeline.world import SCHEMA, Lake
from timeline.changes.changes import Append, Change
from timeline.changes.key_changes import DeclareKey, KeysResolved
from timeline.errors import KeyConflictError, MissingMetadataError, RowsChangedError
from timeline.table import Committed, Table
from timeline.versions.keys import Looked, TableKey

__all__ = ["shore"]

KEYS = Upsert(key=("id",), sequence_by="p")


def changes_by_key() -> ChangesByKey:
    options: Any = SimpleNamespace(keys=KEYS, allow_duplicates=False, location="memory://t")
    return ChangesByKey(options, KEYS)


def target_of(table: Table) -> Target:
    return Target(table, table.head.schema, table.head.spec, table.head.properties)


def searched(table: Table) -> Searched:
    columns = KeyColumns(table.head.metadata.table_uuid, pa.schema([arrow_schema(SCHEMA).field("id")]))
    index = KeyIndex(table.store, columns)
    return SearchedFiles(in_partitions=False, indexed_from=None).at(table.head, index)


def no_keys(write: KeyedWrite) -> BatchKeys:
    """A batch without keys: to look for them reads manifests, and no data file."""
    none = np.empty(0, np.int64)
    schema = arrow_schema(SCHEMA)
    return BatchKeys(write.job, np.empty((0, 2), np.uint64), none, [], none, none, schema)


def test_a_sleeper_looks_for_keys_in_a_newer_head(shore: Shore) -> None:
    """Manifests of the head that it knew are gone."""
    sleeper, second = shore.open(), shore.open()
    oversleep(shore)
    with pytest.raises(MissingMetadataError):
        searched(sleeper)
    write = changes_by_key().begin(target_of(sleeper))
    assert {file.location for file in write.job.files} == shore.live()
    assert write.resolution.looked == Looked.at(sleeper.head)
    before = replace(write, resolution=replace(write.resolution, looked=Looked()))
    again = by_key._look_again(second, before, no_keys(write))
    assert again.looked.find_added(second.head) == {}
    assert before.resolution.looked.find_added(again.head).keys() == shore.live()


def test_a_sleeper_finds_rows_without_a_key_in_a_newer_head(shore: Shore) -> None:
    sleeper = shore.open()
    oversleep(shore)
    with pytest.raises(KeyConflictError, match="the table has rows and no key"):
        changes_by_key().check(target_of(sleeper))


def test_rows_that_came_before_the_key_was_declared_have_the_batch_planned_again() -> None:
    """The batch has looked for its own keys in them, and they may hold others twice."""
    lake = Lake()
    mine = lake.open()
    target = target_of(mine)
    keyed = changes_by_key()
    keyed.check(target)
    write = keyed.begin(target)
    theirs, own = lake.file(), lake.file()
    lake.table.commit([Append((theirs,))])
    tries: list[list[Change]] = []

    def publish(changes: list[Change], withdrawn: int) -> object:
        tries.append(changes)
        return mine.commit(changes)

    ids = FileIds(lake.clock.now_ms, "app", 1)
    result = WriteResult((), (), (), ())
    with pytest.raises(RowsChangedError, match="not known that each key is there once"):
        keyed.commit(mine, target, write, result, (own,), ids, publish)
    assert len(tries) == 2
    assert lake.live() == {theirs.file_path}
    with pytest.raises(KeyConflictError, match="streaming-sink key LOCATION"):
        keyed.check(target)


@pytest.mark.parametrize("column", ["id", "p"])
def test_keys_are_not_looked_for_again_once_a_column_of_the_key_was_dropped(column: str) -> None:
    """By the simulator, seed 6000193: it was a KeyError of the column."""
    lake = Lake()
    write = changes_by_key().begin(target_of(lake.table))

    def drop(metadata: TableMetadataV2) -> dict[str, object]:
        left = [each for each in metadata.schema().fields if each.name != column]
        schema = Schema(*left, schema_id=metadata.current_schema_id + 1)
        return {"schemas": [*metadata.schemas, schema], "current_schema_id": schema.schema_id}

    lake.change_metadata(drop)
    lake.table.refresh()
    with pytest.raises(KeyConflictError, match=rf"its columns {column} were dropped"):
        by_key._look_again(lake.table, write, no_keys(write))


def test_a_batch_declares_the_key_of_a_table_without_rows() -> None:
    lake = Lake()
    target = target_of(lake.table)
    keyed = changes_by_key()
    write = keyed.begin(target)
    assert write.declares
    ids = FileIds(lake.clock.now_ms, "app", 1)
    written = WriteResult((), (), (), ())
    keyed.commit(
        lake.table, target, write, written, (lake.file(),), ids, lambda made, _: lake.table.commit(made)
    )
    again = keyed.begin(target)
    assert again is not None
    assert not again.declares
    assert len(lake.live()) == 1


def test_a_key_that_another_writer_has_declared_first_is_no_dropped_fill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outcomes, "warning", lambda small, options: "")
    lake = Lake()
    mine, key = lake.open(), TableKey((1,), 2)
    lake.table.commit([DeclareKey(key)])
    done = mine.commit([Append((lake.file(),)), KeysResolved(key, Looked()), DeclareKey(key)])
    assert isinstance(done, Committed)
    assert len(done.dropped) == 1
    draft = BatchReport(app_id="app", batch_id=1, outcome="written", why="", milliseconds={})
    nothing = Maintained((), SmallFiles())
    options: Any = None
    report = outcomes.committed(draft, done, nothing, options, Steps())
    assert (report.dropped_fills, report.why) == (0, "")
