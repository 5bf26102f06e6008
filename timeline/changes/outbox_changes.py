"""The kinds of change of an outbox (R24): in the main table an entry, in the second table its delivery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyiceberg.manifest import DataFile

from timeline import features, properties
from timeline.changes.changes import Append, Beside, Change, Over
from timeline.drafts.draft import Draft
from timeline.errors import CommitConflictError
from timeline.versions.head import Head
from timeline.versions.outbox import (
    Delivery,
    OutboxEntry,
    mains_of,
    mains_to_property,
    second_tables_of,
    second_tables_to_property,
)


@dataclass(frozen=True)
class PutOutbox(Change):
    """Leave files to deliver to second tables, in the place of the application's last entry, which must have
    been delivered. Without deliveries the application has no entry afterwards.

    Each second table must know this table as one that delivers into it (`RegisterMain`) before the first file
    is written below its location, or its cleaner may delete the file. The ids in the files' names must have
    this table's time: its fence refuses them, too, once they are old (R6).

    CommitConflictError where the head holds an entry that the caller does not know to be delivered: deliver
    it, and commit again.
    """

    over: ClassVar[Over] = Over(
        others="refused",
        when="where they put another entry of the application, or raised the fence above its files",
    )

    app_id: str
    deliveries: tuple[Delivery, ...]
    delivered: int | None = None
    """The sequence of the entry that the caller knows to be delivered, if it knows one."""

    @property
    def fenced_files(self) -> tuple[DataFile, ...]:
        return tuple(file for delivery in self.deliveries for file in delivery.files)

    def check(self) -> None:
        for delivery in self.deliveries:
            if not delivery.files:
                raise ValueError(f"a delivery without files; leave it out: {delivery.location}")
        if len({delivery.table_uuid for delivery in self.deliveries}) < len(self.deliveries):
            raise ValueError(
                "two deliveries to one table, of which the second would pass for delivered; make one of them:"
                f" {', '.join(delivery.location for delivery in self.deliveries)}"
            )

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:  # noqa: ARG002 - as the base
        for delivery in self.deliveries:
            if delivery.table_uuid == str(head.metadata.table_uuid):
                raise ValueError(
                    "a table cannot be its own second table. Choose another location for the rows that"
                    f" do not fit: {delivery.location}"
                )
        known = head.outbox(self.app_id)
        if known is not None and known.sequence != self.delivered:
            raise CommitConflictError(
                f"the last commit of application {self.app_id!r} left files to deliver, and this one would"
                " forget them; nothing of it is live. Deliver them, and commit again:"
                f" {', '.join(each.location for each in known.deliveries)}",
                **head.where,
                app_id=self.app_id,
                files=[file.file_path for file in known.files],
            )
        return None

    def find_idleness(self, head: Head) -> str | None:
        if self.deliveries or head.outbox(self.app_id) is not None:
            return None
        return f"application {self.app_id!r} has nothing to deliver, before and after"

    def apply(self, draft: Draft) -> None:
        key = properties.OUTBOX_PREFIX + self.app_id
        if self.deliveries:
            draft.properties[key] = OutboxEntry(draft.now_ms, self.deliveries).to_property()
            known = second_tables_of(draft.properties)
            draft.properties[properties.SECOND_TABLES] = second_tables_to_property(
                known | {each.location: each.table_uuid for each in self.deliveries}
            )
        else:
            draft.properties.pop(key, None)


@dataclass(frozen=True)
class Deliver(Append):
    """Append files that the outbox of a main table names.

    They are not fenced: the cleaner of this table keeps what an outbox names, however old (R24). So this fits
    only while the main table is registered; CommitConflictError otherwise.
    """

    over: ClassVar[Over] = Over(
        schema="checked again",
        others="refused",
        when="where they retired the main table; a raised fence does not matter",
    )

    main_uuid: str

    @property
    def fenced_files(self) -> tuple[DataFile, ...]:
        return ()

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:  # noqa: ARG002 - as the base
        if mains_of(head.properties).get(self.main_uuid) is None:
            raise CommitConflictError(
                f"table {self.main_uuid} is not registered as one that delivers into this table, so that"
                f" the files may be deleted already; nothing of them is live: {head.metadata.location}",
                **head.where,
                files=[file.file_path for file in self.files],
            )
        return None


@dataclass(frozen=True)
class RegisterMain(Change):
    """From this version on the table's cleaner keeps what the outbox of a main table names (R24)."""

    main_uuid: str
    location: str

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:  # noqa: ARG002 - as the base
        mains = mains_of(head.properties)
        if mains.get(self.main_uuid, self.location) is None:
            raise CommitConflictError(
                "this table has retired the one that delivers into it; deliver into a new table:"
                f" {head.metadata.location} has retired {self.main_uuid}, {self.location}",
                **head.where,
            )
        return None

    def find_idleness(self, head: Head) -> str | None:
        if mains_of(head.properties).get(self.main_uuid) == self.location:
            return f"the table is registered: {self.location}"
        return None

    def apply(self, draft: Draft) -> None:
        mains = mains_of(draft.properties) | {self.main_uuid: self.location}
        draft.properties[properties.OUTBOXES] = mains_to_property(mains)
        features.require_feature(draft.properties, features.OUTBOX)


@dataclass(frozen=True)
class RetireMain(Change):
    """From this version on nothing is delivered from a main table, for good: it was dropped."""

    main_uuid: str

    def apply(self, draft: Draft) -> None:
        mains = mains_of(draft.properties) | {self.main_uuid: None}
        draft.properties[properties.OUTBOXES] = mains_to_property(mains)
