"""What a table in a catalog remembers is taken for true only where main follows from what it was written
with (R30).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.refs import SnapshotRef

from tests.unit.timeline.logs.kinds import CatalogKind
from timeline import properties
from timeline.catalogs.catalog_version import CatalogVersion
from timeline.catalogs.memory import Descent, check_memory
from timeline.changes.changes import Append
from timeline.errors import CorruptTableError, TableReplacedError
from timeline.table import Table
from timeline.versions.head import Head
from timeline.versions.listing import read_head
from timeline.versions.transactions import Transaction


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[CatalogKind]:
    made = CatalogKind(tmp_path)
    yield made
    made.close()


@pytest.fixture
def table(kind: CatalogKind) -> Table:
    """A table of three batches."""
    made, epoch = kind.create(), None
    for number in range(3):
        transaction = Transaction("app", "query", "run", number, epoch)
        epoch = made.commit([Append((kind.file([number]),))], transaction=transaction).epoch
    return made


def changed(head: Head, **fields: Any) -> Head:
    """Return the head as it would be with other metadata."""
    metadata = head.metadata.model_copy(update=fields)
    version = CatalogVersion(head.number, metadata, head.version.identity)
    return read_head(head.manifest_files, version)


def with_main(head: Head, snapshot_id: int, **fields: Any) -> Head:
    ref = SnapshotRef.model_validate({"snapshot-id": snapshot_id, "type": "branch"})
    return changed(head, current_snapshot_id=snapshot_id, refs={"main": ref}, **fields)


def test_a_head_that_follows_its_witness_is_taken(table: Table) -> None:
    assert check_memory(table.head) is Descent.FOLLOWED
    assert check_memory(changed(table.head, properties={"owner": "me"})) is Descent.FOLLOWED


def test_commits_of_others_after_the_witness_are_followed(kind: CatalogKind, table: Table) -> None:
    stranger = kind.open()
    theirs = stranger.commit([Append((kind.file([9]),))])
    before = table.head.properties
    assert theirs is not None
    head = changed(stranger.head, properties=before)  # as an engine leaves them that does not know them
    assert check_memory(head) is Descent.FOLLOWED


def test_a_rollback_leaves_the_memory_and_its_rows_are_away_on_purpose(table: Table) -> None:
    first = table.head.metadata.snapshots[0].snapshot_id
    assert check_memory(with_main(table.head, first)) is Descent.ROLLED_BACK


def test_a_witness_whose_snapshot_has_expired_is_taken_where_main_lists_older_files(
    kind: CatalogKind, table: Table
) -> None:
    before = table.head.properties
    stranger = kind.open()
    stranger.commit([Append((kind.file([9]),))])
    last = stranger.head.metadata.snapshots[-1]
    alone = last.model_copy(update={"parent_snapshot_id": None})  # as pyiceberg's catalogs leave it
    head = changed(stranger.head, snapshots=[alone], properties=before)
    assert check_memory(head) is Descent.EXPIRED


def test_a_table_that_was_replaced_stops_the_stream_though_its_uuid_and_properties_stay(
    kind: CatalogKind, table: Table
) -> None:
    other = kind.open()
    other.commit([Append((kind.file([9]),))])
    root = other.head.metadata.snapshots[-1].model_copy(update={"parent_snapshot_id": None})
    snapshots = [*table.head.metadata.snapshots, root]
    head = with_main(other.head, root.snapshot_id, snapshots=snapshots, properties=table.head.properties)
    head = replace(head, manifests=head.manifests[:1])  # those of its root alone
    with pytest.raises(TableReplacedError, match="was replaced since"):
        check_memory(head)
    emptied = changed(table.head, current_snapshot_id=None, refs={}, snapshots=[])
    with pytest.raises(TableReplacedError, match="main is at None"):
        check_memory(emptied)


def test_a_replaced_table_whose_root_and_witness_have_expired_is_found_by_its_files(
    kind: CatalogKind, table: Table
) -> None:
    """Parent links show nothing there: all of its files are newer than the witness. So are those of a table
    that was compacted in whole before its snapshots expired, so it is not said that it was replaced.
    """
    other = kind.open()
    other.commit([Append((kind.file([9]),))])
    newest = other.head.metadata.snapshots[-1]
    of_its_own = [it for it in other.head.manifests if it.added_snapshot_id == newest.snapshot_id]
    alone = newest.model_copy(update={"parent_snapshot_id": None})
    head = changed(other.head, snapshots=[alone], properties=table.head.properties)
    with pytest.raises(TableReplacedError, match="cannot be decided"):
        check_memory(replace(head, manifests=tuple(of_its_own)))


def test_a_gap_between_witness_and_main_is_no_replacement_where_older_files_are_live(
    kind: CatalogKind, table: Table
) -> None:
    """The witness is kept by a tag, and a snapshot after it has expired."""
    other = kind.open()
    for row in (8, 9):
        other.commit([Append((kind.file([row]),))])
    *kept, _, newest = other.head.metadata.snapshots
    head = changed(other.head, snapshots=[*kept, newest], properties=table.head.properties)
    assert check_memory(head) is Descent.EXPIRED


def test_a_rollback_to_before_the_first_row_is_none_to_another_table_though_links_have_expired(
    table: Table,
) -> None:
    first, _, last = table.head.metadata.snapshots
    alone = last.model_copy(update={"parent_snapshot_id": None})
    head = with_main(table.head, first.snapshot_id, snapshots=[first, alone])
    assert check_memory(replace(head, manifests=())) is Descent.EXPIRED


@pytest.mark.parametrize("name", ["streaming-sink.txn.app", "streaming-sink.gc-cutoff"])
def test_memory_that_was_edited_is_damage(table: Table, name: str) -> None:
    edited = changed(table.head, properties={**table.head.properties, name: "{}"})
    with pytest.raises(CorruptTableError, match="were edited"):
        check_memory(edited)


def test_a_lost_transaction_or_witness_is_damage_and_no_new_application(table: Table) -> None:
    stated = table.head.properties
    without = {key: value for key, value in stated.items() if key != "streaming-sink.txn.app"}
    with pytest.raises(CorruptTableError, match="were edited"):
        check_memory(changed(table.head, properties=without))
    without = {key: value for key, value in stated.items() if key != properties.WITNESS}
    with pytest.raises(CorruptTableError, match=r"txn\.app is there"):
        check_memory(changed(table.head, properties=without))
    with pytest.raises(CorruptTableError, match="cannot be read"):
        check_memory(changed(table.head, properties={**stated, properties.WITNESS: "[1]"}))


@pytest.mark.parametrize("knows", [True, False])
def test_no_commit_is_built_on_an_edited_memory(kind: CatalogKind, table: Table, knows: bool) -> None:
    """A head that was loaded before does not show the edit, which no requirement guards; the next does."""
    catalog = kind.read().catalog
    loaded = catalog.load_table(("lake", "table"))
    with loaded.transaction() as edit:
        edit.set_properties({"streaming-sink.txn.app": "{}"})
    if knows:
        table.refresh()
    else:
        table.commit([Append((kind.file([3]),))], transaction=Transaction("b", "query", "run", 0))
    rows = kind.rows()
    with pytest.raises(CorruptTableError, match="were edited"):
        table.commit([Append((kind.file([4]),))], transaction=Transaction("c", "query", "run", 0))
    assert kind.rows() == rows
