"""The processor time of children that have ended counts, as in PySpark's daemon of workers."""

import subprocess
import sys

import pytest

from benchmarks.measure import processor_seconds

BURNED_SECONDS = 0.5
DAEMON = f"""
import os, signal, sys, time
from benchmarks import waiting_daemon
if sys.argv[1] == "waiting":
    waiting_daemon.wait_for_ended()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as `pyspark.daemon.manager` does
for _ in range(2):
    if os.fork() == 0:
        while time.process_time() < {BURNED_SECONDS}:
            pass
        os._exit(0)
while True:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        break
print("both have ended", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(("how", "least", "most"), [("waiting", 1.0, 1.4), ("ignoring", 0.0, 0.4)])
def test_what_an_ended_worker_has_burned_counts(how: str, least: float, most: float):
    before = processor_seconds()
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "both have ended\n"
        while_it_lives = processor_seconds() - before
        daemon.communicate()

    assert least - 0.05 <= while_it_lives <= most
