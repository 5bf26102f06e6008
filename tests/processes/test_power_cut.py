"""R9 and R14 on a disk that forgets: cut the power anywhere, and what was acknowledged is there.

Then each rule is broken on its own, and the same cuts must show it.
"""

from __future__ import annotations

import errno
import itertools
import os
import random

import pytest

from tests.processes.disk import Told, at_random, keep, lose, names_first
from tests.processes.power_cut import Lost, PowerCut
from tests.tiers import count, longer_in_soak, only_in_soak
from timeline.manifests.manifests import ManifestFiles
from timeline.stores import Created, Exists, LocalStore, local

pytestmark = [pytest.mark.slow, longer_in_soak]

SEEDS = count(1, 8)
KILLS = count(5, 20)
FIRST, ALL = 45, 100
"""Calls up to the first acknowledgement, and those of a life, about."""
BEFORE = {1, 3, *range(2, FIRST, max(1, FIRST // max(1, KILLS // 2)))}
"""The first: the table's folder, and the one above it, are made and not yet synced."""
AFTER = set(range(FIRST + 1, ALL, max(1, (ALL - FIRST) // KILLS)))


@pytest.fixture
def power_cut(monkeypatch, tmp_path):
    return PowerCut(monkeypatch, tmp_path / "disk")


def test_a_power_cut_at_any_moment_leaves_what_was_acknowledged_and_a_table_that_works(power_cut):
    power_cut.live()
    seeds = [at_random(random.Random(seed)) for seed in range(SEEDS)]
    assert power_cut.check(lose, keep, names_first, *seeds) > 100


@pytest.mark.parametrize("dies_at", sorted(BEFORE | AFTER))
def test_what_a_dead_process_had_no_time_to_sync_is_safe_once_its_restart_acknowledges(power_cut, dies_at):
    power_cut.live(dies_at)
    assert any(isinstance(event, Told) for event in power_cut.recorder.events) == (dies_at in AFTER)
    before = len(power_cut.recorder.events)
    power_cut.live()
    power_cut.check(lose, from_event=before)


_IN_EVERY_RUN = {("-manifest.avro", "link refused"), ("-list.avro", "link applied")}
"""With all failures of a version's file."""


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        pytest.param(*each, marks=[] if each in _IN_EVERY_RUN or each[0].startswith("v2") else [only_in_soak])
        for each in itertools.product(
            ["-manifest.avro", "-list.avro", "v2.metadata.json"],
            ["link refused", "link applied", "sync failed"],
        )
    ],
)
def test_what_is_stored_in_spite_of_an_error_is_safe_too(monkeypatch, power_cut, name, failure):
    """The disk fails once, at a link or at the sync of the folder after it, and is well again."""
    real_link, real_fsync = os.link, os.fsync
    due, fail_sync = [failure], []

    def link(source, target):
        if not (due and target.endswith(name)):
            return real_link(source, target)
        due.clear()
        if failure != "link refused":
            real_link(source, target)
        if failure == "sync failed":
            return fail_sync.append(target)
        raise OSError(errno.EIO, "injected")

    def fsync(descriptor):
        if fail_sync:
            fail_sync.clear()
            raise OSError(errno.EIO, "injected")
        real_fsync(descriptor)

    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(os, "fsync", fsync)
    power_cut.live()
    assert not due + fail_sync
    power_cut.check(lose)


def test_at_least_half_of_the_deaths_come_after_a_commit():
    assert len(AFTER) >= len(BEFORE)


# --------------------------------------------------------------- each rule broken: the cuts must show it


def _deafen(monkeypatch, recorder, owner, name, kind):
    """Let the product run as it is, and the disk not hear what one function of it asks to be synced."""
    real = getattr(owner, name)

    def deafened(*arguments, **options):
        before, recorder.deaf_to = recorder.deaf_to, kind
        try:
            return real(*arguments, **options)
        finally:
            recorder.deaf_to = before

    monkeypatch.setattr(owner, name, deafened)


@pytest.mark.parametrize(
    ("owner", "name", "kind"),
    [
        pytest.param(LocalStore, "_write_temporary", "file", id="the bytes of a version, before its name"),
        pytest.param(ManifestFiles, "write_fresh", "file", id="the bytes of a manifest"),
        pytest.param(local, "link_into_place", "folder", id="a name, after its link"),
        pytest.param(local.DurableFile, "close", "file", id="the bytes of a data file"),
        pytest.param(local.DurableFile, "close", "folder", id="the name of a data file"),
        pytest.param(LocalStore, "_make_folder", "folder", id="the name of a new folder"),
    ],
)
def test_a_sync_left_out_is_found(monkeypatch, power_cut, owner, name, kind):
    _deafen(monkeypatch, power_cut.recorder, owner, name, kind)
    power_cut.live()
    with pytest.raises(Lost):
        power_cut.check(lose)


def test_a_listing_that_does_not_sync_is_found(monkeypatch, power_cut):
    """The writer of a version died after its link; the restart finds it in a listing and acknowledges it."""
    power_cut.live()
    dies_at = power_cut.recorder.calls.index("link v2.metadata.json") + 1
    killed = PowerCut(monkeypatch, power_cut.folder.with_name("killed"))
    _deafen(monkeypatch, killed.recorder, LocalStore, "list_folder", "folder")
    killed.live(dies_at)
    killed.live()
    with pytest.raises(Lost, match=r"TableNotFoundError|the head is"):
        killed.check(lose)


def test_a_data_file_that_is_closed_after_its_commit_is_found(monkeypatch, power_cut):
    close, waiting = local.DurableFile.close, []
    monkeypatch.setattr(local.DurableFile, "close", lambda self: waiting.append(self))

    def ingest(run, batch):
        done = run.commit(batch)
        while waiting:
            close(waiting.pop())
        return done

    power_cut.live(ingest=ingest)
    with pytest.raises(Lost):
        power_cut.check(keep)


def test_bytes_written_under_the_final_name_are_found(monkeypatch, power_cut):
    """O_EXCL on the final name (R9): correct in races, and a cut shows half a version."""

    def create(self, path, data):
        try:
            with self.open_output(path) as file:
                file.write(data)
        except FileExistsError:
            return Exists()
        return Created()

    monkeypatch.setattr(LocalStore, "create", create)
    power_cut.live()
    with pytest.raises(Lost, match="CorruptTableError"):
        power_cut.check(names_first)
