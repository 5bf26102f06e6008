"""Small files in the partitions that a batch touched: their count, and the warning above a bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planners.model import TablePartition, comparable
from streaming_sink.table.partition_names import as_terms, speller
from timeline.versions.head import Head

if TYPE_CHECKING:
    from streaming_sink.options.table_options import SinkOptions


@dataclass(frozen=True)
class SmallFiles:
    """The number of small files of some partitions, and of the partition with most of them."""

    files: int = 0
    most: int = 0
    where: str = ""
    """That partition, as "region=eu/day=2026-01-01"; "the table" where it is not partitioned."""

    def __str__(self) -> str:
        return f"{self.most:,} small files in {self.where}"


def count_small_files(head: Head, partitions: Iterable[TablePartition], below_bytes: int) -> SmallFiles:
    """Count the live files of these partitions that are smaller than `below_bytes`."""
    wanted = {TablePartition(spec_id, comparable(values)) for spec_id, values in partitions}
    counts: Counter[TablePartition] = Counter()
    # There may be thousands of files, so keys are made comparable once per partition, not per file.
    found = Counter((file.spec_id, file.partition) for file in head.files_below(below_bytes, wanted))
    for (spec_id, values), files in found.items():
        if (key := TablePartition(spec_id, comparable(values))) in wanted:
            counts[key] += files
    if not counts:
        return SmallFiles()
    ((fullest, most),) = counts.most_common(1)
    return SmallFiles(counts.total(), most, "/".join(as_terms(speller(head)(fullest))) or "the table")


def warning(counted: SmallFiles, options: SinkOptions) -> str:
    """Return the warning for a partition with more small files than `warn_small_files`; "" for none."""
    bound = options.sizing.warn_small_files
    if not bound or counted.most <= bound:
        return ""
    return (
        f"{counted} (below {options.small_below_bytes:,} bytes), more than warn_small_files={bound:,}, and a"
        f" query opens each: {_advice(options)}"
    )


def _advice(options: SinkOptions) -> str:
    if options.fills:
        return (
            "fills fall behind; see dropped_fills of the reports, and if a plan reserves the files (`plans`)."
            " `streaming-sink cluster` merges many at once, in another process"
        )
    if options.clustering is None:
        return "nothing merges them; let the sink fill, or give it clustering=Clustering(...)"
    if options.clustering.when_small_files is None:
        return (
            "clustering falls behind; lower every_commits, raise max_bytes_per_pass, or set when_small_files"
            " so that batches wait for it"
        )
    return "clustering falls behind, though batches wait for it; raise max_bytes_per_pass, or add cores"
