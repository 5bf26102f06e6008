"""One function opens whatever a location names, and costs Spark's workers no heavy import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from timeline.errors import StoreUnavailableError
from timeline.stores import LocalStore, MemoryStore, Store, Unknown, open_store
from timeline.stores.object import ObjectStore


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        ("lake/t", LocalStore),
        ("/lake/t", LocalStore),
        ("file:///lake/t", LocalStore),
        ("file:/lake/t", LocalStore),
        ("memory://lake/t", MemoryStore),
        ("s3://lake/t", ObjectStore),
        ("s3a://lake/t", ObjectStore),
        ("gs://lake/t", ObjectStore),
        ("az://lake/t", ObjectStore),
        ("abfss://lake@account.dfs.core.windows.net/t", ObjectStore),
    ],
)
def test_the_scheme_decides(location: str, kind: type[Store]) -> None:
    assert type(open_store(location)) is kind


@pytest.mark.parametrize("location", ["hdfs://namenode/t", "S4://x/y", "https://host/t"])
def test_an_unknown_scheme_is_refused_with_those_that_are_known(location: str) -> None:
    with pytest.raises(ValueError, match=r"unknown scheme; supported are a path, file://, s3://.*got: "):
        open_store(location)


@pytest.mark.parametrize("location", ["s3:/lake/t", "dbfs:/lake/t", "~/t", "~lake/t"])
def test_what_would_become_an_odd_folder_on_each_machine_is_refused(location: str) -> None:
    """Rows would be acknowledged on some worker's own disk."""
    with pytest.raises(ValueError, match=r"a folder of that very name on each machine's own disk.*s3://"):
        open_store(location)


@pytest.mark.parametrize("location", ["/lake/t", "file:///lake/t", "memory://t"])
def test_options_that_nothing_would_use_are_refused(location: str) -> None:
    with pytest.raises(ValueError, match="would be ignored"):
        open_store(location, {"region": "x"})


def test_importing_the_stores_loads_neither_pyiceberg_nor_obstore() -> None:
    code = (
        "import sys, timeline.stores; timeline.stores.open_store('/x'); "
        "print([m for m in ('pyiceberg', 'obstore', 'pyarrow', 'pydantic', 'pyspark') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_memory_stores_of_one_name_share_their_objects_while_one_of_them_lives() -> None:
    first = MemoryStore("shared")
    first.create("x", b"one")
    assert MemoryStore("shared").read("x").data == b"one"
    del first
    assert MemoryStore("shared").list_folder("") == []


def test_memory_stores_without_a_name_share_nothing() -> None:
    first, second = MemoryStore(), MemoryStore()
    first.create("x", b"one")
    assert second.list_folder("") == []


def test_hooks_see_every_request_around_its_effect() -> None:
    seen: list[tuple[str, str, bool]] = []
    store = MemoryStore()
    there = MemoryStore(store.location.removeprefix("memory://"))

    def note(verb: str, path: str) -> None:
        seen.append((verb, path, bool(there.list_folder(""))))

    store.before, store.after = note, note
    store.create("x", b"")
    store.delete(["x"])
    assert seen == [
        ("create", "x", False),
        ("create", "x", True),
        ("delete", "x", True),
        ("delete", "x", False),
    ]


@pytest.mark.parametrize("applied", [False, True])
def test_a_create_whose_request_or_reply_was_lost_is_unknown(applied: bool) -> None:
    def lose(verb: str, path: str) -> None:
        raise ConnectionError("cable cut")

    store = MemoryStore("faults", after=lose) if applied else MemoryStore("faults", before=lose)
    assert store.create("x", b"one") == Unknown("cable cut")
    assert bool(MemoryStore("faults").list_folder("")) is applied
    with pytest.raises(StoreUnavailableError, match="does not answer"):
        store.read("x") if not applied else store.list_folder("")


@pytest.mark.parametrize(
    "location", ["s3://KEY:SECRET@bucket/x", "gs://user@bucket/x", "s3://bucket/x?secret=SECRET"]
)
def test_credentials_in_a_location_are_refused_without_repeating_them(location):
    with pytest.raises(ValueError, match="credentials and other parameters go into") as refused:
        open_store(location)
    assert "SECRET" not in str(refused.value)
