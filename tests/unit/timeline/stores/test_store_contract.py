"""What every store promises, whatever it is made of."""

from __future__ import annotations

import gc
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.stores import Created, Exists, MemoryStore, Store

ODD_NAMES = ["plain.avro", "p=a%2Fb/x", "p=a b/x", "é=ü/x", "a#b?c&d", "a+b*c", "tilde~/x", "[x]{y}", "a'b"]


def _paths(store: Store, folder: str) -> list[str]:
    return sorted(entry.path for entry in store.list_folder(folder))


def test_create_stores_the_bytes(store: Store) -> None:
    assert store.create("metadata/v1", b"one") == Created()
    assert store.read("metadata/v1").data == b"one"


def test_create_of_a_taken_name_says_so_and_changes_nothing(store: Store) -> None:
    store.create("metadata/v1", b"one")
    assert store.create("metadata/v1", b"two") == Exists()
    assert store.read("metadata/v1").data == b"one"


def test_create_of_the_very_same_bytes_still_says_exists(store: Store) -> None:
    store.create("metadata/v1", b"one")
    assert store.create("metadata/v1", b"one") == Exists()


def test_an_empty_object_is_an_object(store: Store) -> None:
    assert store.create("empty", b"") == Created()
    assert store.create("empty", b"x") == Exists()
    assert store.read("empty").data == b""


def test_a_large_create_is_one_object(store: Store) -> None:
    data = bytes(range(256)) * 4096 * 12
    assert store.create("large", data) == Created()
    assert store.read("large").data == data


def test_sixteen_racing_creates_have_one_winner_whose_bytes_stay(store: Store) -> None:
    keys, racers = 20, 16
    gate = threading.Barrier(racers)

    def race(racer: int) -> list[bool]:
        gate.wait()
        return [store.create(f"race/{key}", b"racer %d" % racer) == Created() for key in range(keys)]

    with ThreadPoolExecutor(racers) as pool:
        wins = list(pool.map(race, range(racers)))
    for key in range(keys):
        winners = [racer for racer in range(racers) if wins[racer][key]]
        assert len(winners) == 1
        assert store.read(f"race/{key}").data == b"racer %d" % winners[0]
    assert len(store.list_folder("race")) == keys


def test_a_listing_shows_what_was_created_before_it_began(store: Store) -> None:
    for number in range(1, 21):
        store.create(f"metadata/v{number}", b"x" * number)
        assert len(store.list_folder("metadata")) == number
    assert {(e.path, e.size) for e in store.list_folder("metadata")} == {
        (f"metadata/v{n}", n) for n in range(1, 21)
    }


def test_a_listing_shows_one_folder_and_not_its_sub_folders(store: Store) -> None:
    for path in ("top", "metadata/v1", "metadata/m/x.avro", "metadata2/v1"):
        store.create(path, b"x")
    assert _paths(store, "metadata") == ["metadata/v1"]
    assert _paths(store, "") == ["top"]


def test_a_folder_that_nobody_made_lists_as_empty(store: Store) -> None:
    assert store.list_folder("nothing/here") == []


def test_listing_and_read_name_the_same_object_alike(store: Store) -> None:
    store.create("metadata/v1", b"one")
    (listed,) = store.list_folder("metadata")
    assert listed.identity == store.read("metadata/v1").identity
    seen = store.look("metadata/v1")
    assert (seen.path, seen.size, seen.identity) == ("metadata/v1", 3, listed.identity)


def test_an_overwrite_changes_bytes_and_identity(store: Store) -> None:
    store.overwrite("hint", b"1")
    before = store.read("hint")
    store.overwrite("hint", b"2")
    after = store.read("hint")
    assert (before.data, after.data) == (b"1", b"2")
    assert before.identity != after.identity
    assert store.list_folder("")[0].identity == after.identity


def test_reading_what_is_not_there_raises_file_not_found(store: Store) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        store.read("missing")
    with pytest.raises(FileNotFoundError, match="missing"):
        store.open_input("missing")
    with pytest.raises(FileNotFoundError, match="missing"):
        store.look("missing")


def test_delete_removes_what_is_there_and_minds_nothing_else(store: Store) -> None:
    for number in range(5):
        store.create(f"d/{number}", b"x")
    store.delete(f"d/{number}" for number in (0, 9, 1, 1, 8, 4))
    store.delete([])
    assert _paths(store, "d") == ["d/2", "d/3"]


def test_a_deleted_name_can_be_created_again(store: Store) -> None:
    store.create("x", b"one")
    store.delete(["x"])
    assert store.create("x", b"two") == Created()
    assert store.read("x").data == b"two"


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_characters_in_names_stay_as_they_are(store: Store, name: str) -> None:
    path = f"data/{name}"
    store.create(path, b"x")
    assert _paths(store, path.rpartition("/")[0]) == [path]
    assert store.read(path).data == b"x"


def test_parquet_goes_out_and_comes_back(store: Store) -> None:
    table = pa.table({"id": pa.array(range(200_000)), "name": [f"name {i % 977}" for i in range(200_000)]})
    with store.open_output("data/p=1/x.parquet") as out, pq.ParquetWriter(out, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=50_000):
            writer.write_batch(batch, row_group_size=10_000)
    with store.open_input("data/p=1/x.parquet") as file:
        assert pq.ParquetFile(file).read().equals(table)
    with store.open_input("data/p=1/x.parquet") as file:
        assert pq.read_table(file, columns=["id"], filters=[("id", ">", 199_990)]).num_rows == 9


def test_an_output_of_many_parts_is_stored_byte_for_byte_though_its_writer_reuses_the_buffer(
    store: Store,
) -> None:
    buffer = bytearray(1 << 20)
    with store.open_output("data/big") as out:
        for number in range(20):
            buffer[:] = bytes([number]) * len(buffer)
            assert out.write(memoryview(buffer)) == len(buffer)
        assert out.tell() == 20 << 20
    stored = store.read("data/big").data
    assert len(stored) == 20 << 20
    assert all(
        stored[number << 20 : (number + 1) << 20] == bytes([number]) * (1 << 20) for number in range(20)
    )


def test_what_a_store_says_that_it_has_copied_has_the_bytes_of_its_source(store: Store) -> None:
    source, data = store.at(f"{store.location} drop"), bytes(range(256)) * 4096 * 9
    source.overwrite("a b%2F/x#y", data)
    seen = source.look("a b%2F/x#y")
    if store.copy_from(source, seen, "data/p=1/x.parquet"):
        assert store.read("data/p=1/x.parquet").data == data
    assert source.look("a b%2F/x#y").identity == seen.identity


def test_closing_an_output_twice_is_no_error(store: Store) -> None:
    out = store.open_output("data/x")
    out.write(b"x")
    out.close()
    out.close()
    assert store.read("data/x").data == b"x"


def test_an_output_that_is_left_by_an_exception_never_becomes_an_object(store: Store) -> None:
    def fail() -> None:
        with store.open_output("data/half") as out:
            out.write(b"x" * (20 << 20))
            raise RuntimeError("the task died")

    with pytest.raises(RuntimeError, match="the task died"):
        fail()
    assert store.list_folder("data") == []


def test_an_output_that_is_dropped_never_becomes_an_object(store: Store) -> None:
    out = store.open_output("data/half")
    out.write(b"half")
    del out
    gc.collect()
    assert store.list_folder("data") == []


def test_an_input_seeks_and_reads_as_a_file_does(store: Store) -> None:
    data = bytes(range(256)) * 1024
    store.create("x", data)
    with store.open_input("x") as file:
        assert file.seek(-10, 2) == len(data) - 10
        assert file.read() == data[-10:]
        assert file.read(5) == b""
        assert file.seek(1000) == 1000
        assert (file.read(3), file.read(100_000)) == (data[1000:1003], data[1003:101_003])
        assert file.tell() == 101_003
        assert (file.seek(-3, 1), file.read(3)) == (101_000, data[101_000:101_003])
        target = bytearray(7)
        assert file.readinto(target) == 7  # type: ignore[attr-defined]
        assert bytes(target) == data[101_003:101_010]
        assert file.seek(len(data) + 5) == len(data) + 5
        assert file.read(1) == b""


def test_a_pickled_copy_sees_the_same_objects(store: Store) -> None:
    store.create("x", b"one")
    store.list_folder("")
    copy: Store = pickle.loads(pickle.dumps(store))
    assert (copy.location, copy.signature, repr(copy)) == (store.location, store.signature, repr(store))
    assert copy.read("x").data == b"one"
    assert copy.create("x", b"two") == Exists()


def test_uri_and_relative_are_inverse(store: Store) -> None:
    assert store.uri("data/p=1/x") == f"{store.location}/data/p=1/x"
    assert store.relative(store.uri("data/p=1/x")) == "data/p=1/x"
    assert not store.location.endswith("/")


@pytest.mark.parametrize(
    "elsewhere", ["/other/x", "s3://other/x", "{location}", "{location}/", "{location}2/x", "x"]
)
def test_a_name_outside_the_location_is_refused(store: Store, elsewhere: str) -> None:
    with pytest.raises(ValueError, match="not a name below"):
        store.relative(elsewhere.format(location=store.location))


def test_a_name_that_climbs_out_of_the_location_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="not a name below"):
        store.relative(f"{store.location}/../x")


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1), min_size=1))
def test_relative_undoes_uri_for_any_path(parts: list[str]) -> None:
    path = "/".join(part.replace("..", "dots") for part in parts)
    store = MemoryStore("round-trip")
    assert store.relative(store.uri(path)) == path


def test_the_signature_is_stable_and_not_empty(store: Store) -> None:
    assert store.signature
    assert store.signature == store.signature
