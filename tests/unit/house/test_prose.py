"""The wording of the code and of the pages: plain technical English, in lines and files of bounded length.

CONTRIBUTING.md says what to write instead. Text between backticks is a name and may be spelled in any way.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("planners", "timeline", "streaming_sink")
ROOMS = sorted(
    path.parent.relative_to(ROOT).as_posix()
    for package in PACKAGES
    for path in (ROOT / package).rglob("__init__.py")
)
PAGES = sorted(
    path.relative_to(ROOT).as_posix() for folder in (ROOT, ROOT / "docs") for path in folder.glob("*.md")
)

BANNED = (
    r"whoever|whatever|nobody|somebody|anybody",
    r"tells?|told",
    r"giv(?:e|es|en|ing) up|let go|put back|made again|carr(?:y|ies|ied|ying) out",
    r"go(?:es)? by|gone by",
    r"stands?|stood",
    r"no matter|need not|must needs|one's own|of ours|of theirs|as it were|should be so",
    r"asked for together|cut so|to be had|at a loss|come to lie|lies? (?:beside|in)",
    r"looks? after|mend(?:s|ed|ing)?|on its way|woke|(?:has|have|is|are) gone|dear(?:er|est)",
    r"who (?:lost|loses|wins|won|sleeps|slept|reads|writes|holds|has)",
    r"meanwhile|by hand",
)
_BANNED = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)
_QUOTED = re.compile(r"`[^`\n]*`|\btell\(")
"""Names: between backticks, and the method of files."""

LONGEST_LINE = 120
LONGEST_FILE = 300

# A row of a table cannot wrap. The protocol has no such row: it is read beside the code.
UNWRAPPED = "| "
ALWAYS_WRAPPED = {"docs/protocol.md"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_in_plain_words(room: str) -> None:
    assert [found for path in _modules(room) for found in _banned(path)] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_in_plain_words(page: str) -> None:
    assert list(_banned(ROOT / page)) == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_wraps_at_120_characters(page: str) -> None:
    long = [
        f"{page}:{number}"
        for number, line in enumerate((ROOT / page).read_text().splitlines(), 1)
        if len(line) > LONGEST_LINE and (page in ALWAYS_WRAPPED or not line.lstrip().startswith(UNWRAPPED))
    ]
    assert long == []


@pytest.mark.parametrize("room", ROOMS)
def test_the_files_of_a_room_are_short_and_their_first_line_says_what_they_are(room: str) -> None:
    faults = []
    for path in _modules(room):
        name, text = path.relative_to(ROOT), path.read_text()
        if (lines := len(text.splitlines())) > LONGEST_FILE:
            faults.append(f"{name} has {lines} lines")
        first = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
        if not first or not text.startswith('"""'):
            faults.append(f"{name} does not begin with what it is")
    assert faults == []


@pytest.mark.parametrize(
    "line",
    ["the sink is told of it", "who lost a race", "It STANDS there", "carried out", "a plan was given up"],
)
def test_a_banned_phrase_is_found(line: str) -> None:
    assert _BANNED.search(line)


@pytest.mark.parametrize(
    "line", ["a standalone writer", "the standing of a commit", "storytelling", "amends"]
)
def test_a_word_that_holds_a_banned_one_is_not(line: str) -> None:
    assert not _BANNED.search(_QUOTED.sub("", line))


def _modules(room: str) -> list[Path]:
    return sorted((ROOT / room).glob("*.py"))


def _banned(path: Path) -> Iterator[str]:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if found := _BANNED.search(_QUOTED.sub("", line)):
            yield f"{path.relative_to(ROOT)}:{number}: {found[0]!r} in: {line.strip()}"
