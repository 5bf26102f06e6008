"""Encrypted files, and passes without keys for them: these files take the place of no others in a plan."""

from __future__ import annotations

from typing import Any

import pytest

from planners import All
from streaming_sink import Clustering, clustering
from streaming_sink.clustering import execution, scheduling
from streaming_sink.clustering.passes import run_pass
from streaming_sink.commands.cli import main
from streaming_sink.commands.clustering_pass import Call
from streaming_sink.tasks.encryption import KeyNames
from tests.unit.streaming_sink.small_tables import append, carry_out, entries, make_table, plan_of
from tests.unit.streaming_sink.vault import Vault
from timeline.clock import SYSTEM
from timeline.plans import instants
from timeline.plans.claims import Watch
from timeline.plans.reservations import Reservations

_ENCRYPT: dict[str, Any] = {"strategy": "encrypt", "parameters": {"footer_key": "lake"}}
_SORT: dict[str, Any] = {"sort_by": ["key"], "select": All(), "max_groups": 1}


@pytest.fixture
def vault(tmp_path):
    return Vault(str(tmp_path / "keys.json")).put(lake="lake-master-key!")


@pytest.fixture
def table(tmp_path, vault):
    """Return a table of four encrypted files in two partitions, and of a plain one in each."""
    made = make_table(tmp_path / "table")
    for batch in range(2):
        append(made, batch)
    carry_out(made, plan_of(made, **_ENCRYPT), keys=vault)
    append(made, 2)
    return made


@pytest.fixture
def planned(monkeypatch):
    """Return the inputs of the plans that are saved. None is executed."""
    inputs, schedule = [], instants.schedule_plan

    def saved(table, plan, kind):
        inputs.extend(path for group in plan["groups"] for path in group["inputs"])
        return schedule(table, plan, kind)

    monkeypatch.setattr(scheduling.instants, "schedule_plan", saved)
    monkeypatch.setattr(execution, "execute_plan", lambda *_: None)
    monkeypatch.setattr(Call, "_execute", lambda *_: 0)
    return inputs


def _by_call(table, **options):
    clustering.schedule_and_execute(None, table.store.location, **_SORT, **options)


def _by_command(table):
    arguments = ["cluster", table.store.location, "--sort-by", "key", "--select", "all", "--max-groups", "1"]
    main(arguments)


def _by_stream(table, **options):
    asked = Clustering(**_SORT, **options)
    run_pass(asked, None, table, Reservations(table.store), Watch(SYSTEM))


def _encrypted(table):
    return {path for path, file in entries(table).items() if file.key_metadata}


@pytest.mark.parametrize("run", [_by_call, _by_command, _by_stream])
def test_files_that_a_pass_has_no_keys_for_take_no_place_in_its_plan(table, planned, run):
    run(table)
    assert len(planned) == 1
    assert not _encrypted(table).intersection(planned)


@pytest.mark.parametrize("run", [_by_call, _by_stream])
def test_a_pass_with_keys_takes_them(table, planned, vault, run):
    run(table, keys=vault)
    assert len(planned) == 2
    assert _encrypted(table).issuperset(planned)


def test_a_plan_for_an_executor_that_may_have_keys_takes_them(table, planned):
    _by_stream(table, run="elsewhere")
    assert clustering.schedule(table.store.location, **_SORT)
    assert len(planned) == 4
    assert _encrypted(table).issuperset(planned)


def test_files_that_another_writer_has_encrypted_take_no_place_in_any_plan(
    table, planned, vault, monkeypatch
):
    monkeypatch.setattr(KeyNames, "from_bytes", classmethod(lambda *_: None))
    _by_call(table, keys=vault)
    _by_stream(table, run="elsewhere")
    assert len(planned) == 2
    assert not _encrypted(table).intersection(planned)


def test_a_pass_that_finds_encrypted_files_alone_says_so(tmp_path, vault):
    made = make_table(tmp_path / "encrypted")
    append(made, 0)
    carry_out(made, plan_of(made, **_ENCRYPT), keys=vault)
    report = clustering.schedule_and_execute(None, made.store.location, **_SORT)
    assert report.outcome == "nothing"
    assert report.why.endswith("nothing to do: 2 files: is encrypted, and the pass has no keys")
