"""Which delete files apply to a data file (Iceberg spec, scan planning), how many rows stay live, and which
delete files apply to none.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from pyiceberg.manifest import DataFileContent

from timeline.manifests.entries import LiveFile

_Partition = tuple[int, tuple[object, ...]]


class DeleteIndex:
    """The delete files of one snapshot, found by the data files that they may apply to.

    A position-delete file that names one data file applies to that file alone. One whose paths span a range
    applies to the files of its partition within the range; one without bounds, and equality deletes, to all
    files of their partition. Deletes without partition values apply in every partition: a spec without
    fields, or with `void` transforms only, counts as unpartitioned. A partition of nulls is one of its own
    where its spec is among the `partitioned` ones; where that is not known, it costs a replace at most. None
    applies to a file of a higher sequence number, since that was added later.
    """

    def __init__(self, deletes: Iterable[LiveFile], partitioned: Collection[int] = frozenset()) -> None:
        self._partitioned = partitioned
        self._by_file: dict[str, list[LiveFile]] = defaultdict(list)
        wide: dict[_Where, list[LiveFile]] = defaultdict(list)
        for delete in deletes:
            if (location := delete.refers_to) is not None:
                self._by_file[location].append(delete)
            else:
                wide[_where(delete, partitioned)].append(delete)
        self._wide = {where: _Ranges(these) for where, these in wide.items()}

    def find(self, file: LiveFile) -> list[LiveFile]:
        """Return the delete files that may apply to a data file."""
        if file.content != DataFileContent.DATA:
            return []
        return [each for each in self._near(file) if each.sequence_number >= file.sequence_number]

    @property
    def all_name_one_file(self) -> bool:
        """Whether there are no deletes but of one data file alone each."""
        return not self._wide

    def named_files(self, partitions: Collection[_Partition] | None = None) -> Iterable[str]:
        """Return the locations that position-delete files name alone, of some partitions at least where these
        are given; they may be live or not.
        """
        if partitions is None:
            return self._by_file.keys()
        return [
            location
            for location, deletes in self._by_file.items()
            if any((it.spec_id, it.partition) in partitions or _has_nan(it) for it in deletes)
        ]

    def shared_in(self) -> Collection[_Partition] | None:
        """Return the partitions in which deletes apply that name no data file alone; None for all of them."""
        return None if None in self._wide else [where for where in self._wide if where is not None]

    def _near(self, file: LiveFile) -> Iterator[LiveFile]:
        yield from self._by_file.get(file.location, ())
        for where in {_where(file, self._partitioned), None}:
            if (ranges := self._wide.get(where)) is not None:
                yield from ranges.find(file.location.encode())


def live_rows(file: LiveFile, deletes: Iterable[LiveFile]) -> int:
    """Return how many rows of a data file are not deleted by those of its delete files that name it alone;
    those of a range or by value may match none.
    """
    own = (each.rows for each in deletes if each.refers_to is not None)
    return max(0, file.rows - sum(own))


def live_bytes(file: LiveFile, rows: int) -> int:
    """Return a file's size, scaled by the share that so many live rows are of all."""
    return file.bytes if rows == file.rows else file.bytes * rows // file.rows


_Where = tuple[int, tuple[object, ...]] | None
"""A partition spec and a partition of it; None for all of the table."""


def _has_nan(file: LiveFile) -> bool:
    return any(value != value for value in file.partition)


def applies_anywhere(delete: LiveFile, partitioned: Collection[int]) -> bool:
    """Return whether a delete file that names no data file alone applies in every partition; `partitioned` as
    of a `DeleteIndex`.
    """
    return _where(delete, partitioned) is None


def may_apply_in(delete: LiveFile, partitions: Collection[_Partition], partitioned: Collection[int]) -> bool:
    """Return whether such a delete file applies in one of these partitions."""
    where = _where(delete, partitioned)
    return where is None or where in partitions


def _where(file: LiveFile, partitioned: Collection[int]) -> _Where:
    has_values = file.spec_id in partitioned or any(value is not None for value in file.partition)
    return (file.spec_id, file.partition) if has_values else None


class _Ranges:
    """Delete files of one partition, each with a range of the paths that it may name."""

    def __init__(self, deletes: Sequence[LiveFile]) -> None:
        spans = [(*_span(delete), delete) for delete in deletes]
        self._starts = sorted({start for start, _, _ in spans} | {end for _, end, _ in spans if end})
        self._found: list[list[LiveFile]] = [[] for _ in self._starts]
        for start, end, delete in spans:
            last = bisect_left(self._starts, end) if end else len(self._starts)
            for place in range(bisect_left(self._starts, start), last):
                self._found[place].append(delete)

    def find(self, path: bytes) -> Sequence[LiveFile]:
        place = bisect_right(self._starts, path) - 1
        return self._found[place] if place >= 0 else ()


def _span(delete: LiveFile) -> tuple[bytes, bytes]:
    """Return the least path that a delete file may name, and the least one behind all of these; b"" for no
    bound.
    """
    if delete.applies_to is None:
        return b"", b""
    return delete.applies_to[0], delete.applies_to[1] + b"\0"


def find_idle(
    deletes: Iterable[LiveFile],
    data_files: Sequence[LiveFile],
    partitioned: Collection[int] = frozenset(),
) -> frozenset[str]:
    """Return the locations of the position-delete files that may apply to none of these data files.
    `partitioned` as of a `DeleteIndex`.
    """
    positions = [each for each in deletes if each.content == DataFileContent.POSITION_DELETES]
    sequences = {file.location: file.sequence_number for file in data_files} if positions else {}
    wide = [each for each in positions if each.refers_to is None]
    paths: dict[_Where, list[tuple[bytes, int]]] = defaultdict(list)
    for file in data_files if wide else ():
        for where in {_where(file, partitioned), None}:
            paths[where].append((file.location.encode(), file.sequence_number))
    for near in paths.values():
        near.sort()
    idle = {each.location for each in wide if not _applies_to_any(each, paths[_where(each, partitioned)])}
    for each in positions:
        if each.refers_to is not None and sequences.get(each.refers_to, math.inf) > each.sequence_number:
            idle.add(each.location)
    return frozenset(idle)


def _applies_to_any(delete: LiveFile, paths: Sequence[tuple[bytes, int]]) -> bool:
    """Return whether a delete file may apply to one of these data files: sorted, each a path and a sequence
    number.
    """
    start, end = _span(delete)
    for place in range(bisect_left(paths, (start, 0)), len(paths)):
        path, sequence_number = paths[place]
        if end and path >= end:
            return False
        if sequence_number <= delete.sequence_number:
            return True
    return False
