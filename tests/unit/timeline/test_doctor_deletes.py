"""What the doctor finds of delete files: missing, damaged, of files that have left, and of wrong rows."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.timeline.test_doctor import DAMAGE, WARNING, Patient, doctor
from timeline.changes.changes import Append, Replace
from timeline.changes.key_changes import PutTombstones
from timeline.changes.row_deltas import RowDelta
from timeline.manifests.entries import DeleteFile
from timeline.names import DATA_FOLDER, HINT_PATH, tombstone_path, ulid


class Deleted(Patient):
    """A table with a row delta: two rows of its first file and one of its second are deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.delete(0, 3, 7)
        self.second = self.delete(1, 0)

    def delete(self, file: int, *positions: int, stored: list[int] | None = None) -> DeleteFile:
        """Commit a delete file that is stated to delete these positions, and has those that are stored."""
        stated = self.deletes(self.files[file], *positions)
        stated._data[5] = self.store_deletes(
            stated.file_path, self.files[file].file_path, stored or list(positions)
        )
        head = self.table.refresh()
        live = head.find_live(self.files[file].file_path)
        assert live is not None
        self.table.commit([RowDelta((), (stated,), frozenset(it.location for it in head.deletes_of(live)))])
        return stated

    def share_deletes(self, stated: dict[int, list[int]], stored: dict[int, list[int]] | None = None) -> None:
        """Commit a delete file that is stated to delete positions in several files, and has those stored."""
        paths = {number: self.files[number].file_path for number in range(len(self.files))}
        shared = self.share({paths[number]: these for number, these in stated.items()})
        held = {paths[number]: these for number, these in (stored or stated).items()}
        rows = [(path, position) for path in sorted(held) for position in held[path]]
        shared._data[5] = self._store(shared.file_path, [path for path, _ in rows], [at for _, at in rows])
        head = self.table.refresh()
        live = [file for file in head.live_files() if file.location in shared.rows_of]
        known = frozenset(it.location for file in live for it in head.deletes_of(file))
        self.table.commit([RowDelta((), (shared,), known)])

    def store_deletes(self, location: str, of: str, positions: list[int]) -> int:
        return self._store(location, [of] * len(positions), positions)

    def _store(self, location: str, paths: list[str], positions: list[int]) -> int:
        written = pa.BufferOutputStream()
        pq.write_table(pa.table({"file_path": paths, "pos": pa.array(positions, pa.int64())}), written)
        data = written.getvalue().to_pybytes()
        self.memory.overwrite(self.memory.relative(location), data)
        return len(data)

    def remove(self, delete: DeleteFile) -> None:
        self.memory.delete([self.memory.relative(delete.file_path)])

    def cut(self, delete: DeleteFile) -> None:
        path = self.memory.relative(delete.file_path)
        self.memory.overwrite(path, b"\0" * len(self.memory.read(path).data))

    def spell_otherwise(self, delete: DeleteFile, name: str) -> None:
        """As one flipped bit does, in as many bytes."""
        path = self.memory.relative(delete.file_path)
        data = self.memory.read(path).data
        self.memory.overwrite(path, data.replace(name.encode(), name.encode()[:-1] + b"~"))

    def dangle(self) -> None:
        """As another engine does that replaces a data file and keeps its deletes."""
        gone = self.store.uri("data/p=0/gone.parquet")
        location = self.add_delete_file(0, paths=(gone, gone), rows=1)
        self.memory.overwrite(self.memory.relative(location), bytes(1000))
        self.memory.overwrite(HINT_PATH, b"9")


DAMAGES: dict[str, tuple[Callable[[Deleted], object], dict[str, object], str]] = {
    "a delete file is missing": (
        lambda p: p.remove(p.first),
        {"delete-file-missing": DAMAGE},
        "1 delete file of the current snapshot is missing, with 2 rows: ",
    ),
    "a delete file is cut off": (
        lambda p: p.cut(p.first),
        {"delete-file-unreadable": DAMAGE},
        "1 delete file that cannot be read: ",
    ),
    "a delete file has no positions": (
        lambda p: p.spell_otherwise(p.first, "pos"),
        {"delete-file-unreadable": DAMAGE},
        "1 delete file that cannot be read: ",
    ),
    "a delete file has no paths": (
        lambda p: p.spell_otherwise(p.first, "file_path"),
        {"delete-file-unreadable": DAMAGE},
        "1 delete file that cannot be read: ",
    ),
    "a delete file is of a data file that has left": (
        lambda p: p.dangle(),
        {"delete-file-dangling": WARNING},
        "1 delete file of data files that are not live: ",
    ),
    "a row beyond the end is deleted": (
        lambda p: p.delete(2, 9, stored=[10]),
        {"deletes-differ": DAMAGE},
        "is stated to delete 1 row of 10, and holds 1, 1 of them beyond its end",
    ),
    "more rows are deleted than is stated": (
        lambda p: p.delete(2, 9, stored=[8, 9]),
        {"deletes-differ": DAMAGE},
        "is stated to delete 1 row of 10, and holds 2, 0 of them beyond its end",
    ),
    "a shared delete file deletes a row beyond an end": (
        lambda p: p.share_deletes({2: [1], 3: [2]}, {2: [10], 3: [2]}),
        {"deletes-differ": DAMAGE},
        "is stated to delete 2 rows, and holds 2, 1 of them beyond its end",
    ),
    "a shared delete file deletes more than is stated": (
        lambda p: p.share_deletes({2: [1], 3: [2]}, {2: [1, 5], 3: [2]}),
        {"deletes-differ": DAMAGE},
        "is stated to delete 2 rows, and holds 3, 0 of them beyond its end",
    ),
    "a shared delete file deletes a row twice": (
        lambda p: p.share_deletes({0: [7], 3: [2]}),
        {"row-deleted-twice": WARNING},
        "1 row that more than one delete file deletes, of 1 data file: ",
    ),
    "a row is deleted twice": (
        lambda p: p.delete(0, 7),
        {"row-deleted-twice": WARNING},
        "1 row that more than one delete file deletes, of 1 data file: ",
    ),
}


def test_a_table_with_deletes_is_healthy_and_says_how_many_there_are() -> None:
    diagnosis = doctor(Deleted())
    assert diagnosis.findings == ()
    said = dict(diagnosis.facts)["current"]
    assert said == "50 rows in 5 files of 5,000 bytes, less those of 2 delete files"


def test_a_shared_delete_file_is_healthy_and_so_is_what_it_names_of_a_file_that_has_left() -> None:
    patient = Deleted()
    patient.share_deletes({2: [1], 3: [2, 9], 4: [0]})
    assert doctor(patient).findings == ()
    shared = next(it for it in patient.table.head.delete_files() if it.refers_to is None)
    gone = frozenset(patient.gone(patient.files[3].file_path, shared.location))
    rows = [row for at, row in enumerate(patient.rows[patient.files[3].file_path]) if at not in gone]
    replaced = frozenset({patient.files[3].file_path})
    new = patient.file(rows)
    patient.memory.overwrite(patient.memory.relative(new.file_path), bytes(1000))
    patient.table.commit([Replace(replaced, (new,), frozenset({shared.location}), 2)])
    assert doctor(patient).findings == ()


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_found_and_nothing_else(name: str) -> None:
    patient = Deleted()
    damage, kinds, said = DAMAGES[name]
    damage(patient)
    diagnosis = doctor(patient)
    assert {finding.kind: finding.severity for finding in diagnosis.findings} == kinds, diagnosis.text()
    assert said in diagnosis.findings[0].what


def test_a_file_of_deleted_keys_is_no_orphan_and_is_missed() -> None:
    patient = Patient()
    path = tombstone_path(ulid(patient.clock.now_ms, 1), "app", 1, DATA_FOLDER)
    patient.memory.overwrite(path, b"hashes")
    patient.table.commit([PutTombstones(patient.store.uri(path), 1)])
    assert doctor(patient).findings == ()
    patient.memory.delete([path])
    (finding,) = doctor(patient).findings
    assert (finding.kind, finding.severity) == ("tombstone-file-missing", DAMAGE)


@pytest.mark.parametrize("name", DAMAGES)
def test_appends_go_on_whatever_the_deletes(name: str) -> None:
    patient = Deleted()
    DAMAGES[name][0](patient)
    before, new = patient.live_rows(), patient.written()
    patient.open().commit([Append((new,))])
    assert patient.live_rows() == before + patient.rows_of(new)
