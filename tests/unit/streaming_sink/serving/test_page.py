"""The catalog's page in a real browser: what it shows, and that names of files stay text."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from html import unescape
from pathlib import Path

import pytest

from tests.unit.streaming_sink.serving.served import ODD, filled_zone, served

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)


def dump(url: str, profile: Path) -> str:
    """Return the page's elements after its scripts have run for some seconds of the browser's own time."""
    assert BROWSER is not None
    command = [
        BROWSER,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={profile}",
        "--virtual-time-budget=5000",
        "--dump-dom",
        url,
    ]
    with (profile.parent / "page.html").open("w+") as out, (profile.parent / "errors").open("w+") as errors:
        running = subprocess.Popen(command, stdout=out, stderr=errors, start_new_session=True)
        try:
            assert running.wait(60) == 0, (profile.parent / "errors").read_text()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    return (profile.parent / "page.html").read_text()


@pytest.mark.skipif(BROWSER is None, reason="needs chromium; test_api.py asks the same server without it")
def test_a_browser_shows_the_datasets_and_runs_nothing_that_a_name_holds(tmp_path: Path) -> None:
    zone = filled_zone(tmp_path)
    with served(zone, f"{tmp_path}/none") as server:
        seen = dump(server.url, tmp_path / "profile")
        described = dump(f"{server.url}docs", tmp_path / "profile")
    for text in ("flights", "1 files", "1 items", "3.0 s", "2025-11-23 00:00:00", "failures", "every 2 s"):
        assert text in seen
    assert "there is no buffer zone here" in seen
    assert ODD in unescape(seen)
    assert "<img" not in seen.partition("<script>")[0]
    assert "<title>Buffered ingestion</title>" in seen
    assert "GET /api/datasets/{name}/snapshots/{snapshot_id}/files" in described
