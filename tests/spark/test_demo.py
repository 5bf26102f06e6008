"""The demo as a whole, in a process of its own, as `make demo` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("demo")
    (folder / "demo-output").mkdir()
    (folder / "demo-output" / "left-by-an-earlier-run").touch()
    run = subprocess.run(
        [sys.executable, "-m", "demo"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return folder / "demo-output", run


@pytest.mark.slow
@pytest.mark.spark
def test_both_tables_hold_every_flight(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, run = demo
    assert run.returncode == 0, run.stderr
    assert "Both tables hold all 336,776 rows and give equal answers." in run.stdout


@pytest.mark.slow
@pytest.mark.spark
def test_right_sizing_shows(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, run = demo
    plain, ours = _figures(run.stdout, "files")
    assert ours < plain
    plain, ours = _figures(run.stdout, "small files *")
    assert ours < plain


@pytest.mark.slow
@pytest.mark.spark
def test_clustering_shows_in_what_one_query_must_read(
    demo: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    _, run = demo
    before, after = _figures(run.stdout, "rows in those files")
    assert before == 336_776
    assert after < before / 3
    files, opened = _figures(run.stdout, "files in the table"), _figures(run.stdout, "files that may hold it")
    assert opened[0] == files[0]
    assert opened[1] < files[1] / 2


@pytest.mark.slow
@pytest.mark.spark
def test_output_of_an_earlier_run_is_replaced(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    output, _ = demo
    assert not (output / "left-by-an-earlier-run").exists()
    assert (output / "iceberg" / "metadata").is_dir()


@pytest.mark.slow
@pytest.mark.spark
def test_progress_is_plain_lines_where_there_is_no_terminal(
    demo: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    _, run = demo
    assert "\x1b" not in run.stdout
    assert run.stdout.count(" 40/40 ") == 2


def _figures(text: str, row: str) -> tuple[int, int]:
    line = next(line for line in text.splitlines() if line.strip().startswith(f"{row} "))
    left, right = line.strip().removeprefix(row).replace(",", "").split()
    return int(left), int(right)
