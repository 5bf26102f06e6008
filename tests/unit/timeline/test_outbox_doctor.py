"""What the doctor finds between a main table and the second table that it delivers into (R24)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.timeline.outboxes import APP, Pair
from tests.unit.timeline.world import BY_P, DAY_MS, SCHEMA
from timeline import doctor, properties
from timeline.changes.changes import SetProperties
from timeline.diagnosis import Severity
from timeline.names import version_path
from timeline.outbox import deliver_all, retire_main
from timeline.stores import MemoryStore
from timeline.table import Table

NOTE, WARNING, DAMAGE = Severity.NOTE, Severity.WARNING, Severity.DAMAGE


def findings(store: MemoryStore) -> dict[str, Severity]:
    found = doctor(store, probe=False).findings
    return {each.kind: each.severity for each in found if each.kind.startswith("outbox")}


@pytest.fixture
def pair() -> Pair:
    pair = Pair()
    pair.writer().commit(0, pair.bad_file())
    return pair


def pass_hours(pair: Pair) -> None:
    pair.clock.now_ms += DAY_MS
    pair.main.open().commit([SetProperties({"a": "b"})])


def test_a_pair_that_works_has_no_finding(pair: Pair) -> None:
    assert findings(pair.main.objects) == {}  # it waits, and not for long
    deliver_all(pair.main.open(), pair.open_table)
    pass_hours(pair)
    assert findings(pair.main.objects) == findings(pair.second.objects) == {}


def test_rows_that_wait_for_long_are_found(pair: Pair) -> None:
    pass_hours(pair)
    assert findings(pair.main.objects) == {"outbox-undelivered": WARNING}
    assert "3 rows of application 'flights'" in doctor(pair.main.objects, probe=False).text()


def test_a_file_that_waits_and_is_missing_is_found(pair: Pair) -> None:
    entry = pair.main.open().head.outbox(APP)
    assert entry is not None
    pair.second.objects.delete([pair.second.store.relative(file.file_path) for file in entry.files])
    assert findings(pair.main.objects) == {"outbox-file-missing": DAMAGE}


def _drop(pair: Pair, which: str) -> MemoryStore:
    objects: MemoryStore = getattr(pair, which).objects
    objects.delete([listed.path for listed in objects.list_below("")])
    return objects


def _make_again(pair: Pair, which: str) -> None:
    Table.create(_drop(pair, which), SCHEMA, BY_P, environment=pair.clock.environment(77))


def _retire(pair: Pair, which: str) -> None:
    main = pair.main.open().head.metadata
    retire_main(pair.second.open(), str(main.table_uuid), lambda _: pair.open_table("memory://elsewhere"))


@pytest.mark.parametrize("lose", [_drop, _make_again, _retire])
def test_files_of_a_second_table_that_was_dropped_or_has_retired_this_one_are_found(
    pair: Pair, lose: Callable[[Pair, str], Any]
) -> None:
    lose(pair, "second")
    assert findings(pair.main.objects) == {"outbox-undeliverable": DAMAGE}


@pytest.mark.parametrize("lose", [_drop, _make_again])
def test_a_main_table_that_is_missing_is_found(pair: Pair, lose: Callable[[Pair, str], Any]) -> None:
    main_uuid = str(pair.main.table.head.metadata.table_uuid)
    lose(pair, "main")
    assert findings(pair.second.objects) == {"outbox-main-missing": WARNING}
    retire_main(pair.second.open(), main_uuid, pair.open_table)
    assert findings(pair.second.objects) == {}


@pytest.mark.parametrize(
    ("which", "key"), [("main", properties.OUTBOX_PREFIX + APP), ("second", properties.OUTBOXES)]
)
def test_properties_that_cannot_be_read_are_found(pair: Pair, which: str, key: str) -> None:
    lake = getattr(pair, which)
    path = version_path(lake.open().head.number)
    stored = json.loads(lake.objects.read(path).data)
    stored["properties"][key] = "[1]"
    lake.objects.overwrite(path, json.dumps(stored).encode())
    assert findings(lake.objects) == {"outbox-unreadable": DAMAGE}


def test_a_table_that_cannot_be_read_from_here_is_a_note(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(location: str, options: object) -> MemoryStore:
        raise ValueError(f"no credentials: {location}")

    monkeypatch.setattr("timeline.diagnosis.open_store", refuse)
    assert findings(pair.main.objects) == findings(pair.second.objects) == {"outbox-not-checked": NOTE}
