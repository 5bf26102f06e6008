"""The pictures of the report, as inline SVG. Pure: figures in, text out.

Colours come from the page's style sheet, by the classes `peer`, `ours` and `clustered`.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from demo.duck import AIRCRAFT, QUERIES
from demo.figures import ticks, times_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from demo.results import Column, Extent, Results

WIDTH = 880
CLASSES = ("peer", "ours", "clustered")
# Upper bounds in KiB; the last bin has no upper bound.
BINS = (4, 8, 16, 32, 64, 128, 256, 512)
BIN_NAMES = ("< 4", *(str(low) for low in BINS))
_PANEL = 255


def files_over_batches(results: Results) -> str:
    """Draw the number of files after each micro-batch, a line for each sink."""
    left, right, top, bottom = 60, WIDTH - 210, 20, 300
    streams = [
        (name, column, [state.files for state in column.run.states])
        for name, column in zip(CLASSES, results.columns, strict=True)
        if column.run is not None
    ]
    marks = ticks(max(max(files) for _, _, files in streams))

    def x(batch: int) -> float:
        return left + (right - left) * batch / results.batches

    def y(files: float) -> float:
        return bottom - (bottom - top) * files / marks[-1]

    parts = [_horizontal(left, right, y(mark), f"{mark:,}") for mark in marks]
    parts += [_text(x(mark), bottom + 18, f"{mark}") for mark in ticks(results.batches, 8)[:-1]]
    parts.append(_text((left + right) / 2, bottom + 38, "micro-batches that have landed"))
    for name, column, files in streams:
        points = " ".join(f"{x(batch):.1f},{y(count):.1f}" for batch, count in enumerate([0, *files]))
        parts.append(f'<polyline class="line {name}" points="{points}"/>')
        label = f"{column.name}: {files[-1]:,} files"
        parts.append(_text(x(len(files)) + 8, y(files[-1]) + 4, label, f"start strong {name}"))
    return _svg("files", bottom + 48, "Files in the table after each micro-batch", parts)


def file_sizes(results: Results) -> str:
    """Draw where the bytes of each table lie, by the size of their files; above each bar, how many files."""
    top, bottom = 40, 240
    parts = []
    for number, (name, column) in enumerate(zip(CLASSES, results.columns, strict=True)):
        left = 45 + number * (WIDTH - 50 - _PANEL) / 2
        parts.append(_text(left + _PANEL / 2, 16, _title(column), f"strong {name}"))
        parts += [
            _horizontal(left, left + _PANEL, bottom - (bottom - top) * share / 100, f"{share} %")
            for share in (0, 50, 100)
        ]
        width = _PANEL / len(BIN_NAMES)
        for place, (bin_name, files, share) in enumerate(histogram(column.survey.file_bytes)):
            x, height = left + place * width, (bottom - top) * share
            parts.append(_text(x + width / 2, bottom + 16, bin_name, "small"))
            if files:
                parts.append(_bar(x + 2, bottom - height, width - 4, height, name))
                parts.append(_text(x + width / 2, bottom - height - 5, f"{files:,}", "small strong"))
        parts.append(_text(left + _PANEL / 2, bottom + 36, "file size, KiB and more", "small"))
    return _svg("sizes", bottom + 46, "Share of the bytes of each table, by the size of the files", parts)


def histogram(file_bytes: Sequence[int]) -> list[tuple[str, int, float]]:
    """Return, for each bin of sizes, its name, its files, and their share of all bytes."""
    bins: list[list[int]] = [[] for _ in BIN_NAMES]
    for size in file_bytes:
        bins[sum(size >= bound * 1024 for bound in BINS)].append(size)
    total = sum(file_bytes)
    return [(name, len(sizes), sum(sizes) / total) for name, sizes in zip(BIN_NAMES, bins, strict=True)]


def query_times(results: Results) -> str:
    """Draw how long each query takes on each table."""
    left, right, bar, group = 190, WIDTH - 120, 20, 84
    most = max(max(column.survey.query_milliseconds.values()) for column in results.columns)
    parts = []
    for number, (name, column) in enumerate(zip(CLASSES, results.columns, strict=True)):
        parts.append(_bar(left + number * 150, 4, 12, 12, name))
        parts.append(_text(left + number * 150 + 18, 15, column.name, f"start strong {name}"))
    for number, query in enumerate(QUERIES):
        y = 36 + number * group
        parts.append(_text(left - 12, y + bar * 1.5 + 5, query, "end"))
        peer = results.peer.survey.query_milliseconds[query]
        for place, (name, column) in enumerate(zip(CLASSES, results.columns, strict=True)):
            taken = column.survey.query_milliseconds[query]
            length = (right - left) * taken / most
            faster = "" if name == "peer" else f", {times_text(peer / taken)} faster"
            parts.append(_bar(left, y + place * bar, length, bar - 3, name))
            label = f"{taken:,.0f} ms{faster}"
            parts.append(_text(left + length + 8, y + place * bar + 13, label, f"start strong {name}"))
    return _svg("queries", 36 + group * len(QUERIES), "Milliseconds of each query in DuckDB", parts)


def extents(results: Results) -> str:
    """Draw every file as a line from its first aircraft to its last; those that a search opens are strong."""
    top, bottom = 50, 330
    parts = []
    for number, (name, column) in enumerate(zip(CLASSES, results.columns, strict=True)):
        left = 10 + number * (WIDTH - 20 - _PANEL) / 2
        files, rows = column.survey.found(results.position)
        line = f"{files:,} of {len(column.survey.file_bytes):,} files, {rows:,} rows to read"
        parts.append(_text(left + _PANEL / 2, 16, column.name, f"strong {name}"))
        parts.append(_text(left + _PANEL / 2, 34, line, "small"))
        parts += _lines(column.survey.extents, results.position, name, (left, top, bottom))
        x = left + _PANEL * results.position
        parts.append(f'<line class="wanted" x1="{x:.1f}" x2="{x:.1f}" y1="{top - 6}" y2="{bottom + 6}"/>')
        parts.append(_text(x, bottom + 22, AIRCRAFT, "small strong"))
    return _svg("extents", bottom + 32, f"Which files may hold aircraft {AIRCRAFT}", parts)


def _lines(
    files: Sequence[Extent], position: float, name: str, frame: tuple[float, float, float]
) -> list[str]:
    left, top, bottom = frame
    spaced = (bottom - top) / max(len(files), 1)
    strokes: dict[bool, list[str]] = {False: [], True: []}
    for number, file in enumerate(sorted(files, key=lambda it: (it.low, it.high, it.rows))):
        low, high = left + _PANEL * file.low, left + _PANEL * file.high
        strokes[file.holds(position)].append(
            f"M{low:.1f} {top + spaced * (number + 0.5):.1f}H{max(high, low + 1):.1f}"
        )
    width = min(max(spaced * 0.7, 0.25), 4)
    return [
        f'<path class="line {name} {style}" stroke-width="{width:.2f}" d="{"".join(strokes[hit])}"/>'
        for hit, style in ((False, "faint"), (True, ""))
    ]


def _title(column: Column) -> str:
    return f"{column.name}: {len(column.survey.file_bytes):,} files"


def _svg(name: str, height: float, title: str, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg id="{name}" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">\n'
        f"<title>{escape(title)}</title>\n{body}\n</svg>"
    )


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _bar(x: float, y: float, width: float, height: float, style: str) -> str:
    return (
        f'<rect class="bar {style}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}"'
        f' height="{max(height, 1):.1f}"/>'
    )


def _horizontal(left: float, right: float, y: float, label: str) -> str:
    line = f'<line class="grid" x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return line + _text(left - 6, y + 4, label, "small end")
