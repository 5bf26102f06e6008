"""The last screen, as text. Pure; the report shows the same rows."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from demo.duck import AIRCRAFT, QUERIES
from demo.figures import bytes_text, table_text, times_text
from demo.lanes import MAX_FILE_BYTES, SMALL_FILE_BYTES

if TYPE_CHECKING:
    from demo.results import Column, Results


def last_screen(results: Results) -> str:
    """Return the comparison, and what one has to know to read it."""
    return f"""{table_text(comparison(results))}

  {results.peer_is}
  {sizes_note()}
  {clustering_note(results)}"""


def sizes_note() -> str:
    full, small = bytes_text(MAX_FILE_BYTES), bytes_text(SMALL_FILE_BYTES)
    return (
        f"A file is full at {full} and small below {small}, as a year of flights is 5 MiB."
        " Defaults: 120 and 100 MiB."
    )


def clustering_note(results: Results) -> str:
    return (
        f"Clustered: one pass of {results.cluster_seconds:.1f} s sorted our table by aircraft;"
        f" a search for one, {AIRCRAFT}, skips most files."
    )


def comparison(results: Results) -> list[list[str]]:
    """Return the head, then a row for each thing that is compared, with a cell for each table."""
    columns = results.columns
    rows = [
        ["", *(column.name for column in columns)],
        ["rows", *(f"{column.survey.rows:,}" for column in columns)],
        ["files", *(f"{len(column.survey.file_bytes):,}" for column in columns)],
        ["mean file size", *(bytes_text(column.survey.mean_file_bytes) for column in columns)],
        ["size of the table", *(bytes_text(sum(column.survey.file_bytes)) for column in columns)],
        ["bytes written for it", *(bytes_text(column.written_bytes) for column in columns)],
        ["a micro-batch, median", *(_median_batch(column) for column in columns)],
    ]
    rows += [[f"DuckDB, {query}", *_query_cells(results, query)] for query in QUERIES]
    found = [column.survey.found(results.position) for column in columns]
    rows.append(["  files that may hold it", *(f"{files:,}" for files, _ in found)])
    rows.append(["  rows in those files", *(f"{rows:,}" for _, rows in found)])
    return rows


def _median_batch(column: Column) -> str:
    return "" if column.run is None else f"{statistics.median(column.run.milliseconds):,.0f} ms"


def _query_cells(results: Results, query: str) -> list[str]:
    """Return the milliseconds of each table, and how many times faster than the peer's ours are."""
    peer, *ours = (column.survey.query_milliseconds[query] for column in results.columns)
    return [f"{peer:,.0f} ms", *(f"{times_text(peer / it)} {it:>3,.0f} ms" for it in ours)]
