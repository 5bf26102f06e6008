"""Run files of indexes, with any columns and blocks: what is written is read, and damage is found out."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_sink.tasks import run_files
from streaming_sink.tasks.errors import UnusableRunError
from streaming_sink.tasks.run_files import WORD, RunLayout, RunWriter, read_layout

MAGIC = b"ANINDEX1"
KINDS = (np.dtype(np.int64), np.dtype("S16"), np.dtype(np.uint16))
Columns = Sequence[np.ndarray]


@st.composite
def columns(draw: st.DrawFn, least: int = 0) -> Columns:
    words = sorted(draw(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3), min_size=least, max_size=20)))
    kinds = draw(st.lists(st.sampled_from(KINDS), max_size=3))
    values = np.arange(len(words))
    return [np.array(words, WORD), *(values.astype(kind) for kind in kinds)]


def run_of(given: Columns, block_entries: int = 3, facts: dict[str, Any] | None = None) -> bytes:
    output = io.BytesIO()
    writer = RunWriter(output, MAGIC, facts or {"of": "a test"}, block_entries)
    writer.write([given[0], None, *given[1:]])
    writer.finish()
    return output.getvalue()


def layout_of(run: bytes, given: Columns) -> RunLayout:
    return read_layout(io.BytesIO(run), MAGIC, lambda _: [column.dtype for column in given])[1]


def lists(given: Columns) -> list[list[Any]]:
    return [column.tolist() for column in given]


@given(columns(), st.integers(1, 7))
def test_what_is_written_is_read_whole_and_by_blocks(written: Columns, block_entries: int) -> None:
    run = run_of(written, block_entries)
    layout = layout_of(run, written)
    assert lists(layout.load(run)) == lists(written)
    assert layout.entries == len(written[0])
    for number, start in enumerate(range(0, len(written[0]), block_entries)):
        block = lists([column[start : start + block_entries] for column in written])
        assert lists(layout.read(io.BytesIO(run), number)) == block
        assert lists(layout.view(run, number)) == block


@given(columns(), st.integers(0, 2**64 - 1) | st.integers(0, 3), st.integers(0, 2**64 - 1))
def test_blocks_that_are_reached_have_all_words_of_a_range(written: Columns, first: int, length: int) -> None:
    last = min(first + length, 2**64 - 1)
    run = run_of(written)
    layout = layout_of(run, written)
    words = [word for at in layout.reached(first, last) for word in layout.view(run, at)[0].tolist()]
    wanted = [word for word in written[0].tolist() if first <= word <= last]
    assert [word for word in words if first <= word <= last] == wanted
    assert all(
        layout.blocks[at].last >= first and layout.blocks[at].first <= last
        for at in layout.reached(first, last)
    )


def check_it(run: bytes, given: Columns) -> None:
    layout_of(run, given).check(io.BytesIO(run))


def load_it(run: bytes, given: Columns) -> None:
    layout_of(run, given).load(run)


whole_reads = pytest.mark.parametrize("read", [check_it, load_it])


@whole_reads
def test_a_change_of_any_byte_is_found_out(read: Callable[[bytes, Columns], None]) -> None:
    words = np.array([1, 5, 5, 9, 9, 9, 2**64 - 1], WORD)
    written = [words, np.arange(7), np.arange(7).astype("S16")]
    run = run_of(written)
    read(run, written)
    for at in range(len(run)):
        for change in (1, 128):
            damaged = bytearray(run)
            damaged[at] ^= change
            with pytest.raises(UnusableRunError):
                read(bytes(damaged), written)


@whole_reads
@given(columns(least=1), st.data())
def test_a_run_that_is_cut_or_longer_is_found_out(
    read: Callable[[bytes, Columns], None], written: Columns, data: st.DataObject
) -> None:
    run = run_of(written)
    end, begin = data.draw(st.integers(0, len(run) - 1)), data.draw(st.integers(1, len(run)))
    for damaged in (run[:end], run[begin:], run + b"\0", run[:begin] + b"\0" * 8 + run[begin:]):
        with pytest.raises(UnusableRunError):
            read(damaged, written)


def test_a_run_of_another_index_is_none() -> None:
    run = run_of([np.array([1], WORD)])
    with pytest.raises(UnusableRunError, match="not a whole run"):
        read_layout(io.BytesIO(run), b"ANINDEX2", lambda _: [WORD])


def test_a_run_of_another_version_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "_VERSION", 1)
    run = run_of([np.array([1], WORD)])
    monkeypatch.undo()
    with pytest.raises(UnusableRunError, match="a run of format 1"):
        read_layout(io.BytesIO(run), MAGIC, lambda _: [WORD])


class Requests(io.BytesIO):
    """A file that knows which ranges were read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.read_: list[tuple[int, int]] = []

    def read(self, size: int | None = -1, /) -> bytes:
        start = self.tell()
        data = super().read(size)
        self.read_.append((start, start + len(data)))
        return data


@pytest.mark.parametrize(("files", "requests"), [(10, 1), (5000, 2)])
def test_a_footer_is_one_request_and_a_block_is_one(files: int, requests: int) -> None:
    facts = {"files": [f"s3://bucket/{number:020}" for number in range(files)]}
    written = [np.arange(100_000).astype(WORD)]
    run = run_of(written, 10_000, facts)
    file = Requests(run)
    said, layout = read_layout(file, MAGIC, lambda _: [WORD])
    assert (said, len(file.read_)) == (facts, requests)
    file.read_.clear()
    assert layout.reached(34_567, 34_567) == [3]
    assert layout.read(file, 3)[0].tolist() == list(range(30_000, 40_000))
    assert file.read_ == [(8 + 240_000, 8 + 320_000)]


def test_a_whole_read_takes_memory_of_the_size_of_the_run_alone() -> None:
    written = [np.arange(200_000).astype(WORD) for _ in range(4)]
    run = run_of(written, 16_384)
    layout = layout_of(run, written)
    tracemalloc.start()
    try:
        held = layout.load(run)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.02 * sum(column.nbytes for column in held)
