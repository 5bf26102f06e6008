"""The thread of passes beside the stream: one at a time, none lost, none in the way of a process's end."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from streaming_sink.upkeep.beside import PassesBeside


def _passes() -> PassesBeside[int, str]:
    return PassesBeside("passing", lambda requests: [",".join(map(str, requests))])


def test_a_thread_that_cannot_start_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may have too many threads for a moment. The next request starts one, and both are done."""
    passes = _passes()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            passes.ask(1)
    assert not passes.is_running
    passes.wait()
    passes.ask(2)
    passes.wait(60)
    assert passes.ended() == ["1,2"]


_ENDING = """
import threading
from streaming_sink.upkeep.beside import PassesBeside

began, main = threading.Event(), threading.main_thread()

def run(requests):
    began.set()
    main.join()
    passes.ask(1)  # as a batch does that commits meanwhile
    print("ran", len(requests), flush=True)
    return ()

passes = PassesBeside("passing", run)
passes.ask(1)
began.wait()
"""


def test_a_process_that_ends_waits_for_the_running_pass_and_for_no_other() -> None:
    """The stream goes on while the process waits, and always has another pass to run."""
    ended = subprocess.run(
        [sys.executable, "-c", _ENDING], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout.splitlines() == ["ran 1"]
