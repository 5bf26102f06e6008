"""A change log in a real REST catalog: what the sink and Spark have changed, each once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming_sink import IcebergSink
from streaming_sink.errors import TableRenamedError
from streaming_sink.seconds.change_log import ChangeLog
from tests.servers.keyed_case import BY_ID, OTHERS, KeyedCase
from tests.servers.rest_catalog import RestCatalog
from tests.servers.sql import Sql
from tests.tiers import only_in_soak

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]

_SIGN = {"INSERT": 1, "UPDATE_AFTER": 1, "DELETE": -1, "UPDATE_BEFORE": -1}


class LoggedCase(KeyedCase):
    """A table with a change log beside it."""

    @property
    def log(self) -> str:
        return f"{self.name}_log"

    def new_sink(self, **options: Any) -> IcebergSink:
        return super().new_sink(**{"write": replace(BY_ID, changelog_table=self.log), **options})

    def logged(self) -> list[tuple[Any, ...]]:
        columns = "id, at, v, _change_type, _commit_version"
        return [tuple(row) for row in self.sql.run(f"SELECT {columns} FROM lake.{self.log}")]

    def check_the_log_makes_the_table(self) -> None:
        """Check that the log's changes, in the order of the versions, make the rows of the table, and that
        none takes away what is not there.
        """
        state: Counter[Any] = Counter()
        by_version: dict[int, Counter[Any]] = {}
        for *row, kind, version in self.logged():
            by_version.setdefault(version, Counter())[tuple(row)] += _SIGN[kind]
        for version in sorted(by_version):
            state.update(by_version[version])
            assert min(state.values()) >= 0, f"version {version} takes away what is not there"
        assert +state == Counter([*self.rows(), *OTHERS])


@pytest.fixture
def case(running: tuple[RestCatalog, Sql], spark: SparkSession) -> LoggedCase:
    return LoggedCase(*running, spark)


def cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process end between the main table's commit and that to the log."""
    follow, calls = ChangeLog.follow, []

    def killed(self: ChangeLog, *given: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:  # the first one is before the batch
            raise KeyboardInterrupt
        return follow(self, *given)

    monkeypatch.setattr(ChangeLog, "follow", killed)


@pytest.mark.parametrize("mode", ["merge-on-read", pytest.param("copy-on-write", marks=only_in_soak)])
def test_the_log_has_what_both_have_changed_once(
    case: LoggedCase, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    case.change(0, (1, 1, "a"), (2, 1, "a"), (3, 1, "a"), (4, 1, "a"), (5, 1, "a"))
    case.set_mode(mode)
    case.change(1, (1, 2, "b"), gone=[(2, 2, "")])
    case.insert((6, 1, "theirs"))
    case.do("DELETE FROM {t} WHERE id = 3")
    case.do("UPDATE {t} SET v = 'changed' WHERE id IN (4, 6)")
    case.call("rewrite_data_files", options="map('rewrite-all', 'true')")
    case.change(2, (5, 3, "c"), (6, 3, "c"))
    case.check_the_log_makes_the_table()
    case.do("DELETE FROM {t} WHERE id = 4")
    with monkeypatch.context() as killed:
        cut_off(killed)
        with pytest.raises(KeyboardInterrupt):
            case.change(3, (7, 1, "d"))
    again = case.new_sink()
    assert case.change(3, (7, 1, "d"), sink=again).outcome == "skipped"
    case.check_the_log_makes_the_table()
    case.change(4, (1, 5, "e"), sink=again)
    case.check_the_log_makes_the_table()
    main = case.loaded().metadata
    assert {ref.snapshot_id for name, ref in main.refs.items() if name.startswith("followed-")} == {
        main.current_snapshot_id
    }
    updates = [row for row in case.logged() if row[0] == 1 and row[3].startswith("UPDATE")]
    assert sorted((row[1], row[3]) for row in updates) == [
        (1, "UPDATE_BEFORE"),
        (2, "UPDATE_AFTER"),
        (2, "UPDATE_BEFORE"),
        (5, "UPDATE_AFTER"),
    ]


@only_in_soak
def test_spark_expires_between_two_batches_and_the_log_goes_on(case: LoggedCase) -> None:
    """The rows that Spark deletes are in a file that only the log's tag still holds."""
    case.change(0, (1, 1, "a"), (2, 1, "a"), (3, 1, "a"))
    case.do("DELETE FROM {t} WHERE id = 3")
    case.call("expire_snapshots", older_than="TIMESTAMP '2099-01-01 00:00:00'", retain_last=1)
    assert len(case.snapshots()) == 2
    case.change(1, (1, 2, "b"))
    case.check_the_log_makes_the_table()
    assert [row[:3] for row in case.logged() if row[3] == "DELETE"] == [(3, 1, "a")]


def test_columns_that_spark_adds_renames_and_drops_are_followed(case: LoggedCase) -> None:
    case.change(0, (1, 1, "a"))
    case.do("ALTER TABLE {t} ADD COLUMN note STRING")
    case.do("INSERT INTO {t} VALUES (2, 1, 'theirs', 'new')")
    case.change(1, (3, 1, "a"))
    case.do("ALTER TABLE {t} DROP COLUMN note")
    case.change(2, (1, 2, "b"))
    case.check_the_log_makes_the_table()
    assert [row[0] for row in case.sql.run(f"SELECT note FROM lake.{case.log} WHERE id = 2")] == ["new"]


def test_changes_that_expired_before_they_were_followed_are_named(case: LoggedCase) -> None:
    case.change(0, (1, 1, "a"))
    for key in (2, 3):
        case.insert((key, 1, "theirs"))
    case.call("expire_snapshots", older_than="TIMESTAMP '2100-01-01 00:00:00'", retain_last="1")
    with pytest.raises(ValueError, match=r"what came next cannot be read any more.*have expired"):
        case.change(1, (4, 1, "a"))
    fresh = case.new_sink(write=replace(BY_ID, changelog_table=f"{case.log}2"))
    case.change(1, (4, 1, "a"), sink=fresh)
    assert [row[0] for row in case.sql.run(f"SELECT id FROM lake.{case.log}2")] == [4]


def test_deletes_by_value_cannot_be_followed(case: LoggedCase) -> None:
    case.change(0, (1, 1, "a"), (2, 1, "a"))
    case.delete_by_value(1)
    with pytest.raises(ValueError, match="deleted rows in a way that names no rows"):
        case.change(1, (3, 1, "a"))


def test_a_log_that_was_renamed_is_named(case: LoggedCase) -> None:
    case.change(0, (1, 1, "a"))
    case.sql.run(f"ALTER TABLE lake.{case.log} RENAME TO {case.log}_old")
    with pytest.raises(TableRenamedError, match=f"is .*{case.log}_old by now"):
        case.change(1, (2, 1, "a"), sink=case.new_sink())
    assert case.rows() == [(1, 1, "a")]
