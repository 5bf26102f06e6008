"""Judges schemas: no column vanishes, no id means two columns, and no replace loses a column of a row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.raw import ViolationError


@dataclass
class SchemaJudge:
    """Knows the schemas of each version, and the columns that each file was written with."""

    columns: dict[str, frozenset[str]] = field(default_factory=dict)
    """File → the columns that its writer knew."""
    _ids: dict[str, int] = field(default_factory=dict)
    """Column → its field id, for good."""
    _current: frozenset[str] = frozenset()

    def check(self, number: int, metadata: dict[str, Any]) -> None:
        """Judge the schemas of the next version of the lineage."""
        schemas = {schema["schema-id"]: schema for schema in metadata["schemas"]}
        for schema in schemas.values():
            for column in schema["fields"]:
                name, known = column["name"], self._ids.setdefault(column["name"], column["id"])
                if known != column["id"]:
                    raise ViolationError(
                        f"version {number} gives {name} id {column['id']}, and it had {known}"
                    )
        if len(set(self._ids.values())) < len(self._ids):
            raise ViolationError(f"version {number} gives one id to two columns: {self._ids}")
        if metadata["last-column-id"] < max(self._ids.values()):
            raise ViolationError(f"version {number} forgets the last column id")
        current = frozenset(column["name"] for column in schemas[metadata["current-schema-id"]]["fields"])
        if not current >= self._current:
            raise ViolationError(f"version {number} loses columns: {sorted(self._current - current)}")
        self._current = current

    def check_replace(
        self, number: int, removed: Iterable[str], added: Iterable[str], rows: dict[str, tuple[int, ...]]
    ) -> None:
        """Judge a replace: what rewrote a row knew every column that the row may have a value in."""
        was = {row: uri for uri in removed for row in rows[uri]}
        for uri in added:
            for row in rows[uri]:
                lost = self.columns[was[row]] - self.columns[uri]
                if lost:
                    raise ViolationError(f"a replace of version {number} loses {sorted(lost)} of row {row}")
