"""The walls between the packages, where a linter cannot look."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[3]
WITHOUT_PYSPARK = """
import importlib, pkgutil, sys
sys.modules["pyspark"] = None
package = importlib.import_module({package!r})
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
"""

TASKS_ALONE = """
import importlib, pkgutil, sys
package = importlib.import_module("streaming_sink.tasks")
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
print(*sorted({"obstore", "pandas", "py4j", "pyiceberg", "pyspark"} & sys.modules.keys()))
"""

WITHOUT_EXTRAS = """
import sys
import streaming_sink, streaming_sink.ingest, streaming_sink.commands.cli, streaming_sink.serving.server
print(*sorted({"confluent_kafka", "fastapi", "opentelemetry", "starlette", "uvicorn"} & sys.modules.keys()))
"""


def test_planners_import_nothing_but_the_standard_library_and_numpy_for_curves() -> None:
    allowed = sys.stdlib_module_names | {"planners"}
    strangers = {
        f"{path.name}: {name}"
        for path in (ROOT / "planners").rglob("*.py")
        for name in _imported_packages(path)
        if name not in allowed
    }
    assert strangers == {"curves.py: numpy"}


@pytest.mark.parametrize("package", ["planners", "timeline"])
def test_every_module_imports_where_pyspark_is_not_installed(package: str) -> None:
    _output(WITHOUT_PYSPARK.format(package=package))


def test_what_a_task_loads_is_free_of_spark_pandas_pyiceberg_and_object_store_clients() -> None:
    assert _output(TASKS_ALONE) == "\n"


def test_what_an_extra_installs_is_loaded_where_it_is_used() -> None:
    assert _output(WITHOUT_EXTRAS) == "\n"


def _output(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_no_modules_import_each_other_in_a_circle() -> None:
    """For type checking or inside of a function neither: import-linter is set to leave the former out."""
    graph = grimp.build_graph("planners", "streaming_sink", "timeline", cache_dir=None)
    circles = {
        f"{module} <-> {imported}"
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
        if graph.chain_exists(imported, module)
    }
    assert circles == set()


def _imported_packages(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


def test_the_judgement_alone_makes_what_a_commit_takes() -> None:
    """So that mypy refuses a commit of what was not judged."""
    makers = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "streaming_sink").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Judged"
    }
    assert makers == {"streaming_sink/landing/judging.py"}


def test_a_room_can_be_taken_in() -> None:
    """At most 20 files and 2,500 lines: what is more has a second purpose."""
    rooms: dict[str, list[int]] = {}
    for package in ("planners", "streaming_sink", "timeline"):
        for path in (ROOT / package).rglob("*.py"):
            if path.name != "__init__.py":
                rooms.setdefault(str(path.parent.relative_to(ROOT)), []).append(
                    len(path.read_text().splitlines())
                )
    assert {room: len(files) for room, files in rooms.items() if len(files) > 20 or sum(files) > 2500} == {}


def test_a_class_has_its_name_alone() -> None:
    """But `Append`, which is the write of a sink and, below, the change that it becomes."""
    assert _defined_twice(ast.ClassDef) == {
        "Append": ["streaming_sink/options/values/writes.py", "timeline/changes/changes.py"]
    }


def test_a_function_has_its_name_alone() -> None:
    """But commands and endpoints, which are named as what they call, and two that the timeline does for a
    table and a user for a location.
    """
    named_alike = ("streaming_sink/commands/", "streaming_sink/serving/")
    found = {
        name: [path for path in paths if not path.startswith(named_alike)]
        for name, paths in _defined_twice(ast.FunctionDef).items()
    }
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {
        "expire_snapshots": ["streaming_sink/removal/cleaning.py", "timeline/maintenance/expiry.py"],
        "remove_orphan_files": ["streaming_sink/removal/cleaning.py", "timeline/maintenance/orphans.py"],
    }


def test_each_verb_of_the_table_is_one_of_the_code() -> None:
    """A verb that no function has any more, or has got another name, leaves `CONTRIBUTING.md`."""
    page = (ROOT / "CONTRIBUTING.md").read_text().partition("## Verbs")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| ")][2:]
    verbs = {verb.strip() for cell in cells for verb in cell.split(",")}
    words = {
        word
        for package in ("planners", "streaming_sink", "timeline")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        for word in [node.name.strip("_").partition("_")[0]]
    }
    assert len(verbs) > 25
    assert verbs - words == set()


def _defined_twice(kind: type[ast.ClassDef] | type[ast.FunctionDef]) -> dict[str, list[str]]:
    where: dict[str, list[str]] = {}
    for package in ("planners", "streaming_sink", "timeline"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, kind) and not node.name.startswith("_"):
                    where.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    return {name: paths for name, paths in where.items() if len(paths) > 1}
