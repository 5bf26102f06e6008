"""The notebooks run from top to bottom, import what users import, and are stored without outputs."""

from __future__ import annotations

import ast
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.jars import require_iceberg_runtime
from tests.servers import binaries
from tests.servers.rest_catalog import rest_catalog
from tests.tiers import only_in_soak

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PUBLIC = {"streaming_sink"}

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_which_notebooks_there_are() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "01_quickstart",
        "02_file_sizes",
        "03_changing_stream",
        "04_changes_by_key",
        "05_buffered_ingestion",
        "06_catalog_table",
    ]


@each_notebook
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    assert not [cell.id for cell in cells if cell.get("outputs") or cell.get("execution_count")]


@each_notebook
def test_a_notebook_imports_of_this_repository_only_what_users_import(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    ours = {folder.name for folder in ROOT.iterdir() if folder.is_dir()}
    assert set(_imported(code)) & ours == PUBLIC


@pytest.mark.notebook
@pytest.mark.slow
@pytest.mark.spark
def test_the_quickstart_runs_and_three_readers_see_its_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = _run("01_quickstart", monkeypatch, tmp_path)
    assert "rows, by pyiceberg, DuckDB and Polars alike" in said


@only_in_soak
@pytest.mark.notebook
@pytest.mark.slow
@pytest.mark.spark
def test_the_notebook_on_file_sizes_runs_and_no_table_loses_a_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = _run("02_file_sizes", monkeypatch, tmp_path)
    assert said.count("336,776 rows") == 3


@only_in_soak
@pytest.mark.notebook
@pytest.mark.slow
@pytest.mark.spark
def test_the_notebook_on_a_changing_stream_runs_and_counts_every_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = _run("03_changing_stream", monkeypatch, tmp_path)
    assert said == "11,978 rows in the table and 22 in the quarantine, of 12,000 lines\n"


@only_in_soak
@pytest.mark.notebook
@pytest.mark.slow
@pytest.mark.spark
def test_the_notebook_on_changes_by_key_runs_and_agrees_with_its_dictionary(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = _run("04_changes_by_key", monkeypatch, tmp_path)
    assert said == "26,483 flights, as the dictionary has them, by pyiceberg, Polars and DuckDB\n"


@only_in_soak
@pytest.mark.notebook
@pytest.mark.slow
@pytest.mark.spark
def test_the_notebook_on_buffered_ingestion_runs_and_lands_each_flight_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = _run("05_buffered_ingestion", monkeypatch, tmp_path)
    assert said == "336,776 flights, each once, by pyiceberg, Polars and DuckDB\n"


@only_in_soak
@pytest.mark.notebook
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.servers
def test_the_notebook_on_a_catalogs_table_runs_and_agrees_with_its_dictionary(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ICEBERG_SPARK_RUNTIME", str(require_iceberg_runtime()))
    with binaries.or_skip(), rest_catalog(tmp_path) as catalog:
        monkeypatch.setenv("ICEBERG_REST_URI", catalog.uri)
        said = _run("06_catalog_table", monkeypatch, tmp_path)
    assert said == "1,930 accounts, as the dictionary has them, by Spark, pyiceberg and DuckDB\n"


def _run(name: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    """Run every cell, and return what the last one printed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(folder))
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    resources = {"metadata": {"path": str(ROOT)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    return "".join(output.get("text", "") for output in notebook.cells[-1].outputs)


def _imported(code: str) -> list[str]:
    """Return the packages that the code imports."""
    names = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return [name.split(".")[0] for name in names]
