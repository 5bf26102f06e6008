"""Runs of a few entries on a local disk, and what they must answer."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from streaming_sink.tasks.key_index.merging import build_run
from streaming_sink.tasks.key_index.runs import MappedRun
from streaming_sink.tasks.keys.probing import KeyEntries, KeyProbe
from streaming_sink.tasks.keys.scanning import KeyedFile
from streaming_sink.tasks.keys.sequences import LONG
from tests.unit.streaming_sink.tasks.keys.numbers import numbers_of, sequences_of

KEY = "00000000000000aa"
Hash = tuple[int, int]
Rows = Mapping[KeyedFile, Sequence[Hash]]
"""The hash of every row of some data files; its sequence is ten times its position."""

WORDS = st.sampled_from([0, 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)
HASHES = st.tuples(WORDS, st.integers(0, 1))
"""Hashes whose first words are often equal, which real ones never are."""


def keyed_files(most: int = 4) -> st.SearchStrategy[dict[KeyedFile, list[Hash]]]:
    """Return the strategy of data files with rows."""
    rows = st.lists(st.lists(HASHES, max_size=9), max_size=most)
    return rows.map(lambda files: {KeyedFile(f"s3://t/{i}", len(it)): it for i, it in enumerate(files)})


def words_of(hashes: Sequence[Hash]) -> np.ndarray:
    return np.array(hashes, np.uint64).reshape(-1, 2)


def run_bytes(rows: Rows, kind: np.dtype | None = LONG) -> bytes:
    output = io.BytesIO()
    entries = (
        (
            number,
            KeyEntries(
                words_of(hashes),
                np.arange(len(hashes)),
                None if kind is None else sequences_of(range(0, 10 * len(hashes), 10), kind),
            ),
        )
        for number, hashes in enumerate(rows.values())
    )
    written = build_run(output, KEY, list(rows), entries, kind)
    assert written == sum(map(len, rows.values()))
    return output.getvalue()


def open_bytes(folder: Path, data: bytes) -> MappedRun:
    path = folder / "run"
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    with open(path, "rb") as file:
        return MappedRun(file, KEY)


def found_in(run: MappedRun, batch: Sequence[Hash]) -> list[tuple[int, str, int, int | None]]:
    """Return what a run answers: index in the batch, data file, position, sequence."""
    numbers, (indexes, positions, sequences) = run.find(KeyProbe(words_of(batch)))
    values = [None] * len(indexes) if sequences is None else numbers_of(sequences)
    return sorted(
        (index, run.footer.files[number].location, position, value)
        for index, number, position, value in zip(
            indexes.tolist(), numbers.tolist(), positions.tolist(), values, strict=True
        )
    )


def expected(rows: Rows, batch: Sequence[Hash]) -> list[tuple[int, str, int, int | None]]:
    return sorted(
        (index, file.location, position, position * 10)
        for index, wanted in enumerate(batch)
        for file, hashes in rows.items()
        for position, each in enumerate(hashes)
        if each == wanted
    )
