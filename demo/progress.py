"""Live progress: one line a lane, redrawn in place on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

from demo.figures import bytes_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from demo.flights import FlightFiles
    from demo.lanes import Lane
    from demo.states import State

_BAR_WIDTH = 20
_PLAIN_LINE_EVERY_BATCHES = 12


class Progress:
    """Shows how far each lane is. `show` may be called as often as one likes."""

    def __init__(self, source: FlightFiles) -> None:
        self._source = source
        self._redraws = sys.stdout.isatty()
        self._lines_drawn = 0
        self._batches_told: dict[str, int] = {}

    def show(self, lanes: Sequence[Lane]) -> None:
        if self._redraws:
            self._redraw(lanes)
        else:
            self._tell_news(lanes)

    def _redraw(self, lanes: Sequence[Lane]) -> None:
        if self._lines_drawn:
            sys.stdout.write(f"\x1b[{self._lines_drawn}A")
        # A line that wraps would be two, and the next redraw would go up too little.
        width = shutil.get_terminal_size().columns - 1
        for lane in lanes:
            sys.stdout.write(f"\x1b[2K{self._line(lane.name, lane.states())[:width]}\n")
        sys.stdout.flush()
        self._lines_drawn = len(lanes)

    def _tell_news(self, lanes: Sequence[Lane]) -> None:
        last = len(self._source.rows_per_file)
        for lane in lanes:
            states = lane.states()
            for batches in range(self._batches_told.get(lane.name, 0) + 1, len(states) + 1):
                if batches % _PLAIN_LINE_EVERY_BATCHES == 0 or batches in (1, last):
                    print(self._line(lane.name, states[:batches]), flush=True)
            self._batches_told[lane.name] = len(states)

    def _line(self, name: str, states: Sequence[State]) -> str:
        batches, total = len(states), len(self._source.rows_per_file)
        line = f"  {name:<14} {batches:>2}/{total}"
        if not states:
            return line
        rows, now = sum(self._source.rows_per_file[:batches]), states[-1]
        done = _BAR_WIDTH * batches // total
        bar = "█" * done + "░" * (_BAR_WIDTH - done)
        mean = bytes_text(now.bytes / now.files)
        return f"{line} {rows:>8,} rows {now.files:>5,} files, mean {mean:>7} {bar}"
