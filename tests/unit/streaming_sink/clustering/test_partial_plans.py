"""Plans that know a part of a table's files: what they say of the others."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from planners import BySize, SelectedPartitions
from planners.clustering import bound
from planners.clustering.plan import ClusteringPlan
from streaming_sink import clustering
from streaming_sink.table.spec import partition_spec
from timeline.changes.changes import Append
from timeline.changes.schema_changes import SetPartitioning
from timeline.stores import LocalStore
from timeline.table import Table, open_table

_SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "city", StringType()))
_SIZES: dict[str, Any] = {
    "target_file_bytes": 40,
    "small_file_bytes": 30,
    "max_group_bytes": 40,
    "max_bytes_per_pass": 40,
}
_numbers = count()


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(bound, "LEAST_FILES", 4)
    return str(tmp_path / "table")


def _made(location: str) -> Table:
    spec = partition_spec(["city"], _SCHEMA)
    return Table.create(LocalStore(location), _SCHEMA, spec, store_is_checked=True)


def _add(table: Table, files: int, partition: tuple[Any, ...], spec_id: int = 0, size: int = 10) -> None:
    made = []
    for _ in range(files):
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=table.store.uri(f"data/{next(_numbers)}.parquet"),
            file_format=FileFormat.PARQUET,
            partition=Record(*partition),
            record_count=1,
            file_size_in_bytes=size,
        )
        file.spec_id = spec_id
        made.append(file)
    table.commit([Append(tuple(made))], open_below_bytes=30)


def _planned(location: str, **options: Any) -> ClusteringPlan:
    return clustering.plan(location, **{**_SIZES, **options})


@pytest.mark.parametrize("sort_by", [["id"], []])
def test_a_plan_says_that_it_leaves_files_for_later_passes_and_only_then(
    location: str, sort_by: list[str]
) -> None:
    table = _made(location)
    _add(table, 6, ("eu",))
    _add(table, 3, ("us",), size=35)
    plan = _planned(location, sort_by=sort_by)
    assert plan.has_more
    assert "later passes" in plan.explain()
    plan = _planned(location, sort_by=sort_by, max_bytes_per_pass=100)
    assert not plan.has_more
    assert "later passes" not in plan.explain()
    assert "too large, or of partitions that are not asked for" in plan.explain()


@pytest.mark.parametrize("sort_by", [["id"], []])
@pytest.mark.parametrize("more", [(), (BySize(),)])
def test_one_predicate_over_files_of_several_specs_is_refused_whichever_are_newest(
    location: str, more: tuple[BySize, ...], sort_by: list[str]
) -> None:
    _add(_made(location), 4, ("eu",))
    table = open_table(location)
    table.commit([SetPartitioning(partition_spec(["id", "city"], _SCHEMA), "app")])
    _add(table, 9, (7, "eu"), 1, size=20)
    wanted = SelectedPartitions(lambda values: values[0] == "eu", "eu")
    with pytest.raises(ValueError, match="the table has files of several partition specs"):
        _planned(location, select=(wanted, *more), sort_by=sort_by)
