"""What a version tells of the manifests that it appended is what its list says; and nothing hangs on it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from tests.unit.timeline.world import Audit, Lake
from timeline import properties
from timeline.changes.changes import Append, Change, Replace, SetProperties
from timeline.table import Committed
from timeline.versions.added_manifests import manifests_after


def _told(lake: Lake, commit: Callable[[], object]) -> tuple[ManifestFile, ...] | None:
    before = lake.open().head
    commit()
    return manifests_after(before, lake.open().head.version)


def _listed(lake: Lake) -> list[str]:
    return [repr(manifest) for manifest in lake.open().head.manifests]


@pytest.mark.parametrize("p", [-7, 0])
def test_an_append_tells_what_its_list_says(p: int) -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    told = _told(lake, lambda: lake.table.commit([Append((lake.file(p=p), lake.file()))]))
    assert told is not None
    assert [repr(manifest) for manifest in told] == _listed(lake)
    assert len(told) == 2


def test_an_append_to_an_unpartitioned_table_and_to_an_empty_one_tells_it_too() -> None:
    lake = Lake(spec=UNPARTITIONED_PARTITION_SPEC)
    file = lake.file(p=None)
    told = _told(lake, lambda: lake.table.commit([Append((file,))]))
    assert [repr(manifest) for manifest in told or ()] == _listed(lake) != []


def test_manifests_without_live_files_are_left_behind() -> None:
    lake = Lake()
    old = lake.file()
    lake.table.commit([Append((old,))])
    lake.table.commit([Replace(frozenset({old.file_path}), (lake.merged(old),))])
    told = _told(lake, lambda: lake.table.commit([Append((lake.file(),))]))
    assert [repr(manifest) for manifest in told or ()] == _listed(lake)


@pytest.mark.parametrize("kind", ["replace", "property"])
def test_what_is_not_an_append_alone_tells_nothing_and_leaves_nothing_told(kind: str) -> None:
    lake = Lake()
    a, b = lake.file(), lake.file()
    lake.table.commit([Append((a,))])
    changes: list[Change] = {
        "replace": [Append((b,)), Replace(frozenset({a.file_path, b.file_path}), (lake.merged(a, b),))],
        "property": [SetProperties({"a": "b"})],
    }[kind]
    assert _told(lake, lambda: lake.table.commit(changes)) is None
    assert properties.APPENDED_MANIFESTS not in lake.open().head.properties


def test_it_holds_for_the_next_version_only() -> None:
    lake = Lake()
    before = lake.open().head
    lake.table.commit([Append((lake.file(),))])
    lake.table.commit([Append((lake.file(),))])
    assert manifests_after(before, lake.open().head.version) is None


@pytest.mark.parametrize(
    "text", ["", "no json", "{}", "[]", "1", '{"version": 3}', '{"version": 3, "manifests": [[1]]}']
)
def test_damage_is_as_if_nothing_were_told(text: str) -> None:
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    before = lake.open().head
    lake.table.commit([Append((lake.file(),))])
    winner = lake.open().head.version
    assert manifests_after(before, winner) is not None
    winner.metadata.properties[properties.APPENDED_MANIFESTS] = text
    assert manifests_after(before, winner) is None


def test_a_race_lost_to_an_append_costs_three_requests_one_after_the_other() -> None:
    """The winner's version, our list, our version: the manifests follow from the winner's version (R15)."""
    lake = Lake()
    lake.table.commit([Append((lake.file(),))])
    other, theirs = lake.open(), lake.file()
    lake.store.count()
    lake.store.creates.append(lambda: other.commit([Append((theirs,))]))
    committed = lake.table.commit([Append((lake.file(),))])
    assert isinstance(committed, Committed)
    assert committed.attempts == 2
    assert lake.store.count() == {"PUT": 4 + 2, "GET": 1 + 1, "LIST": 1}
    Audit(lake.store).check()
    assert theirs.file_path in lake.live()
