"""What commands write, and when."""

from __future__ import annotations

import io
import sys

import pytest

from streaming_sink.commands.terminal import counting, say


def test_a_line_is_written_at_once_also_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker runs for days: who follows its log sees what has landed."""
    file = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(file, write_through=False))
    say("work item 1: landed")
    assert file.getvalue() == b"work item 1: landed\n"


class _Terminal(io.StringIO):
    def __init__(self, is_one: bool) -> None:
        super().__init__()
        self._is_one = is_one

    def isatty(self) -> bool:
        return self._is_one


@pytest.mark.parametrize("is_one", [False, True])
def test_steps_are_counted_where_stderr_is_a_terminal(is_one: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal(is_one)
    monkeypatch.setattr(sys, "stderr", terminal)
    with counting("manifests read") as on_step:
        for _ in range(2):
            on_step()
    steps = ["", "manifests read: 1", "manifests read: 2", ""] if is_one else [""]
    assert terminal.getvalue().split("\r\033[K") == steps
