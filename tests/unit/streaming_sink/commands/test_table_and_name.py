"""Commands with an argument after LOCATION, which stays where a table in a catalog is in its place."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from streaming_sink.commands.cli import CANNOT, DONE, main
from streaming_sink.options.values.tables import CatalogTable
from tests.unit.timeline.plans import plan_of
from tests.unit.timeline.world import data_file
from timeline.changes.changes import Append
from timeline.plans import instants
from timeline.plans.clustering import CLUSTERING
from timeline.table import Table

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """`db.t` of a catalog in sqlite that is configured as `lake`, with a commit."""
    where = {
        "TYPE": "sql",
        "URI": f"sqlite:///{tmp_path}/catalog.db",
        "WAREHOUSE": f"file://{tmp_path}/warehouse",
    }
    for key, value in where.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{key}", value)
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    opened = CatalogTable("db.t", "lake", create_namespace=True).create(
        schema, UNPARTITIONED_PARTITION_SPEC, {}
    )
    opened.commit([Append([data_file(opened.store.uri("data/a.parquet"), 10, partition=Record())])])
    return opened


IN_CATALOG = ["--catalog", "lake", "--table", "db.t"]


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_a_version_of_a_table_in_a_catalog_gets_a_name(kind: str, table: Table, capsys: Captured) -> None:
    assert main([kind, *IN_CATALOG, "rel", "--json"]) == DONE
    snapshot = table.head.snapshot
    assert snapshot is not None
    assert json.loads(capsys.readouterr().out) == {"name": "rel", "snapshot_id": str(snapshot.snapshot_id)}
    ref = table.refresh().metadata.refs["rel"]
    assert (ref.snapshot_id, ref.snapshot_ref_type) == (snapshot.snapshot_id, kind)
    assert main([f"drop-{kind}", *IN_CATALOG, "rel"]) == DONE
    assert capsys.readouterr().out == f"dropped {kind} rel; it was snapshot {snapshot.snapshot_id}\n"
    assert table.refresh().metadata.refs.keys() == {"main"}


def test_a_plan_of_a_table_in_a_catalog_is_cancelled(table: Table, capsys: Captured) -> None:
    file = data_file(table.store.uri("data/b.parquet"), 10, partition=Record())
    table.commit([Append([file])])
    plan_id = instants.schedule_plan(table, plan_of(CLUSTERING, (file,)), CLUSTERING)
    assert [each.plan_id for each in instants.pending_of(table.refresh(), CLUSTERING)] == [plan_id]
    assert main(["cancel", plan_id, *IN_CATALOG]) == DONE
    assert capsys.readouterr().out == f"cancelled {plan_id}; its files are free\n"
    assert instants.pending_of(table.refresh(), CLUSTERING) == []


def test_a_table_of_another_engine_expires_by_bounds_that_the_command_is_given(
    table: Table, tmp_path: Path, capsys: Captured
) -> None:
    where = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    theirs = load_catalog("lake", type="sql", **where).create_table("db.theirs", table.head.schema)
    theirs.append(pa.table({"id": [1]}))
    named = ["expire", "--catalog", "lake", "--table", "db.theirs", "--dry-run"]
    assert main(named) == CANNOT
    assert "say --max-snapshot-age, --min-snapshots-to-keep or --max-snapshots" in capsys.readouterr().err
    bounds = ["--max-snapshot-age", "36 hours", "--min-snapshots-to-keep", "7", "--max-snapshots", "9"]
    assert main([*named, *bounds]) == DONE
    assert (
        "older than 36 hours and not among the last 7, or if there are more than 9;"
        in capsys.readouterr().out
    )


NAMES = [(command, "NAME") for command in ("tag", "branch", "drop-tag", "drop-branch")]


@pytest.mark.parametrize(("command", "what"), [*NAMES, ("cancel", "PLAN")])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing argument '{}'."),
        (["/a/t"], "Missing argument '{}'."),
        (["/a/t", "rel", "more"], "Got unexpected extra argument (more)"),
        (IN_CATALOG, "Missing argument '{}'."),
        (
            [*IN_CATALOG, "/a/t", "rel"],
            "LOCATION is the place of a table, and --table one in a catalog: say one",
        ),
        ([*IN_CATALOG, "/a/t", "rel", "more"], "Got unexpected extra argument (more)"),
    ],
)
def test_too_few_and_too_many_arguments_are_said(
    command: str, what: str, arguments: list[str], said: str, capsys: Captured
) -> None:
    assert main([command, *arguments]) == CANNOT
    out, err = capsys.readouterr()
    assert err.startswith(f"Usage: streaming-sink {command} [OPTIONS] LOCATION {what}\n")
    assert err.endswith(f"Error: {said.format(what)}\n")
    assert out == ""


@pytest.mark.parametrize("where", [IN_CATALOG[:2], IN_CATALOG[2:]])
def test_a_name_does_not_stand_in_for_half_a_table(where: list[str], capsys: Captured) -> None:
    assert main(["tag", *where, "rel"]) == CANNOT
    assert "--catalog NAME and --table NAMESPACE.TABLE go together" in capsys.readouterr().err
