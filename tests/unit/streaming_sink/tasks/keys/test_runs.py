"""Runs of the key index, against a dictionary: built, merged, and damaged in any byte."""

from __future__ import annotations

import io
import itertools
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming_sink.tasks.errors import UnusableRunError
from streaming_sink.tasks.key_index import merging, runs
from streaming_sink.tasks.key_index.merging import merge_runs
from streaming_sink.tasks.key_index.runs import MappedRun, addresses_of
from streaming_sink.tasks.keys.probing import KeyProbe
from streaming_sink.tasks.keys.scanning import KeyedFile
from streaming_sink.tasks.keys.sequences import LONG, WIDE
from tests.unit.streaming_sink.tasks.keys.run_files import (
    HASHES,
    KEY,
    Hash,
    expected,
    found_in,
    keyed_files,
    open_bytes,
    run_bytes,
    words_of,
)

_TWO_ROWS = {KeyedFile("s3://t/a", 2): [(2, 3), (1, 4)]}
KINDS = st.sampled_from([LONG, WIDE])
SHARED_FIXTURES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "BLOCK_ENTRIES", 3)
    monkeypatch.setattr(merging, "BLOCK_ENTRIES", 3)
    monkeypatch.setattr(merging, "SEGMENT_ENTRIES", 8)


@SHARED_FIXTURES
@given(keyed_files(), st.data())
def test_a_run_has_every_row_of_its_files(
    tmp_path: Path, rows: dict[KeyedFile, list[Hash]], data: st.DataObject
) -> None:
    batch = data.draw(st.lists(st.sampled_from([(5, 5), *itertools.chain(*rows.values())]) | HASHES))
    run = open_bytes(tmp_path, run_bytes(rows, data.draw(KINDS)))
    assert found_in(run, batch) == expected(rows, batch)
    assert tuple(run.footer.files) == tuple(rows)


@SHARED_FIXTURES
@given(st.lists(st.lists(st.integers(0, 3), unique=True), min_size=1, max_size=4), st.data())
def test_a_merge_has_the_rows_of_the_files_that_are_kept_once(
    tmp_path: Path, covered: list[list[int]], data: st.DataObject
) -> None:
    """Runs of several writers may cover the same files."""
    rows = data.draw(keyed_files())
    files = list(rows)
    inputs = [{files[i]: rows[files[i]] for i in each if i < len(files)} for each in covered]
    keep = data.draw(st.sets(st.sampled_from(files))) if files else set()
    output, kind = io.BytesIO(), data.draw(KINDS)
    merged = [open_bytes(tmp_path, run_bytes(each, kind)) for each in inputs]
    entries = merge_runs(output, KEY, merged, [*keep, KeyedFile("s3://t/elsewhere", 3)])
    run = open_bytes(tmp_path, output.getvalue())
    kept = {file: rows[file] for file in keep if any(file in each for each in inputs)}
    batch = sorted({each for hashes in rows.values() for each in hashes})
    assert found_in(run, batch) == expected(kept, batch)
    assert set(run.footer.files) == set(kept)
    assert entries == run.footer.entries == sum(map(len, kept.values()))
    assert max((block.entries for block in run.footer.layout.blocks), default=0) <= 3


def _read_all(run: MappedRun, batch: list[Hash]) -> None:
    found_in(run, batch)
    list(run.between(0, 2**64 - 1))


@SHARED_FIXTURES
@given(keyed_files(), st.data())
def test_a_run_that_is_damaged_in_any_byte_is_found_out(
    tmp_path: Path, rows: dict[KeyedFile, list[Hash]], data: st.DataObject
) -> None:
    whole = run_bytes(rows, data.draw(KINDS))
    batch = [each for hashes in rows.values() for each in hashes]
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(UnusableRunError):
        _read_all(open_bytes(tmp_path, bytes(damaged)), batch)


@SHARED_FIXTURES
@given(keyed_files(), st.data())
def test_a_run_that_is_cut_or_longer_is_found_out(
    tmp_path: Path, rows: dict[KeyedFile, list[Hash]], data: st.DataObject
) -> None:
    whole = run_bytes(rows, data.draw(KINDS))
    end = data.draw(st.integers(0, len(whole) - 1))
    begin = data.draw(st.integers(1, len(whole)))
    for damaged in (whole[:end], whole[begin:], whole + b"\0", whole[:begin] + b"\0" * 24 + whole[begin:]):
        with pytest.raises(UnusableRunError):
            open_bytes(tmp_path, damaged)


def test_a_damaged_block_that_no_key_needs_is_not_read(tmp_path: Path) -> None:
    file = KeyedFile("s3://t/a", 6)
    whole = bytearray(run_bytes({file: [(number, 0) for number in range(6)]}))
    whole[8] ^= 1
    run = open_bytes(tmp_path, bytes(whole))
    assert found_in(run, [(4, 0), (9, 0)]) == [(0, "s3://t/a", 4, 40)]
    with pytest.raises(UnusableRunError, match="block 0 of a run is damaged"):
        found_in(run, [(4, 0), (1, 0)])


def test_a_run_of_another_key_is_none(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_bytes(run_bytes({}))
    with (
        open(path, "rb") as file,
        pytest.raises(UnusableRunError, match="of the key 00000000000000aa, not b"),
    ):
        MappedRun(file, "b")


def test_a_run_without_sequences_has_none(tmp_path: Path) -> None:
    run = open_bytes(tmp_path, run_bytes({KeyedFile("s3://t/a", 1): [(1, 1)]}, kind=None))
    assert found_in(run, [(1, 1), (1, 2)]) == [(0, "s3://t/a", 0, None)]
    assert found_in(run, []) == []


def test_a_footer_of_many_files_is_read_whole(tmp_path: Path) -> None:
    rows = {KeyedFile(f"s3://bucket/a/table/data/{number:0100}", 1): [(number, 0)] for number in range(2000)}
    assert found_in(open_bytes(tmp_path, run_bytes(rows)), [(1999, 0)])[0][1:3] == (list(rows)[1999][0], 0)


def test_a_deleted_run_stays_readable(tmp_path: Path) -> None:
    run = open_bytes(tmp_path, run_bytes({KeyedFile("s3://t/a", 1): [(1, 1)]}))
    (tmp_path / "run").unlink()
    assert found_in(run, [(1, 1)]) == [(0, "s3://t/a", 0, 0)]


def test_rows_that_no_address_holds_are_refused() -> None:
    last = 2**40 - 1
    assert addresses_of(2**24 - 1, np.array([last])).tolist() == [2**64 - 1]
    for number, position in ((2**24, 0), (0, 2**40)):
        with pytest.raises(ValueError, match=r"16777216 data files of 1099511627776 rows"):
            addresses_of(number, np.array([position]))


_WORDS = np.array([1, 2, 4, 3, 1, 0, 10, 0], "<u8").tobytes()


def test_the_format_stays_as_it_is() -> None:
    footer = (
        b'{"key":"00000000000000aa","sequence_bytes":8,"files":1,'
        b'"scopes":["00000000000000000000000000000000"],"blocks":[[2,1,2,411096435]]}\n'
        + bytes.fromhex("073f14d1bd399f604971828fbf0cc525")
        + (2).to_bytes(8, "little")
        + (0).to_bytes(4, "little")
        + zlib.compress(b'["s3://t/a"]', 1)
    )
    trailer = len(footer).to_bytes(8, "little") + (2).to_bytes(4, "little")
    trailer += zlib.crc32(trailer, zlib.crc32(footer)).to_bytes(4, "little")
    assert run_bytes(_TWO_ROWS) == b"SSKEYRN3" + _WORDS + footer + trailer + b"SSKEYRN3"


def _written_before() -> bytes:
    """Return the same run as releases wrote it that kept no hashes of locations."""
    footer = (
        b'{"key":"00000000000000aa","sequence_bytes":8,"files":["s3://t/a"],"rows":[2],'
        b'"scopes":["00000000000000000000000000000000"],"scope":[0],"blocks":[[2,1,2,411096435]]}'
    )
    trailer = len(footer).to_bytes(8, "little") + bytes.fromhex("0200000061910619")
    return b"SSKEYRN2" + _WORDS + footer + trailer + b"SSKEYRN2"


def test_a_run_of_an_earlier_release_is_read_and_merged_into_one_of_this(tmp_path: Path) -> None:
    earlier, today = (open_bytes(tmp_path, it) for it in (_written_before(), run_bytes(_TWO_ROWS)))
    assert found_in(earlier, [(1, 4)]) == found_in(today, [(1, 4)]) == [(0, "s3://t/a", 1, 10)]
    assert earlier.footer.files.fingerprints().tolist() == today.footer.files.fingerprints().tolist()
    output = io.BytesIO()
    merge_runs(output, KEY, [earlier], _TWO_ROWS)
    assert output.getvalue() == run_bytes(_TWO_ROWS)


def test_an_entry_takes_24_bytes_and_those_of_its_sequence() -> None:
    rows = {KeyedFile("s3://t/a", 3000): [(number, 0) for number in range(3000)]}
    sizes = [len(run_bytes(rows, kind)) / 3000 for kind in (None, LONG, WIDE)]
    assert sizes[1] - sizes[0] == pytest.approx(8, abs=0.01)
    assert sizes[2] - sizes[0] == pytest.approx(16, abs=0.02)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "BLOCK_ENTRIES", 3000)
        patch.setattr(merging, "SEGMENT_ENTRIES", 3001)
        assert len(run_bytes(rows, None)) / 3000 == pytest.approx(24, abs=0.1)


def test_segments_are_merged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spilled: list[str] = []
    spill = merging._spilled

    def counted(*arguments: object) -> MappedRun:
        spilled.append("")
        return spill(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(merging, "_spilled", counted)
    hashes = [(number * 7919 % 2**64, 0) for number in range(16)]
    rows = {KeyedFile(f"s3://t/{number}", 8): hashes[number * 8 : number * 8 + 8] for number in range(2)}
    run = open_bytes(tmp_path, run_bytes(rows))
    assert (len(spilled), found_in(run, hashes)) == (2, expected(rows, hashes))


def test_a_probe_without_hashes_reaches_nothing() -> None:
    probe = KeyProbe(words_of([]))
    assert (len(probe), probe.reaches(0, 2**64 - 1)) == (0, False)
    assert [len(each) for each in probe.match_rows(words_of([(1, 1)]))] == [0, 0]
