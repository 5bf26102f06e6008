"""FileSizing is checked together; bytes per row follows the table's history, and never wildly."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners import FileSizing
from planners.sizing import DEFAULT_BYTES_PER_ROW, CommitSize, bytes_per_row, parse_bytes

MIB = 1024**2


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("120MiB", 120 * MIB),
        ("16 MB", 16_000_000),
        ("1.5 GiB", 3 * 1024**3 // 2),
        (" 7kb ", 7_000),
        ("4096", 4096),
        ("12B", 12),
        ("2TiB", 2 * 1024**4),
        (99, 99),
        ("0", 0),
        ("-3KiB", -3072),
    ],
)
def test_sizes_are_read_in_decimal_and_binary_units(text: int | str, size: int) -> None:
    assert parse_bytes(text) == size


def test_the_fields_are_integers_afterwards() -> None:
    sizing = FileSizing(max_file_bytes="120 MB", small_file_bytes="100MB")
    assert (sizing.max_file_bytes, sizing.small_file_bytes) == (120_000_000, 100_000_000)
    assert sizing.rows_per_new_file is None


def test_the_defaults_are_120_and_100_mebibytes() -> None:
    assert FileSizing() == FileSizing(max_file_bytes=120 * MIB, small_file_bytes=100 * MIB)


def test_a_sizing_pickles() -> None:
    sizing = FileSizing(max_file_bytes="16MiB", small_file_bytes=0, rows_per_new_file=7)
    assert pickle.loads(pickle.dumps(sizing)) == sizing


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"max_file_bytes": "100MiB", "small_file_bytes": "120MiB"}, "lower small_file_bytes"),
        ({"max_file_bytes": "120MiB", "small_file_bytes": -1}, "give 0 to turn filling off"),
        ({"max_file_bytes": 0, "small_file_bytes": 0}, "raise it"),
        ({"max_file_bytes": "-5MB", "small_file_bytes": 0}, "raise it"),
        ({"max_file_bytes": "12 parsecs", "small_file_bytes": 0}, "give bytes as an integer or as text"),
        ({"max_file_bytes": 1.5, "small_file_bytes": 0}, "give bytes as an integer or as text"),
        ({"max_file_bytes": True, "small_file_bytes": 0}, "give bytes as an integer or as text"),
        ({"max_file_bytes": "1MB", "small_file_bytes": "0", "rows_per_new_file": 0}, "leave it None"),
        ({"max_file_bytes": "1MB", "small_file_bytes": "0", "rows_per_new_file": "9"}, "leave it None"),
    ],
)
def test_impossible_sizes_name_both_options_both_values_and_what_to_do(options: dict, advice: str) -> None:
    with pytest.raises(ValueError, match=advice) as caught:
        FileSizing(**options)
    message = str(caught.value)
    for name, value in options.items():
        assert f"{name}={value!r}" in message


def test_an_unforeseen_option_is_refused() -> None:
    with pytest.raises(TypeError, match="max_bytes"):
        FileSizing(max_bytes=1)


def ordinary(width: int, rows: int = 100_000) -> CommitSize:
    return CommitSize(rows=rows, bytes=width * rows)


def test_a_table_without_history_takes_the_stated_default() -> None:
    assert bytes_per_row([]) == DEFAULT_BYTES_PER_ROW


def test_the_first_ordinary_commit_is_believed() -> None:
    assert bytes_per_row([ordinary(46)]) == 46


def test_clustered_files_never_count() -> None:
    clustered = CommitSize(rows=10**6, bytes=10**7, clustered=True)
    assert bytes_per_row([ordinary(46), clustered, clustered, clustered]) == 46


def test_tiny_files_never_count() -> None:
    tiny = CommitSize(rows=1, bytes=5_000)
    many = CommitSize(rows=100, bytes=500_000, files=100)
    assert bytes_per_row([tiny, many]) == DEFAULT_BYTES_PER_ROW
    assert bytes_per_row([ordinary(46), tiny, tiny, many, tiny]) == 46


def test_where_files_are_meant_to_be_small_smaller_ones_count() -> None:
    small = CommitSize(rows=2_000, bytes=60_000)
    assert bytes_per_row([small]) == DEFAULT_BYTES_PER_ROW
    assert bytes_per_row([small], max_file_bytes=512 * 1024) == 30


def test_a_commit_without_rows_never_counts() -> None:
    assert bytes_per_row([CommitSize(rows=0, bytes=10**9)]) == DEFAULT_BYTES_PER_ROW


def test_the_jump_of_a_peer_from_1024_to_145826_bytes_does_not_happen() -> None:
    history = [ordinary(1_024)] * 5 + [ordinary(145_826, rows=100)]
    assert bytes_per_row(history) == 1_024
    assert bytes_per_row([*history, ordinary(1_024)]) == 1_024
    assert bytes_per_row([ordinary(1_024), CommitSize(rows=7, bytes=145_826 * 7)]) <= 2 * 1_024


def test_a_lasting_change_of_width_is_followed_in_bounded_steps() -> None:
    history = [ordinary(1_024)] * 20
    estimates = []
    for _ in range(9):
        history.append(ordinary(145_826))
        estimates.append(bytes_per_row(history))
    assert estimates[:3] == [1_024, 2_048, 4_096]
    assert estimates[-1] == 145_826


commits = st.builds(
    CommitSize,
    rows=st.integers(0, 10**7),
    bytes=st.integers(0, 10**10),
    files=st.integers(0, 50),
    clustered=st.booleans(),
)


@given(st.lists(commits, max_size=15), commits)
def test_one_more_commit_moves_the_estimate_by_a_factor_of_two_at_most(
    history: list[CommitSize], commit: CommitSize
) -> None:
    """The first that counts sets it; the history is shorter than what is looked at."""
    before, after = bytes_per_row(history), bytes_per_row([*history, commit])
    counted = [
        it for it in history if it.rows and not it.clustered and it.bytes >= 262_144 * max(1, it.files)
    ]
    assert not counted or -(-before // 2) <= after <= before * 2
    assert after >= 1
