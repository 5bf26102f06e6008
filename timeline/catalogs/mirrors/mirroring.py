"""Let a table in a catalog name the newest version file of a table at a location, for reading (R36).

::

    note      the version that is to be named, durable before the catalog names it
    look      list the versions: the noted one is still among the last hundred
    move      the catalog's pointer, from the version that it names, which is of this table, to the noted one
    look      list the notes: a later one is another process', whose version is named then
    forget    the notes on earlier versions

Each step may be the last of a process; the next call begins with the first and does all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchNamespaceError
from pyiceberg.typedef import Identifier

from timeline.catalogs.answers import is_access_refused, is_refusal, unclear
from timeline.catalogs.mirrors.forgetting import take_back
from timeline.catalogs.mirrors.whose import check_is_of, find_version
from timeline.changes.mirror_changes import AddMirror
from timeline.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    MirrorForkedError,
    StoreUnavailableError,
    TableNotFoundError,
    TimelineError,
    UnsupportedTableError,
)
from timeline.names import mirror_fork_path, version_path
from timeline.retention import policy
from timeline.retention.mirrored import MirrorNote, mirror_digest, notes_of_mirror, write_fork
from timeline.slots.retrying import StillUnknownError, until_known
from timeline.stores.base import Store
from timeline.table import Table
from timeline.versions.mirrors import mirrors_of

_PATIENCE_SECONDS = 20.0
_SLEPT_MS = 60_000
"""A process that has taken so long to move a mirror may have slept, and looks whether the version is old."""


class PointerCatalog(Protocol):
    """A catalog, by the place of each table's metadata file."""

    def read_pointer(self, identifier: Identifier) -> str | None:
        """Return the place, "" where it is no table of Iceberg; None where there is no table of this name."""

    def begin_pointer(self, identifier: Identifier, place: str) -> None:
        """Make a table of a metadata file. TableAlreadyExistsError where there is one of this name."""

    def move_pointer(self, identifier: Identifier, base: str, place: str) -> None:
        """Move the pointer from one metadata file to another, comparing the first where the catalog can."""

    def drop_table(self, identifier: Identifier) -> None:
        """Remove a table from the catalog, without its files."""

    def create_namespace(self, namespace: Identifier) -> None:
        """Create a namespace. NamespaceAlreadyExistsError where it is there."""


class Mirrored(NamedTuple):
    """What a call came to."""

    version: int
    """The version that the catalog names."""
    moved: bool
    """Whether this call has moved it there."""


@dataclass
class Mirror:
    """The table of a catalog that names versions of one table at a location. Not safe for several threads."""

    name: str
    """How reports call it."""
    identifier: Identifier
    catalog: PointerCatalog
    creates_namespace: bool = False
    _ours: tuple[str, int] | None = field(default=None, repr=False)
    """The table, and the version that the last call has left: the catalog named it, and one note said so."""
    _refused: str = field(default="", repr=False)
    """Why the catalog cannot have mirrors, where it has said so: it is not asked for each batch."""
    _may_move: bool = field(default=False, repr=False)
    """A request of this call to move the mirror got no clear answer: it may have its effect, or have it
    later.
    """

    def bring_up(self, table: Table) -> Mirrored:
        """Have the catalog name the newest version of a table, or a later one that another process has seen.

        The table is refreshed, and its first call makes a version, which says that it has the mirror. Raises
        MirrorForkedError, TableNotFoundError for a namespace that is not there and is not to be created,
        UnsupportedTableError where the catalog cannot have mirrors, CommitStateUnknownError where it gives no
        clear answer, StoreUnavailableError where it refuses access, and else as `Table.commit`. A call that
        failed is completed by the next one.
        """
        if self._refused:
            raise UnsupportedTableError(self._refused)
        table.refresh()
        self._may_move = False
        environment, moved = table.log.environment, list[int]()
        try:
            while True:
                known = len(moved)
                try:
                    give_up_at = environment.monotonic() + _PATIENCE_SECONDS
                    return until_known(environment, give_up_at)(self._move, table, moved)
                except StillUnknownError as failure:
                    if len(moved) > known:
                        continue  # one that slept may have set the mirror back: it looks again
                    if is_access_refused(failure.__cause__) and not (moved or self._may_move):
                        raise StoreUnavailableError(
                            f"the catalog refuses access to the mirror {self.name}, which was not moved by"
                            " this call: give its user the right to read, create and change the table there,"
                            " or mirror this one no more (`streaming-sink mirror --forget`):"
                            f" {table.store.location}: {failure.__cause__}",
                            location=table.store.location,
                        ) from failure
                    raise CommitStateUnknownError(
                        f"it is not known which version the mirror {self.name} names. The next call finds"
                        f" out: {table.store.location}: {failure.__cause__}",
                        location=table.store.location,
                    ) from failure
        except MirrorForkedError as fork:
            with suppress(StoreUnavailableError):
                write_fork(table.store, self._digest(table), self.name, str(fork))
            raise

    def drop(self, store: Store) -> bool:
        """Remove the mirror of a table from the catalog, where it is there. Return whether it was. The
        version that it names may be of a table that was there before.

        A catalog drops what has the name: what it names is looked at just before. MirrorForkedError,
        StoreUnavailableError.
        """
        try:
            with self._answered():
                place = self.catalog.read_pointer(self.identifier)
                if place is None:
                    return False
                find_version(self.name, store, place)
                self.catalog.drop_table(self.identifier)
        except StillUnknownError as failure:
            raise StoreUnavailableError(
                f"the catalog does not say whether it has dropped the mirror {self.name}. Try again:"
                f" {failure.__cause__}",
                location=store.location,
            ) from failure
        return True

    def _move(self, table: Table, moved: list[int]) -> Mirrored:
        """Do one round of the steps. StillUnknownError where another one is to decide. `moved` gets the
        version that the catalog was moved to.
        """
        store, digest, uuid = table.store, self._digest(table), str(table.head.metadata.table_uuid)
        now_ms, began_ms = table.log.environment.now_ms, table.log.environment.now_ms()
        with self._answered():
            place = self.catalog.read_pointer(self.identifier)
        if not self._is_stated(table):  # of a catalog that answers
            with suppress(CommitConflictError):  # another process was first
                table.commit([AddMirror(self.name)])
        with self._answered():
            at = 0 if place is None else check_is_of(self.name, store, table.head, place, self._ours)
            if at > table.head.number and at > table.refresh().number:
                raise MirrorForkedError(
                    f"the mirror {self.name} names version {at} of the table, and its newest is"
                    f" {table.head.number}: the table was restored from an older copy. Nothing was changed;"
                    f" drop the mirror in its catalog, and the next commit makes it anew: {store.location}",
                    **table.head.where,
                )
            is_as_left, self._ours = self._ours == (uuid, at), None
            if at < table.head.number:
                newest = table.head.number
                found = None if is_as_left else _later_note(store, digest, range(at + 1, newest + 1))
                at = self._note(table, found).version
                self._move_to(table, place, store.uri(version_path(at)))
                moved.append(at)
                if at < newest:
                    raise StillUnknownError from CommitConflictError(f"an earlier call was to name {at}")
                if (
                    now_ms() - began_ms > _SLEPT_MS
                    and table.refresh().number - at >= policy.VERSIONS_ALWAYS_KEPT
                ):
                    raise StillUnknownError from CommitConflictError(f"{at} was named late")
            elif not is_as_left:
                self._note(table, None)
        notes = notes_of_mirror(store, digest)
        latest = max((each.version for each in notes), default=at)
        if latest > at and latest <= table.refresh().number:
            raise StillUnknownError from CommitConflictError(f"another process names {latest}")
        if not self._is_stated(table) or at not in {each.version for each in notes}:
            table.refresh()
            raise StillUnknownError from CommitConflictError("another process has forgotten the mirror")
        earlier = [each.path for each in notes if each.version < at]
        with suppress(StoreUnavailableError):  # they hold what they name for a day
            store.delete([*earlier, mirror_fork_path(digest)])
        self._ours = uuid, at
        return Mirrored(at, bool(moved))

    def _note(self, table: Table, found: MirrorNote | None) -> MirrorNote:
        """Return the note on the version that is to be named, which no cleaner has missed: one that was
        found, or a new one. So calls that fail again and again leave one note, and not one for each version.
        """
        for note in (found, None):
            if note is None:
                head = table.head
                note = MirrorNote(self._digest(table), head.number, head.metadata.last_updated_ms)
                table.store.overwrite(note.path, json.dumps({"mirror": self.name}).encode())
            if note.version > table.refresh().number - policy.VERSIONS_ALWAYS_KEPT:
                return note
        raise StillUnknownError from CommitConflictError("the table has grown by a hundred versions since")

    def _is_stated(self, table: Table) -> bool:
        return self.name in mirrors_of(table.head.properties)

    def _digest(self, table: Table) -> str:
        return mirror_digest(self.name, table.head.metadata.table_uuid)

    def _move_to(self, table: Table, base: str | None, place: str) -> None:
        try:
            with self._answered():
                if base is None:
                    self._begin(place)
                else:
                    self.catalog.move_pointer(self.identifier, base, place)
        except StillUnknownError as failure:
            cause = failure.__cause__
            self._may_move |= not (isinstance(cause, Exception) and is_refusal(cause))
            raise
        except UnsupportedTableError as refusal:
            if base is None:  # nothing is there to be kept
                take_back(table, self.name)
                self._refused = str(refusal)
            raise

    def _begin(self, place: str) -> None:
        if self.creates_namespace:
            with suppress(NamespaceAlreadyExistsError):
                self.catalog.create_namespace(self.identifier[:-1])
        try:
            self.catalog.begin_pointer(self.identifier, place)
        except NoSuchNamespaceError as absent:
            raise TableNotFoundError(
                f"the catalog has no namespace {'.'.join(self.identifier[:-1])}: create it there, or say"
                " create_namespace=True"
            ) from absent

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """Raise StillUnknownError for answers of the catalog after which it is to be looked at again."""
        try:
            yield
        except (TimelineError, StillUnknownError):
            raise
        except NotImplementedError as refusal:
            raise UnsupportedTableError(
                f"the catalog cannot have mirrors, since it does not register tables: {self.name}: {refusal}"
            ) from refusal
        except Exception as failure:
            if is_refusal(failure) or isinstance(failure, unclear()):
                raise StillUnknownError from failure
            raise


def _later_note(store: Store, digest: str, versions: range) -> MirrorNote | None:
    """Return the note of another call that is to name one of these versions, or was; None where there is
    none.
    """
    return next((note for note in reversed(notes_of_mirror(store, digest)) if note.version in versions), None)
