"""The demo as a whole, in a process of its own, as `make demo` runs it but with fewer batches."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from demo import duck
from demo.flights import read_flights, write_flight_files
from demo.lanes import ParquetLane
from demo.stream import LaneFailedError, stream_through
from tests.jars import require_iceberg_runtime
from tests.tiers import only_in_soak

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
BATCHES = 11
Demo = tuple[Path, subprocess.CompletedProcess[str]]

# Appended to a copy of the report: what a browser made of it, as JSON in the page's text.
PROBE = """<pre id="probe"></pre><script>
document.getElementById("probe").textContent = JSON.stringify({
  boxes: [...document.querySelectorAll("svg")].map(it => [it.id, it.clientWidth, it.clientHeight]),
  painted: [...document.querySelectorAll("svg")].map(
    it => it.querySelectorAll("rect, path, polyline").length),
  clipped: [...document.querySelectorAll("svg text")].filter(it => {
    const text = it.getBoundingClientRect(), svg = it.ownerSVGElement.getBoundingClientRect();
    return text.left < svg.left || text.right > svg.right || text.top < svg.top || text.bottom > svg.bottom;
  }).map(it => it.textContent),
  wide: document.documentElement.scrollWidth > window.innerWidth,
});
</script>"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    require_iceberg_runtime()
    folder = tmp_path_factory.mktemp("demo")
    (folder / "demo-output").mkdir()
    (folder / "demo-output" / "left-by-an-earlier-run").touch()
    return folder / "demo-output", _run(folder)


@pytest.fixture(scope="module")
def chromium() -> str:
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("no chromium on the PATH (Debian: apt-get install chromium): nobody looks at the report")
    return found


@pytest.mark.jar
@pytest.mark.slow
@pytest.mark.spark
def test_all_tables_hold_every_flight(demo: Demo) -> None:
    _, run = demo
    assert run.returncode == 0, run.stderr
    assert "All tables hold the same 336,776 rows and give equal answers." in run.stdout
    assert _figures(run.stdout, "rows") == (336_776, 336_776, 336_776)
    assert "“Iceberg's sink” is the one that Iceberg 1.12.0 itself brings for Spark." in run.stdout


@pytest.mark.jar
@pytest.mark.slow
@pytest.mark.spark
def test_right_sizing_shows(demo: Demo) -> None:
    _, run = demo
    peer, ours, _ = _figures(run.stdout, "files")
    assert peer > 30 * BATCHES
    assert ours < peer / 2
    peer_bytes, our_bytes, _ = _figures(run.stdout, "bytes written for it", r"([\d.]+) MiB")
    assert peer_bytes > 0
    assert our_bytes > 0


@pytest.mark.jar
@pytest.mark.slow
@pytest.mark.spark
def test_clustering_shows_in_what_one_query_must_read(demo: Demo) -> None:
    _, run = demo
    _, before, after = _figures(run.stdout, "rows in those files")
    assert before > 250_000
    assert after < before / 2
    _, files, clustered = _figures(run.stdout, "files")
    _, opened, still_opened = _figures(run.stdout, "files that may hold it")
    assert opened > files / 2
    assert still_opened < clustered / 2


@pytest.mark.jar
@pytest.mark.slow
@pytest.mark.spark
def test_output_of_an_earlier_run_is_replaced(demo: Demo) -> None:
    output, _ = demo
    assert not (output / "left-by-an-earlier-run").exists()
    assert (output / "iceberg" / "metadata").is_dir()


@pytest.mark.jar
@pytest.mark.slow
@pytest.mark.spark
def test_progress_is_plain_lines_where_there_is_no_terminal(demo: Demo) -> None:
    _, run = demo
    assert "\x1b" not in run.stdout
    assert run.stdout.count(f" {BATCHES}/{BATCHES} ") == 2


@pytest.mark.jar
@pytest.mark.slow
@pytest.mark.spark
def test_the_report_is_right_in_a_browser(demo: Demo, chromium: str, tmp_path: Path) -> None:
    output, run = demo
    page = (output / "report.html").read_text(encoding="utf-8")
    probed = tmp_path / "probed.html"
    probed.write_text(page.replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    seen, said = _browse(chromium, tmp_path, probed, "--dump-dom")
    found: dict[str, Any] = json.loads(re.findall(r'<pre id="probe">(.*?)</pre>', seen, re.DOTALL)[0])

    assert ":CONSOLE" not in said
    assert found["clipped"] == []
    assert not found["wide"]
    boxes = {name: (width, height) for name, width, height in found["boxes"]}
    assert set(boxes) == {"files", "sizes", "queries", "extents"}
    assert min(width for width, _ in boxes.values()) > 600
    assert min(height for _, height in boxes.values()) > 200
    assert min(found["painted"]) >= 2

    text = re.sub(r"<[^>]+>", " ", seen)
    for row in ("rows", "files", "files that may hold it", "rows in those files"):
        for figure in _figures(run.stdout, row):
            assert f"{figure:,}" in text, row
    for query in duck.QUERIES:
        assert re.search(rf"{re.escape(query)}.*?\d ms", text, re.DOTALL), query


@pytest.mark.jar
@pytest.mark.slow
@pytest.mark.spark
def test_a_screenshot_shows_the_colours_of_all_tables(demo: Demo, chromium: str, tmp_path: Path) -> None:
    output, _ = demo
    shot = tmp_path / "report.png"
    _browse(chromium, tmp_path, output / "report.html", "--window-size=1100,2700", f"--screenshot={shot}")
    with Image.open(shot) as picture:
        pixels = {colour[:3]: count for count, colour in picture.getcolors(2**24)}
    style = (ROOT / "demo" / "report.css").read_text()
    for table in ("peer", "ours", "clustered"):
        colour = re.findall(rf"--{table}: #(\w{{6}})", style)[0]
        assert pixels.get(tuple(bytes.fromhex(colour)), 0) > 5_000, table


@pytest.mark.spark
def test_without_icebergs_sink_a_plain_append_takes_its_place(spark: SparkSession, tmp_path: Path) -> None:
    source = write_flight_files(read_flights().slice(0, 60), tmp_path / "input", 3)
    lane = ParquetLane(tmp_path / "plain")
    (run,) = stream_through(spark, source, [lane], tmp_path / "checkpoints", lambda _: None)
    connection = duck.connect()
    table = duck.parquet_table(connection, lane.location)
    (survey,) = duck.survey(connection, [table], ["N1", "N999ZZ"])
    assert survey.rows == 60
    assert len(run.states) == len(run.milliseconds) == 3
    assert (run.states[-1].files, run.states[-1].bytes) == (len(table.files), sum(survey.file_bytes))
    assert run.states[0].files < run.states[1].files < run.states[2].files


@pytest.mark.spark
def test_a_lane_that_fails_is_named_with_its_own_error(spark: SparkSession, tmp_path: Path) -> None:
    source = write_flight_files(read_flights().slice(0, 10), tmp_path / "input", 1)
    (tmp_path / "plain").touch()
    with pytest.raises(LaneFailedError, match="plain append failed") as failed:
        stream_through(
            spark, source, [ParquetLane(tmp_path / "plain")], tmp_path / "checkpoints", lambda _: None
        )
    assert failed.value.__cause__ is not None


def _run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "demo", f"--batches={BATCHES}"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _browse(chromium: str, profile: Path, page: Path, *options: str) -> tuple[str, str]:
    """Open the page without a window and without a network; return what the browser printed and logged."""
    alone = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"]
    alone += [f"--user-data-dir={profile / 'profile'}", "--host-resolver-rules=MAP * ~NOTFOUND"]
    run = subprocess.run(
        [chromium, *alone, *options, page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    return run.stdout, run.stderr


def _figures(text: str, row: str, figure: str = r"([\d,]+)") -> tuple[float, ...]:
    line = next(line for line in text.splitlines() if re.match(rf" +{row}  ", line))
    found = re.findall(figure, line.strip().removeprefix(row))
    assert len(found) == 3, line
    return tuple(
        float(each.replace(",", "")) if "." in each else int(each.replace(",", "")) for each in found
    )


@only_in_soak
def test_two_hundred_files_land_as_few(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "demo.ingest", "--files", "200", "--output", str(tmp_path / "out")],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "DuckDB 336,776 rows" in run.stdout
    assert "200 of 200 files landed" in run.stdout
    assert run.stdout.count("→") >= 2
