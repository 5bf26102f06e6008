"""What a landing asks of a table that gets rows beside the main one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from streaming_sink.upkeep.maintenance import Maintenance
from streaming_sink.writing.writer import WriteResult
from timeline.changes.changes import Change
from timeline.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_sink.reports.steps import Steps


class SecondTable(Protocol):
    """A second table of a sink. The main table's commit decides what it gets; a process that is killed in
    between leaves the rest to the next one.
    """

    maintenance: Maintenance

    def prepare(self, session: SparkSession, main: Table, app_id: str, steps: Steps) -> None:
        """Complete, before a batch is written, what earlier commits of the application have left."""

    def changes(self, main: Table, app_id: str, result: WriteResult) -> Sequence[Change]:
        """Return what the main table's commit of a batch says for this one."""

    def follow(self, session: SparkSession, main: Table, app_id: str, steps: Steps) -> None:
        """Bring the table what the known head of `main` has for it. No request where there is nothing."""
