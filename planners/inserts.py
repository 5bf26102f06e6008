"""The small-file-aware insert partitioner: which small files a batch fills, and where its other rows are cut.

**always** fills every small file up to the maximum, smallest first, then cuts new files.

**amortized** merges only when the joining bytes repay rewriting. Per partition, with M the maximum, T the
small limit:

* *Seal.* Small files wait, untouched, until some of them together with the new rows reach T (when planning:
  T plus an eighth of M - T, so that an estimate a little too high does not leave the merged file just below
  T). One merge then makes a full file of them. A batch too large to fit is split: the merged file gets what
  fits, a new file the rest.
* *Crowded.* With eight small files and no seal, the batch must merge some. Ordered by size, x1 >= x2 >=
  ..., the files from xi on are merged, for the i with the least xi / (x(i+1) + x(i+2) + ...): the largest
  file is rewritten by those that repay it best. For equal arrivals this is the binomial schedule of Bentley
  and Saxe (J. Algorithms 1, 1980). The new rows join for free, and are not counted on, so a wrong forecast
  cannot make the choice a bad one.

What that bounds, for files that come out as estimated, if T <= 15/16 M and `rows_per_new_file`, where
given, reaches T:

* At most eight small files in a partition after any batch. A partition that comes with more loses a full
  file's worth of them a batch. If a forecast spreads a partition over k tasks and far fewer rows come, there
  are up to k - 1 more until its next batch.
* Data-file bytes written, d and m together, per byte ingested, for a stream whose smallest new file has x
  bytes (an arrival, or what a full file leaves of one): at most

      3 + log2(T / x) * (2 M / x) ** (1/6)

  d costs 1; joining a crowded merge on arrival 1; being sealed 1, since that happens to a byte once. In a
  crowded merge the bytes of x(i+1)... pay for themselves and for xi. Their file at least doubles, so a byte
  pays log2(T / x) times at most; and it pays 1 + xi / (x(i+1) + ...) at most, whose product over the i that
  fit is at most 2 M / x, so that the least is at most the sixth root. Equal arrivals a, exactly known, cost
  at most 2 + t for the least t with C(t + 7, 7) >= T / a: for 10 KB and 100 MiB, 11. Where at most eight
  arrivals fill a file nothing is ever crowded, and the cost is 2.

**never** only cuts new files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planners.model import (
    Arrival,
    Bucket,
    Decision,
    FillVerdict,
    InsertPlan,
    PartitionKey,
    TableFile,
    comparable,
    sort_key,
)
from planners.sizing import (
    SMALL_FILES_AT_MOST,
    FileSizing,
    FillPolicy,
    aim_bytes,
    by_size,
    largest_that_fit,
    refusal,
)
from planners.tiers import best_repaid

SLACK = 32
"""The last bucket that a task has of a partition may outgrow its planned rows by one part in this many, even
where that goes beyond the maximum size."""


@dataclass(frozen=True, slots=True)
class _Cuts:
    """The sizes that one call plans with."""

    max_bytes: int
    small_bytes: int
    aim_bytes: int
    bytes_per_row: int
    rows_per_file: int
    even_splits: bool
    exact: bool

    def room(self, filled_bytes: int) -> int:
        """Return the rows that fit into a file beside these bytes."""
        return (self.max_bytes - filled_bytes) // self.bytes_per_row

    def bytes_beside(self, rows: int) -> int:
        """Return the bytes that fit into a file beside these rows."""
        return self.max_bytes - rows * self.bytes_per_row

    def rows_for(self, missing_bytes: int) -> int:
        """Return the least number of rows that has these bytes, and at least 1."""
        return max(1, -(-missing_bytes // self.bytes_per_row))

    def splits_evenly(self, rows: int) -> bool:
        files = -(-rows // self.rows_per_file)
        return self.even_splits and files > 1 and rows // files * self.bytes_per_row >= self.aim_bytes

    def new_files(self, partition: PartitionKey, rows: int) -> list[Bucket]:
        """Cut rows into full files and one tail, or evenly where that leaves no small file."""
        full, tail = divmod(rows, self.rows_per_file)
        sizes = [self.rows_per_file] * full + [tail] * (tail > 0)
        if self.splits_evenly(rows):
            least, more = divmod(rows, len(sizes))
            sizes = [least + (at < more) for at in range(len(sizes))]
        return [Bucket(partition, size, max_rows=_with_slack(size, self.rows_per_file)) for size in sizes]

    def merged(self, inputs: Sequence[TableFile], rows: int, min_rows: int) -> Bucket:
        input_bytes = sum(file.bytes for file in inputs)
        return Bucket(
            inputs[0].partition,
            rows,
            inputs=tuple(file.input for file in inputs),
            input_bytes=input_bytes,
            input_rows=sum(file.rows for file in inputs),
            min_rows=min_rows,
            max_rows=_with_slack(rows, self.room(input_bytes)),
        )


def _with_slack(rows: int, fitting: int) -> int:
    return max(fitting, rows + rows // SLACK)


def plan_inserts(
    arrivals: Iterable[Arrival],
    files: Iterable[TableFile],
    sizing: FileSizing,
    *,
    bytes_per_row: int,
    policy: FillPolicy = FillPolicy.AMORTIZED,
    exact: bool,
) -> InsertPlan:
    """Return where the rows of one batch go: into which small files, and into which new ones.

    `arrivals` are the rows per partition, several for one partition being added up; `files` the live files
    that may matter (files at or above the small limit change nothing but the plan's list of decisions, and
    may be left out); `exact` says that the rows were counted, not forecast. A forecast plan also has
    standby buckets, whose `min_rows` is above their `rows`, or whose `rows` is 0.

    Each arriving row is in exactly one bucket, each file in at most one. No bucket is planned above
    `max_file_bytes` but by what `bytes_per_row` is wrong; a single row wider than that gets a file of its
    own. `files` are of the partition spec that the rows are written under. Files that are reserved, sorted,
    encrypted, or with deletes that are not of them alone, are never filled. The same input in any order gives
    the same plan.
    """
    if bytes_per_row < 1:
        raise ValueError(f"bytes_per_row must be at least 1: {bytes_per_row}")
    fitting = max(1, sizing.max_file_bytes // bytes_per_row)
    cuts = _Cuts(
        max_bytes=sizing.max_file_bytes,
        small_bytes=sizing.small_file_bytes,
        aim_bytes=aim_bytes(sizing),
        bytes_per_row=bytes_per_row,
        rows_per_file=min(fitting, sizing.rows_per_new_file or fitting),
        even_splits=sizing.rows_per_new_file is None,
        exact=exact,
    )
    incoming: dict[PartitionKey, int] = {}
    for arrival in arrivals:
        if arrival.rows < 0:
            raise ValueError(f"an arrival cannot have fewer than 0 rows: {arrival}")
        key = comparable(arrival.partition)
        incoming[key] = incoming.get(key, 0) + arrival.rows
    existing: dict[PartitionKey, list[TableFile]] = {}
    for file in files:
        existing.setdefault(comparable(file.partition), []).append(file)

    buckets: list[Bucket] = []
    decisions: list[Decision] = []
    for partition in sorted(incoming.keys() | existing.keys(), key=sort_key):
        rows = incoming.get(partition, 0)
        live = sorted(existing.get(partition, ()), key=by_size)
        refused = {file.path: reason for file in live if (reason := _refusal(file, cuts)) is not None}
        small = [file for file in live if file.path not in refused]
        fills, kept_reason = _fills(small, rows, cuts, policy)
        buckets += fills
        buckets += cuts.new_files(partition, rows - sum(bucket.rows for bucket in fills))
        filled = {it.path: bucket for bucket in fills if bucket.fills for it in bucket.inputs}
        for file in live:
            bucket = filled.get(file.path)
            verdict = FillVerdict.FILLED if bucket else FillVerdict.KEPT
            reason = _joined(bucket) if bucket else refused.get(file.path, kept_reason)
            decisions.append(Decision(file.path, file.partition, file.bytes, verdict, reason))
    return InsertPlan(
        buckets=tuple(buckets),
        decisions=tuple(decisions),
        bytes_per_row=bytes_per_row,
        rows_per_new_file=cuts.rows_per_file,
        max_file_bytes=sizing.max_file_bytes,
    )


def _refusal(file: TableFile, cuts: _Cuts) -> str | None:
    """Return why this file is never filled, or None if it is small and may be."""
    if (reason := refusal(file, cuts.small_bytes)) is not None:
        return reason
    return "no room for one more row" if cuts.room(file.bytes) < 1 else None


def _joined(bucket: Bucket) -> str:
    others = "" if len(bucket.inputs) == 1 else f", in a merge of {len(bucket.inputs):,} small files"
    return f"{bucket.rows:,} rows join{others}"


def _fills(
    small: Sequence[TableFile], rows: int, cuts: _Cuts, policy: FillPolicy
) -> tuple[list[Bucket], str]:
    """Return the buckets that fill these small files of one partition, and why the other files are kept."""
    if policy is FillPolicy.NEVER:
        return [], "policy never"
    if policy is FillPolicy.AMORTIZED:
        return _amortized(small, rows, cuts)
    if not rows:
        return [], "no rows arrive in its partition"
    fills = []
    left = rows
    for file in small:
        if left:
            joining = min(left, cuts.room(file.bytes))
            fills.append(cuts.merged([file], joining, min_rows=1))
            left -= joining
    return fills, "no rows are left for it"


def _amortized(small: Sequence[TableFile], rows: int, cuts: _Cuts) -> tuple[list[Bucket], str]:
    crowded = len(small) >= SMALL_FILES_AT_MOST
    if not small or not (rows or (crowded and not cuts.exact)):
        return [], "no rows arrive in its partition"
    reason = "the rows make full files of their own" if rows else "standby: no rows are expected to join it"
    if cuts.splits_evenly(rows) and (cuts.exact or not crowded):
        return [], reason
    tail = rows % cuts.rows_per_file
    if tail * cuts.bytes_per_row >= cuts.aim_bytes:
        tail = 0
    if tail and (cuts.exact or not crowded):
        together, have = largest_that_fit(small, cuts.bytes_beside(tail))
        if have + tail * cuts.bytes_per_row < cuts.aim_bytes:
            together, have = largest_that_fit(small, cuts.bytes_beside(1))
        reached = have + tail * cuts.bytes_per_row
        if reached >= cuts.aim_bytes:
            joining = min(tail, cuts.room(have))
            enough = min(joining, cuts.rows_for(cuts.small_bytes - have))
            return [cuts.merged(together, joining, enough)], "a full file is made without it"
        reason = f"waits: {reached:,} bytes with the new rows, merged from {cuts.aim_bytes:,} on"
        if not cuts.exact and tail == rows:  # rows after it would be a second small file of a smaller batch
            return [cuts.merged(together, rows, cuts.rows_for(cuts.aim_bytes - have))], reason
    if crowded and (tail or not cuts.exact):
        together, have = _best_repaid(small, cuts)
        # A forecast of several files may be wrong: only a merged file that the first rows make full leaves no
        # second small file beside it.
        joining = min(cuts.room(have), tail if cuts.exact else rows)
        return [cuts.merged(together, joining, 1)], reason if not rows else "rewriting it would not be repaid"
    return [], reason


def _best_repaid(small: Sequence[TableFile], cuts: _Cuts) -> tuple[list[TableFile], int]:
    """Return what a crowded partition merges: a full file's worth, else the files that repay it best."""
    together, have = largest_that_fit(small, cuts.bytes_beside(1))
    if have >= cuts.small_bytes:
        return together, have
    sizes = [file.bytes for file in small]
    count = best_repaid(sizes, cuts.bytes_beside(1), SMALL_FILES_AT_MOST - 1) or 1
    return list(small[:count]), sum(sizes[:count])
