"""What the doctor finds of delete files: missing, damaged, of files that have left, and of wrong rows."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.timeline.test_doctor import DAMAGE, WARNING, Patient, doctor
from timeline.commit.changes import Append
from timeline.commit.key_changes import PutTombstones
from timeline.commit.row_deltas import RowDelta
from timeline.names import HINT_PATH, tombstone_path, ulid
from timeline.versions.entries import DeleteFile


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

    def store_deletes(self, location: str, of: str, positions: list[int]) -> int:
        written = pa.BufferOutputStream()
        pq.write_table(
            pa.table({"file_path": [of] * len(positions), "pos": pa.array(positions, pa.int64())}), written
        )
        data = written.getvalue().to_pybytes()
        self.memory.overwrite(self.memory.relative(location), data)
        return len(data)

    def remove(self, delete: DeleteFile) -> None:
        self.memory.delete([self.memory.relative(delete.file_path)])

    def cut(self, delete: DeleteFile) -> None:
        path = self.memory.relative(delete.file_path)
        self.memory.overwrite(path, b"\0" * len(self.memory.read(path).data))

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
    path = tombstone_path(ulid(patient.clock.now_ms, 1), "app", 1)
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
