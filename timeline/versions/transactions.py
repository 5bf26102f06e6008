"""Exactly-once: the last batch of each application, and the checks that its next batch must pass (R16)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from timeline.errors import CheckpointRegressionError, CorruptTableError, FencedError
from timeline.properties import TRANSACTION_PREFIX


@dataclass(frozen=True, slots=True)
class TransactionState:
    """The last batch that an application committed, as the head's properties hold it."""

    query_id: str | None
    """None if an earlier release wrote it on Spark Connect, which did not show it."""
    run_id: str
    epoch: int
    batch: int
    commit: str

    def to_property(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_property(cls, text: str) -> TransactionState:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Transaction:
    """The batch that a commit carries: who commits it, and as which run.

    `epoch` is None until the run's first commit, which is given one; later commits of the run pass it back.
    A commit that prepares a batch, without its rows, passes the same checks and `records` nothing: the batch
    is still to come.
    """

    app_id: str
    query_id: str
    run_id: str
    batch: int
    epoch: int | None = None
    takeover_from: str | None = None
    records: bool = True

    @property
    def key(self) -> str:
        return TRANSACTION_PREFIX + self.app_id

    @property
    def preparing(self) -> Transaction:
        """What a commit carries that prepares the batch, without its rows."""
        return replace(self, records=False)

    def check(self, properties: Mapping[str, str]) -> int | None:
        """Return the epoch to commit the batch under; None where it is committed. As `check_transaction`."""
        return check_transaction(state_of(properties, self.app_id), self)

    def record(self, properties: dict[str, str], epoch: int, commit_id: str) -> None:
        """Remember the batch as the last one of its application (R16), if it is recorded."""
        if self.records:
            state = TransactionState(self.query_id, self.run_id, epoch, self.batch, commit_id)
            properties[self.key] = state.to_property()

    def epoch_after_skip(self, properties: Mapping[str, str]) -> int | None:
        """Return the epoch that the run continues with when this batch was skipped."""
        return epoch_after_skip(state_of(properties, self.app_id), self)


def state_of(properties: Mapping[str, str], app_id: str) -> TransactionState | None:
    """Return the last batch of an application, or None if it never committed here."""
    text = properties.get(TRANSACTION_PREFIX + app_id)
    if text is None:
        return None
    try:
        return TransactionState.from_property(text)
    except (ValueError, TypeError) as failure:
        raise CorruptTableError(
            f"what the table remembers of application {app_id!r} cannot be read, so whether its batch is in"
            f" is not known; nothing was changed. Restore the newest version from a copy: {text[:200]!r}",
            app_id=app_id,
        ) from failure


def check_transaction(state: TransactionState | None, txn: Transaction) -> int | None:
    """Return the epoch to commit the batch under, or None where the batch is committed already and must be
    skipped.

    The order of the checks is the rule: a fresh checkpoint under a used name is refused before numbers are
    looked at, since a number that happens to be equal would be skipped and its rows lost in silence. For the
    same reason, where the table does not know which query committed, an equal number is skipped only for a
    caller who says by `takeover_from` that the query was this very one.

    Raises CheckpointRegressionError for another query's checkpoint or a lower batch number, and FencedError
    where a newer run has committed since this run's last commit.
    """
    if state is None:
        return 1 if txn.epoch is None else txn.epoch
    if _is_another_query(state, txn):
        if txn.epoch is not None:
            raise _fenced(state, txn)
        if txn.takeover_from != state.query_id:
            raise CheckpointRegressionError(
                f"application {txn.app_id!r} has committed to this table as query {state.query_id}, and this"
                f" is query {txn.query_id}: a fresh or another checkpoint would ingest rows again or skip"
                " them. Nothing was written. Restart on the old checkpoint; or choose another app_id; or, if"
                f" this checkpoint continues where the old one ended, pass takeover_from={state.query_id!r}",
                app_id=txn.app_id,
                batch=txn.batch,
            )
        return state.epoch + 1
    if txn.batch == state.batch and state.query_id is None and txn.takeover_from != txn.query_id:
        raise CheckpointRegressionError(
            f"application {txn.app_id!r} has committed batch {state.batch} to this table as a query that is"
            f" not known, and this is batch {txn.batch} of query {txn.query_id}: the number alone does not"
            " show whether these rows are in the table. Nothing was written. If it was this very checkpoint,"
            f" pass takeover_from={txn.query_id!r}, its own id, and the batch is skipped; else choose another"
            " app_id",
            app_id=txn.app_id,
            batch=txn.batch,
        )
    if txn.batch == state.batch:
        return None
    if txn.batch < state.batch:
        raise CheckpointRegressionError(
            f"application {txn.app_id!r} has committed batch {state.batch}, and this is batch {txn.batch}:"
            " the checkpoint is older than the table. Nothing was written. Restart on the checkpoint that"
            f" wrote batch {state.batch}, or choose another app_id to ingest again",
            app_id=txn.app_id,
            batch=txn.batch,
        )
    if txn.epoch is None:
        return state.epoch + 1
    if (state.epoch, state.run_id) != (txn.epoch, txn.run_id):
        raise _fenced(state, txn)
    return txn.epoch


def epoch_after_skip(state: TransactionState | None, txn: Transaction) -> int | None:
    """Return the epoch that a run continues with when its batch was skipped.

    A run whose answer was lost learns here that the commit is its own. Without that it would pass for a new
    run with its next batch, and supersede a newer one.
    """
    if txn.epoch is None and state is not None and state.run_id == txn.run_id:
        return state.epoch
    return txn.epoch


def _is_another_query(state: TransactionState, txn: Transaction) -> bool:
    return state.query_id is not None and state.query_id != txn.query_id


def _fenced(state: TransactionState, txn: Transaction) -> FencedError:
    return FencedError(
        f"a newer run of application {txn.app_id!r} has taken over this table: run {state.run_id} has epoch"
        f" {state.epoch}, this run {txn.run_id} had epoch {txn.epoch}. This run must stop; the rows that it"
        " committed are kept. If you did not mean to run it twice, stop the other query; two streams into"
        " one table need distinct app_ids",
        app_id=txn.app_id,
        batch=txn.batch,
    )
