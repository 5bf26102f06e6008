"""Answers to commits, whose snapshots are read once: each answer brings all, and all but the newest stay."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel
from pyiceberg.table.snapshots import Snapshot

_Answer = TypeVar("_Answer", bound=BaseModel)


class KnownSnapshots:
    """The snapshots of the last answer: one of which the next answer says the same is not read again."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Snapshot]] = {}

    def read(self, kind: type[_Answer], text: str) -> _Answer:
        """Return an answer with a table's metadata. ValidationError where it is none."""
        try:
            said = json.loads(text)
            stated = said["metadata"]["snapshots"]
            said["metadata"]["snapshots"] = [self._find(each) for each in stated]
        except (ValueError, TypeError, KeyError):
            return kind.model_validate_json(text)  # no snapshots, or no such answer, which it says
        answer: Any = kind.model_validate(said)
        read = answer.metadata.snapshots
        self._known = {it.snapshot_id: (each, it) for each, it in zip(stated, read, strict=True)}
        return answer  # type: ignore[no-any-return]

    def _find(self, stated: Any) -> Any:
        known = self._known.get(stated["snapshot-id"])
        return stated if known is None or known[0] != stated else known[1]
