"""The notebook runs from top to bottom, and is kept in the repository without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "flights.ipynb"


def test_the_notebook_is_stored_without_outputs() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert not [cell.id for cell in cells if cell.get("outputs") or cell.get("execution_count")]


@pytest.mark.notebook
@pytest.mark.slow
@pytest.mark.spark
def test_every_cell_of_the_notebook_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(ROOT)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    last_words = "".join(output.get("text", "") for output in notebook.cells[-1].outputs)
    assert last_words.count("336,776 rows") == 2
