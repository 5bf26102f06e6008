"""`doctor --gone`: what is left of a key is found, each kind where it is, and nothing that is not hers."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent

from streaming_sink import check_gone
from streaming_sink.commands.cli import main
from streaming_sink.removal import leftovers
from streaming_sink.tasks.files.delete_files import read_position_deletes
from tests.unit.streaming_sink.removal.people import ALICE, Foreign, People, put_parquet, staged
from timeline.changes.changes import Replace, SetProperties
from timeline.changes.outbox_changes import PutOutbox
from timeline.errors import SchemaMismatchError, TableNotFoundError
from timeline.maintenance.expiry import expire_snapshots
from timeline.manifests.entries import DeleteFile

GONE = [{"user_id": ALICE}]


@pytest.fixture
def people(tmp_path: Path) -> People:
    """A table of other people, with all that may hold a key, and nothing of hers."""
    people = People(tmp_path / "people")
    where = people.append(1, 2, 3, None)
    people.delete(where, 1)
    people.remember(2)
    people.index()
    people.quarantine_row('{"user_id":7,"name":"Bob"}')
    put_parquet(f"{people.location}/data/foreign.parquet", {"user_id": [8], "other": ["x"]})
    people.write(9)
    return people


def kinds(people: People) -> list[str]:
    return [it.kind for it in check_gone(people.location, GONE).findings]


def test_nothing_of_a_key_that_never_was_is_found(people: People) -> None:
    found = check_gone(people.location, GONE)
    assert found.findings == ()
    assert found.healthy


def test_a_page_that_pyarrow_passes_over_hides_no_row(people: People) -> None:
    """One flipped bit makes it one of a kind that is not known."""
    path = Path(people.append(5, ALICE))
    chunk = pq.read_metadata(path).row_group(0).column(0)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + 1] ^= 1
    path.write_bytes(data)
    (found,) = check_gone(people.location, GONE).findings
    assert "its pages have 0 rows, and its footer states 2" in found.what


def test_a_page_with_another_checksum_is_no_page_without_her(people: People) -> None:
    path = Path(people.append(5, ALICE))
    chunk = pq.read_metadata(path).row_group(0).column(0)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
    (found,) = check_gone(people.location, GONE).findings
    assert "CRC checksum verification failed" in found.what


def live(people: People) -> str:
    return people.append(5, ALICE)


def deleted(people: People) -> str:
    where = people.append(5, ALICE)
    people.delete(where, 1)
    return where


def tagged(people: People) -> str:
    where = live(people)
    people.tag()
    folded_away(people, where)
    return "tag 'audit'"


def branched(people: People) -> str:
    where = live(people)
    people.tag("test", "branch")
    folded_away(people, where)
    return "branch 'test'"


def staged_away(people: People) -> str:
    where = live(people)
    staged(people)
    return where


def history(people: People) -> str:
    where = live(people)
    folded_away(people, where)
    return where


def expired(people: People) -> str:
    where = live(people)
    folded_away(people, where)
    for _ in range(101):
        people.clock.now_ms += 60_000
        people.table.commit([SetProperties({"a": "b"})])
    people.append(6)
    expire_snapshots(people.table, max_snapshot_age=timedelta(0), min_snapshots_to_keep=1)
    return where


def undelivered(people: People) -> str:
    return people.quarantine_row(f'{{"user_id":{ALICE}}}', deliver=False)


def orphaned(people: People) -> str:
    return str(people.write(ALICE)[0].file_path)


def foreign(people: People) -> str:
    put_parquet(f"{people.location}/theirs.parquet", {"user_id": [3, ALICE]})
    return "theirs.parquet"


def by_reference(people: People) -> str:
    return people.refer(f"{people.location}-drop.parquet", 3, ALICE)


def by_value(people: People) -> str:
    """An equality delete of another engine: the deleted value is in it."""
    (file,) = people.write(ALICE)
    file[0] = DataFileContent.EQUALITY_DELETES
    delete = DeleteFile(*file._data, None)
    delete.spec_id = 0
    people.table.commit([Foreign((), (delete,))])
    return str(file.file_path)


def row_of_a_delete(people: People) -> str:
    """A position-delete file with the deleted rows beside their positions."""
    ids = {"PARQUET:field_id": "1"}
    row = pa.struct([pa.field("user_id", pa.int64(), metadata=ids)])
    rows = pa.table({"file_path": ["x"], "pos": [0], "row": pa.array([{"user_id": ALICE}], row)})
    pq.write_table(rows, f"{people.location}/data/theirs-deletes.parquet")
    return "data/theirs-deletes.parquet"


def indexed(people: People) -> str:
    where = live(people)
    path = people.index()
    folded_away(people, where)
    return path


def bounds(people: People) -> str:
    """A manifest that names a file which is deleted: 42 is its greatest key."""
    where = live(people)
    people.store.delete([people.store.relative(where)])
    return "metadata/m/"


def unreadable(people: People) -> str:
    where = people.append(10)
    (Path(people.location) / people.store.relative(where)).write_bytes(b"PAR1 and no more")
    return where


def unfinished(people: People) -> str:
    path = Path(people.location) / "data" / ".tmp-1-x"
    path.write_bytes(b"")
    return "data/.tmp-1-x"


def remembered(people: People) -> str:
    return people.remember(ALICE)


def quarantined(people: People) -> str:
    return people.quarantine_row(f'{{"user_id":{ALICE},"name":"Alice"}}')


def rescued(people: People) -> str:
    return people.append(None, rescued=f'{{"user_id":"{ALICE}"}}')


def folded_away(people: People, location: str) -> None:
    """Replace a file of two rows by one with neither, as a fold does after a delete of both."""
    table = people.table
    deletes = people.delete(location, 0, 1)
    assert len(read_position_deletes(people.store, [deletes], location)) == 2
    table.commit([Replace(frozenset({location}), (), frozenset({deletes}), 2)])


PLANTED: dict[str, list[Callable[[People], str]]] = {
    "gone-row-live": [live, rescued, quarantined],
    "gone-row-deleted": [deleted],
    "gone-row-tagged": [tagged, branched],
    "gone-row-staged": [staged_away],
    "gone-row-in-history": [history],
    "gone-row-expired": [expired],
    "gone-row-undelivered": [undelivered],
    "gone-row-orphaned": [orphaned],
    "gone-row-foreign": [foreign, row_of_a_delete],
    "gone-row-by-reference": [by_reference],
    "gone-key-in-deletes": [by_value],
    "gone-key-in-index": [indexed],
    "gone-key-in-bounds": [bounds],
    "gone-not-checked": [unreadable, unfinished],
    "gone-key-in-tombstones": [remembered],
}


@pytest.mark.parametrize(
    ("kind", "plant"),
    [(kind, it) for kind, each in PLANTED.items() for it in each],
    ids=lambda it: it if isinstance(it, str) else it.__name__,
)
def test_each_kind_of_leftover_is_found_where_it_is(
    people: People, kind: str, plant: Callable[[People], str]
) -> None:
    where = plant(people)
    place = where.removeprefix("file://").removeprefix(people.location + "__quarantine/")
    place = place.removeprefix(people.location + "/")
    diagnosis = check_gone(people.location, GONE)
    found = {it.kind: it for it in diagnosis.findings}
    assert kind in found
    assert place in found[kind].what
    assert diagnosis.healthy == (kind == "gone-key-in-tombstones")


def test_what_is_being_written_is_looked_at_again(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a stream, files were found while they were written, and the keys "could not be checked"."""
    temporary, where = Path(people.location) / unfinished(people), people.append(10)
    written = Path(people.location) / people.store.relative(where)
    whole = written.read_bytes()
    written.write_bytes(whole[:5])
    bounds = leftovers.bounds_of_missing_files

    def meanwhile(*given: Any) -> Any:
        temporary.unlink(missing_ok=True)
        written.write_bytes(whole)
        return bounds(*given)

    monkeypatch.setattr(leftovers, "bounds_of_missing_files", meanwhile)
    assert kinds(people) == []


def test_the_command_names_what_is_left_and_exits_as_the_doctor_does(
    people: People, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["doctor", people.location, "--no-probe", "--gone", f"user_id={ALICE}"]
    main(arguments)
    assert "WARNING gone-" not in capsys.readouterr().out
    where = people.append(ALICE)
    assert main(arguments) == 1
    out = capsys.readouterr().out
    assert "WARNING gone-row-live: 1 row of the keys in 1 file:" in out
    assert people.store.relative(where) in " ".join(out.split())


def test_every_leftover_has_its_section_in_the_docs() -> None:
    page = (Path(__file__).parents[4] / "docs" / "troubleshooting.md").read_text()
    assert {kind for kind in PLANTED if f"- **`{kind}`**" not in page} == set()


@pytest.mark.parametrize(
    ("row", "holds"),
    [
        ('{"user_id":42}', True),
        ('{"USER_ID":"42"}', True),
        ('{"user_id":42.0}', True),
        ('{"user_id":42.5}', False),
        ('{"value":"{\\"user_id\\": 42}"}', True),
        ('{"payload":{"after":{"user_id":42}}}', True),
        ('{"rows":[{"user_id":1},{"user_id":42}]}', True),
        ('{"value":"{\\"user_id\\": 42, \\"name"}', True),
        (f'{{"value":"{b64encode(json.dumps({"user_id": 42}).encode()).decode()}"}}', True),
        ('{"user_id":421}', False),
        ('{"user_id":7,"friend":{"user_id":42}}', False),
        ('{"user_id":null,"other":42}', False),
        ('{"value":"{\\"user_id\\": 142, \\"name"}', False),
        ('{"user_id":"4x"}', False),
    ],
)
def test_a_quarantined_row_is_found_by_what_its_json_says(tmp_path: Path, row: str, holds: bool) -> None:
    people = People(tmp_path / "people")
    people.append(1)
    people.quarantine_row(row)
    assert (kinds(people) == ["gone-row-live"]) == holds


def test_rows_of_another_table_in_a_quarantine_that_is_shared_are_not_hers(tmp_path: Path) -> None:
    one, other = People(tmp_path / "one"), People(tmp_path / "other")
    one.quarantine_row(f'{{"user_id":{ALICE}}}')
    place = f"{one.location}__quarantine"
    assert check_gone(other.location, GONE, also=[place]).findings == ()
    assert [it.kind for it in check_gone(one.location, GONE).findings] == ["gone-row-live"]


def test_a_quarantine_elsewhere_is_known_from_the_commits_that_named_it(tmp_path: Path) -> None:
    people = People(tmp_path / "people", place=tmp_path / "elsewhere")
    people.quarantine_row(f'{{"user_id":{ALICE}}}')
    assert kinds(people) == ["gone-row-live"]
    people.table.commit([PutOutbox("app", (), people.table.head.outbox("app").sequence)])  # type: ignore[union-attr]
    assert people.table.head.outbox("app") is None
    assert kinds(people) == ["gone-row-live"]


def test_columns_that_are_not_the_key_say_that_hashes_were_not_looked_up(people: People) -> None:
    people.append(5)
    found = check_gone(people.location, [{"name": "name of 5"}])
    assert [it.kind for it in found.findings] == ["gone-row-live", "gone-not-checked"]
    assert "hold hashes of (user_id)" in found.findings[1].what


def test_a_key_that_does_not_fit_is_refused_with_its_column(people: People) -> None:
    with pytest.raises(SchemaMismatchError, match="the table has no column 'id'; it has user_id, at"):
        check_gone(people.location, [{"id": 1}])
    with pytest.raises(ValueError, match="column user_id is of type long and cannot hold 'x'"):
        check_gone(people.location, [{"user_id": "x"}])
    with pytest.raises(ValueError, match="a key has no null, which equals nothing: user_id"):
        check_gone(people.location, [{"user_id": None}])
    with pytest.raises(TableNotFoundError, match="there is no table of this sink at /nowhere"):
        check_gone(people.location, GONE, also=["/nowhere/at/all"])
