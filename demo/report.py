"""The report: one HTML page with everything inside, which needs neither network nor scripts. Pure."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from demo import pictures
from demo.duck import AIRCRAFT
from demo.figures import bytes_text, times_text
from demo.lanes import PARTITION_BY
from demo.screen import clustering_note, comparison, sizes_note

if TYPE_CHECKING:
    from demo.results import Results

_STYLE = Path(__file__).with_name("report.css").read_text(encoding="utf-8")


def report_html(results: Results) -> str:
    """Return the page."""
    peer, ours = results.peer, results.ours
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>streaming-sink: {results.rows:,} flights in {results.batches} micro-batches</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>One stream, two sinks: {len(peer.survey.file_bytes):,} files, or {len(ours.survey.file_bytes):,}</h1>
<p>The {results.rows:,} flights that left New York in 2013 streamed as {results.batches} micro-batches into
two tables at once, both partitioned by {" and ".join(PARTITION_BY)}. {escape(results.peer_is)}
All tables hold the same rows, and DuckDB, which read them, answered every query alike.</p>
{_facts(results)}
<h2>Files after each micro-batch</h2>
<p>A stream adds a file to each partition that a batch touches. <code>IcebergSink</code> also merges small
files into larger ones, so their number stays bounded: at most eight small ones a partition once a
merge has ended. No job has to compact the table later.</p>
{pictures.files_over_batches(results)}
<h2>Where the bytes are</h2>
<p>The share of each table's bytes, by the size of the file that holds them; the number above a bar counts its
files. {escape(sizes_note())}</p>
{pictures.file_sizes(results)}
<h2>What a reader pays</h2>
<p>Four queries in DuckDB on each table: the median of five runs, which took turns. Every file costs a reader
an open, a footer and its entry in the metadata, however few rows are inside.</p>
{pictures.query_times(results)}
<h2>What clustering adds</h2>
<p>{escape(clustering_note(results))} Each line is a file, from its first aircraft to its last; a search opens
the files that the dashed line crosses (strong), and skips all others (faint).</p>
{pictures.extents(results)}
<h2>All figures</h2>
{_table(results)}
<p class="soft">Times are of this machine, on which both streams ran at once; “8x” is how many times faster a
query is than on the table of {escape(peer.name)}.</p>
</body>
</html>
"""


def _facts(results: Results) -> str:
    peer, ours = results.peer.survey, results.ours.survey
    scans = [name for name in peer.query_milliseconds if name.startswith("scan")]
    slowest = min(peer.query_milliseconds[name] / ours.query_milliseconds[name] for name in scans)
    opened, _ = results.clustered.survey.found(results.position)
    facts = [
        (times_text(len(peer.file_bytes) / len(ours.file_bytes)), "fewer files for a reader to open"),
        (bytes_text(sum(ours.file_bytes)), f"for the same rows, not {bytes_text(sum(peer.file_bytes))}"),
        (times_text(slowest), "faster in DuckDB, on the scan that gained least"),
        (f"{opened:,}", f"files to open for one aircraft, {AIRCRAFT}, once clustered"),
    ]
    cells = "\n".join(f"<div><b>{escape(figure)}</b>{escape(what)}</div>" for figure, what in facts)
    return f'<div class="facts">\n{cells}\n</div>'


def _table(results: Results) -> str:
    head, *rows = comparison(results)
    lines = ["<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return "<table>\n" + "\n".join(lines) + "\n</table>"
