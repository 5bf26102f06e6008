"""Staged work items in a catalog, where other engines may bring them to main, or remove their tags (R27)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from pyiceberg.table.snapshots import Operation, Snapshot

from tests.unit.timeline.logs.kinds import LANDED, NOT_LANDED, CatalogKind
from timeline import staging
from timeline.catalogs.memory import Descent, check_memory
from timeline.changes.changes import Append, Replace
from timeline.errors import CommitConflictError
from timeline.stores import local_path
from timeline.stores.base import Store
from timeline.table import AlreadyCommitted, Committed, Table
from timeline.versions import past
from timeline.versions.past import SOURCE_SNAPSHOT_ID, PastState, line_of
from timeline.versions.staged import find_picked, find_staged, staged_files
from timeline.versions.work_items import WorkItem, discarded_items, published_items

ITEM = WorkItem("zone", 7)


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[CatalogKind]:
    made = CatalogKind(tmp_path)
    yield made
    made.close()


@pytest.fixture
def table(kind: CatalogKind) -> Table:
    """A table of one row, with an item of two rows beside it."""
    made = kind.create()
    made.commit([Append((kind.file([1]),))])
    staging.stage_item(made, ITEM, [kind.file([2, 3])])
    return made


def beside(table: Table) -> Snapshot:
    found = find_staged(table.refresh(), ITEM)
    assert found is not None
    return found


def pick(kind: CatalogKind, table: Table, *, named: bool = True) -> None:
    """Bring the staged files to main, as another engine's cherry-pick does."""
    staged = beside(table)
    summary = {SOURCE_SNAPSHOT_ID: str(staged.snapshot_id)} if named else {}
    kind.open().commit([Append(staged_files(table.head, staged))], summary=summary)


def compact(kind: CatalogKind) -> None:
    other = kind.open()
    files = {file.location for file in other.head.live_files()}
    other.commit([Replace(frozenset(files), (kind.file(kind.rows()),))])


def expire_all_but_main(kind: CatalogKind) -> None:
    """Expire what of main is not its newest, as another engine does."""
    other = kind.read()
    held = {ref.snapshot_id for ref in other.metadata.refs.values()}
    with other.maintenance.expire_snapshots() as expire:
        expire.by_ids([each.snapshot_id for each in other.metadata.snapshots if each.snapshot_id not in held])


def is_settled(table: Table) -> bool:
    head = table.refresh()
    return ITEM.number in published_items(head.properties, "zone") and ITEM.tag not in head.metadata.refs


def test_a_staged_item_is_beside_main_with_its_id_under_our_own_key(kind: CatalogKind, table: Table) -> None:
    assert kind.rows() == [1]
    staged = beside(table)
    assert kind.rows(staged.snapshot_id) == [1, 2, 3]
    assert staged.summary is not None
    told = staged.summary.additional_properties
    assert told["streaming-sink.wap-id"] == "zone-7"
    assert "wap.id" not in told
    head = kind.open().head
    assert check_memory(head) is Descent.FOLLOWED
    # Main has moved, as with each commit of ours, and its snapshot is none of the item's.
    assert head.snapshot is not None
    assert head.snapshot.summary is not None
    assert head.snapshot.summary.operation == Operation.REPLACE
    assert "streaming-sink.wap-id" not in head.snapshot.summary.additional_properties
    assert find_picked(head, ITEM) is None


def test_it_is_published_once_and_its_tag_leaves(kind: CatalogKind, table: Table) -> None:
    assert isinstance(staging.publish_item(kind.open(), ITEM), Committed)
    assert kind.rows() == [1, 2, 3]
    assert is_settled(table)
    assert isinstance(staging.publish_item(table, ITEM), AlreadyCommitted)
    assert kind.rows() == [1, 2, 3]


@pytest.mark.parametrize("answer", [LANDED, NOT_LANDED])
def test_an_answer_that_is_lost_stages_and_publishes_once(kind: CatalogKind, answer: str) -> None:
    table = kind.create()
    kind.answers.append(answer)
    staging.stage_item(table, ITEM, [kind.file([2, 3])])
    assert kind.rows() == []
    kind.answers.append(answer)
    staging.publish_item(table, ITEM)
    assert kind.rows() == [2, 3]
    assert is_settled(table)


def test_a_discard_moves_main_and_the_item_never_lands(kind: CatalogKind, table: Table) -> None:
    main = kind.read().metadata.current_snapshot_id
    staging.discard_item(table, ITEM)
    assert kind.read().metadata.current_snapshot_id != main
    assert 7 in discarded_items(kind.open().head.properties, "zone")
    assert isinstance(staging.stage_item(kind.open(), ITEM, [kind.file([4])]), AlreadyCommitted)
    assert kind.rows() == [1]


@pytest.mark.parametrize("named", [True, False], ids=["by its source", "by its files"])
def test_one_that_was_cherry_picked_is_recorded_and_never_appended_again(
    kind: CatalogKind, table: Table, named: bool
) -> None:
    pick(kind, table, named=named)
    assert kind.rows() == [1, 2, 3]
    with pytest.raises(CommitConflictError, match="another engine has brought to main"):
        staging.publish_item(table, ITEM)
    assert isinstance(staging.settle_picked(table, ITEM), Committed)
    assert is_settled(table)
    assert isinstance(staging.publish_item(table, ITEM), AlreadyCommitted)
    assert kind.rows() == [1, 2, 3]


def test_one_that_is_picked_while_it_is_published_is_refused_on_the_newer_head(
    kind: CatalogKind, table: Table
) -> None:
    kind.answers.append(lambda: pick(kind, kind.open()))
    ours = kind.create()
    ours.refresh()
    with pytest.raises(CommitConflictError, match="another engine has brought to main"):
        staging.publish_item(ours, ITEM)
    assert kind.rows() == [1, 2, 3]


def test_one_that_was_picked_and_compacted_is_known_by_its_source(kind: CatalogKind, table: Table) -> None:
    pick(kind, table)
    compact(kind)
    assert isinstance(staging.settle_picked(kind.open(), ITEM), Committed)
    assert is_settled(table)


def test_one_that_was_picked_compacted_and_expired_is_known_by_the_log(
    kind: CatalogKind, table: Table
) -> None:
    pick(kind, table)
    compact(kind)
    expire_all_but_main(kind)
    with pytest.raises(CommitConflictError, match="another engine has brought to main"):
        staging.publish_item(table, ITEM)
    assert isinstance(staging.settle_picked(kind.open(), ITEM), Committed)
    assert is_settled(table)
    assert kind.rows() == [1, 2, 3]


def test_a_metadata_file_that_is_gone_hides_no_pick_that_an_earlier_one_shows(
    kind: CatalogKind, table: Table
) -> None:
    pick(kind, table)
    compact(kind)
    expire_all_but_main(kind)
    for number in (4, 5):
        kind.open().commit([Append((kind.file([number]),))])
    newest = kind.read().metadata.metadata_log[-1]
    Path(local_path(newest.metadata_file)).unlink()
    with pytest.raises(CommitConflictError, match="another engine has brought to main"):
        staging.publish_item(kind.open(), ITEM)
    assert isinstance(staging.settle_picked(kind.open(), ITEM), Committed)
    assert kind.rows() == [1, 2, 3, 4, 5]


def test_a_process_reads_each_metadata_file_once_however_often_it_looks_for_a_pick(
    kind: CatalogKind, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a publish of what has waited for long would take longer than others take for a commit."""
    for number in (4, 5):
        kind.open().commit([Append((kind.file([number]),))])
    expire_all_but_main(kind)
    read: list[str] = []
    plain = past._read_state

    def state(store: Store, location: str) -> PastState | None:
        read.append(location)
        return plain(store, location)

    monkeypatch.setattr(past, "_read_state", state)
    ours = kind.open()
    assert find_picked(ours.head, ITEM) is None
    assert len(read) == len(set(read)) > 1
    read.clear()
    assert find_picked(ours.head, ITEM) is None
    kind.open().commit([Append((kind.file([6]),))])
    assert find_picked(ours.refresh(), ITEM) is None
    assert read == []
    pick(kind, table)
    compact(kind)
    expire_all_but_main(kind)
    assert find_picked(ours.refresh(), ITEM) is not None


def test_one_that_was_picked_and_rolled_back_is_published(kind: CatalogKind, table: Table) -> None:
    before = kind.read().metadata.current_snapshot_id
    assert before is not None
    pick(kind, table)
    with kind.read().manage_snapshots() as manage:
        manage.set_current_snapshot(before)
    kind.open().commit([Append((kind.file([4]),))])
    expire_all_but_main(kind)
    assert staging.settle_picked(kind.open(), ITEM) is None
    assert isinstance(staging.publish_item(kind.open(), ITEM), Committed)
    assert kind.rows() == [1, 2, 3, 4]


def test_main_that_was_set_to_the_staged_snapshot_has_it(kind: CatalogKind, table: Table) -> None:
    with kind.read().manage_snapshots() as manage:
        manage.set_current_snapshot(beside(table).snapshot_id)
    assert kind.rows() == [1, 2, 3]
    compact(kind)
    assert isinstance(staging.settle_picked(kind.open(), ITEM), Committed)
    assert kind.rows() == [1, 2, 3]


def test_a_tag_that_was_removed_is_written_anew(kind: CatalogKind, table: Table) -> None:
    with kind.read().manage_snapshots() as manage:
        manage.remove_tag(ITEM.tag)
    again = kind.open()
    assert find_staged(again.head, ITEM) is None
    assert staging.settle_picked(again, ITEM) is None
    staging.stage_item(again, ITEM, [kind.file([2, 3])])
    staging.publish_item(again, ITEM)
    assert kind.rows() == [1, 2, 3]


def test_one_without_its_tag_that_was_picked_is_not_written_again(kind: CatalogKind, table: Table) -> None:
    pick(kind, table)
    with kind.read().manage_snapshots() as manage:
        manage.remove_tag(ITEM.tag)
    assert isinstance(staging.settle_picked(kind.open(), ITEM), Committed)
    assert is_settled(table)


def test_one_that_was_picked_is_neither_discarded_nor_unstaged(kind: CatalogKind, table: Table) -> None:
    """Its rows are in main: it would land once more, or pass for one that never lands."""
    staged = beside(table)
    pick(kind, table)
    with pytest.raises(CommitConflictError, match="another engine has brought to main: it has landed"):
        staging.discard_item(kind.open(), ITEM)
    with pytest.raises(CommitConflictError, match="another engine has brought to main: it has landed"):
        staging.unstage_item(kind.open(), ITEM, staged.snapshot_id)
    assert beside(table) == staged
    assert isinstance(staging.settle_picked(kind.open(), ITEM), Committed)
    assert is_settled(table)


def test_one_that_is_picked_while_it_is_unstaged_is_refused_on_the_newer_head(
    kind: CatalogKind, table: Table
) -> None:
    staged = beside(table)
    kind.answers.append(lambda: pick(kind, kind.open()))
    ours = kind.create()
    with pytest.raises(CommitConflictError, match="another engine has brought to main"):
        staging.unstage_item(ours, ITEM, staged.snapshot_id)
    assert beside(table) == staged


def test_a_line_of_snapshots_ends_where_an_ancestor_names_its_descendant() -> None:
    assert list(islice(line_of(1, {1: 2, 2: 3, 3: 1}), 9)) == [1, 2, 3]
    assert list(line_of(1, {1: 2, 2: 3})) == [1, 2]
