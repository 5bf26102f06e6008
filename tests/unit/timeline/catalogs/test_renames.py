"""A renamed table is found by its uuid, in other namespaces too, past tables that cannot be loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import ForbiddenError, ServerError

from tests.unit.timeline.logs.kinds import Answers, CatalogKind
from tests.unit.timeline.world import SCHEMA
from timeline.catalogs.renames import find_by_uuid
from timeline.errors import StoreUnavailableError, TableNotFoundError
from timeline.stores import local_path

OWN, OTHER = ("lake",), ("attic",)


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[CatalogKind]:
    made = CatalogKind(tmp_path)
    yield made
    made.close()


def moved(kind: CatalogKind, *name: str) -> tuple[Any, str]:
    """Return the catalog with the table under another name, and the table's uuid."""
    uuid = str(kind.create().head.metadata.table_uuid)
    catalog = kind._catalog(Answers())
    for namespace in (OTHER, ("attic", "old"), ("zoo",)):
        catalog.create_namespace(namespace)
    catalog.rename_table(("lake", "table"), name)
    return catalog, uuid


def refusing(call: Callable[..., Any], name: tuple[str, ...], failure: Exception) -> Callable[..., Any]:
    """Return a request of a catalog that fails for one name."""

    def ask(asked: Any, *given: Any) -> Any:
        if tuple(asked) == name:
            raise failure
        return call(asked, *given)

    return ask


@pytest.mark.parametrize("gone", ["dropped", "renamed"])
def test_an_open_table_that_the_catalog_has_no_more_says_what_to_do(kind: CatalogKind, gone: str) -> None:
    table = kind.create()
    if gone == "dropped":
        kind.beside().drop_table("lake.table")
    else:
        kind.beside().rename_table("lake.table", "lake.new")
    with pytest.raises(
        TableNotFoundError, match=r"the catalog has the table no more.*other name: lake\.table$"
    ):
        table.refresh()


@pytest.mark.parametrize("name", [("lake", "new"), ("attic", "table"), ("attic", "old", "t"), ("zoo", "t")])
def test_a_table_is_found_in_whichever_namespace_it_is(kind: CatalogKind, name: tuple[str, ...]) -> None:
    catalog, uuid = moved(kind, *name)
    assert find_by_uuid(catalog, OWN, uuid) == name
    assert find_by_uuid(catalog, OWN, "another") is None
    assert find_by_uuid(catalog, ("gone",), uuid) == name


@pytest.mark.parametrize("namespace", [OWN, OTHER])
def test_a_table_whose_metadata_was_deleted_is_passed_over(
    kind: CatalogKind, namespace: tuple[str, ...]
) -> None:
    catalog, uuid = moved(kind, "zoo", "table")
    damaged = catalog.create_table((*namespace, "damaged"), SCHEMA)
    Path(local_path(damaged.metadata_location)).unlink()
    assert find_by_uuid(catalog, OWN, uuid) == ("zoo", "table")


def test_what_its_user_may_not_read_of_other_namespaces_is_passed_over(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, uuid = moved(kind, "zoo", "table")
    catalog.create_table(("attic", "secret"), SCHEMA)
    denied = ForbiddenError("not yours")
    for request, name in (("load_table", ("attic", "secret")), ("list_tables", ("attic", "old"))):
        monkeypatch.setattr(catalog, request, refusing(getattr(catalog, request), name, denied))
    assert find_by_uuid(catalog, OWN, uuid) == ("zoo", "table")
    monkeypatch.setattr(catalog, "list_tables", refusing(catalog.list_tables, OWN, denied))
    with pytest.raises(StoreUnavailableError, match="which other tables it has is not known"):
        find_by_uuid(catalog, OWN, uuid)


@pytest.mark.parametrize("request_name", ["load_table", "list_tables", "list_namespaces"])
def test_a_catalog_that_does_not_answer_says_not_that_there_is_none(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch, request_name: str
) -> None:
    catalog, uuid = moved(kind, "zoo", "table")
    name = {"load_table": ("zoo", "table"), "list_tables": ("zoo",), "list_namespaces": ()}[request_name]
    asked = refusing(getattr(catalog, request_name), name, ServerError("busy"))
    monkeypatch.setattr(catalog, request_name, asked)
    with pytest.raises(StoreUnavailableError, match="which other tables it has is not known"):
        find_by_uuid(catalog, OWN, uuid)


def test_a_catalog_that_lists_no_namespaces_is_searched_in_one(
    kind: CatalogKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, uuid = moved(kind, "lake", "other")
    monkeypatch.setattr(
        catalog, "list_namespaces", refusing(catalog.list_namespaces, (), NotImplementedError())
    )
    assert find_by_uuid(catalog, OWN, uuid) == ("lake", "other")
    assert find_by_uuid(catalog, OTHER, uuid) is None
