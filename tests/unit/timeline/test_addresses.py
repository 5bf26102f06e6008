"""How tables name each other: locations as they are, and names in a catalog so that they can be read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from timeline.errors import CorruptTableError
from timeline.properties import SECOND_TABLES
from timeline.versions.outbox import (
    catalog_address,
    identifier_of,
    second_tables_of,
    second_tables_to_property,
)


@given(some.lists(some.text(min_size=1), min_size=2).map(tuple))
def test_a_name_in_a_catalog_is_read_back(identifier: tuple[str, ...]) -> None:
    assert identifier_of(catalog_address(identifier)) == identifier


@pytest.mark.parametrize("location", ["/lake/events", "s3://lake/events", "file:///catalog", "memory://a"])
def test_a_location_is_no_name(location: str) -> None:
    assert identifier_of(location) is None


def test_names_in_a_catalog_have_their_uuid_and_locations_are_as_they_were() -> None:
    locations = second_tables_to_property({"/lake/b": "uuid", "/lake/a": None})
    assert locations == '["/lake/a","/lake/b"]'
    assert second_tables_of({SECOND_TABLES: locations}) == {"/lake/a": None, "/lake/b": None}
    named = second_tables_to_property({"catalog:db.q": "uuid"})
    assert named == '[["catalog:db.q","uuid"]]'
    assert second_tables_of({SECOND_TABLES: named}) == {"catalog:db.q": "uuid"}
    for damaged in ("{", "[7]", '[["a"]]', "7"):
        with pytest.raises(CorruptTableError, match="second-tables"):
            second_tables_of({SECOND_TABLES: damaged})
