"""`purge --zone`: staged files that hold a key leave once they have landed; what waits is named."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_sink import ingest
from streaming_sink.commands.cli import main
from streaming_sink.zones.landed import Landed, write_landed
from streaming_sink.zones.planning.flux import Flux
from tests.unit.streaming_sink.removal.people import ALICE, People
from timeline.versions.work_items import WorkItem


class Zone:
    """A buffer zone of a table of people, in which a stream has staged files."""

    def __init__(self, folder: Path) -> None:
        self.people = People(folder / "people")
        self.zone = ingest.BufferZone(str(folder / "zone"), table=self.people.location)
        self.folder = folder / "zone" / "staged" / "app" / "0"
        self.folder.mkdir(parents=True)

    def stage(self, name: str, *ids: int, announced: bool = True) -> Path:
        path = self.folder / name
        pq.write_table(pa.table({"user_id": ids}), path)
        if announced:
            self.zone.announce(self.zone.find([str(path)])[0])
        return path

    def land(self, number: int, rejected: dict[str, str] | None = None) -> None:
        Flux(self.zone).plan(flush=True)
        self.people.table.commit([], transaction=WorkItem(self.zone.app_id, number))
        note = Landed(number, published_before=False, version=2, snapshot_id=7, rejected=rejected or {})
        write_landed(self.zone.store, note)

    def run(self, *command: str) -> int:
        name, *more = command
        return main([name, self.people.location, *more, "--zone", self.zone.store.location])


def test_a_staged_file_that_has_landed_is_deleted_and_what_waits_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zone = Zone(tmp_path)
    landed, other = zone.stage("landed.parquet", 1, ALICE), zone.stage("other.parquet", 1)
    zone.land(0)
    waits = zone.stage("waits.parquet", ALICE)
    unnamed = zone.stage("unnamed.parquet", ALICE, announced=False)
    assert zone.run("doctor", "--gone", f"user_id={ALICE}", "--no-probe") == 1
    assert "3 staged files of the buffer zone" in capsys.readouterr().out
    assert zone.run("purge", "--key", f"user_id={ALICE}", "--dry-run") == 1
    assert landed.exists()
    capsys.readouterr()
    assert zone.run("purge", "--key", f"user_id={ALICE}", "--json") == 1
    [said] = json.loads(capsys.readouterr().out)["zones"]
    assert said["deleted"] == ["staged/app/0/landed.parquet"]
    assert [landed.exists(), other.exists(), waits.exists(), unnamed.exists()] == [False, True, True, True]
    zone.land(1)
    unnamed.unlink()
    assert zone.run("purge", "--key", f"user_id={ALICE}") == 0
    assert not waits.exists()


def test_a_staged_file_that_was_rejected_stays(tmp_path: Path) -> None:
    """It may be its rows' only copy: who decides about it deletes it."""
    zone = Zone(tmp_path)
    bad = zone.stage("bad.parquet", ALICE)
    zone.land(0, {str(bad): "it does not fit"})
    assert zone.run("purge", "--key", f"user_id={ALICE}") == 1
    assert bad.exists()


def test_a_zone_of_another_table_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zone = Zone(tmp_path)
    zone.zone.announce(zone.zone.find([str(zone.stage("a.parquet", 1))])[0])
    other = People(tmp_path / "other")
    at = zone.zone.store.location
    assert main(["purge", other.location, "--key", "user_id=1", "--zone", at]) == 2
    assert "the buffer zone is one of" in capsys.readouterr().err
