"""What the doctor finds on tables that were damaged on purpose, and that it never changes anything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from pyiceberg.manifest import DataFile

import timeline
from streaming_sink.removal.leftovers import LeftoverKind
from tests.unit.timeline.world import DAY_MS, SCHEMA, Clock, Lake, version_of
from timeline import names, properties
from timeline.changes.changes import Append, Replace, SetProperties
from timeline.diagnosis import Diagnosis, Severity
from timeline.errors import StoreUnavailableError, TableNotFoundError
from timeline.names import HINT_PATH, key_run_path, ulid, version_path
from timeline.stores import Created, CreateOutcome, LocalStore, MemoryStore
from timeline.table import Table
from timeline.versions.transactions import Transaction
from timeline.versions.version_file import encode_metadata

NOTE, WARNING, DAMAGE = Severity.NOTE, Severity.WARNING, Severity.DAMAGE
TROUBLESHOOTING = Path(__file__).parents[3] / "docs" / "troubleshooting.md"


class Patient(Lake):
    """A table whose data files exist, so that one can go missing: six versions, one row file each."""

    def __init__(self, versions: int = 6) -> None:
        super().__init__()
        self.memory = MemoryStore(self.name)
        self.files: list[DataFile] = []
        for batch in range(versions - 1):
            self.files.append(self.written())
            transaction = Transaction("app", "query", "run", batch, None if batch == 0 else 1)
            self.table.commit([Append((self.files[-1],))], transaction=transaction)

    def written(self) -> DataFile:
        file = self.file()
        self.memory.overwrite(self.memory.relative(file.file_path), bytes(file.file_size_in_bytes))
        return file

    def path(self, file: DataFile) -> str:
        return self.memory.relative(file.file_path)

    def edit(self, number: int, change: Callable[[dict[str, Any]], Any]) -> None:
        stored = json.loads(self.memory.read(version_path(number)).data)
        change(stored)
        self.memory.overwrite(version_path(number), json.dumps(stored).encode())

    def manifests_of(self, number: int) -> tuple[str, list[str]]:
        """The paths of the list and of the manifests of a version's current snapshot."""
        head = self.table.log.head(version_of(self.memory, number))
        assert head.snapshot is not None
        listed = [self.memory.relative(manifest.manifest_path) for manifest in head.manifests]
        return self.memory.relative(head.snapshot.manifest_list), listed


class ReadOnly(MemoryStore):
    """A store that lets nobody write: as a person's, who has the right to read only."""

    def create(self, path: str, data: bytes) -> CreateOutcome:
        raise StoreUnavailableError("access is refused")

    def overwrite(self, path: str, data: bytes) -> None:
        raise AssertionError(f"the doctor overwrites {path}")

    def delete(self, paths: Iterable[str]) -> None:
        assert all(path.startswith("_timeline/probe/") for path in paths)

    def open_output(self, path: str) -> BinaryIO:
        raise AssertionError(f"the doctor writes {path}")


def doctor(patient: Lake) -> Diagnosis:
    """The diagnosis, from a store that nobody can write to; with proof that nothing was."""
    store = ReadOnly(patient.name)
    before = dict(store._contents.objects)
    diagnosis = timeline.doctor(store, probe=False)
    assert store._contents.objects == before
    return diagnosis


def found(patient: Lake) -> dict[str, Severity]:
    return {finding.kind: finding.severity for finding in doctor(patient).findings}


def test_a_healthy_table_has_no_findings_and_is_told_by_its_figures() -> None:
    diagnosis = doctor(Patient())
    assert diagnosis.findings == ()
    assert diagnosis.healthy
    assert dict(diagnosis.facts)["version"] == "6, of 6 versions that are kept"
    assert dict(diagnosis.facts)["current"] == "50 rows in 5 files of 5,000 bytes"
    assert dict(diagnosis.facts)["writer"] == "'app': batch 4 of query query, epoch 1"
    assert diagnosis.text().endswith("healthy (0 notes)")


def test_a_table_with_fills_and_deletions_of_old_versions_is_healthy() -> None:
    patient = Patient()
    merged = patient.merged(*patient.files[:3])
    patient.memory.overwrite(patient.path(merged), bytes(merged.file_size_in_bytes))
    patient.table.commit([Replace(frozenset(f.file_path for f in patient.files[:3]), (merged,))])
    for step in range(140):
        patient.clock.now_ms += 60_000
        patient.table.commit([SetProperties({"step": str(step)})])
    diagnosis = doctor(patient)
    assert diagnosis.healthy, diagnosis.text()
    assert dict(diagnosis.facts)["version"] == "147, of 107 versions that are kept"


def test_a_key_index_beside_a_table_is_no_finding() -> None:
    """Its files are a cache: what they hold, and whether they are whole, is no matter of the table's."""
    patient = Patient()
    patient.memory.overwrite(key_run_path("0123456789abcdef", ulid(1, 1)), b"not a whole run")
    assert doctor(patient).findings == ()


Damage = Callable[[Patient], Any]
OTHER_TABLE = b'{"format-version": 2, "properties": {}}'


def hint(data: bytes) -> Damage:
    return lambda patient: patient.memory.overwrite(HINT_PATH, data)


def delete(*paths: str) -> Damage:
    return lambda patient: patient.memory.delete(paths)


def stranger(name: str) -> Damage:
    return lambda patient: patient.memory.create(f"metadata/{name}", b"{}")


def of_properties(number: int, **values: str) -> Damage:
    return lambda patient: patient.edit(number, lambda stored: stored["properties"].update(values))


def fork(patient: Patient, number: int = 4) -> None:
    """A version as another writer might have made it: a commit of its own on the version before."""
    version = version_of(patient.memory, number)
    other = {**version.metadata.properties, properties.COMMIT_ID: names.ulid(patient.clock.now_ms, 99)}
    patient.memory.overwrite(
        version_path(number), encode_metadata(version.metadata.model_copy(update={"properties": other}))[0]
    )


DAMAGES: dict[str, tuple[Damage, dict[str, Severity]]] = {
    "a version in the middle is gone": (delete(version_path(4)), {"version-missing": WARNING}),
    "the newest version is gone": (delete(version_path(6)), {"hint-ahead": DAMAGE, "orphans": NOTE}),
    "the newest version is cut off": (
        lambda p: p.memory.overwrite(version_path(6), p.memory.read(version_path(6)).data[:777]),
        {"version-unreadable": DAMAGE},
    ),
    "the newest version is empty": (
        lambda p: p.memory.overwrite(version_path(6), b""),
        {"version-unreadable": DAMAGE},
    ),
    "an old version is cut off": (
        lambda p: p.memory.overwrite(version_path(3), p.memory.read(version_path(3)).data[:777]),
        {"version-unreadable": WARNING},
    ),
    "the newest version is a copy of another": (
        lambda p: p.memory.create(version_path(7), p.memory.read(version_path(6)).data),
        {"version-refused": DAMAGE, "hint-behind": NOTE},
    ),
    "an old version is a copy of another": (
        lambda p: p.memory.overwrite(version_path(3), p.memory.read(version_path(2)).data),
        {"version-refused": WARNING},
    ),
    "another engine has committed on top": (
        lambda p: p.memory.create(version_path(7), OTHER_TABLE),
        {"foreign-table": DAMAGE, "hint-behind": NOTE},
    ),
    "a version was forked": (fork, {"version-fork": DAMAGE}),
    "a version tells another parent": (
        of_properties(6, **{properties.PARENT_VERSION: "3"}),
        {"lineage-broken": DAMAGE},
    ),
    "an old version is of another table": (
        lambda p: p.edit(
            3, lambda stored: stored.update({"table-uuid": "0" * 8 + "-0000-4000-8000-" + "0" * 12})
        ),
        {"lineage-broken": WARNING},
    ),
    "the newest version has forgotten the last commits": (
        lambda p: p.edit(6, lambda stored: stored["properties"].pop(properties.RECENT_COMMITS)),
        {"version-refused": DAMAGE},
    ),
    "time goes back": (
        lambda p: p.edit(3, lambda stored: stored.update({"last-updated-ms": 5})),
        {"time-goes-back": WARNING},
    ),
    "two spellings, with a zero": (stranger("v06.metadata.json"), {"version-spelled-twice": WARNING}),
    "two spellings, compressed": (stranger("v6.gz.metadata.json"), {"version-spelled-twice": WARNING}),
    "two spellings, of a catalog": (
        stranger("00006-2f1b.metadata.json"),
        {"version-spelled-twice": WARNING},
    ),
    "a spelling of a version that we never wrote": (
        stranger("v7.gz.metadata.json"),
        {"version-foreign": WARNING},
    ),
    "a Hadoop checksum beside a version": (stranger(".v6.metadata.json.crc"), {"foreign-file": NOTE}),
    "no hint": (delete(HINT_PATH), {"hint-missing": WARNING}),
    "a hint with a newline": (hint(b"6\n"), {"hint-damaged": WARNING}),
    "a hint of no number": (hint(b"v6.metadata.json"), {"hint-damaged": WARNING}),
    "an empty hint": (hint(b""), {"hint-damaged": WARNING}),
    "a hint that is behind": (hint(b"5"), {"hint-behind": NOTE}),
    "a hint that is ahead": (hint(b"9"), {"hint-ahead": DAMAGE}),
    "a hint to a version that is gone": (hint(b"0"), {"hint-dangling": WARNING}),
    "the current manifest list is gone": (
        lambda p: p.memory.delete([p.manifests_of(6)[0]]),
        {"manifest-list-missing": DAMAGE, "orphans": NOTE},
    ),
    "an older manifest list is gone": (
        lambda p: p.memory.delete([p.manifests_of(3)[0]]),
        {"manifest-list-missing": WARNING},
    ),
    "the current manifest list is cut off": (
        lambda p: p.memory.overwrite(p.manifests_of(6)[0], b"Obj\x01"),
        {"manifest-list-unreadable": DAMAGE, "orphans": NOTE},
    ),
    "a manifest is gone": (
        lambda p: p.memory.delete([p.manifests_of(6)[1][0]]),
        {"manifest-missing": DAMAGE, "orphans": NOTE},
    ),
    "a manifest holds other bytes": (
        lambda p: p.memory.overwrite(p.manifests_of(6)[1][0], b"no avro"),
        {"manifest-unreadable": DAMAGE, "file-size-differs": DAMAGE, "orphans": NOTE},
    ),
    "a data file is gone": (lambda p: p.memory.delete([p.path(p.files[0])]), {"data-file-missing": DAMAGE}),
    "a data file is eight bytes short": (
        lambda p: p.memory.overwrite(p.path(p.files[0]), bytes(992)),
        {"file-size-differs": DAMAGE},
    ),
    "the guard against cleaners is gone": (
        of_properties(6, **{properties.GC_ENABLED: "true"}),
        {"guard-missing": WARNING},
    ),
    "the guard against writers is changed": (
        of_properties(6, **{properties.METADATA_PATH: "/elsewhere"}),
        {"guard-missing": WARNING},
    ),
    "the guard against writers is gone": (
        lambda p: p.edit(6, lambda stored: stored["properties"].pop(properties.METADATA_PATH)),
        {"version-refused": DAMAGE},
    ),
    "versions are not in the metadata log": (
        lambda p: p.edit(6, lambda stored: stored.update({"metadata-log": stored["metadata-log"][2:]})),
        {"version-not-logged": WARNING},
    ),
    "an application's state cannot be read": (
        of_properties(6, **{properties.TRANSACTION_PREFIX + "app": '{"batch": 4'}),
        {"application-unreadable": DAMAGE},
    ),
    "which work items are in the table cannot be read": (
        of_properties(6, **{properties.WORK_ITEMS_PREFIX + "zone": "0-3,2"}),
        {"work-items-unreadable": DAMAGE},
    ),
    "an application's state is of a later commit": (
        of_properties(
            6,
            **{
                properties.TRANSACTION_PREFIX + "app": '{"query_id":"q","run_id":"r","epoch":1,"batch":9,'
                f'"commit":"{names.ulid_floor(2**47)}"}}'
            },
        ),
        {"application-ahead": DAMAGE},
    ),
    "a tag names a snapshot that has gone": (
        lambda p: p.edit(
            6, lambda stored: stored["refs"].update({"kept": {"snapshot-id": 7, "type": "tag"}})
        ),
        {"reference-dangling": WARNING},
    ),
    "main names a snapshot that has gone": (
        lambda p: p.edit(6, lambda stored: stored["refs"]["main"].update({"snapshot-id": 7})),
        {"version-refused": DAMAGE},
    ),
    "the summary tells other rows": (
        lambda p: p.edit(6, lambda s: s["snapshots"][-1]["summary"].update({"total-records": "51"})),
        {"totals-differ": WARNING},
    ),
    "a file is live twice": (
        lambda p: p.open().commit([Append((p.files[0],))], transaction=Transaction("b", "q", "r", 0)),
        {"file-live-twice": DAMAGE},
    ),
    "a batch was never committed": (lambda p: p.written(), {"orphans": NOTE}),
    "another engine's file lies in data/": (
        lambda p: p.memory.create("data/p=0/part-0.parquet", b"1"),
        {"foreign-file": NOTE},
    ),
    "creates were cut off": (
        lambda p: [p.memory.create(f"{at}/.tmp-1-2", b"") for at in ("metadata", "metadata/m", "data/p=0")],
        {"unfinished-create": NOTE},
    ),
    "the store has changed since it was probed": (
        of_properties(6, **{properties.PROBED_STORES: "obstore 0.11 s3"}),
        {"store-not-probed": NOTE},
    ),
    "all versions are gone": (
        lambda p: p.memory.delete([version_path(number) for number in range(1, 7)]),
        {"table-missing": DAMAGE},
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_found_and_nothing_else(name: str) -> None:
    patient = Patient()
    damage, kinds = DAMAGES[name]
    damage(patient)
    diagnosis = doctor(patient)
    assert {finding.kind: finding.severity for finding in diagnosis.findings} == kinds, diagnosis.text()
    assert diagnosis.healthy == (set(kinds.values()) == {NOTE})


@pytest.mark.parametrize("name", [n for n, (_, kinds) in DAMAGES.items() if DAMAGE not in kinds.values()])
def test_where_the_doctor_sees_no_damage_a_writer_goes_on_and_no_row_is_lost(name: str) -> None:
    patient = Patient()
    DAMAGES[name][0](patient)
    new = patient.written()
    patient.open().commit([Append((new,))])
    assert patient.live_rows() == patient.rows_of(*patient.files, new)


def test_the_worst_comes_first_and_the_values_are_told() -> None:
    patient = Patient()
    patient.memory.create("data/p=0/part-0.parquet", b"1")
    patient.memory.overwrite(HINT_PATH, b"5")
    patient.memory.delete([patient.path(patient.files[0]), version_path(3)])
    diagnosis = doctor(patient)
    assert [finding.severity for finding in diagnosis.findings] == [DAMAGE, WARNING, NOTE, NOTE]
    text = " ".join(diagnosis.text().split())
    assert f"missing, with 10 rows: {patient.files[0].file_path}" in text
    assert "missing below the highest version 6: 3" in text
    assert "not healthy: 1 damage, 1 warning, 2 notes" in text


def test_a_file_that_only_older_snapshots_need_is_a_warning() -> None:
    patient = Patient()
    merged = patient.merged(*patient.files[:2])
    patient.memory.overwrite(patient.path(merged), bytes(merged.file_size_in_bytes))
    patient.table.commit([Replace(frozenset(f.file_path for f in patient.files[:2]), (merged,))])
    patient.memory.delete([patient.path(patient.files[0])])
    assert found(patient) == {"data-file-missing": WARNING}


def test_orphans_are_counted_and_the_old_ones_apart() -> None:
    patient = Patient()
    patient.written()
    patient.clock.now_ms += 4 * DAY_MS
    patient.table.commit([SetProperties({"a": "b"})])
    patient.written()
    (finding,) = doctor(patient).findings
    assert "2 files of 2,000 bytes" in finding.what
    assert "1 of them, of 1,000 bytes, are three days older" in finding.means
    assert "remove_orphan_files" in finding.repair


def aged() -> Patient:
    """A table whose first forty versions retention has deleted."""
    patient = Patient()
    for step in range(144):
        patient.clock.now_ms += 60_000
        patient.table.commit([SetProperties({"step": str(step)})])
    assert patient.table.head.number == 150
    assert min(patient.table.log.list().versions) == 41
    return patient


def test_a_zombies_low_version_is_a_note() -> None:
    """Version 2 again, of a writer that was stalled past retention and died before it swept its file."""
    patient = aged()
    other = Patient()
    fork = version_of(other.memory, 2).metadata
    stated = {**fork.properties, properties.METADATA_PATH: f"{patient.store.location}/metadata"}
    update = {
        "location": patient.store.location,
        "table_uuid": patient.table.head.metadata.table_uuid,
        "properties": stated,
        "last_updated_ms": fork.last_updated_ms + 7,
    }
    patient.memory.create(version_path(2), encode_metadata(fork.model_copy(update=update))[0])
    assert found(patient) == {"version-fork": NOTE}


def test_an_old_version_that_its_successor_does_not_continue_is_a_note() -> None:
    patient = aged()
    fork(patient, 45)
    assert found(patient) == {"version-fork": NOTE}


def test_a_deletion_of_old_versions_that_was_cut_off_is_a_note() -> None:
    patient = aged()
    patient.memory.delete([version_path(45)])
    assert found(patient) == {"version-missing": NOTE}


def test_a_commit_while_the_doctor_looks_is_no_finding() -> None:
    patient = Patient()

    def commit(verb: str, path: str) -> None:
        if (verb, path) == ("read", version_path(3)):
            patient.table.commit([Append((patient.written(),))])

    diagnosis = timeline.doctor(MemoryStore(patient.name, before=commit), probe=False)
    assert diagnosis.healthy, diagnosis.text()
    assert dict(diagnosis.facts)["version"].startswith("6,")


# other tables, and none -----------------------------------------------------------------------------


def test_an_empty_place_is_no_table() -> None:
    with pytest.raises(TableNotFoundError, match="nothing here; is the location spelled as the stream's"):
        timeline.doctor(MemoryStore("empty"))


@pytest.mark.parametrize("name", ["00001-2f1b.metadata.json", "v1.gz.metadata.json"])
def test_a_table_of_another_engine_is_told_as_such(name: str) -> None:
    lake = Lake()
    store = MemoryStore(f"{lake.name}-other")
    store.create(f"metadata/{name}", OTHER_TABLE)
    diagnosis = timeline.doctor(store)
    assert [finding.kind for finding in diagnosis.findings] == ["foreign-table"]
    assert diagnosis.findings[0].repair == "give the stream a location of its own"


def test_a_store_that_does_not_answer_is_no_diagnosis() -> None:
    patient = Patient()
    patient.store.lists.append("fails")
    with pytest.raises(StoreUnavailableError):
        timeline.doctor(patient.store)


# the probe ------------------------------------------------------------------------------------------


def test_the_probe_leaves_the_store_as_it_was() -> None:
    patient = Patient()
    before = dict(patient.memory._contents.objects)
    touched: set[str] = set()

    def note(verb: str, path: str) -> None:
        if verb not in ("list", "read"):
            touched.add(path.rpartition("/")[0])

    assert timeline.doctor(MemoryStore(patient.name, before=note)).findings == ()
    assert patient.memory._contents.objects == before
    assert touched == {"_timeline/probe"}


def test_without_the_right_to_write_the_probe_is_a_note() -> None:
    diagnosis = timeline.doctor(ReadOnly(Patient().name))
    assert [finding.kind for finding in diagnosis.findings] == ["store-not-probed"]
    assert diagnosis.healthy


def test_a_store_that_lets_two_writers_win_is_damage() -> None:
    class Careless(MemoryStore):
        def create(self, path: str, data: bytes) -> CreateOutcome:
            self.overwrite(path, data)
            return Created()

    diagnosis = timeline.doctor(Careless(Patient().name))
    assert [finding.kind for finding in diagnosis.findings] == ["store-unsafe"]
    assert not diagnosis.healthy


# a local disk ---------------------------------------------------------------------------------------


def test_a_local_table_is_looked_at_by_its_path_and_stays_byte_for_byte(tmp_path: Path) -> None:
    location = tmp_path / "table"
    table = Table.create(LocalStore(location), SCHEMA, environment=Clock().environment())
    table.commit([SetProperties({"a": "b"})])
    (location / "metadata" / ".tmp-1-2-3").write_bytes(b"half")

    def contents() -> dict[Path, tuple[bytes, int]]:
        files = [path for path in location.rglob("*") if path.is_file()]
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}

    before = contents()
    diagnosis = timeline.doctor(str(location))
    assert contents() == before
    assert [finding.kind for finding in diagnosis.findings] == ["unfinished-create"]


def test_every_finding_has_its_section_in_the_docs() -> None:
    """Each kind that the code can tell is told in docs/troubleshooting.md, and no other."""
    source = "".join(
        path.read_text() for path in sorted((Path(timeline.__file__).parent / "diagnosis").glob("*.py"))
    )
    for module in ("reading/duplicate_keys.py", "commands/zones.py"):
        source += (Path(timeline.__file__).parents[1] / "streaming_sink" / module).read_text()
    told = set(re.findall(r'kind="([a-z-]+)"', source)) | {"version-spelled-twice"}
    told |= {f"gone-{kind.value}" for kind in LeftoverKind}
    told |= set(re.findall(r'else "(version-foreign)"', source))
    told |= {
        f"{what}-missing"
        for what in (
            "manifest-list",
            "manifest",
            "data-file",
            "delete-file",
            "tombstone-file",
            "statistics-file",
        )
    }
    told |= {"manifest-list-unreadable", "manifest-unreadable"}
    documented = set(re.findall(r"^- \*\*`([a-z-]+)`\*\*", TROUBLESHOOTING.read_text(), re.MULTILINE))
    assert documented == told
