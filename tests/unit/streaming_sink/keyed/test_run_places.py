"""Where files are in the runs of an index, beside dictionaries of the same, as runs come and leave."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_sink.keyed.run_places import NOWHERE, RunPlaces
from streaming_sink.tasks.key_index.runs import MOST_FILES, RunFooter
from streaming_sink.tasks.keys import keyed_files
from streaming_sink.tasks.keys.keyed_files import KeyedFiles
from streaming_sink.tasks.keys.scanning import TABLE_SALT, KeyedFile, partition_salt
from streaming_sink.tasks.run_files import RunBlock, RunLayout

_SALTS = st.sampled_from([TABLE_SALT, partition_salt((1,))])
_FILE = st.builds(KeyedFile, st.sampled_from(["a", "b", "c", "d", "e"]), st.integers(1, 2), _SALTS)
_RUN = st.tuples(st.integers(1, 3), st.lists(_FILE, unique_by=lambda it: it.location, max_size=4))


def _footer(entries: int, files: list[KeyedFile]) -> RunFooter:
    layout = RunLayout(b"", (), (RunBlock(entries, 0, 0, 0),), (0, 0))
    return RunFooter(KeyedFiles.of(files), None, layout)


def _found(places: RunPlaces, files: list[KeyedFile]) -> list[tuple[str, int] | None]:
    paths = places.paths
    of = places.of(KeyedFiles.of(files).fingerprints()).tolist()
    return [None if it == NOWHERE else (paths[it // MOST_FILES], it % MOST_FILES) for it in of]


def _expected(
    runs: Mapping[str, tuple[int, list[KeyedFile]]], files: list[KeyedFile]
) -> list[tuple[str, int] | None]:
    where: dict[KeyedFile, tuple[str, int]] = {}
    for path in sorted(runs, key=lambda path: (-runs[path][0], path), reverse=True):
        where |= {file: (path, number) for number, file in enumerate(runs[path][1])}
    return [where.get(file) for file in files]


@given(
    st.lists(st.dictionaries(st.sampled_from(["1", "2", "3", "4"]), _RUN), min_size=1, max_size=5),
    st.lists(_FILE, unique_by=lambda it: it.location),
)
def test_a_file_is_where_the_largest_run_has_it(
    moves: list[dict[str, tuple[int, list[KeyedFile]]]], files: list[KeyedFile]
) -> None:
    places, known = RunPlaces(), dict[str, tuple[int, list[KeyedFile]]]()
    for runs in moves:
        runs = {path: known.get(path, run) for path, run in runs.items()}  # a run never changes
        footers = {path: _footer(*run) for path, run in runs.items()}
        assert places.move_to(list(runs), footers.get) == (known.keys() != runs.keys())
        known = runs
        assert _found(places, files) == _expected(runs, files)


def test_a_run_that_cannot_be_used_is_none() -> None:
    places = RunPlaces()
    assert not places.move_to(["1"], lambda _: None)
    assert _found(places, [KeyedFile("a", 1)]) == [None]


@pytest.mark.parametrize("different", [slice(0, 8), slice(8, 16)])
def test_half_of_a_hash_is_not_enough(monkeypatch: pytest.MonkeyPatch, different: slice) -> None:
    def alike(locations: list[str]) -> bytes:
        hashes = [bytearray(16) for _ in locations]
        for each, location in zip(hashes, locations, strict=True):
            each[different] = ord(location).to_bytes(8)
        return b"".join(hashes)

    monkeypatch.setattr(keyed_files, "hash_locations", alike)
    places, file = RunPlaces(), KeyedFile("a", 1)
    places.move_to(["1"], lambda _: _footer(1, [file]))
    assert _found(places, [file, KeyedFile("b", 1)]) == [("1", 0), None]
