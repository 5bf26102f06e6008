"""The pages refer to what exists: links, files, modules and tests, and the words of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.unit.house.conflict_table import conflict_table
from timeline.changes.changes import Change

ROOT = Path(__file__).parents[3]
PAGES = (*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md")
ROOMS = ("benchmarks", "demo", "docs", "notebooks", "planners", "streaming_sink", "tests", "timeline")

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_PATH = re.compile(rf"(?<![\w/.-])((?:{'|'.join(ROOMS)})/[\w./*-]*[\w/*])(?![\w<])")
_IMPORT = re.compile(r"^\s*(?:from|import) ((?:planners|streaming_sink|timeline)(?:\.\w+)*)", re.MULTILINE)
_MODULE = re.compile(r"(?:python -m |`)((?:benchmarks|streaming_sink|timeline|planners|tests)(?:\.\w+)+)")
_TEST = re.compile(r"`(test_\w+)`")
_HELD_BY = re.compile(r"\*\*Held by\.\*\*(.*?)(?:\n\n|\Z)", re.DOTALL)
_FILE = re.compile(r"`(tests/[\w/]+\.py)`")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@each_page
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page if not path else (page.parent / path).resolve()
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert broken == []


@each_page
def test_every_file_and_folder_that_is_named_exists(page: Path) -> None:
    missing = {path for path in _PATH.findall(page.read_text()) if not _exists(path)}
    assert missing == set()


@each_page
def test_every_module_that_is_named_exists(page: Path) -> None:
    text = page.read_text()
    named = {*_IMPORT.findall(text), *_MODULE.findall(text)}
    missing = {name for name in named if not _is_importable(name)}
    assert missing == set()


@each_page
def test_every_test_that_is_named_exists(page: Path) -> None:
    named = {name for name in _TEST.findall(page.read_text()) if name not in _modules_of_tests()}
    assert named - _tests() == set()


@pytest.mark.parametrize("folder", ["planners", "timeline", "streaming_sink", "tests", "benchmarks", "demo"])
def test_every_page_that_the_code_names_exists(folder: str) -> None:
    sources = (path.read_text() for path in (ROOT / folder).rglob("*.py"))
    named = {page for source in sources for page in re.findall(r"\bdocs/[\w/]+\.(?:md|svg)\b", source)}
    assert {page for page in named if not (ROOT / page).exists()} == set()


def test_each_rule_names_tests_of_the_files_that_it_names() -> None:
    """A test that moves to another file, or leaves, must be followed in the rule that it holds."""
    text = (ROOT / "docs" / "protocol.md").read_text()
    rules = re.split(r"^### (R\d+)", text, flags=re.MULTILINE)[1:]
    numbers = [int(rule[1:]) for rule in rules[::2]]
    assert numbers == sorted(set(numbers))
    assert numbers[:31] == list(range(1, 32))
    for rule, section in zip(rules[::2], rules[1::2], strict=True):
        for part in ("Rule", "Reason", "Prevents", "Held by"):
            assert section.count(f"**{part}.**") == 1, f"{rule} needs one part {part!r}"
        (held_by,) = _HELD_BY.findall(section)
        sources = "".join((ROOT / path).read_text() for path in _FILE.findall(held_by))
        assert sources, f"{rule} names no test file"
        for name in _TEST.findall(held_by):
            assert f"def {name}(" in sources, f"{rule}: {name} is in none of its files"


def test_the_glossary_defines_words_of_the_code_each_with_its_equivalent() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    entries = re.findall(r"^- \*\*(.+?)\*\*\. (.*?)(?=^- |^#|\Z)", page, re.MULTILINE | re.DOTALL)
    assert len(entries) >= 30
    code = "".join(
        path.read_text().lower()
        for package in ("planners", "streaming_sink", "timeline")
        for path in (ROOT / package).rglob("*.py")
    )
    for terms, text in entries:
        assert re.match(r"(Iceberg|Delta|Hudi|Spark|No equivalent)\b", text), f"{terms}: equals what?"
        for term in terms.lower().split(", "):
            assert re.search(term.replace(" ", r"[\s_]+"), code), f"no module has the word {term!r}"


@cache
def _tests() -> frozenset[str]:
    files = (ROOT / "tests").rglob("test_*.py")
    return frozenset(name for file in files for name in re.findall(r"def (test_\w+)\(", file.read_text()))


@cache
def _modules_of_tests() -> frozenset[str]:
    return frozenset(file.stem for file in (ROOT / "tests").rglob("test_*.py"))


def _exists(path: str) -> bool:
    return any(ROOT.glob(path)) if "*" in path else (ROOT / path).exists()


def _is_importable(name: str) -> bool:
    """Whether a dotted name is a module or a package, or a name inside of one."""
    path = ROOT / name.replace(".", "/")
    if path.with_suffix(".py").exists() or path.is_dir():
        return True
    owner, last = path.parent, path.name
    sources = [file for file in (owner.with_suffix(".py"), owner / "__init__.py") if file.exists()]
    return any(re.search(rf"\b{last}\b", source.read_text()) for source in sources)


@cache
def _anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub spells them."""
    return frozenset(_slugs(page.read_text()))


def _slugs(text: str) -> Iterator[str]:
    for heading in re.findall(r"^#+ (.*)$", _FENCE.sub("", text), re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_conflict_table_is_what_the_kinds_of_change_say_of_themselves() -> None:
    class OfAnotherTest(Change):
        """It is no kind of the protocol."""

    assert conflict_table() in (ROOT / "docs" / "protocol.md").read_text()
    assert OfAnotherTest in Change.__subclasses__()
