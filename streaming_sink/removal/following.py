"""A purge and the change log of its table: the log has all changes before, and gets none of the purge's."""

from __future__ import annotations

from functools import partial

from streaming_sink.reading.pieces import Piece, changed_pieces
from streaming_sink.tasks.files.delete_files import read_deletes_in
from timeline.changes.follow_changes import Follow, followed, following
from timeline.clock import Environment
from timeline.errors import CheckpointRegressionError, CommitConflictError
from timeline.table import Table

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


def _missing(main: Table, after: int) -> list[Piece] | None:
    """Return what the versions after one have changed; None where that has expired, or cannot be shown."""
    main.refresh()
    named_in = partial(read_deletes_in, main.store)
    try:
        return main.on_head(lambda head: changed_pieces(head, after + 1, head.number, named_in, purges=False))
    except ValueError:
        return None


def _uuid(main: Table) -> str:
    return str(main.head.metadata.table_uuid)
