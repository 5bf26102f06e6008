"""Which registered files stay where they are, and what a zone says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planners.ingestion.buffering import BufferedFile, PlannedItem
from streaming_sink import ingest
from streaming_sink.ingest.registering import Registering, register_tasks
from streaming_sink.tasks.ingest.profile_task import SourceProfile
from streaming_sink.tasks.ingest.register_task import SourceToRegister
from streaming_sink.tasks.ingest.sources import Sources
from tests.sinks import flat_zone


def stays(path: str, *, table: str = "/lake/t", by_reference: bool = True) -> bool:
    item = PlannedItem(0, (BufferedFile(path, "v1", 10, 0),), "now")
    profile = SourceProfile(0, 0, 1, (((), 1),), 10)
    (found,) = Registering(table, "/lake/_zone", by_reference).files(item, [profile])
    return found.stays


@pytest.mark.parametrize(
    ("path", "table", "wanted"),
    [
        ("/drop/a.parquet", "/lake/t", True),
        ("/drop/day=2026-11-23/a_1@x.parquet", "/lake/t", True),
        ("s3://drop/a.parquet", "s3://lake/t", True),
        ("s3://drop/a.parquet", "/lake/t", False),
        ("/drop/a.parquet", "s3://lake/t", False),
        ("gs://drop/a.parquet", "s3://lake/t", False),
        ("/drop/a%20b.parquet", "/lake/t", False),
        ("/drop/a b.parquet", "/lake/t", False),
        ("/drop/é.parquet", "/lake/t", False),
        ("/lake/_zone/staged/app/1/a.parquet", "/lake/t", False),
        ("/lake/_zone2/a.parquet", "/lake/t", True),
    ],
)
def test_a_file_stays_where_readers_of_the_table_find_it_and_no_cleaner_does(
    path: str, table: str, wanted: bool
) -> None:
    assert stays(path, table=table) == wanted
    assert not stays(path, table=table, by_reference=False)


def test_the_zone_keeps_by_reference_until_it_is_set_anew(tmp_path: Path) -> None:
    def zone(**given: object) -> ingest.BufferZone:
        return flat_zone(str(tmp_path / "zone"), table=str(tmp_path / "t"), **given)  # type: ignore[arg-type]

    assert not zone().definition.source_folders.by_reference
    assert zone(by_reference=True).definition.source_folders.by_reference
    assert zone().definition.source_folders.by_reference
    assert not zone(by_reference=False).definition.source_folders.by_reference
    with pytest.raises(TypeError, match="by_reference must be True or False, not 'yes'"):
        zone(by_reference="yes")
    with pytest.raises(ValueError, match="leave by_reference out"):
        zone(by_reference=True, expectations={"id > 0": "drop"}).definition  # noqa: B018


def test_a_task_registers_64_files_at_most() -> None:
    source = SourceToRegister(0, BufferedFile("/drop/a.parquet", "v1", 10, 0), (), 1)
    for files, tasks in ((0, 0), (1, 1), (5, 2), (128, 2), (129, 3)):
        job: Any = None
        assert len(register_tasks(job, Sources(("/",)), [source] * files, 2)) == tasks
