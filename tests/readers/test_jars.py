"""A JAR that cannot be had skips a test on a laptop, and fails it in CI."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import jars

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_java_and_no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("CI", raising=False)


def test_outside_ci_the_test_is_skipped_with_the_reason() -> None:
    """Without a JDK the reason names what to install."""
    with pytest.raises(pytest.skip.Exception, match="install a JDK"):
        jars.require_iceberg_runtime()


def test_in_ci_the_test_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """In CI the same is an error: a judge that is silently absent judges nothing."""
    monkeypatch.setenv("CI", "true")
    with pytest.raises(jars.JarUnavailableError, match="install a JDK"):
        jars.require_iceberg_runtime()


def test_a_jar_in_the_cache_is_used_as_it_is(tmp_path: Path) -> None:
    """Nothing is downloaded twice."""
    cached = tmp_path / "streaming-sink-tests" / "iceberg-spark-runtime-4.1_2.13-1.12.0.jar"
    cached.parent.mkdir()
    cached.touch()
    assert jars.iceberg_runtime() == cached
