"""What another engine does between the load and the commit of a merge, and of an evolution: cell by cell."""

from __future__ import annotations

from typing import Any

import pytest

from streaming_sink import FileSizing, SchemaContract
from streaming_sink.errors import TableReplacedError, TimelineError, UnsupportedTableError
from tests.servers.catalog_case import Case, tens
from tests.tiers import only_in_soak
from timeline.catalogs.catalog_log import CatalogLog

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]

INLINE = FileSizing(max_file_bytes="64KiB", small_file_bytes="48KiB", fill="inline", fill_policy="always")
LATE = "TIMESTAMP '2100-01-01 00:00:00'"
GOES_ON: dict[str, tuple[str, int, list[int]]] = {
    "append": ("INSERT INTO {t} VALUES (1000, 'theirs', 1)", 0, [1000]),
    "delete, copy on write": ("DELETE FROM {t} WHERE id = 15", 1, []),
    "delete, merge on read": ("DELETE FROM lake.{name} WHERE id = 15", 1, []),
    "compaction": (
        "CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",
        1,
        [],
    ),
    "manifests": ("CALL lake.system.rewrite_manifests('{name}')", 0, []),
    "column added": ("ALTER TABLE {t} ADD COLUMN note STRING", 1, []),
    "column renamed": ("ALTER TABLE {t} RENAME COLUMN extra TO more", 0, []),
    "partition field": ("ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)", 0, []),
    "sort order": ("ALTER TABLE {t} WRITE ORDERED BY id", 0, []),
    "property": ("ALTER TABLE {t} SET TBLPROPERTIES ('theirs'='1')", 0, []),
    "tag": ("ALTER TABLE {t} CREATE TAG theirs", 0, []),
    "branch": ("INSERT INTO lake.{name}.branch_other VALUES (1000, 'theirs', 1)", 0, []),
    "fast-forward": ("CALL lake.system.fast_forward('{name}', 'main', 'other')", 0, []),
    "expiry": (
        f"CALL lake.system.expire_snapshots(table => '{{name}}', older_than => {LATE}, retain_last => 1)",
        0,
        [],
    ),
}
"""What is done, how many merges are dropped for it, and the ids that it adds."""
_OF_METADATA = ("manifests", "column renamed", "sort order", "property", "tag", "fast-forward")
"""What a fill passes over as any other commit does: every run has these with a new column, the others with a
fill, and one with both.
"""
STOPS: dict[str, tuple[str, type[Exception]]] = {
    "replaced": (
        "CREATE OR REPLACE TABLE {t} (id BIGINT, by STRING, extra INT)",
        TableReplacedError,
    ),
    "dropped": ("DROP TABLE {t}", TimelineError),
    "renamed": ("ALTER TABLE {t} RENAME TO {name}_moved", TimelineError),
    "format 3": ("ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='3')", UnsupportedTableError),
}


def meet(statement: str, case: Case, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run a statement before the next commit is sent."""
    send, done = CatalogLog._send, list[str]()

    def after_it(self: CatalogLog, candidate: Any, commit: Any) -> Any:
        if not done:
            done.append(statement)
            case.do(statement)
        return send(self, candidate, commit)

    monkeypatch.setattr(CatalogLog, "_send", after_it)
    return done


def land(case: Case, sink: Any, number: int, *columns: str) -> Any:
    rows = case.spark.range(number * 10, number * 10 + 10).coalesce(1)
    return sink(rows.selectExpr("id", "'ours' by", "1 extra", *columns), number)


def filled(case: Case, mode: str = "copy-on-write") -> Any:
    """Return a sink with inline fills, after two batches."""
    case.do("CREATE TABLE {t} (id BIGINT, by STRING, extra INT)")
    case.do(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.delete.mode'='{mode}')")
    sink = case.new_sink(sizing=INLINE)
    for number in range(2):
        land(case, sink, number)
    case.do("ALTER TABLE {t} CREATE BRANCH other")
    return sink


@pytest.mark.parametrize(
    "what", [pytest.param(it, marks=[only_in_soak] if it in _OF_METADATA else []) for it in GOES_ON]
)
def test_a_fill_over_what_others_do(case: Case, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    statement, dropped, added = GOES_ON[what]
    sink = filled(case, "merge-on-read" if what == "delete, merge on read" else "copy-on-write")
    done = meet(statement, case, monkeypatch)
    report = land(case, sink, 2)
    assert done
    assert (report.outcome, report.dropped_fills) == ("committed", dropped), report.why
    assert (report.merged_files, report.rows) == (1, 10)
    gone = [15] if what.startswith("delete") else []
    on_main = added if what != "branch" else []
    assert case.ids() == [*(it for it in tens(0, 1, 2) if it not in gone), *on_main]
    assert ("theirs" in case.loaded().properties) is (what == "property")
    column = "more" if what == "column renamed" else "extra"
    assert case.do(f"SELECT count(*) FROM {{t}} WHERE {column} IS NULL") == [[0]]
    monkeypatch.undo()
    if what != "column renamed":
        land(case, sink, 3)
        assert case.ids()[-len(on_main) - 1] == 39


def test_a_fill_over_a_rollback_is_dropped_and_what_left_stays_away(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = filled(case)
    first = case.snapshots()[0]
    meet(f"CALL lake.system.rollback_to_snapshot('{{name}}', {first})", case, monkeypatch)
    report = land(case, sink, 2)
    assert report.outcome == "committed"
    assert case.ids() == tens(0, 2)


@pytest.mark.parametrize("what", STOPS)
def test_a_fill_and_its_batch_stop_over_what_ends_the_table(
    case: Case, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    statement, error = STOPS[what]
    sink = filled(case)
    meet(statement, case, monkeypatch)
    with pytest.raises(error):
        land(case, sink, 2)


EVOLVES: dict[str, str] = {
    key: GOES_ON[key][0]
    for key in (
        "append", "delete, copy on write", "compaction", "manifests", "column renamed", "partition field",
        "sort order", "property", "tag", "fast-forward", "expiry",
    )
}  # fmt: skip


@pytest.mark.parametrize(
    "what",
    [pytest.param(it, marks=[] if it in (*_OF_METADATA, "append") else [only_in_soak]) for it in EVOLVES],
)
def test_a_new_column_over_what_others_do(case: Case, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    filled(case)
    sink = case.new_sink(contract=SchemaContract.evolving())
    done = meet(EVOLVES[what], case, monkeypatch)
    report = land(case, sink, 2, "'new' fresh")
    assert done
    assert "fresh added as string" in report.why
    gone = [15] if what.startswith("delete") else []
    assert case.ids() == [
        *(it for it in tens(0, 1, 2) if it not in gone), *([1000] if what == "append" else [])
    ]  # fmt: skip
    assert case.do("SELECT count(*) FROM {t} WHERE fresh = 'new'") == [[10]]
    ids = [it.field_id for it in case.loaded().schema().fields]
    assert len(ids) == len(set(ids))
