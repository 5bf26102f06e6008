"""The probe of a catalog: it must show, on a scratch table, that it keeps what commits rely on (R33).

Of catalogs that answer one commit after another correctly, some lose acknowledged ones in a race, and some
pass over requirements that they do not know. So each requirement is broken once, and eight commits at a time
race on one base. The table shows what became of a commit; its answer counts only where it promises more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetSnapshotRefUpdate,
)

from timeline.catalogs.answers import is_forbidden, unclear
from timeline.catalogs.clients.store_io import OpenStore
from timeline.catalogs.probing.requirements import as_it_is, broken
from timeline.catalogs.probing.scratch import Scratch, onto_main
from timeline.clock import Environment
from timeline.errors import StoreUnavailableError, UnsafeCatalogError
from timeline.versions.followed import followed_ref

_LOG = logging.getLogger(__name__)
_RACERS = 8
_TABLES = 3
"""Each is raced for twice: while it is empty, and with a snapshot. Nessie 0.99 fails at the first alone."""
_RACES_WITHOUT_A_WINNER = 5
_PREFIX = "streaming_sink_probe_"


@dataclass(frozen=True)
class Capabilities:
    """What a catalog has shown."""

    raced: bool
    """Whether commits have raced; else its requirements alone were tried."""
    keeps_both: bool
    """Whether two snapshots of one commit are kept, with their parents."""
    removes_snapshots: bool
    keeps_tags: bool


def probe_catalog(
    connect: Callable[[], Catalog],
    identifier: tuple[str, ...],
    open_store: OpenStore,
    environment: Environment,
) -> Capabilities:
    """Try what commits rely on, beside a table of the catalog, and return what it has shown.

    UnsafeCatalogError where it would lose acknowledged rows; StoreUnavailableError where it does not answer.
    Where it allows no scratch table, its requirements are tried on the table itself, by changes that change
    nothing, and no race is run.
    """
    catalogs = [connect() for _ in range(_RACERS)]
    drawn = f"{environment.random.getrandbits(60):015x}"
    scratches = [
        Scratch(catalogs[0], (*identifier[:-1], f"{_PREFIX}{drawn}_{number}"), environment, open_store)
        for number in range(_TABLES)
    ]
    try:
        try:
            created = scratches[0].create()
        except Exception as refusal:
            if not is_forbidden(refusal):
                raise
            beside = Scratch(catalogs[0], identifier, environment, open_store)
            return _try_requirements_alone(beside, refusal)
        _race(scratches[0], created, None, catalogs)
        for scratch in scratches[1:]:
            _race(scratch, scratch.create(), None, catalogs)
        for scratch in scratches:
            base = scratch.load()
            _race(scratch, base, base.current_snapshot(), catalogs)
        _check_requirements(scratches[0])
        keeps_both = _keeps_both(scratches[0])
        removes_snapshots = _removes_snapshots(scratches[0])
        return Capabilities(True, keeps_both, removes_snapshots, _keeps_tags(scratches[0]))
    except unclear() as failure:
        raise StoreUnavailableError(f"the catalog does not answer its probe: {failure}") from failure
    finally:
        for scratch in scratches:
            scratch.drop()


def _race(scratch: Scratch, base: TableMetadataV2, main: Snapshot | None, catalogs: list[Catalog]) -> None:
    """Let commits race on one base. One may win, and it must be there."""
    for _ in range(_RACES_WITHOUT_A_WINNER):
        sent = [scratch.snapshot(main) for _ in catalogs]

        def send(place: int) -> bool:
            updates = onto_main(sent[place])  # noqa: B023 - the race ends within the turn
            return scratch.send(base, as_it_is(base), *updates, catalog=catalogs[place]) is None

        with ThreadPoolExecutor(len(catalogs), thread_name_prefix="probe") as pool:
            promised = list(pool.map(send, range(len(catalogs))))
        after = scratch.load()
        there = {snapshot.snapshot_id for snapshot in after.snapshots}
        landed = [it.snapshot_id for it in sent if it.snapshot_id in there]
        on = "an empty table" if main is None else "a table with a snapshot"
        if sum(promised) > 1 or len(landed) > 1:
            raise _unsafe(
                f"of {len(sent)} commits that raced on {on}, {sum(promised)} were acknowledged, and"
                f" {len(landed)} are in the table: acknowledged rows of writers that meet would be lost"
            )
        if any(ok and it.snapshot_id not in there for ok, it in zip(promised, sent, strict=True)):
            raise _unsafe(f"a commit on {on} was acknowledged, and is not there: its rows would be lost")
        if main is not None and main.snapshot_id not in there:
            raise _unsafe(
                "a commit drops the snapshots from before it, which nothing has expired: whether a commit"
                " without an answer has landed could not be decided, and its rows would be doubled or lost"
            )
        if landed:
            return
    raise StoreUnavailableError(
        f"of {_RACES_WITHOUT_A_WINNER} times {len(catalogs)} commits to a new table of the probe's none"
        " has landed; nothing was written: may this user commit to tables that it makes?"
    )


def _check_requirements(scratch: Scratch) -> None:
    """Break each requirement in turn: a commit that has it must not land."""
    base = scratch.load()
    main = base.current_snapshot()
    assert main is not None
    for what, lost, requirements in broken(base):
        sent = scratch.snapshot(main)
        promised = scratch.send(base, requirements, *onto_main(sent)) is None
        if promised or scratch.load().snapshot_by_id(sent.snapshot_id) is not None:
            raise _unsafe(f"it passes over {what}: {lost}")
    taken = scratch.snapshot(main, number=main.sequence_number)
    promised = scratch.send(base, as_it_is(base), *onto_main(taken)) is None
    if promised or scratch.load().snapshot_by_id(taken.snapshot_id) is not None:
        raise _unsafe("it takes a sequence number twice: deletes would apply to rows that came after them")


def _keeps_both(scratch: Scratch) -> bool:
    """Return whether an append and a replace in one commit are both kept."""
    base = scratch.load()
    append = scratch.snapshot(base.current_snapshot())
    replace = scratch.snapshot(append, operation=Operation.REPLACE)
    scratch.send(base, as_it_is(base), AddSnapshotUpdate(snapshot=append), *onto_main(replace))
    after = scratch.load()
    kept = [after.snapshot_by_id(it.snapshot_id) for it in (append, replace)]
    return after.current_snapshot_id == replace.snapshot_id and all(
        it is not None
        and (it.parent_snapshot_id, it.sequence_number, it.timestamp_ms)
        == (sent.parent_snapshot_id, sent.sequence_number, sent.timestamp_ms)
        for it, sent in zip(kept, (append, replace), strict=True)
    )


def _removes_snapshots(scratch: Scratch) -> bool:
    base = scratch.load()
    oldest = min(base.snapshots, key=lambda it: it.sequence_number or 0).snapshot_id
    scratch.send(base, as_it_is(base), RemoveSnapshotsUpdate(snapshot_ids=[oldest]))
    after = scratch.load()
    left = {it.snapshot_id for it in base.snapshots} - {it.snapshot_id for it in after.snapshots}
    return left == {oldest} and after.current_snapshot_id == base.current_snapshot_id


def _keeps_tags(scratch: Scratch) -> bool:
    """Return whether a commit may set a tag beside main, with the age at which it ends."""
    base = scratch.load()
    sent, ref = scratch.snapshot(base.current_snapshot()), followed_ref(base.current_snapshot_id or 0)
    absent = AssertRefSnapshotId(ref=_PREFIX, snapshot_id=None)
    tagged = SetSnapshotRefUpdate(
        ref_name=_PREFIX,
        type=ref.snapshot_ref_type,
        snapshot_id=ref.snapshot_id,
        max_ref_age_ms=ref.max_ref_age_ms,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    scratch.send(base, (*as_it_is(base), absent), *onto_main(sent), tagged)
    after = scratch.load()
    return after.current_snapshot_id == sent.snapshot_id and after.refs.get(_PREFIX) == ref


def _try_requirements_alone(table: Scratch, refusal: Exception) -> Capabilities:
    """Send changes that change nothing to the table itself, each under a requirement that does not hold."""
    base = table.load()
    nothing = SetCurrentSchemaUpdate(schema_id=base.current_schema_id)
    said = table.send(base, as_it_is(base), nothing)
    if said is not None and as_it_is(table.load()) == as_it_is(base):
        raise StoreUnavailableError(
            f"the catalog allows neither a scratch table for its probe ({refusal}) nor a commit to the table"
            f" ({said}); nothing was written"
        ) from refusal
    for what, lost, requirements in broken(base):
        if table.send(base, requirements, nothing) is None:
            raise _unsafe(f"it passes over {what}: {lost}")
    _LOG.warning(
        "the catalog allows no scratch table beside %s, so no race of commits was run: %s",
        ".".join(table.identifier),
        refusal,
    )
    return Capabilities(raced=False, keeps_both=False, removes_snapshots=False, keeps_tags=False)


def _unsafe(why: str) -> UnsafeCatalogError:
    return UnsafeCatalogError(
        f"the catalog is not safe to write through: {why}. Nothing was written; use another catalog, or a"
        " table at a location"
    )
