"""Which versions of rejected files are announced again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from streaming_sink.zones import deciding
from streaming_sink.zones.ledger import LedgerEntry

A, B = "/drop/a.parquet", "/drop/b.parquet"


class Entries:
    """A ledger of these versions, in the order of their plans."""

    def __init__(self, *versions: tuple[str, int, str]) -> None:
        self._all = [
            LedgerEntry(path, f"v{at}", 10, 0, item, state) for at, (path, item, state) in enumerate(versions)
        ]

    def entries(self) -> Iterator[LedgerEntry]:
        return iter(self._all)

    def find(self, path: str) -> list[LedgerEntry]:
        return [it for it in self._all if it.path == path]


@pytest.mark.parametrize("paths", [(), (A, B)])
@pytest.mark.parametrize(
    ("versions", "announced"),
    [
        ([(A, 0, "rejected")], ["v0"]),
        ([(A, 0, "rejected"), (A, 1, "rejected")], ["v1"]),
        ([(A, 0, "rejected"), (A, 0, "landed")], []),
        ([(A, 0, "landed"), (A, 0, "rejected")], ["v1"]),
        ([(A, 0, "rejected"), (B, 0, "rejected"), (A, 2, "planned")], ["v1"]),
    ],
)
def test_of_a_name_the_last_version_counts(paths: Any, versions: Any, announced: list[str]) -> None:
    ledger: Any = Entries(*versions)
    known = tuple(path for path in paths if ledger.find(path))
    found = [it.identity for it in deciding._last_versions(ledger, known) if it.state == "rejected"]
    assert found == announced
