"""The change feed of a table in a real REST catalog, with the commits of Spark's SQL beside the sink's."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from streaming_sink import FileSizing, changes
from streaming_sink.reading import changes as reading
from streaming_sink.reading import pieces
from tests.servers.catalog_case import Case
from tests.tiers import only_in_soak
from timeline.manifests.deletes import DeleteIndex

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow]

_SIGN = {"INSERT": 1, "DELETE": -1}
_MERGE = (
    "MERGE INTO {t} t USING (SELECT id, 'merged' by FROM range(15, 45, 3)) s ON t.id = s.id"
    " WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET t.by = s.by"
    " WHEN NOT MATCHED THEN INSERT *"
)


def feed(case: Case, *versions: int) -> list[dict[str, Any]]:
    return [row.asDict() for row in changes(case.spark, case.table, *(versions or (1,))).collect()]


def states(case: Case) -> dict[int, Counter[tuple[int, str]]]:
    """Return the rows after each snapshot of main, by its id, as Spark reads them."""
    return {
        each.snapshot_id: Counter(
            (row[0], row[1]) for row in case.do(f"SELECT id, by FROM {{t}} VERSION AS OF {each.snapshot_id}")
        )
        for each in case.loaded().snapshots()
    }


def check_they_make_the_table(case: Case) -> list[dict[str, Any]]:
    """Check the changes of each snapshot against the rows before and after it; return all."""
    found = feed(case)
    before: Counter[tuple[int, str]] = Counter()
    for snapshot_id, after in states(case).items():
        of_it = [row for row in found if row["_commit_snapshot_id"] == snapshot_id]
        sides = {
            kind: Counter((it["id"], it["by"]) for it in of_it if it["_change_type"] == kind)
            for kind in _SIGN
        }
        assert sides["INSERT"] - sides["DELETE"] == sides["INSERT"], "a row that is equal on both sides"
        assert sides["INSERT"] == after - before
        assert sides["DELETE"] == before - after
        before = after
    return found


@pytest.mark.parametrize("mode", ["merge-on-read", pytest.param("copy-on-write", marks=only_in_soak)])
@pytest.mark.parametrize("granularity", ["file", pytest.param("partition", marks=only_in_soak)])
def test_the_changes_of_every_snapshot_make_the_table(case: Case, mode: str, granularity: str) -> None:
    sink = case.new_sink(sizing=FileSizing(max_file_bytes="64KiB", small_file_bytes="48KiB", fill="inline"))
    for number in range(3):
        case.land(number, sink)
    modes = ", ".join(f"'write.{each}.mode'='{mode}'" for each in ("delete", "update", "merge"))
    case.do(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({modes}, 'write.delete.granularity'='{granularity}')")
    case.do("INSERT INTO {t} VALUES (1000, 'theirs'), (1000, 'theirs'), (3, 'ours')")
    case.do("DELETE FROM {t} WHERE id IN (4, 14, 1001)")
    case.do("DELETE FROM {t} WHERE id IN (5, 15)")  # of files that have deletes already
    case.do("UPDATE {t} SET by = 'changed' WHERE id BETWEEN 7 AND 11")
    case.land(3, sink)
    case.do(_MERGE)
    case.do("DELETE FROM {t} WHERE id < 8")
    case.do("CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    case.do("DELETE FROM {t} WHERE id >= 1000")
    case.do("INSERT OVERWRITE {t} SELECT * FROM {t} WHERE id > 20")
    case.land(4, sink)
    found = check_they_make_the_table(case)
    head = case.table.open().head
    last = feed(case, head.number - 1, head.number)
    assert {row["id"] for row in last if row["_change_type"] == "INSERT"} == set(range(40, 50))
    assert max(row["_commit_version"] for row in found) <= head.number


@pytest.mark.parametrize("fault", ["deletes before are not looked at", "equal rows are left in"])
def test_the_judge_sees_what_is_wrong(case: Case, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    case.land(0)
    if fault == "equal rows are left in":
        monkeypatch.setattr(reading, "_without_equals", lambda rows: rows)
    else:
        monkeypatch.setattr(pieces, "DeleteIndex", lambda _: DeleteIndex(()))
        case.do("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
        case.do("DELETE FROM {t} WHERE id = 4")
        case.do("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode'='copy-on-write')")
    case.do("DELETE FROM {t} WHERE id = 3")
    with pytest.raises(AssertionError):
        check_they_make_the_table(case)


def test_versions_that_have_expired_are_named(case: Case) -> None:
    for number in range(3):
        case.land(number)
    later = "TIMESTAMP '2100-01-01 00:00:00'"
    case.do(
        f"CALL lake.system.expire_snapshots(table => '{{name}}', older_than => {later}, retain_last => 1)"
    )
    with pytest.raises(ValueError, match="the changes before version 3 have expired"):
        feed(case, 2)
    assert len(feed(case, 3)) == 10
    case.land(3)
    assert [row["_commit_version"] for row in feed(case, 4)] == [4] * 10


def test_maps_are_compared_too(case: Case) -> None:
    case.do("CREATE TABLE {t} (id BIGINT, by STRING, tags MAP<STRING, INT>) USING iceberg")
    case.do("INSERT INTO {t} VALUES (1, 'a', map('x', 1)), (2, 'a', map('x', 1)), (3, 'a', null)")
    case.do("UPDATE {t} SET tags = map('x', 2) WHERE id = 2")
    rows = [(it["id"], it["_change_type"], it["tags"]) for it in feed(case, 2)]
    assert sorted(rows, key=str) == [(2, "DELETE", {"x": 1}), (2, "INSERT", {"x": 2})]
