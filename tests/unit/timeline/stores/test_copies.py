"""Copies that an object store makes by itself: of the bytes that were seen, or not at all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.timeline.stores.buckets import Buckets, Spoiled, buckets
from tests.unit.timeline.stores.conftest import memory_client
from timeline.errors import StoreUnavailableError
from timeline.stores import ListedObject, LocalStore
from timeline.stores import _object_copies as copies
from timeline.stores._object_client import OTHER_RETRIES
from timeline.stores.object import ObjectStore

SEEN = b"the rows that were checked"
OTHER = b"the rows of another writer"
FOLDER, NAME, PATH = "drop/day=mon/a b%2Fé", "x+y#z.parquet", "data/day=mon/01-x.parquet"
SOURCE, TARGET = f"bucket/{FOLDER}/{NAME}", f"bucket/lake/table/{PATH}"
UPLOAD = [f"POST {TARGET}?uploads", f"PUT {TARGET}?uploadId", f"POST {TARGET}?uploadId"]


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Buckets]:
    """Buckets with a source that was stored a minute ago; requests are sent again at once."""
    backoff = {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=4), "base": 2}
    monkeypatch.setitem(OTHER_RETRIES, "backoff", backoff)
    monkeypatch.setattr(copies, "LEAST_BYTES", 1)
    with buckets() as cloud:
        cloud.put(SOURCE, SEEN)
        cloud.second += 60
        yield cloud


@pytest.fixture
def source(cloud: Buckets) -> ObjectStore:
    return ObjectStore(f"s3://bucket/{FOLDER}", cloud.options)


@pytest.fixture
def target(cloud: Buckets) -> ObjectStore:
    return ObjectStore("s3://bucket/lake/table", cloud.options)


def copy(cloud: Buckets, source: ObjectStore, target: ObjectStore) -> bool:
    """Look at the source, and have it copied; `cloud.requests` are those of the copy alone."""
    seen = source.look(NAME)
    cloud.requests.clear()
    return target.copy_from(source, seen, PATH)


def test_a_copy_is_looked_at_between_two_looks_at_its_source_and_no_byte_is_sent(
    cloud: Buckets, source: ObjectStore, target: ObjectStore
) -> None:
    assert copy(cloud, source, target)
    assert cloud.requests == [f"HEAD {SOURCE}", *UPLOAD, f"HEAD {TARGET}", f"HEAD {SOURCE}"]
    assert cloud.objects[TARGET].data == SEEN
    assert not [body for body in cloud.received if SEEN in body]


@pytest.mark.parametrize(
    ("location", "options"),
    [
        ("s3://other/drop", {}),
        ("s3://bucket/drop", {"access_key_id": "another"}),
        ("s3://bucket/drop", {"endpoint": "http://127.0.0.1:1"}),
        ("gs://bucket/drop", None),
        ("az://bucket/drop", None),
    ],
)
def test_what_another_client_reaches_is_not_asked_for(
    cloud: Buckets, target: ObjectStore, location: str, options: dict[str, Any] | None
) -> None:
    given = {} if options is None else {**cloud.options, **options}
    assert not target.copy_from(ObjectStore(location, given), ListedObject(NAME, 26, "e"), PATH)
    assert cloud.requests == []


def test_a_store_of_another_kind_and_one_of_another_connection_are_not_asked(
    cloud: Buckets, source: ObjectStore, target: ObjectStore, tmp_path: Any
) -> None:
    seen = source.look(NAME)
    cloud.requests.clear()
    assert not target.copy_from(LocalStore(tmp_path), seen, PATH)
    assert not LocalStore(tmp_path).copy_from(source, seen, PATH)
    assert not ObjectStore("s3://bucket/t", cloud.options, memory_client).copy_from(source, seen, PATH)
    assert cloud.requests == []


def test_azure_is_not_asked_since_its_answer_may_come_before_the_bytes(cloud: Buckets) -> None:
    options = {"account_name": "a", "account_key": "YQ==", "endpoint": f"{cloud.endpoint}/a"}
    source, target = (ObjectStore(f"az://c/{at}", {**options, "allow_http": True}) for at in ("drop", "t"))
    assert not target.copy_from(source, ListedObject(NAME, len(SEEN), "e"), PATH)
    assert cloud.requests == []


@pytest.mark.parametrize("size", [0, 1, 5_000_000_001])
def test_what_one_put_stores_and_what_no_request_copies_goes_through_the_process(
    cloud: Buckets, source: ObjectStore, target: ObjectStore, size: int
) -> None:
    assert not target.copy_from(source, ListedObject(NAME, size, "e"), PATH)
    assert cloud.requests == []


def test_whatever_becomes_of_a_request_or_of_the_source_a_copy_has_the_bytes_that_were_seen(
    cloud: Buckets, source: ObjectStore, target: ObjectStore
) -> None:
    """Each request is spoiled in each way, and the source replaced, for good or for a while, before each."""
    seen, made, wrong = source.look(NAME), 0, []
    times = [(None, None), *((at, until) for at in range(7) for until in (*range(at + 1, 7), None))]
    for (number, how), (at, until) in itertools.product(
        [(None, None), *itertools.product(range(6), Spoiled)], times
    ):
        cloud.put(SOURCE, SEEN)
        cloud.objects.pop(TARGET, None)
        cloud.second += 60
        cloud.requests.clear()

        def spoil(came: int, _request: str) -> Spoiled | None:
            if came in (at, until):  # noqa: B023
                cloud.put(SOURCE, OTHER if came == at else SEEN)  # noqa: B023
            return how if came == number else None  # noqa: B023

        cloud.spoiled, target._copies = spoil, True
        try:
            said = target.copy_from(source, seen, PATH)
        except StoreUnavailableError:
            said = False
        made += said
        cloud.put(SOURCE, OTHER)
        cloud.arrive()
        case = (number, how, at, until)
        if said and cloud.objects[TARGET].data != SEEN:
            wrong.append(case)
        if not said and number is None and at is None:
            wrong.append(case)
    assert not wrong
    assert made > 20


def test_a_source_that_was_replaced_and_restored_while_it_was_copied_is_told_by_its_time(
    cloud: Buckets, source: ObjectStore, target: ObjectStore
) -> None:
    """S3's ETag of equal bytes is the same."""

    def spoil(came: int, _request: str) -> None:
        if came in (2, 3):
            cloud.put(SOURCE, OTHER if came == 2 else SEEN)

    cloud.spoiled = lambda came, request: spoil(came, request)
    seen = source.look(NAME)
    cloud.requests.clear()
    assert not target.copy_from(source, seen, PATH)
    assert source.look(NAME).identity == seen.identity
    assert TARGET not in cloud.objects  # what was made of it is deleted


def test_a_source_that_has_changed_before_is_not_copied_at_all(
    cloud: Buckets, source: ObjectStore, target: ObjectStore
) -> None:
    seen = source.look(NAME)
    cloud.put(SOURCE, OTHER)
    cloud.requests.clear()
    assert not target.copy_from(source, seen, PATH)
    del cloud.objects[SOURCE]
    assert not target.copy_from(source, seen, PATH)
    assert cloud.requests == [f"HEAD {SOURCE}"] * 2


@pytest.mark.parametrize("how", [Spoiled.REFUSED, Spoiled.BUSY, Spoiled.LOST, Spoiled.ERROR_IN_200])
def test_a_store_that_has_not_copied_once_is_not_asked_again(
    cloud: Buckets, source: ObjectStore, target: ObjectStore, how: Spoiled
) -> None:
    cloud.spoiled = lambda _, request: how if request == UPLOAD[1] else None
    assert not copy(cloud, source, target)
    assert cloud.requests == [f"HEAD {SOURCE}", *UPLOAD[:2], f"DELETE {TARGET}?uploadId"]
    assert not copy(cloud, source, target)
    assert cloud.requests == []


def test_a_store_that_says_that_it_has_copied_and_has_not_is_not_believed(
    cloud: Buckets, source: ObjectStore, target: ObjectStore
) -> None:
    def spoil(_: int, request: str) -> None:
        if request == f"HEAD {TARGET}":
            cloud.put(TARGET, b"")

    cloud.spoiled = lambda number, request: spoil(number, request)
    assert not copy(cloud, source, target)
    assert TARGET not in cloud.objects
    assert not copy(cloud, source, target)
    assert cloud.requests == []


class Vault:
    """Fetches the next key each time that it is asked."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options, self.calls = options, 0

    def __call__(self) -> dict[str, Any]:
        self.calls += 1
        return {**self.options, "access_key_id": f"key {self.calls}"}


def test_stores_of_one_function_of_options_copy_and_what_is_refused_is_asked_with_fresh_ones(
    cloud: Buckets,
) -> None:
    vault = Vault(cloud.options)
    source, target = (ObjectStore(f"s3://bucket/{at}", vault) for at in (FOLDER, "lake/table"))
    cloud.spoiled = lambda number, _: Spoiled.REFUSED if number == 1 else None
    assert copy(cloud, source, target)
    assert cloud.requests[1:5] == [UPLOAD[0], *UPLOAD]
    other = ObjectStore(f"s3://bucket/{FOLDER}", Vault(cloud.options))
    assert not target.copy_from(other, source.look(NAME), f"{PATH}.2")


def google(cloud: Buckets) -> tuple[ObjectStore, ObjectStore]:
    source, target = (ObjectStore(f"gs://bucket/{at}", cloud.google) for at in (FOLDER, "lake/table"))
    return source, target


def test_google_copies_by_one_request_that_replaces_nothing(cloud: Buckets) -> None:
    assert copy(cloud, *google(cloud))
    assert cloud.requests == [f"HEAD {SOURCE}", f"PUT {TARGET}", f"HEAD {TARGET}", f"HEAD {SOURCE}"]
    assert cloud.objects[TARGET].data == SEEN
    cloud.spoiled = lambda number, _: Spoiled.TWICE if number == 1 else None
    del cloud.objects[TARGET]
    assert copy(cloud, *google(cloud))
    cloud.put(SOURCE, OTHER)
    cloud.arrive()
    assert cloud.objects[TARGET].data == SEEN


def test_a_source_that_google_unpacks_for_its_readers_is_not_copied_as_it_is(cloud: Buckets) -> None:
    cloud.put(SOURCE, SEEN, encoding="gzip")
    assert not copy(cloud, *google(cloud))
    assert cloud.requests == [f"HEAD {SOURCE}"]
