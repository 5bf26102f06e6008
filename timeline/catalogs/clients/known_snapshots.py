"""Answers with a table's metadata, whose snapshots are read once: each answer brings all, and most stay."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

_Answer = TypeVar("_Answer", bound=BaseModel)
_LISTS = {"snapshots": "snapshots", "snapshot-log": "snapshot_log"}
"""Those that each commit makes longer, by their names in an answer and in what is read of it."""
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class _Known:
    """A list of the last answer: its text within the brackets, and what was read of it."""

    text: str = ""
    entries: tuple[Any, ...] = ()


class KnownSnapshots:
    """The snapshots of a table's last answer, and their log: what the next answer's lists have after the same
    text is read, and nothing before it.
    """

    def __init__(self) -> None:
        self._known = dict.fromkeys(_LISTS, _Known())

    def read(self, kind: type[_Answer], text: str) -> _Answer:
        """Return an answer with the table's metadata. ValidationError where it is none."""
        lists = dict[str, list[Any]]()
        texts = dict[str, str]()
        try:
            rest = text
            for name, known in self._known.items():
                if (start := _find_list(rest, name)) is not None:
                    lists[name], end = _read_list(rest, start, known)
                    texts[name] = rest[start:end]
                    rest = rest[:start] + rest[end:]
            said = json.loads(rest)
            for name, entries in lists.items():
                said["metadata"][name] += entries  # KeyError where it was another's list
        except (ValueError, TypeError, KeyError):
            return kind.model_validate_json(text)  # no such answer, which it says
        answer: Any = kind.model_validate(said)
        for name, its in texts.items():
            self._known[name] = _Known(its, tuple(getattr(answer.metadata, _LISTS[name])))
        return answer  # type: ignore[no-any-return]


def _find_list(text: str, name: str) -> int | None:
    """Return where the entries of the one list of a name begin; None where there is none, or another one.
    Within a value each quote is escaped, so that none has these characters.
    """
    found = [begin for begin in (f'"{name}":[', f'"{name}": [') for _ in range(text.count(begin))]
    return text.index(found[0]) + len(found[0]) if len(found) == 1 else None


def _read_list(text: str, start: int, known: _Known) -> tuple[list[Any], int]:
    """Return the entries of a list, those that are known as they were read, and where its bracket is."""
    after = start + len(known.text)
    if known.text and text.startswith(known.text, start):
        if text[after : after + 1] == "]":
            return list(known.entries), after
        if text[after : after + 1] == ",":
            new, length = _DECODER.raw_decode("[" + text[after + 1 :])
            return [*known.entries, *new], after + length - 1
    entries, end = _DECODER.raw_decode(text, start - 1)
    return entries, end - 1
