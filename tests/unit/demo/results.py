"""Results of a demo that never ran: two batches, three tables, figures that are easy to recognise."""

from __future__ import annotations

from demo.duck import QUERIES
from demo.results import Column, Extent, Results, Survey
from demo.states import State
from demo.stream import Run

KIB = 1024


def canned_results() -> Results:
    return Results(
        rows=1_000,
        batches=2,
        peer=Column("their <sink>", _survey(40, 5 * KIB, 100.0), 200 * KIB, _run(20, 40)),
        ours=Column("ours", _survey(4, 20 * KIB, 12.0), 160 * KIB, _run(20, 4)),
        clustered=Column("clustered", _survey(2, 40 * KIB, 8.0), 240 * KIB, None),
        peer_is="Theirs is another.",
        position=0.75,
        cluster_seconds=1.23,
    )


def _survey(files: int, size: int, milliseconds: float) -> Survey:
    return Survey(
        rows=1_000,
        file_bytes=(size,) * files,
        query_milliseconds=dict.fromkeys(QUERIES, milliseconds),
        answers={},
        # Every fourth file has the aircraft above the middle, the others have those below it.
        extents=tuple(Extent(0.5, 1.0, 10) if it % 4 == 0 else Extent(0.0, 0.5, 10) for it in range(files)),
    )


def _run(*files: int) -> Run:
    return Run(tuple(State(count, count * KIB) for count in files), (300, 500))
