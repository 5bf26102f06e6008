"""The peer is Iceberg's own sink, or a plain append where its JAR cannot be downloaded; it says which."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.jars import ICEBERG, cached_path
from demo.lanes import IcebergLane, ParquetLane
from demo.show import DemoError, choose_peer


@pytest.fixture(autouse=True)
def _no_java_and_no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)


def test_with_the_jar_it_is_icebergs_sink_and_the_session_gets_its_catalog(tmp_path: Path) -> None:
    jar = cached_path(ICEBERG)
    jar.parent.mkdir()
    jar.touch()
    lane, settings, says = choose_peer(tmp_path / "peer", "auto")
    assert isinstance(lane, IcebergLane)
    assert settings["spark.jars"] == str(jar)
    assert "Iceberg 1.12.0" in says


def test_without_it_it_is_a_plain_append_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lane, settings, says = choose_peer(tmp_path / "peer", "auto")
    assert isinstance(lane, ParquetLane)
    assert settings == {}
    assert "could not be downloaded" in says
    assert "cannot be downloaded now" in capsys.readouterr().out


def test_where_icebergs_sink_is_demanded_its_absence_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="install a JDK"):
        choose_peer(tmp_path / "peer", "iceberg")
