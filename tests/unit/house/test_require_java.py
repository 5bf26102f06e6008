"""`make` says what to install where Spark would find no Java that it can use."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / ".ci" / "require-java"


@pytest.mark.parametrize("version", ['"17.0.15" 2025-04-15', '"21"', '"25-ea" 2025-09-16'])
def test_java_17_and_newer_pass_in_silence(tmp_path: Path, version: str) -> None:
    run = _require(tmp_path, says=f"openjdk version {version}")
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.parametrize(("version", "number"), [('"11.0.2" 2019-01-15', 11), ('"1.8.0_402"', 8)])
def test_an_older_java_is_named_with_its_version(tmp_path: Path, version: str, number: int) -> None:
    run = _require(tmp_path, says=f"openjdk version {version}")
    assert run.returncode == 1
    assert f"java is Java {number}, which is too old" in run.stderr
    assert "openjdk-17-jre-headless" in run.stderr


def test_a_stub_that_only_complains_counts_as_no_java(tmp_path: Path) -> None:
    run = _require(tmp_path, says="Unable to locate a Java Runtime.", exits=1)
    assert run.returncode == 1
    assert "does not run. It says: Unable to locate a Java Runtime." in run.stderr


def test_no_java_anywhere_names_the_packages_to_install(tmp_path: Path) -> None:
    run = _run({"PATH": str(_folder_with_only_cat(tmp_path))})
    assert run.returncode == 1
    assert "no Java found" in run.stderr
    assert "brew install openjdk@17" in run.stderr


def test_a_java_home_without_java_is_an_error_even_if_path_has_one(tmp_path: Path) -> None:
    run = _run({"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)})
    assert run.returncode == 1
    assert f"JAVA_HOME is set to {tmp_path}" in run.stderr


def _require(tmp_path: Path, says: str, exits: int = 0) -> subprocess.CompletedProcess[str]:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {exits}\n")
    java.chmod(0o755)
    return _run({"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)})


def _run(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    bash = shutil.which("bash")
    assert bash is not None
    return subprocess.run([bash, str(SCRIPT)], env=environment, capture_output=True, text=True, check=False)


def _folder_with_only_cat(tmp_path: Path) -> Path:
    cat = shutil.which("cat")
    assert cat is not None
    (tmp_path / "cat").symlink_to(cat)
    return tmp_path
