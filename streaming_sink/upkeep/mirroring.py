"""The mirror of a sink's table, brought up to date beside the stream after each batch, or by a call (R36)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

from streaming_sink.options.values.tables import AnyTable, CatalogTable, PathTable, as_table
from streaming_sink.reports.maintenance_report import MirrorReport
from streaming_sink.reports.reporting import hand_over
from streaming_sink.upkeep.beside import PassesBeside
from timeline.errors import CommitStateUnknownError, MirrorForkedError, UnsupportedTableError

if TYPE_CHECKING:
    from streaming_sink.options.table_options import SinkOptions
    from timeline.catalogs.mirrors.mirroring import Mirror
    from timeline.table import Table

_LOG = logging.getLogger("streaming_sink")


def mirror(table: AnyTable) -> MirrorReport:
    """Have the catalog of a table's mirror name its newest version, as a sink does after each batch. The
    table is a `PathTable(location, mirror=CatalogTable(...))`.

    Any process may, at any time; a call that was cut off is completed by the next one. What has the mirror's
    name in the catalog and is no version of the table is never overwritten: MirrorForkedError. ValueError for
    a table without a mirror. TableNotFoundError where there is no table, or no such namespace;
    UnsupportedTableError where the catalog cannot have mirrors; CommitStateUnknownError where it gives no
    clear answer; StoreUnavailableError where catalog or store do not answer.
    """
    place, target = _mirrored(table)
    began = perf_counter()
    opened = place.open()
    done = target.mirror(place.storage_options).bring_up(opened)
    return MirrorReport(
        table=opened.store.location,
        mirror=target.mirror_name,
        outcome="mirrored" if done.moved else "current",
        version=done.version,
        milliseconds=_since(began),
    )


def unmirror(table: AnyTable) -> None:
    """Keep nothing for the mirror of a table from now on. Asks no catalog: what that has stays there, and its
    files leave as those of other old versions. So drop it there first. ValueError as `mirror`, and where the
    table has no such mirror: it says which it has. Else as a commit.
    """
    from timeline.catalogs.mirrors.forgetting import forget_mirror

    place, target = _mirrored(table)
    forget_mirror(place.open(), target.mirror_name)


def _mirrored(table: AnyTable) -> tuple[PathTable, CatalogTable]:
    place = as_table(table)
    if not isinstance(place, PathTable) or place.mirror is None:
        raise ValueError(
            f"a table at a location has a mirror, as PathTable(location, mirror=CatalogTable(...)): {place!r}"
        )
    place.check()
    return place, place.mirror


class Mirroring:
    """The passes of one sink, one at a time in a thread. A batch waits for none of them: what was asked for
    while one runs is done by the next one, together.
    """

    def __init__(self, options: SinkOptions) -> None:
        table = options.table
        self._options = options
        self._place = table if isinstance(table, PathTable) and table.mirror is not None else None
        self._passes = PassesBeside[None, MirrorReport]("mirroring", self._run)
        # Used by one pass after the other.
        self._opened: tuple[Table, Mirror] | None = None

    def after_commit(self) -> list[MirrorReport]:
        """Have the mirror brought up to date, where there is one; return the reports of the passes that have
        ended since the last call.
        """
        if self._place is None:
            return []
        self._passes.ask(None)
        return self._passes.ended()

    def finish(self, timeout_seconds: float | None) -> list[MirrorReport]:
        """Wait for the pass that runs; return the reports that were not returned before. TimeoutError if it
        takes longer.
        """
        self._passes.wait(timeout_seconds)
        return self._passes.ended()

    def _run(self, _: Sequence[None]) -> list[MirrorReport]:
        assert self._place is not None
        assert self._place.mirror is not None
        began = perf_counter()
        report = MirrorReport(
            table=self._options.location, mirror=self._place.mirror.mirror_name, outcome="failed"
        )
        try:
            if self._opened is None:
                self._opened = self._place.open(), self._place.mirror.mirror(self._place.storage_options)
            table, target = self._opened
            done = target.bring_up(table)
            outcome = "mirrored" if done.moved else "current"
            report = replace(report, outcome=outcome, version=done.version)
        except Exception as failure:  # noqa: BLE001 - the batches are committed: no failure is theirs
            if not isinstance(failure, UnsupportedTableError):  # which stays: the catalog is asked once
                self._opened = None
            outcome = _OUTCOMES.get(type(failure), "failed")
            why = f"{type(failure).__name__}: {failure}"
            unforeseen = failure if outcome == "failed" else None
            _LOG.warning("the mirror is left as it is, and the stream goes on: %s", why, exc_info=unforeseen)
            report = replace(report, outcome=outcome, why=why)
        report = replace(report, milliseconds=_since(began))
        hand_over(self._options.on_report, report)
        return [report]


_OUTCOMES: dict[type[Exception], str] = {MirrorForkedError: "forked", CommitStateUnknownError: "unknown"}


def _since(began: float) -> int:
    return round((perf_counter() - began) * 1000)
