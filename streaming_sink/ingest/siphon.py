"""Siphon Stream: a function for foreachBatch that stages a stream's batches in a buffer zone, each once.

The commit of a batch is one file, created if absent, that names the staged files of the batch. A batch that
is tried again after a crash finds it, and announces those files. What the second try has staged is in no
commit.
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any

from pyspark.sql import DataFrame

from streaming_sink.spark.caller import QueryRun, identify, mint_run_id
from streaming_sink.spark.interruption import brief_interruption
from streaming_sink.spark.jobs import collect_results, described
from streaming_sink.spark.settings import check_later_shuffles, safe_shuffle
from streaming_sink.tasks import fast_workers
from streaming_sink.tasks.ingest.stage_task import StageJob, StageTask
from streaming_sink.zones.backlog import Backlog
from streaming_sink.zones.records import Pushed
from streaming_sink.zones.stored_zone import StoredZone
from timeline.errors import CheckpointRegressionError, CorruptTableError, StoreUnavailableError
from timeline.slots.settling import create_settled
from timeline.stores.base import read_if_there

_LOG = logging.getLogger("streaming_sink")


class Siphon:
    """Stages the batches of one query in a zone; see `BufferZone.siphon`."""

    def __init__(self, zone: StoredZone, app_id: str | None) -> None:
        named: Any = app_id
        if named is not None and not (
            isinstance(named, str) and re.fullmatch(r"[A-Za-z0-9._-]{1,100}", named)
        ):
            raise ValueError(
                f"app_id must be letters, digits, dots, dashes and underscores, 100 at most, not {app_id!r}"
            )
        zone.definition  # noqa: B018 - a zone of another table is refused before a stream starts
        self._zone, self._app_id, self._run = zone, app_id, mint_run_id()
        self._checked: set[str] = set()
        self._backlog = Backlog(zone)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Stage one micro-batch and announce its files. Once this returns they are durable, and land in the
        table when a rule of the zone is met.

        Raises CheckpointRegressionError for the checkpoint of another query under a used name, and
        StoreUnavailableError where the store does not answer.
        """
        session = batch.sparkSession
        run = identify(session, self._app_id, self._run)
        text = f"{self._zone.store.location}: batch {batch_id}"
        with brief_interruption(batch_id), described(session, text):
            self._check_query(run, batch)
            files = self._committed(run, batch_id)
            if files is None:
                self._backlog.wait()
                files = self._stage(batch, run, batch_id)
        pushed = self._announce(files)
        _LOG.info(
            "batch %d of %s: %d files staged, %d bytes", batch_id, run.app_id, pushed.files, pushed.bytes
        )

    def _check_query(self, run: QueryRun, batch: DataFrame) -> None:
        """Raise where another query has staged under this name: its batch numbers mean other rows."""
        if run.app_id in self._checked:
            return
        check_later_shuffles(batch, self._zone.store.location)
        path, mine = f"staged/{run.app_id}/query.json", json.dumps({"query_id": run.query_id}).encode()
        store = self._zone.store
        slot = create_settled(store, path, mine, self._zone.environment)
        if not slot.is_own:
            raise CheckpointRegressionError(
                f"application {run.app_id!r} has staged batches here as another query: a fresh or another"
                " checkpoint would stage rows again. Nothing was staged. Restart on the old checkpoint,"
                f" or choose another app_id: {store.uri(path)}: {slot.stored.data.decode(errors='replace')}",
                app_id=run.app_id,
            )
        self._checked.add(run.app_id)

    def _stage(self, batch: DataFrame, run: QueryRun, batch_id: int) -> list[str]:
        store = self._zone.store
        folder = f"staged/{run.app_id}/{batch_id:012}"
        job = StageJob(store, folder, fast_workers.is_enabled())
        with safe_shuffle(batch.sparkSession):
            mine: list[str] = collect_results(batch, StageTask(job))
        if missing := self._zone.find(store.uri(path) for path in mine)[1]:
            raise StoreUnavailableError(
                "a file that was staged just now is not there; keep other programs from deleting files below"
                f" staged/. Batch {batch_id} of {run.app_id!r} is not staged; try it again: {missing[0]}",
                location=store.location,
            )
        path, data = _commit_path(run, batch_id), json.dumps(mine).encode()
        slot = create_settled(store, path, data, self._zone.environment)
        if slot.is_own:
            return mine
        files = self._files_in(slot.stored.data, run, batch_id)
        store.delete(mine)  # a twin of this query was first: no commit names these
        return files

    def _committed(self, run: QueryRun, batch_id: int) -> list[str] | None:
        data = read_if_there(self._zone.store, _commit_path(run, batch_id))
        return None if data is None else self._files_in(data, run, batch_id)

    def _files_in(self, data: bytes, run: QueryRun, batch_id: int) -> list[str]:
        try:
            return [str(file) for file in json.loads(data)]
        except ValueError as damaged:
            where = self._zone.store.uri(_commit_path(run, batch_id))
            raise CorruptTableError(
                f"which files batch {batch_id} of {run.app_id!r} has staged cannot be read; restore the file"
                f" from a copy: {where}",
                app_id=run.app_id,
                files=[where],
            ) from damaged

    def _announce(self, files: list[str]) -> Pushed:
        found, missing = self._zone.find(self._zone.store.uri(path) for path in files)
        # All were there when the batch was committed: those that are missing have landed, and were deleted.
        return self._zone.announce(found, missing) if found else Pushed(0, 0)


def _commit_path(run: QueryRun, batch_id: int) -> str:
    return f"staged/{run.app_id}/{batch_id:012}.json"
