"""Source files of an object store are asked for many at once, in bounded number, and come in their order."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from planners.ingestion.buffering import BufferedFile
from streaming_sink.tasks.ingest.opening import AHEAD_BYTES, REQUESTS, open_all
from streaming_sink.tasks.ingest.reading import SourceFileError
from streaming_sink.tasks.ingest.sources import Sources
from timeline.errors import StoreUnavailableError
from timeline.stores.base import Stored


@dataclass
class SlowStore:
    """Answers a read once `together` of them wait for their answers."""

    together: int
    missing: frozenset[str] = frozenset()
    read_names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._barrier = threading.Barrier(self.together)

    def read(self, name: str) -> Stored:
        self.read_names.append(name)
        self._barrier.wait(10)
        if name in self.missing:
            raise FileNotFoundError(name)
        if name == "away":
            raise StoreUnavailableError("the store is away")
        return Stored(name.encode(), f"etag-{name}")


def sources(store: SlowStore) -> Sources:
    return Sources(("s3://lake/drop",), _stores={"s3://lake/drop": store})  # type: ignore[dict-item]


def files(names: list[str], size: int = 1) -> list[tuple[int, BufferedFile]]:
    paths = [f"s3://lake/drop/{name}" for name in names]
    return [
        (number, BufferedFile(path, f"etag-{name}", size, 0, "parquet", ""))
        for number, (path, name) in enumerate(zip(paths, names, strict=True))
    ]


def test_many_requests_wait_at_once_and_files_come_in_their_order() -> None:
    store = SlowStore(REQUESTS)
    names = [f"{number:03}" for number in range(2 * REQUESTS)]
    found = [(number, opener().read()) for number, _, opener in open_all(sources(store), files(names))]
    assert found == [(number, name.encode()) for number, name in enumerate(names)]
    assert sorted(store.read_names) == names  # each once


def test_no_more_bytes_than_allowed_are_held() -> None:
    store = SlowStore(1)
    names = [f"{number}" for number in range(10)]
    opened = open_all(sources(store), files(names, AHEAD_BYTES // 2))
    _, _, opener = next(opened)
    assert opener().read() == b"0"
    opened.close()
    assert len(store.read_names) <= 2  # the third was not asked for before the first was taken


def test_a_file_that_is_gone_fails_where_it_is_opened_and_the_others_go_on() -> None:
    store = SlowStore(3, missing=frozenset({"b"}))
    found: list[str] = []
    for _, file, opener in open_all(sources(store), files(["a", "b", "c"])):
        try:
            found.append(opener().read().decode())
        except SourceFileError as failure:
            found.append(f"{file.path}: {failure}")
    assert found == ["a", "s3://lake/drop/b: it was deleted after it was announced", "c"]


def test_a_store_that_is_away_stops_the_task() -> None:
    openers = [opener for _, _, opener in open_all(sources(SlowStore(2)), files(["a", "away"]))]
    assert openers[0]().read() == b"a"
    with pytest.raises(StoreUnavailableError, match="the store is away"):
        openers[1]()


def test_files_outside_of_the_sources_are_refused_where_they_are_opened() -> None:
    outside = [(0, BufferedFile("s3://lake/private/a.parquet", "e", 1, 0, "parquet", ""))]
    ((_, _, opener),) = open_all(sources(SlowStore(1)), outside)
    with pytest.raises(SourceFileError, match="takes files from s3://lake/drop alone"):
        opener()
