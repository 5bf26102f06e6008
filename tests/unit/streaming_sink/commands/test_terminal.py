"""What commands write, and when."""

from __future__ import annotations

import io
import sys

import pytest

from streaming_sink.commands.terminal import say


def test_a_line_is_written_at_once_also_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker runs for days: who follows its log sees what has landed."""
    file = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(file, write_through=False))
    say("work item 1: landed")
    assert file.getvalue() == b"work item 1: landed\n"
