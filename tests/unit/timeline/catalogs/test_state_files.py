"""Long values of properties are in files of a table in a catalog, and everything above sees whole values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.unit.timeline.logs.kinds import LANDED, NOT_LANDED, CatalogKind
from timeline import features, names, properties
from timeline.catalogs.state_files import (
    MOST_KEY_BYTES,
    MOST_VALUE_BYTES,
    find_long,
    state_files_of,
)
from timeline.changes.changes import Append, Change
from timeline.changes.outbox_changes import PutOutbox
from timeline.drafts.draft import Draft
from timeline.errors import CorruptTableError
from timeline.stores import LocalStore, Stored
from timeline.versions.outbox import Delivery
from timeline.versions.transactions import Transaction
from timeline.versions.work_items import NumberSet

KEY = properties.WORK_ITEMS_PREFIX + "zone"
LONG = ",".join(map(str, range(0, 3_000, 2)))


@dataclass(frozen=True)
class Remember(Change):
    """State of any length, which the protocol has where items land in any order."""

    value: str
    key: str = KEY

    def apply(self, draft: Draft) -> None:
        draft.properties[self.key] = self.value


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[CatalogKind]:
    made = CatalogKind(tmp_path)
    yield made
    made.close()


def stored(kind: CatalogKind) -> dict[str, str]:
    """Return this sink's properties as the catalog has them."""
    return {key: value for key, value in kind.read().properties.items() if properties.is_ours(key)}


def files(kind: CatalogKind) -> set[str]:
    return {each.path for each in kind.store().list_below(names.STATE_FOLDER)}


def test_a_long_value_is_in_a_file_and_every_process_sees_it_whole(kind: CatalogKind) -> None:
    table = kind.create()
    table.commit([Remember(LONG)])
    (path,) = files(kind)
    assert stored(kind)[KEY] == path
    assert kind.store().read(path).data.decode() == LONG
    assert state_files_of(table.head) == state_files_of(kind.open().head) == {path}
    assert table.head.properties[KEY] == kind.open().head.properties[KEY] == LONG


def test_a_value_that_does_not_change_keeps_its_file_and_one_that_grows_short_leaves_it(
    kind: CatalogKind,
) -> None:
    table = kind.create()
    table.commit([Remember(LONG)])
    first = files(kind)
    table.commit([Append((kind.file([1]),))])
    kind.open().commit([Append((kind.file([2]),))])
    assert files(kind) == first
    other = kind.open()
    other.commit([Remember("0-2999")])
    assert stored(kind)[KEY] == "0-2999"
    assert state_files_of(other.head) == frozenset()  # so that a cleaner may delete the file
    assert files(kind) == first
    assert table.refresh().properties[KEY] == "0-2999"


def test_the_file_is_durable_before_the_commit_that_names_it_is_sent(kind: CatalogKind) -> None:
    table = kind.create()
    seen: list[set[str]] = []
    kind.answers.append(lambda: seen.append(files(kind)))
    table.commit([Remember(LONG)])
    assert seen == [files(kind)]
    assert len(seen[0]) == 1


@pytest.mark.parametrize("answer", [LANDED, NOT_LANDED, "race"])
def test_a_retry_writes_no_value_again(kind: CatalogKind, answer: str) -> None:
    table, other = kind.create(), kind.open()
    race = answer == "race"
    kind.answers.append((lambda: other.commit([Append((kind.file([1]),))])) if race else answer)
    committed = table.commit([Remember(LONG)])
    assert committed.attempts == (2 if race else 1)  # type: ignore[union-attr]
    assert len(files(kind)) == 1
    assert kind.open().head.properties[KEY] == LONG


def test_a_value_from_below_the_fence_is_written_again(kind: CatalogKind) -> None:
    """The cleaner may have deleted the file that a lost attempt has written."""
    table, other = kind.create(), kind.open()

    def sleep_past_the_fence() -> None:
        kind.clock.now_ms = table.head.metadata.last_updated_ms + 7 * 24 * 3600 * 1000
        cutoff = names.ulid_floor(kind.clock.now_ms - 24 * 3600 * 1000)
        other.commit([Remember(cutoff, properties.GC_CUTOFF)])
        (path,) = files(kind)
        kind.store().delete([path])

    kind.answers.append(sleep_past_the_fence)
    table.commit([Remember(LONG)])
    assert len(state_files_of(table.head) & files(kind)) == 1
    assert kind.open().head.properties[KEY] == LONG


@pytest.mark.parametrize("damage", ["missing", "other bytes", "no name of a file"])
def test_a_state_file_that_is_gone_or_damaged_stops_the_writers(kind: CatalogKind, damage: str) -> None:
    table = kind.create()
    table.commit([Remember(LONG)])
    (path,) = files(kind)
    if damage == "missing":
        kind.store().delete([path])
    elif damage == "other bytes":
        kind.store().overwrite(path, LONG.replace("1000,", "").encode())
    else:
        with kind.read().transaction() as edit:
            edit.set_properties({KEY: path.replace("0", "x")})
        path = path.replace("0", "x")
    with pytest.raises(CorruptTableError, match=KEY) as raised:
        kind.open()
    assert path in str(raised.value)
    assert raised.value.files == (path,)


def test_a_reader_whose_file_was_deleted_since_another_commit_reads_the_newer_head(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = kind.create()
    table.commit([Remember(LONG)])
    (path,) = files(kind)
    read = LocalStore.read

    def superseded_meanwhile(self: LocalStore, wanted: str) -> Any:
        if wanted == path and kind.store().look(path):
            monkeypatch.undo()
            table.commit([Remember("0-2999")])
            kind.store().delete([path])
        return read(self, wanted)

    monkeypatch.setattr(LocalStore, "read", superseded_meanwhile)
    assert kind.open().head.properties[KEY] == "0-2999"


def test_files_are_read_once_a_process(kind: CatalogKind, monkeypatch: pytest.MonkeyPatch) -> None:
    kind.create().commit([Remember(LONG)])
    table = kind.open()
    read, real = list[str](), LocalStore.read

    def watched(self: LocalStore, path: str) -> Stored:
        read.append(path)
        return real(self, path)

    monkeypatch.setattr(LocalStore, "read", watched)
    table.commit([Append((kind.file([1]),))])
    table.refresh()
    assert not [path for path in read if path.startswith(names.STATE_FOLDER)]


def test_a_table_that_much_writes_to_has_few_and_short_properties(kind: CatalogKind) -> None:
    """Fifty applications with a quarantine, a key, and a zone whose items land in any order."""
    table = kind.create()
    for number in range(50):
        app = f"{number}-{'a' * 150}"[:150]
        rejected = Delivery("file:///lake/db/events__quarantine", str(table.head.metadata.table_uuid)[::-1],
                            0, tuple(kind.file([each]) for each in range(4)))  # fmt: skip
        queries = ["0a8b4f3c-0a8b-4f3c-9d5e-1d2c3b4a5f6e"] * 2
        transaction = Transaction(app, *queries, 1_000_000 + number)
        table.commit([PutOutbox(app, (rejected,))], transaction=transaction)
    zone = NumberSet.of(each for each in range(10_000) if each % 7)
    table.commit([Remember(zone.to_text()), Remember("[" + "0" * 9_000 + "]", properties.TOMBSTONES)])
    key = json.dumps({"columns": ["user_id"], "sequence": ["updated_at"], "scope": "table"})
    table.commit([Remember(key, properties.KEY), Remember(features.OUTBOX, properties.REQUIRED_FEATURES)])
    found = stored(kind)
    assert sum(len(key) + len(value) for key, value in found.items()) <= 32_000
    assert max(map(len, found.values())) <= MOST_VALUE_BYTES
    assert max(map(len, found)) <= MOST_KEY_BYTES
    head = kind.open().head
    assert head.properties == table.head.properties
    assert all(len(head.outbox(f"{number}-{'a' * 150}"[:150]).files) == 4 for number in range(50))  # type: ignore[union-attr]
    assert len(state_files_of(head)) > 50 - 30_000 / 1_000


def test_a_key_that_is_too_long_is_refused_and_nothing_is_written(kind: CatalogKind) -> None:
    table = kind.create()
    with pytest.raises(ValueError, match="at most 200 bytes"):
        table.commit([Append((kind.file([1]),))], transaction=Transaction("ä" * 100, "query", "run", 0))
    assert kind.rows() == []
    assert kind.open().head.number == 0


def test_values_of_others_stay_where_they_are() -> None:
    assert list(find_long({"schema.name-mapping.default": "x" * 50_000, "owner": "y" * 5_000})) == []


def test_of_many_values_the_longest_are_in_files_until_all_together_are_short() -> None:
    many = {f"{properties.OUTBOX_PREFIX}{number:02}": "x" * (1_000 + number) for number in range(35)}
    assert list(find_long(many)) == [
        f"{properties.OUTBOX_PREFIX}{number}" for number in (34, 33, 32, 31, 30, 29, 28)
    ]
