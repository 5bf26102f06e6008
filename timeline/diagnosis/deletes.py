"""Check what position-delete files delete: rows that are there, of files that are live, each once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from timeline.diagnosis.files import READERS, Reachable
from timeline.diagnosis.findings import Finding, Severity, count, some
from timeline.stores.base import Store
from timeline.versions.entries import LiveFile


@dataclass
class _Deleted:
    """What the delete files of one data file delete of it, by their content."""

    unreadable: list[str]
    wrong: list[str]
    """Delete files that delete other rows than the table says, and how."""
    twice: int = 0
    """Rows that more than one of them deletes."""


def check_deletes(found: Reachable, objects: Mapping[str, int], store: Store) -> Iterator[Finding]:
    """Yield what is wrong with the delete files that name one data file alone. Reads all of them; those that
    are missing are reported as such.
    """
    gone = set(found.missing(objects, store))
    by_file: dict[str, list[LiveFile]] = defaultdict(list)
    for delete in found.delete_files:
        if delete.refers_to is not None:
            by_file[delete.refers_to].append(delete)
    data = {file.location: file for file in found.data_files}
    yield from _check_none_dangles(
        [each.location for where in by_file.keys() - data.keys() for each in by_file[where]]
    )
    files = [data[where] for where in sorted(by_file.keys() & data.keys())]

    def read(file: LiveFile) -> _Deleted:
        return _read(store, file, [each for each in by_file[file.location] if each.location not in gone])

    with ThreadPoolExecutor(READERS, thread_name_prefix="doctor") as pool:
        deleted = list(pool.map(read, files))
    yield from _check_all_can_be_read([each for it in deleted for each in it.unreadable])
    yield from _check_they_delete_what_is_stated([each for it in deleted for each in it.wrong])
    yield from _check_no_row_is_deleted_twice(
        {file.location: it.twice for file, it in zip(files, deleted, strict=True) if it.twice}
    )


def _read(store: Store, file: LiveFile, deletes: Sequence[LiveFile]) -> _Deleted:
    # Here, since nothing else on the timeline needs Arrow.
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    answer, positions = _Deleted([], []), []
    for delete in deletes:
        try:
            with store.open_input(store.relative(delete.location)) as source:
                rows = pq.read_table(pa.PythonFile(source, mode="r"), columns=["file_path", "pos"])
        except (pa.ArrowException, OSError) as damage:
            answer.unreadable.append(f"{delete.location}: {' '.join(str(damage).split())[:200]}")
            continue
        mine = rows.filter(pc.equal(rows["file_path"], file.location))["pos"]
        beyond = pc.sum(pc.or_(pc.less(mine, 0), pc.greater_equal(mine, file.rows))).as_py() or 0
        if len(mine) != delete.rows or beyond:
            answer.wrong.append(
                f"{delete.location} is stated to delete {count(delete.rows, 'row')} of {file.rows:,}, and"
                f" holds {len(mine):,}, {beyond:,} of them beyond its end"
            )
        positions.append(mine)
    every = pa.chunked_array([chunk for each in positions for chunk in each.chunks], pa.int64())
    answer.twice = len(every) - len(pc.unique(every))
    return answer


def _check_none_dangles(dangling: Sequence[str]) -> Iterator[Finding]:
    if dangling:
        yield Finding(
            kind="delete-file-dangling",
            severity=Severity.WARNING,
            what=f"{count(len(dangling), 'delete file')} of data files that are not live:"
            f" {some(sorted(dangling))}",
            means="no row is at risk: readers apply them to nothing. This sink takes the delete files of a"
            " data file away with it, so another engine has left them, or has replaced the data files",
            repair="none needed; the engine that left them may remove them",
        )


def _check_all_can_be_read(unreadable: Sequence[str]) -> Iterator[Finding]:
    if unreadable:
        yield Finding(
            kind="delete-file-unreadable",
            severity=Severity.DAMAGE,
            what=f"{count(len(unreadable), 'delete file')} that cannot be read: {some(unreadable)}",
            means="reads of the data files that they delete from fail. Appends may go on; these data files"
            " are neither filled nor clustered",
            repair="restore them byte for byte from a backup, or from the bucket's earlier object versions",
        )


def _check_they_delete_what_is_stated(wrong: Sequence[str]) -> Iterator[Finding]:
    if wrong:
        yield Finding(
            kind="deletes-differ",
            severity=Severity.DAMAGE,
            what=f"{count(len(wrong), 'delete file')} that delete other rows than the table says:"
            f" {some(wrong)}",
            means="a delete file was replaced, or its writer counted wrong: rows may be live that were"
            " deleted, or deleted that were not. Appends may go on; these data files are neither filled nor"
            " clustered",
            repair="restore them from a backup. Where there is no other copy, compare the rows of these data"
            " files with their source",
        )


def _check_no_row_is_deleted_twice(twice: Mapping[str, int]) -> Iterator[Finding]:
    if twice:
        yield Finding(
            kind="row-deleted-twice",
            severity=Severity.WARNING,
            what=f"{count(sum(twice.values()), 'row')} that more than one delete file deletes, of"
            f" {count(len(twice), 'data file')}: {some(sorted(twice))}",
            means="this sink refuses the second of two such commits, so another engine has made one, or a"
            " program that shows deletes as applied which it has not read. Each may have put a new row in the"
            " place of the same old one, and both are live",
            repair="look for rows of one key in the table, and keep one. The delete files need no repair",
        )
