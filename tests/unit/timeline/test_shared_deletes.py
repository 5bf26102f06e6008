"""Delete files that many data files share: where they apply, what folds them, and when they leave."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.typedef import Record

from tests.unit.timeline.test_manifest_reads import reading
from tests.unit.timeline.test_row_deltas import committed, delete_files, summary
from tests.unit.timeline.world import Audit, Lake, data_file
from timeline.changes.changes import Append, Replace
from timeline.changes.delete_merges import MergeDeletes
from timeline.changes.row_deltas import RowDelta
from timeline.errors import RowsChangedError
from timeline.manifests.deletes import DeleteIndex, find_idle
from timeline.manifests.entries import DeleteFile, LiveFile, added_file, shared_deletes
from timeline.table import Committed


class Sea(Lake):
    """A lake of four files, ordered by path, and a shared delete file of a row of each of the first three."""

    def __init__(self) -> None:
        super().__init__()
        made = tuple(sorted((self.file() for _ in range(4)), key=lambda file: file.file_path))
        self.files: tuple[DataFile, ...] = made
        self.table.commit([Append(made)])
        self.first = self.delete((0, 1), (1, 2), (2, 3))

    def delete(self, *rows: tuple[int, int], known: Sequence[DeleteFile] = ()) -> DeleteFile:
        shared = self.share({self.files[file].file_path: [position] for file, position in rows})
        committed(self.table, RowDelta((), (shared,), frozenset(each.file_path for each in known)))
        return shared

    def fold(self, *numbers: int, deletes: Sequence[DeleteFile]) -> Replace:
        """The replace of some files by one of their live rows."""
        folds = [self.folded(self.files[number], *deletes) for number in numbers]
        rows = [row for fold in folds for row in self.rows[fold.added[0].file_path]]
        return Replace(
            frozenset(self.files[number].file_path for number in numbers),
            (self.file(rows),),
            frozenset(each.file_path for each in deletes),
            sum(fold.deleted_rows for fold in folds),
        )

    def applying(self) -> list[int]:
        """How many delete files may apply to each of the files that are live."""
        head = self.open().head
        live = (head.find_live(file.file_path) for file in self.files)
        return [-1 if file is None else len(head.deletes_of(file)) for file in live]

    def left(self) -> int:
        return self.live_rows().total()


@pytest.fixture
def sea() -> Sea:
    return Sea()


def test_a_shared_delete_file_states_the_range_of_its_paths_and_no_data_file(sea: Sea) -> None:
    assert sea.first.referenced_data_file is None
    bounds = (sea.first.lower_bounds, sea.first.upper_bounds)
    paths = [each[2147483546].decode() for each in bounds]
    assert paths == [sea.files[0].file_path, sea.files[2].file_path]
    assert (sea.left(), sea.applying()) == (37, [1, 1, 1, 0])
    assert {key: summary(sea)[key] for key in ("added-position-deletes", "added-delete-files")} == {
        "added-position-deletes": "3",
        "added-delete-files": "1",
    }
    Audit(sea.store).check()


def test_one_of_a_single_data_file_states_it() -> None:
    of_one = shared_deletes("d", {"s3://t/a": 2}, size=1, spec_id=0, partition=Record(7))
    assert of_one.referenced_data_file == "s3://t/a"
    assert of_one.record_count == 2


def test_a_fold_leaves_out_the_rows_that_shared_delete_files_name_and_these_stay(sea: Sea) -> None:
    committed(sea.table, sea.fold(1, deletes=[sea.first]))
    assert (sea.left(), sea.applying()) == (37, [1, -1, 1, 0])
    assert delete_files(sea) == {sea.first.file_path}
    Audit(sea.store).check()


def test_a_fold_that_has_not_read_a_shared_delete_file_is_dropped(sea: Sea) -> None:
    new = sea.file(p=3)
    whole = Replace(frozenset({sea.files[0].file_path}), (sea.merged(sea.files[0]),))
    done = sea.table.commit([Append((new,)), whole])
    assert isinstance(done, Committed)
    assert "has deletes that the replace has not applied" in done.dropped[0].reason


@pytest.mark.parametrize("deleted_rows", [0, 2], ids=["fewer", "more"])
def test_a_fold_keeps_its_rows_as_far_as_the_metadata_says(sea: Sea, deleted_rows: int) -> None:
    """Of a shared file it may have left out none, and all that it holds at most."""
    rows = sea.rows[sea.files[3].file_path][: 10 - deleted_rows]
    applied = frozenset[str]() if deleted_rows else frozenset({sea.first.file_path})
    number = 3 if deleted_rows else 0
    fold = Replace(frozenset({sea.files[number].file_path}), (sea.file(rows),), applied, deleted_rows)
    if deleted_rows:
        with pytest.raises(ValueError, match="must keep its live rows"):
            sea.table.commit([fold])
    else:
        assert isinstance(sea.table.commit([fold]), Committed)


def test_a_shared_delete_file_leaves_with_the_last_data_file_that_it_may_apply_to(sea: Sea) -> None:
    committed(sea.table, sea.fold(0, 2, deletes=[sea.first]))
    assert delete_files(sea) == {sea.first.file_path}
    committed(sea.table, sea.fold(1, deletes=[sea.first]))
    assert (delete_files(sea), sea.left()) == (set(), 37)
    assert summary(sea)["removed-delete-files"] == "1"
    Audit(sea.store).check()


def test_files_that_came_later_do_not_keep_a_shared_delete_file(sea: Sea) -> None:
    """What a fold adds may lie between the paths of its range."""
    fold = sea.fold(0, 1, 2, deletes=[sea.first])
    inside = sea.files[0].file_path.replace(".parquet", ".x.parquet")
    sea.rows[inside] = sea.rows.pop(fold.added[0].file_path)
    fold.added[0]._data[1] = inside
    assert sea.files[0].file_path < inside < sea.files[1].file_path
    committed(sea.table, fold)
    assert (delete_files(sea), sea.left()) == (set(), 37)


def test_two_row_deltas_that_share_a_delete_file_are_in_conflict_where_these_may_overlap(sea: Sea) -> None:
    mine, theirs = sea.open(), sea.share({sea.files[0].file_path: [5], sea.files[2].file_path: [5]})
    known = frozenset({sea.first.file_path})
    committed(sea.table, RowDelta((), (theirs,), known))
    between = RowDelta((), (sea.deletes(sea.files[1], 6),), known)
    with pytest.raises(RowsChangedError) as refused:
        mine.commit([between])
    assert refused.value.files == (sea.files[1].file_path,)
    beyond = RowDelta((), (sea.deletes(sea.files[3], 6),))
    assert isinstance(mine.commit([beyond]), Committed)


def test_a_row_delta_over_a_fold_of_one_of_many_data_files_names_that_one(sea: Sea) -> None:
    mine = sea.share({file.file_path: [7] for file in sea.files})
    committed(sea.open(), sea.fold(2, deletes=[sea.first]))
    with pytest.raises(RowsChangedError) as refused:
        sea.table.commit([RowDelta((), (mine,), frozenset({sea.first.file_path}))])
    assert refused.value.files == (sea.files[2].file_path,)


def test_more_rows_than_a_data_file_has_are_refused_in_a_shared_delete_file_too(sea: Sea) -> None:
    wrong = sea.share({sea.files[3].file_path: range(11), sea.files[0].file_path: [7]})
    with pytest.raises(ValueError, match="11 rows are deleted of a file of 10"):
        sea.table.commit([RowDelta((), (wrong,), frozenset({sea.first.file_path}))])


def test_two_changes_of_a_commit_do_not_delete_from_one_file(sea: Sea) -> None:
    own, shared = sea.deletes(sea.files[3], 1), sea.share({file.file_path: [9] for file in sea.files})
    with pytest.raises(ValueError, match="two changes of one commit delete from one file"):
        sea.table.commit([RowDelta((), (own,)), RowDelta((), (shared,))])


# ------------------------------------------------------------------------------------------- merges


def merged(
    sea: Sea, *deletes: DeleteFile, without: Sequence[int] = (), alone: Sequence[int] = ()
) -> MergeDeletes:
    """A merge of shared delete files, without the positions in some data files, and with a delete file of
    their own for others.
    """
    parts = {
        number: frozenset().union(*(sea.gone(file.file_path, each.file_path) for each in deletes))
        for number, file in enumerate(sea.files)
    }
    own = [sea.deletes(sea.files[number], *parts.pop(number)) for number in alone]
    forgotten = {sea.files[number].file_path: len(parts.pop(number)) for number in without}
    shared = sea.share({sea.files[number].file_path: these for number, these in parts.items() if these})
    return MergeDeletes(
        frozenset(each.file_path for each in deletes),
        (*own, shared),
        frozenset(forgotten),
        sum(forgotten.values()),
    )


def test_runs_are_merged_into_shared_files_and_those_of_one_data_file(sea: Sea) -> None:
    second = sea.delete((0, 5), (3, 5), known=[sea.first])
    mine = merged(sea, sea.first, second, alone=[0])
    committed(sea.table, mine)
    assert (sea.left(), sea.applying()) == (35, [1, 1, 1, 1])
    assert delete_files(sea) == {each.file_path for each in mine.added}
    Audit(sea.store).check()


def test_a_merge_leaves_out_the_data_files_that_have_left(sea: Sea) -> None:
    committed(sea.table, sea.fold(1, deletes=[sea.first]))
    mine = merged(sea, sea.first, without=[1])
    committed(sea.table, mine)
    assert (sea.left(), sea.applying()) == (37, [1, -1, 1, 0])
    assert sea.files[1].file_path not in mine.data_files


def test_a_merge_that_leaves_out_a_data_file_that_is_live_is_dropped(sea: Sea) -> None:
    """It was rolled back to: its deleted rows would come back."""
    mine = merged(sea, sea.first, without=[1])
    done = sea.table.commit([Append((sea.file(),)), mine])
    assert isinstance(done, Committed)
    assert (
        done.dropped[0].reason == f"a data file is live whose deletes are left out: {sea.files[1].file_path}"
    )
    assert sea.left() == 47


def test_a_merge_over_a_fold_keeps_what_that_file_shared_and_loses_what_it_had_alone(sea: Sea) -> None:
    """Positions in a file that has left delete nothing, and the next merge leaves them out."""
    whole, apart = merged(sea, sea.first), merged(sea, sea.first, alone=[1])
    committed(sea.open(), sea.fold(1, deletes=[sea.first]))
    done = sea.table.commit([Append((sea.file(),)), apart])
    assert isinstance(done, Committed)
    assert done.dropped[0].reason == f"another commit has replaced the data file: {sea.files[1].file_path}"
    committed(sea.table, whole)
    assert (sea.left(), sea.applying()) == (47, [1, -1, 1, 0])


def test_a_merge_keeps_all_positions(sea: Sea) -> None:
    second = sea.delete((0, 5), (3, 5), known=[sea.first])
    mine = merged(sea, sea.first, second)
    few = MergeDeletes(mine.removed, (sea.share({sea.files[0].file_path: [1], sea.files[1].file_path: [2]}),))
    with pytest.raises(ValueError, match="must keep their rows: it has 2 in the place of 3 to 5"):
        sea.table.commit([few])
    own = sea.deletes(sea.files[3], 8)
    committed(sea.table, RowDelta((), (own,), frozenset({second.file_path})))
    foreign = MergeDeletes(frozenset({own.file_path, sea.first.file_path}), merged(sea, sea.first).added)
    with pytest.raises(ValueError, match="leaves out what this delete file deletes"):
        sea.table.commit([foreign])


def test_deletes_by_value_are_not_merged(sea: Sea) -> None:
    by_value = sea.add_delete_file(0, content=DataFileContent.EQUALITY_DELETES)
    sea.table.refresh()
    with pytest.raises(ValueError, match="leaves out what this delete file deletes"):
        sea.table.commit([MergeDeletes(frozenset({by_value}), merged(sea, sea.first).added)])


# -------------------------------------------------------------------------------------- which apply

_paths = st.text("ab", min_size=1, max_size=3)


@st.composite
def _files(draw: st.DrawFn) -> tuple[list[LiveFile], list[LiveFile]]:
    data, deletes = [], []
    for path in draw(st.lists(_paths, unique=True, max_size=8)):
        partition = (draw(st.sampled_from([0, 1, None])),)
        data.append(LiveFile(path, 0, partition, 10, 10, 0, draw(st.integers(1, 6))))
    for at in range(draw(st.integers(0, 6))):
        bounds = draw(st.none() | st.tuples(_paths, _paths))
        content = (
            DataFileContent.POSITION_DELETES if bounds else draw(st.sampled_from(list(DataFileContent)[1:]))
        )
        range_ = None if bounds is None else tuple(each.encode() for each in sorted(bounds))
        partition = (draw(st.sampled_from([0, 1, None])),)
        deletes.append(
            LiveFile(f"d{at}", 0, partition, 10, 1, 0, draw(st.integers(1, 6)), None, content, range_)  # type: ignore[arg-type]
        )
    return data, deletes


def _applies(delete: LiveFile, file: LiveFile, *, is_partitioned: bool) -> bool:
    """Iceberg's spec, in its words, but that deletes without partition values apply everywhere, unless their
    spec is known to have fields.
    """
    if delete.sequence_number < file.sequence_number:
        return False
    if delete.refers_to is not None:
        return delete.refers_to == file.location
    anywhere = delete.partition == (None,) and not is_partitioned
    if not anywhere and delete.partition != file.partition:
        return False
    if delete.applies_to is None:
        return True
    return delete.applies_to[0] <= file.location.encode() <= delete.applies_to[1]


@pytest.mark.parametrize("is_partitioned", [False, True])
@given(_files())
def test_what_may_apply_is_what_the_spec_says(
    is_partitioned: bool, known: tuple[list[LiveFile], list[LiveFile]]
) -> None:
    data, deletes = known
    partitioned = {0} if is_partitioned else frozenset[int]()
    applies = partial(_applies, is_partitioned=is_partitioned)
    index = DeleteIndex(deletes, partitioned)
    for file in data:
        found = {each.location for each in index.find(file)}
        assert found == {each.location for each in deletes if applies(each, file)}
    idle = {
        each.location
        for each in deletes
        if each.content == DataFileContent.POSITION_DELETES and not any(applies(each, it) for it in data)
    }
    assert find_idle(deletes, data, partitioned) == idle


def test_a_wide_delete_of_a_partition_of_nulls_has_only_manifests_read_that_have_nulls() -> None:
    lake = Lake()

    def of_nulls(rows: int = 10) -> DataFile:
        return data_file(lake.file(p=1).file_path, rows, partition=Record(None))

    nulls = [of_nulls(), of_nulls()]
    lake.table.commit([Append(tuple(nulls))])
    for p in (1, 2, 3, 4):
        lake.clock.now_ms += 1_000
        lake.table.commit([Append((lake.file(p=p),))])
    rows_of = {it.file_path: 1 for it in nulls}
    deletes = shared_deletes(lake.file().file_path, rows_of, size=9, spec_id=0, partition=Record(None))
    committed(lake.table, RowDelta((), (deletes,)))
    table, store = reading(lake)
    store.manifests()
    committed(table, Replace(frozenset(rows_of), (of_nulls(18),), frozenset({deletes.file_path}), 2))
    of_nulls_and_of_deletes = 2
    assert store.manifests() == of_nulls_and_of_deletes
    assert not list(table.head.delete_files())


def test_a_shared_delete_file_knows_its_data_files_until_it_is_written(sea: Sea) -> None:
    head = sea.open().head
    (manifest,) = [each for each in head.manifests if each.content.value == 1]
    (entry,) = head.manifest_files.entries(manifest)
    assert entry.data_file.rows_of == {}
    assert dict(sea.first.rows_of) == {file.file_path: 1 for file in sea.files[:3]}
    with pytest.raises(ValueError, match="must say which data files it names"):
        sea.table.commit([RowDelta((), (entry.data_file,))])
    assert added_file(sea.files[0]).location == sea.files[0].file_path
