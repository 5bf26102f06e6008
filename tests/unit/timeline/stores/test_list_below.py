"""Listing a whole tree, as cleaners and the doctor do, on every kind of store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from timeline.stores import Store

MakeStore = Callable[[str], Store]
KINDS = ("local", "memory", "object")


@pytest.mark.parametrize("kind", KINDS)
def test_every_object_below_a_folder_is_shown_with_its_size(make_store: MakeStore, kind: str) -> None:
    store = make_store(kind)
    objects = {"data/a": 1, "data/p=1/b": 2, "data/p=1/q=2/c": 3, "database/d": 4, "e": 5}
    for path, size in objects.items():
        store.create(path, bytes(size))
    assert {listed.path: listed.size for listed in store.list_below("")} == objects
    assert {listed.path for listed in store.list_below("data")} == {"data/a", "data/p=1/b", "data/p=1/q=2/c"}


@pytest.mark.parametrize("kind", KINDS)
def test_more_objects_than_a_page_holds_are_all_shown(make_store: MakeStore, kind: str) -> None:
    store = make_store(kind)
    for number in range(130):
        store.overwrite(f"data/{number}", b"")
    assert len(list(store.list_below("data"))) == 130


@pytest.mark.parametrize("kind", KINDS)
def test_a_listing_names_an_object_as_a_read_does(make_store: MakeStore, kind: str) -> None:
    store = make_store(kind)
    store.create("data/p=1/a", b"text")
    assert [listed.identity for listed in store.list_below("data")] == [store.read("data/p=1/a").identity]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_there_is_an_empty_listing(make_store: MakeStore, kind: str) -> None:
    assert list(make_store(kind).list_below("")) == []
