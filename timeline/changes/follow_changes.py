"""The kinds of change of a table that follows another one, version by version, such as a change log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from timeline import properties
from timeline.changes.changes import Append, Beside, Change, Over
from timeline.drafts.draft import Draft
from timeline.errors import CommitConflictError
from timeline.versions.followed import followed_ref, followed_tag
from timeline.versions.head import Head
from timeline.versions.outbox import second_tables_of, second_tables_to_property
from timeline.versions.transactions import Transaction

_QUERY = "follow"


def follower_app(main_uuid: str) -> str:
    """Return the name under which a table remembers up to which version it has followed a main table."""
    return f"follow.{main_uuid}"


def following(main_uuid: str, number: int) -> Transaction:
    """Return the transaction of a commit that follows a main table up to a version. It has no epoch, so that
    any process may follow; the numbers alone decide what is in already.
    """
    return Transaction(follower_app(main_uuid), _QUERY, _QUERY, number)


def followed(follower: Head, main_uuid: str) -> int | None:
    """Return the version up to which a table has followed a main table; None where it has not begun."""
    state = follower.transaction(follower_app(main_uuid))
    return None if state is None else state.batch


@dataclass(frozen=True)
class Follow(Append):
    """Append what the versions of a main table after `after` have made, up to the number of the commit's
    transaction, which is that of `follower_app`. None of them may be missing or twice: CommitConflictError
    where the table has followed the main one to another version since.
    """

    over: ClassVar[Over] = Over(
        schema="checked again",
        others="refused",
        when="where others have followed the main table first",
    )

    main_uuid: str
    after: int | None
    """The version up to which the table had followed; None where it begins."""

    def find_conflict(self, head: Head, schema_id: int, beside: Beside) -> str | None:  # noqa: ARG002 - as the base
        now = followed(head, self.main_uuid)
        if now != self.after:
            raise CommitConflictError(
                f"another process has followed the main table to version {now}, and this one begins after"
                f" {self.after}; nothing of it is live: {head.metadata.location}",
                **head.where,
                files=[file.file_path for file in self.files],
            )
        return None


@dataclass(frozen=True)
class NameSecondTable(Change):
    """State that another table has copies of this one's rows, so that a purge looks there too."""

    location: str
    """Its address."""
    table_uuid: str | None = None

    def find_idleness(self, head: Head) -> str | None:
        known = second_tables_of(head.properties)
        is_named = self.location in known and known[self.location] in (None, self.table_uuid)
        return "it is named" if is_named else None

    def apply(self, draft: Draft) -> None:
        known = second_tables_of(draft.properties)
        draft.properties[properties.SECOND_TABLES] = second_tables_to_property(
            known | {self.location: self.table_uuid}
        )


@dataclass(frozen=True)
class HoldFollowed(Change):
    """Let a tag of a change log hold what main is by this commit, which the log follows at once. The next
    changes are read against it: rows that leave are in its files. Advice: without it the log may stop.
    """

    log_uuid: str

    def find_idleness(self, head: Head) -> str | None:  # noqa: ARG002 - as the base
        return "it goes with other changes alone"

    def apply(self, draft: Draft) -> None:
        if draft.holds_followed and draft.parent_id is not None:
            ref = followed_ref(draft.parent_id)
            draft.update_metadata(refs={**draft.metadata.refs, followed_tag(self.log_uuid): ref})


@dataclass(frozen=True)
class ReleaseFollowed(Change):
    """Remove tags of change logs, for a purge. The next batches set them again."""

    tags: tuple[str, ...]

    def apply(self, draft: Draft) -> None:
        for tag in self.tags:
            draft.drop_ref(tag)
