"""The doctor keeps some bytes of a file: what it finds is what a simple read of everything finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pytest

from tests.unit.timeline.test_manifest_reads import Reading
from tests.unit.timeline.world import Lake
from timeline import names
from timeline.changes.changes import Append, Replace
from timeline.changes.ref_changes import Tag
from timeline.diagnosis import Severity, doctor
from timeline.diagnosis.findings import count
from timeline.errors import CorruptTableError
from timeline.manifests import contents
from timeline.manifests.manifests import ManifestFiles
from timeline.retention import path_index
from timeline.versions.head import Head

_NOUNS = ("manifest list", "manifest", "data file", "delete file")
_Found = dict[tuple[str, Severity], tuple[str, list[str]]]
"""By kind and severity, how many of what there are, and the paths or locations of those that are shown."""


@dataclass
class _Everything:
    """What the snapshots of a head need, in whole."""

    what: dict[str, str] = field(default_factory=dict)
    size: dict[str, int | None] = field(default_factory=dict)
    now: set[str] = field(default_factory=set)

    def add(self, location: str, what: str, size: int | None, now: bool) -> None:
        self.what[location], self.size[location] = what, size
        self.now |= {location} if now else set()


def _read_everything(head: Head) -> _Everything:
    found, files = _Everything(), ManifestFiles(head.manifest_files.store)
    for snapshot in head.metadata.snapshots:
        now = snapshot.snapshot_id == head.metadata.current_snapshot_id
        found.add(snapshot.manifest_list, "manifest list", None, now)
        try:
            listed = files.read_list(snapshot.manifest_list)
        except CorruptTableError:
            continue
        for manifest in listed:
            found.add(manifest.manifest_path, "manifest", manifest.manifest_length, now)
            try:
                read = files.contents(manifest).files.values()
            except CorruptTableError:
                continue
            for file in read:
                found.add(file.location, _NOUNS[2 + bool(file.content)], file.bytes, now)
    return found


def _look(head: Head) -> _Found:
    """Return what is wrong by all that there is."""
    store, need = head.manifest_files.store, _read_everything(head)
    objects = {listed.path: listed.size for listed in store.list_below("")}
    found: dict[tuple[str, Severity], tuple[str, list[str]]] = {}

    def note(kind: str, severity: Severity, noun: str, paths: Iterator[str]) -> None:
        if listed := sorted(paths):
            found[kind, severity] = count(len(listed), noun), listed

    gone = {it for it in need.what if store.relative(it) not in objects}
    for noun in _NOUNS:
        kind, of_it = f"{noun.replace(' ', '-')}-missing", {it for it in gone if need.what[it] == noun}
        note(kind, Severity.DAMAGE, noun, iter(of_it & need.now))
        note(kind, Severity.WARNING, noun, iter(of_it - need.now))
    sizes = ((it, need.size[it], objects[store.relative(it)]) for it in need.what.keys() - gone)
    other = {it: f"{it} has {size:,} bytes and is stated with {stated:,}" for it, stated, size in sizes
             if stated not in (None, size)}  # fmt: skip
    now = [text for it, text in other.items() if it in need.now]
    if other:
        severity = Severity.DAMAGE if now else Severity.WARNING
        found["file-size-differs", severity] = count(len(other), "file"), sorted(now or other.values())
    needed = {store.relative(it) for it in need.what}
    left = [it for it in objects.keys() - needed if it.startswith(("data/", "metadata/m/"))]
    note("orphans", Severity.NOTE, "file", (it for it in left if names.written_id(it) is not None))
    note("foreign-file", Severity.NOTE, "file", (it for it in left if names.written_id(it) is None))
    return found


def _odd_table(random: Random) -> Lake:
    """Return a table with replaces, delete files and a tag, of which some files are damaged or gone."""
    lake = Lake(seed=random.randrange(1000))
    for number in range(8):
        files = [lake.file(p=random.choice([1, 2, 3])) for _ in range(random.randrange(1, 5))]
        lake.table.commit([Append(tuple(files))])
        if random.random() < 0.5:
            gone, *_ = files
            lake.table.commit([Replace(frozenset({gone.file_path}), (lake.merged(gone),))])
        if random.random() < 0.4:
            lake.add_delete_file(random.choice([1, 2, 3]))
        if number == 4 and lake.table.head.snapshot is not None:
            lake.table.commit([Tag("kept", lake.table.head.snapshot.snapshot_id)])
        lake.table.refresh()
    store, everything = lake.store, _read_everything(lake.table.head)
    for location, what in everything.what.items():
        if what in ("data file", "delete file") and random.random() < 0.9:
            stated = everything.size[location] or 0
            store.create(store.relative(location), bytes(stated + (random.random() < 0.1)))
    for _ in range(random.randrange(3)):
        store.create(store.relative(lake.file(p=9).file_path), b"left")
        store.create(f"data/{random.randrange(99)}.txt", b"strange")
    metadata = [it for it, what in everything.what.items() if what.startswith("manifest")]
    for location in random.sample(metadata, random.randrange(3)):
        if random.random() < 0.5:
            store.delete([store.relative(location)])
        else:
            store.overwrite(store.relative(location), b"damaged")
    return lake


@pytest.mark.parametrize("seed", range(12))
def test_an_odd_table_is_diagnosed_as_by_a_read_of_everything(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:  # each manifest has a copy, and hashes are of few slots
        monkeypatch.setattr(contents, "_CACHED_ENTRIES", 1)
        monkeypatch.setattr(path_index, "_LEAST_SLOTS", 2)
    lake = _odd_table(Random(seed))
    if seed % 2:
        for _ in range(9):
            lake.table.head.write_copies()
    expected = _look(lake.table.head)
    found = {(it.kind, it.severity): it.what for it in doctor(lake.store, probe=False).findings}
    kinds = {kind for kind, _ in expected} | {f"{noun.replace(' ', '-')}-missing" for noun in _NOUNS}
    kinds |= {"file-size-differs", "orphans", "foreign-file"}
    assert {it for it in found if it[0] in kinds} == expected.keys()
    for key, (counted, listed) in expected.items():
        more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
        assert found[key].startswith(f"{counted} ")
        assert found[key].endswith(", ".join(listed[:3]) + more)


def test_manifests_of_a_whole_table_are_read_once_and_of_a_damaged_one_twice() -> None:
    lake = Lake()
    files = [lake.file(p=number) for number in range(6)]
    for file in files:
        lake.table.commit([Append((file,))])
        lake.store.create(lake.store.relative(file.file_path), bytes(file.file_size_in_bytes))
    for expected in (1, 2):
        store = Reading(lake.name)
        doctor(store, probe=False)
        assert store.manifests() == expected * len(lake.table.head.manifests)
        lake.store.delete([lake.store.relative(files[0].file_path)])
