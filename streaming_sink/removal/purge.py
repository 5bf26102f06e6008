"""`purge`: rows of some keys leave the bytes of a table and its second tables. The change log of the table
has all changes before, and gets none of the purge's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from streaming_sink.durations import Duration, duration
from streaming_sink.options.values.tables import AnyTable, KnownTable, as_table
from streaming_sink.reading.pieces import changed_pieces
from streaming_sink.removal.leftovers import LeftoverKind
from streaming_sink.removal.matching import find_key_columns, is_own_key, matcher_of
from streaming_sink.removal.report import PurgeReport
from streaming_sink.removal.table_purge import WAITS, TablePurge
from streaming_sink.removal.tables import (
    CHANGE_LOG,
    MAIN,
    matcher_of_second,
    open_seconds,
    opener_beside,
    role_of,
    undelivered,
)
from streaming_sink.removal.wanted import WantedKeys
from streaming_sink.tasks.files.change_task import ChangedRows
from streaming_sink.tasks.files.delete_files import read_deletes_in
from timeline.changes.follow_changes import Follow, followed, following
from timeline.changes.outbox_changes import PutOutbox
from timeline.clock import Environment
from timeline.errors import CheckpointRegressionError, CommitConflictError
from timeline.outbox import OpenTable, deliver_all
from timeline.table import Table
from timeline.versions.keys import key_of
from timeline.versions.outbox import outbox_apps

_PACE_SECONDS = 10.0
"""While a purge waits it looks at its tables so often, and makes a version where no other writer has."""


def purge(
    table: AnyTable,
    keys: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    also: Sequence[str] = (),
    dry_run: bool = False,
    wait: Duration | None = None,
) -> PurgeReport:
    """Remove the rows of some keys from the bytes of a table, of its quarantine, its change logs, and of
    `also`.

    Live rows are deleted, and every live file that holds rows of the keys is rewritten without them, as a
    version. Older snapshots that have the old files expire as soon as the protocol allows, which ends time
    travel to them; the old files are deleted after the grace period (R7), orphans behind the fence (R6). So
    one call mostly leaves something until later: `left` of each of the report's `tables` says what, and until
    when. Call it again then, or let it `wait` so long at most: it makes a version every ten seconds where no
    other writer does. `check_gone` judges the result.

    Writers may go on, and a call that was killed is continued by the next one. A key maps each of its columns
    to a value, and one may be given alone; of a table with a key they are its columns.

    In a catalog a purge asks that the snapshots of other engines on main expire too which have such rows, and
    never the one that an engine remembers its commits by. What other engines have written is theirs to
    delete, and `left` says so.

    ValueError where a tag, a branch, a staged snapshot or one beside main keeps such rows, or for columns
    that are not the table's key; UnsupportedTableError where a catalog removes no snapshots, keeps one of a
    commit, or has files stay. Nothing was changed then. Raises as `check_gone`, and as a batch does.
    """
    most = None if wait is None else duration("wait", wait)
    job = Purge.open(as_table(table), WantedKeys.of(keys), also)
    if dry_run:
        return job.report(dry_run=True)
    job.run()
    if most is not None:
        job.wait(most.total_seconds())
    return job.report()


class Purge:
    """The purge of a table and its second tables, step by step."""

    def __init__(
        self,
        main: Table,
        tables: Sequence[TablePurge],
        keys: int,
        open_at: OpenTable,
        environment: Environment,
    ) -> None:
        self._main = main
        self._tables = tables
        self._keys = keys
        self._open = open_at
        self._environment = environment

    @classmethod
    def open(
        cls,
        place: KnownTable,
        wanted: WantedKeys,
        also: Sequence[str] = (),
        open_table: OpenTable | None = None,
    ) -> Purge:
        """Open the tables, by `open_table` where it is given. Errors as for `purge`; only reads."""
        open_at = opener_beside(place) if open_table is None else open_table
        main = open_at(place.address)
        key = key_of(main.head.properties)
        if key is not None and not is_own_key(wanted, main.head):
            raise ValueError(
                f"the table has the key {key.describe(main.head.schema)}: name keys by its columns, not by"
                f" {', '.join(wanted.names)}, so that no older change brings a row back"
            )
        matcher = matcher_of(wanted, main.head)
        columns = None if key is None else find_key_columns(wanted, main.head)
        tables = [TablePurge(main, MAIN, matcher, columns, open_at, tuple)]
        for second in open_seconds(main, place, also, open_at):
            of_second = matcher_of_second(wanted, main, second)

            def named(second: Table = second) -> set[str]:
                return undelivered(main, second)

            tables.append(TablePurge(second, role_of(second), of_second, None, open_at, named))
        return cls(main, tables, len(wanted), open_at, main.log.environment)

    def report(self, *, dry_run: bool = False) -> PurgeReport:
        """Return what was done until now, and what is left."""
        return PurgeReport(
            keys=self._keys, dry_run=dry_run, tables=tuple(each.report() for each in self._tables)
        )

    def run(self) -> None:
        """Do all that can be done now. ValueError where rows are pinned; nothing was changed then."""
        for each in self._tables:
            each.check_rows_can_leave()
            each.check_nothing_pins(each.look())
        logs = [each.table for each in self._tables[1:] if each.role == CHANGE_LOG]
        for log in logs:
            await_followed(log, self._main, self._environment)
        self._deliver()
        for each in self._tables:
            each.clean(each.rewrite())
        for log in logs:
            skip_purges(log, self._main)

    def wait(self, seconds: float) -> None:
        """Go on until nothing is left that leaves by itself, for so many seconds at most."""
        environment = self._environment
        end = environment.monotonic() + seconds
        seen = {each.table.store.location: each.table.refresh().number for each in self._tables}
        waiting = list(self._tables)
        while environment.monotonic() < end:
            left = {each.table.store.location: each.look() for each in waiting}
            waiting = [each for each in waiting if left[each.table.store.location].of(*WAITS)]
            if not waiting:
                return
            environment.sleep(min(_PACE_SECONDS, max(0.0, end - environment.monotonic())))
            for each in waiting:
                place = each.table.store.location
                if each.table.refresh().number == seen[place]:
                    each.pass_time(left[place])
                live = left[place].of(LeftoverKind.LIVE, LeftoverKind.DELETED)
                each.clean(each.rewrite() if live else left[place])
                seen[place] = each.table.refresh().number

    def _deliver(self) -> None:
        """Deliver what commits have left for second tables, and forget the entries: they state bounds."""
        if len(self._tables) == 1:
            return
        places = {each.table.log.address: each.table for each in self._tables}
        main = self._main
        deliver_all(main, lambda place: places.get(place) or self._open(place))
        main.refresh()
        for app_id in outbox_apps(main.head.properties):
            entry = main.head.outbox(app_id)
            if entry is not None and not any(undelivered(main, each.table) for each in self._tables[1:]):
                try:
                    main.commit([PutOutbox(app_id, (), entry.sequence)])
                except CommitConflictError:
                    continue  # the stream has put a new one, which the next purge delivers


_PATIENCE_SECONDS = 30.0
"""The stream appends to its change log right after each commit; beside one that goes on, most calls come
between the two.
"""
_LOOK_AGAIN_SECONDS = 0.5


def await_followed(log: Table, main: Table, environment: Environment) -> None:
    """Wait until the change log has the versions that the main table has now, as a stream that runs appends
    them in a moment: the purge would expire them. Versions that come while it waits are for that stream.

    ValueError where they are not there after half a minute; nothing was changed then. No wait where the log
    is of another table, or where it cannot follow any more: no row stays for the sake of an abandoned log.
    """
    number, until = main.refresh().number, environment.monotonic() + _PATIENCE_SECONDS
    while True:
        after = followed(log.refresh(), _uuid(main))
        if after is None or after >= number:
            return
        missing = [each for each in _missing(main, after) or () if each.version <= number]
        if not missing:
            return
        if environment.monotonic() >= until:
            raise ValueError(
                f"version {missing[0].version} of the table is not in its change log yet, and this purge"
                " would expire it; nothing was changed. Start the stream, whose next batch appends it, and"
                f" purge again: {log.store.location}"
            )
        environment.sleep(_LOOK_AGAIN_SECONDS)


def skip_purges(log: Table, main: Table) -> None:
    """Have the log go on after the versions of a purge, which may expire before the stream comes to them."""
    after = followed(log.refresh(), _uuid(main))
    number = main.refresh().number
    if after is None or after >= number or _missing(main, after) != []:
        return  # a stream has committed since, and its next batch goes over all of them
    try:
        log.commit(
            [Follow((), _uuid(main), after)],
            transaction=following(_uuid(main), number),
        )
    except (CommitConflictError, CheckpointRegressionError):
        return  # a stream has followed further


def _missing(main: Table, after: int) -> list[ChangedRows] | None:
    """Return what the versions after one have changed; None where that has expired, or cannot be shown."""
    main.refresh()
    named_in = partial(read_deletes_in, main.store)
    try:
        return main.on_head(lambda head: changed_pieces(head, after + 1, head.number, named_in, purges=False))
    except ValueError:
        return None


def _uuid(main: Table) -> str:
    return str(main.head.metadata.table_uuid)
