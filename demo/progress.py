"""Live progress: one line a lane, redrawn in place on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

from demo.figures import bytes_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from demo.flights import FlightFiles
    from demo.lanes import Run

_BAR_WIDTH = 20
_PLAIN_LINE_EVERY_BATCHES = 10


class Progress:
    """Shows how far each lane is. `show` may be called as often as one likes."""

    def __init__(self, source: FlightFiles) -> None:
        self._source = source
        self._redraws = sys.stdout.isatty()
        self._lines_drawn = 0
        self._batches_told: dict[str, int] = {}

    def show(self, runs: Sequence[Run]) -> None:
        if self._redraws:
            self._redraw(runs)
        else:
            self._tell_news(runs)

    def _redraw(self, runs: Sequence[Run]) -> None:
        if self._lines_drawn:
            sys.stdout.write(f"\x1b[{self._lines_drawn}A")
        # A line that wraps would be two, and the next redraw would go up too little.
        width = shutil.get_terminal_size().columns - 1
        for run in runs:
            sys.stdout.write(f"\x1b[2K{self._line(run, len(run.landed))[:width]}\n")
        sys.stdout.flush()
        self._lines_drawn = len(runs)

    def _tell_news(self, runs: Sequence[Run]) -> None:
        for run in runs:
            told = self._batches_told.get(run.lane.name, 0)
            last = len(self._source.rows_per_file)
            for batches in range(told + 1, len(run.landed) + 1):
                if batches % _PLAIN_LINE_EVERY_BATCHES == 0 or batches in (1, last):
                    print(self._line(run, batches), flush=True)
                self._batches_told[run.lane.name] = batches

    def _line(self, run: Run, batches: int) -> str:
        total = len(self._source.rows_per_file)
        line = f"  {run.lane.name:<13} {batches:>2}/{total}"
        if batches == 0:
            return line
        landed = run.landed[batches - 1]
        rows = sum(self._source.rows_per_file[:batches])
        files = len(landed.file_bytes)
        mean = bytes_text(sum(landed.file_bytes) / files)
        done = _BAR_WIDTH * batches // total
        bar = "█" * done + "░" * (_BAR_WIDTH - done)
        return (
            f"{line} {rows:>8,} rows {files:>3} files, mean {mean:>8}, {landed.milliseconds:>5,.0f} ms {bar}"
        )
