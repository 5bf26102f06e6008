"""Draws docs/pictures/orders.svg: which part of a table each file covers, in four orders of the same rows.

    python -m benchmarks.orders_picture

Rows arrive in the order of their time, each of a random session. The curves are the product's own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from planners.clustering import curves

ROWS, FILES = 36_000, 36
SIDE, GAP, TOP = 190, 24, 44
PLACE = 0.37
"""The session, and the time, that the two queries ask for."""


def boxes(session: np.ndarray, time: np.ndarray, order: np.ndarray) -> list[tuple[float, ...]]:
    """Return the bounds of each file: least and greatest session, least and greatest time."""
    parts = np.array_split(order, FILES)
    return [(session[rows].min(), session[rows].max(), time[rows].min(), time[rows].max()) for rows in parts]


def panel(left: float, title: str, files: list[tuple[float, ...]]) -> str:
    """Return one square: the files, those that a query by session opens filled, and what each query opens."""
    by_session = sum(low <= PLACE <= high for low, high, _, _ in files)
    by_time = sum(low <= PLACE <= high for _, _, low, high in files)
    drawn = [f'<text x="{left}" y="16" class="title">{title}</text>']
    for low, high, early, late in files:
        opened = low <= PLACE <= high
        drawn.append(
            f'<rect x="{left + low * SIDE:.1f}" y="{TOP + (1 - late) * SIDE:.1f}"'
            f' width="{(high - low) * SIDE:.1f}" height="{(late - early) * SIDE:.1f}"'
            f' class="{"opened" if opened else "file"}"/>'
        )
    line = left + PLACE * SIDE
    drawn.append(
        f'<line x1="{line:.1f}" y1="{TOP - 6}" x2="{line:.1f}" y2="{TOP + SIDE + 6}" class="query"/>'
    )
    drawn.append(f'<text x="{left}" y="34">one session: {by_session} of {FILES} files</text>')
    drawn.append(f'<text x="{left}" y="{TOP + SIDE + 22}">one moment: {by_time} of {FILES} files</text>')
    return "\n".join(drawn)


def picture() -> str:
    """Return the four squares, sessions from left to right, time from below to above."""
    random = np.random.default_rng(1)
    session, time = random.random(ROWS), np.sort(random.random(ROWS))
    bits = curves.bits_for(2, 1023)
    found = [curves.ranks(column, curves.quantile_boundaries(column, 1024)) for column in (session, time)]
    spread = [curves.spread(each, 1023, bits) for each in found]
    orders = {
        "as it arrived": np.arange(ROWS),
        "sort_by session": np.argsort(session, kind="stable"),
        "zorder by both": np.argsort(curves.zorder(spread, bits), kind="stable"),
        "hilbert by both": np.argsort(curves.hilbert(spread, bits), kind="stable"),
    }
    panels = [
        panel(number * (SIDE + GAP) + 8, title, boxes(session, time, order))
        for number, (title, order) in enumerate(orders.items())
    ]
    width, height = len(orders) * (SIDE + GAP), TOP + SIDE + 34
    style = (
        "text{font:12px sans-serif;fill:#444}.title{font-weight:bold;font-size:13px}"
        ".file{fill:#9ecae1;fill-opacity:.25;stroke:#4292c6}"
        ".opened{fill:#fd8d3c;fill-opacity:.35;stroke:#d94801}.query{stroke:#d94801;stroke-dasharray:4 3}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}"><style>{style}</style>\n'
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n' + "\n".join(panels) + "\n</svg>\n"
    )


if __name__ == "__main__":
    Path("docs/pictures/orders.svg").write_text(picture())
