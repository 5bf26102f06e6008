"""Check what position-delete files delete: rows that are there, of files that are live, each once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFileContent

from timeline.diagnosis.findings import Finding, count, damage, some, warning
from timeline.diagnosis.reachable import READERS, Reachable
from timeline.manifests.deletes import DeleteIndex
from timeline.manifests.entries import LiveFile
from timeline.stores.base import Store

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class _Read:
    """What a delete file deletes, by its content."""

    file: LiveFile
    problem: str = ""
    """Why it cannot be read."""
    positions: Mapping[str, pa.Array] = field(default_factory=dict)
    """By the data files that it names."""


def check_deletes(found: Reachable) -> Iterator[Finding]:
    """Yield what is wrong with the position-delete files. Reads all of them; those that are missing are
    reported as such.
    """
    deletes = [each for each in found.delete_files if each.content == DataFileContent.POSITION_DELETES]
    if not deletes:
        return
    idle = _find_idle(found, deletes)
    yield from _check_none_dangles(sorted(idle))
    wanted = [each for each in deletes if not (found.is_missing(each.location) or each.location in idle)]
    with ThreadPoolExecutor(READERS, thread_name_prefix="doctor") as pool:
        read = list(pool.map(partial(_read, found.store), wanted))
    data = _find_data(found, {path for each in read for path in (*each.positions, each.file.refers_to)})
    yield from _check_all_can_be_read([f"{it.file.location}: {it.problem}" for it in read if it.problem])
    readable = [it for it in read if not it.problem]
    differ = (_find_difference(it, data) for it in readable)
    yield from _check_they_delete_what_is_stated([each for each in differ if each])
    yield from _check_no_row_is_deleted_twice(_count_doubles(readable, data))


def _find_idle(found: Reachable, deletes: Sequence[LiveFile]) -> set[str]:
    """Return the delete files that may apply to no data file of the current snapshot."""
    index, idle = DeleteIndex(deletes), {each.location for each in deletes}
    for columns in found.live_columns():
        for file in columns.files():
            idle.difference_update(each.location for each in index.find(file))
    return idle


def _find_data(found: Reachable, named: Collection[str | None]) -> dict[str, LiveFile]:
    """Return those of these files that are data files of the current snapshot."""
    files = (file for columns in found.live_columns() for file in columns.files())
    return {file.location: file for file in files if file.location in named}


def _read(store: Store, file: LiveFile) -> _Read:
    # Here, since nothing else on the timeline needs Arrow.
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        with store.open_input(store.relative(file.location)) as source:
            given = pq.ParquetFile(pa.PythonFile(source, mode="r"), page_checksum_verification=True)
            rows = given.read(columns=["file_path", "pos"]).select(["file_path", "pos"])
        if (stated := given.metadata.num_rows) != rows.num_rows:  # pyarrow passes over some damaged pages
            raise pa.ArrowInvalid(f"its pages have {rows.num_rows:,} rows, and its footer states {stated:,}")
        paths, positions = rows["file_path"], rows["pos"]
        found = {
            path: positions.filter(pc.equal(paths, path)).combine_chunks()
            for path in pc.unique(paths).to_pylist()
        }
    except (pa.ArrowException, OSError, LookupError, UnicodeDecodeError) as damage:
        return _Read(file, " ".join(str(damage).split())[:200])
    return _Read(file, positions=found)


def _find_difference(read: _Read, data: Mapping[str, LiveFile]) -> str:
    """Return how a delete file deletes other rows than the table says; "" if it does not."""
    import pyarrow.compute as pc

    file, alone = read.file, read.file.refers_to
    named = {path: it for path, it in read.positions.items() if alone in (None, path)}
    holds, beyond = sum(map(len, named.values())), 0
    for path, positions in named.items():
        if path in data:
            outside = pc.or_(pc.less(positions, 0), pc.greater_equal(positions, data[path].rows))
            beyond += pc.sum(outside).as_py() or 0
    if holds == file.rows and not beyond:
        return ""
    of = f" of {data[alone].rows:,}" if alone is not None and alone in data else ""
    return (
        f"{file.location} is stated to delete {count(file.rows, 'row')}{of}, and holds {holds:,},"
        f" {beyond:,} of them beyond its end"
    )


def _count_doubles(read: Sequence[_Read], data: Mapping[str, LiveFile]) -> dict[str, int]:
    """Return how many rows of which live data files more than one delete file deletes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    by_file: dict[str, list[pa.Array]] = defaultdict(list)
    for each in read:
        for path, positions in each.positions.items():
            if path in data and each.file.sequence_number >= data[path].sequence_number:
                by_file[path].append(positions)
    doubles = {}
    for path, arrays in by_file.items():
        every = pa.concat_arrays(arrays)
        if twice := len(every) - len(pc.unique(every)):
            doubles[path] = twice
    return doubles


def _check_none_dangles(dangling: Sequence[str]) -> Iterator[Finding]:
    if dangling:
        yield warning(
            kind="delete-file-dangling",
            what=f"{count(len(dangling), 'delete file')} of data files that are not live:"
            f" {some(sorted(dangling))}",
            means="no row is at risk: readers apply them to nothing. This sink takes the delete files of a"
            " data file away with it, so another engine has left them, or has replaced the data files",
            repair="none needed; the next fill, fold or clustering takes them away",
        )


def _check_all_can_be_read(unreadable: Sequence[str]) -> Iterator[Finding]:
    if unreadable:
        yield damage(
            kind="delete-file-unreadable",
            what=f"{count(len(unreadable), 'delete file')} that cannot be read: {some(unreadable)}",
            means="reads of the data files that they delete from fail. Appends may go on; these data files"
            " are neither filled nor clustered",
            repair="restore them byte for byte from a backup, or from the bucket's earlier object versions",
        )


def _check_they_delete_what_is_stated(wrong: Sequence[str]) -> Iterator[Finding]:
    if wrong:
        yield damage(
            kind="deletes-differ",
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
        yield warning(
            kind="row-deleted-twice",
            what=f"{count(sum(twice.values()), 'row')} that more than one delete file deletes, of"
            f" {count(len(twice), 'data file')}: {some(sorted(twice))}",
            means="this sink refuses the second of two such commits, so another engine has made one, or a"
            " program that shows deletes as applied which it has not read. Each may have put a new row in the"
            " place of the same old one, and both are live",
            repair="look for rows of one key in the table, and keep one. The delete files need no repair",
        )
