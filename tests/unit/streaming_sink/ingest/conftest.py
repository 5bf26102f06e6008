"""These tests have no Spark: workers take it for warm, and for alive."""

from __future__ import annotations

import pytest

from streaming_sink.ingest import jobs


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "warm", lambda session: None)
    monkeypatch.setattr(jobs, "runs_tasks", lambda session: True)
