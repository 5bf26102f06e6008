"""The upkeep of a key index beside a stream: of which tables, and after which batches."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from planners.model import TablePartition
from streaming_sink import Upsert
from streaming_sink.keyed import key_upkeep
from streaming_sink.keyed.key_upkeep import KeyUpkeep, indexed_from, key_columns
from streaming_sink.keyed.searched_files import SearchedFiles
from streaming_sink.tasks.key_index.index import KeyIndex
from streaming_sink.tasks.keys.scanning import partition_salt
from tests.unit.streaming_sink.removal.people import KEY, People

MANY, FEW = (TablePartition(0, (f"name of {number}",)) for number in (1, 2))
_numbers = count()


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch) -> People:
    """Three rows in the one partition, and one in the other."""
    monkeypatch.setattr(key_upkeep, "INDEXED_ROWS", 3)
    monkeypatch.setattr(key_upkeep, "UNCOVERED_ROWS", 0)
    place = f"memory://upkeep-{next(_numbers)}"
    people = People(place, key=replace(KEY, scope="partition"), by="name")
    people.append(1, 1, 1, 2)
    return people


def covered_after(people: People, touched: TablePartition, **given: str) -> list[bytes]:
    """Return the scopes of the files that the index covers after a batch."""
    options = replace(Upsert(key=("user_id",), sequence_by="at", key_scope="partition"), **given)
    head = people.table.refresh()
    upkeep = KeyUpkeep(options, SearchedFiles(in_partitions=True, indexed_from=indexed_from(options)))
    upkeep.after_commit(people.store, head, [touched])
    upkeep.finish(60)
    runs = KeyIndex(people.store, key_columns(head, options)).readable_runs()
    return [file.salt for _, footer in runs for file in footer.files]


def test_a_batch_that_has_to_search_many_rows_has_all_partitions_indexed(people: People) -> None:
    salts = sorted(partition_salt(partition.values) for partition in (MANY, FEW))
    assert sorted(covered_after(people, MANY)) == salts


def test_a_batch_of_partitions_with_few_rows_needs_no_index(people: People) -> None:
    assert covered_after(people, FEW) == []
    assert covered_after(people, MANY, key_index="scan") == []
    assert len(covered_after(people, FEW, key_index="index")) == 2


def test_files_by_reference_are_in_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their owners may use a name again for other rows."""
    monkeypatch.setattr(key_upkeep, "INDEXED_ROWS", 1)
    monkeypatch.setattr(key_upkeep, "UNCOVERED_ROWS", 0)
    people = People(str(tmp_path / "table"))
    own = people.append(1)
    people.refer(str(tmp_path / "latest.parquet"), 2)
    options, head = Upsert(key=("user_id",), sequence_by="at"), people.table.refresh()
    upkeep = KeyUpkeep(options, SearchedFiles(in_partitions=False, indexed_from=0))
    upkeep.after_commit(people.store, head, [])
    upkeep.finish(60)
    [(_, footer)] = KeyIndex(people.store, key_columns(head, options)).readable_runs()
    assert list(footer.files.locations) == [own]
