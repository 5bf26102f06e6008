"""The last screen: every figure of every table, in the order of the columns."""

from __future__ import annotations

from demo.duck import SEARCH
from demo.screen import comparison, last_screen
from tests.unit.demo.results import canned_results


def test_each_row_has_a_cell_for_each_table() -> None:
    rows = {row[0].strip(): row[1:] for row in comparison(canned_results())}
    assert rows[""] == ["their <sink>", "ours", "clustered"]
    assert rows["files"] == ["40", "4", "2"]
    assert rows["mean file size"] == ["5 KiB", "20 KiB", "40 KiB"]
    assert rows["size of the table"] == ["200 KiB", "80 KiB", "80 KiB"]
    assert rows["bytes written for it"] == ["200 KiB", "160 KiB", "240 KiB"]
    assert rows["a micro-batch, median"] == ["400 ms", "400 ms", ""]


def test_a_query_is_compared_with_the_peer_and_no_ratio_is_rounded_up() -> None:
    rows = {row[0]: row[1:] for row in comparison(canned_results())}
    assert rows[f"DuckDB, {SEARCH}"] == ["100 ms", "8.3x  12 ms", "12x   8 ms"]


def test_a_search_counts_the_files_whose_bounds_let_it_in_and_their_rows() -> None:
    rows = {row[0].strip(): row[1:] for row in comparison(canned_results())}
    assert rows["files that may hold it"] == ["10", "1", "1"]
    assert rows["rows in those files"] == ["100", "10", "10"]


def test_the_screen_says_what_the_peer_is() -> None:
    assert "Theirs is another." in last_screen(canned_results())
