"""Back-pressure: the small files in the partitions that a batch touched, and when they are too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planners import PartitionKey, comparable
from streaming_sink.table.partition_names import spelled
from timeline.versions.head import Head

if TYPE_CHECKING:
    from streaming_sink.options import SinkOptions


@dataclass(frozen=True)
class SmallFiles:
    """The small files of some partitions together, and of the one that has the most of them."""

    files: int = 0
    most: int = 0
    where: str = ""
    """That partition, as "region=eu/day=2026-01-01"; "the table" where it is not partitioned."""

    def __str__(self) -> str:
        return f"{self.most:,} small files in {self.where}"


def small_files(head: Head, partitions: Iterable[PartitionKey], below_bytes: int) -> SmallFiles:
    """Count the live files of these partitions that are smaller than `below_bytes`."""
    wanted = {comparable(partition) for partition in partitions}
    counts: Counter[PartitionKey] = Counter()
    # There may be thousands of files: counting them comes before what is done once for each partition.
    for partition, files in Counter(file.partition for file in head.files_below(below_bytes)).items():
        if (key := comparable(partition)) in wanted:
            counts[key] += files
    if not counts:
        return SmallFiles()
    ((fullest, most),) = counts.most_common(1)
    return SmallFiles(counts.total(), most, "/".join(spelled(head, fullest)) or "the table")


def warning(found: SmallFiles, options: SinkOptions) -> str:
    """Return what to tell where a partition holds more small files than `warn_small_files`; else nothing."""
    bound = options.warn_small_files
    if not bound or found.most <= bound:
        return ""
    return (
        f"{found} (below {options.small_below_bytes:,} bytes), more than warn_small_files={bound:,}, and a"
        f" query opens each: {_advice(options)}"
    )


def _advice(options: SinkOptions) -> str:
    if options.fills:
        return "fills fall behind; see dropped_fills of the reports, and if a plan holds the files (`plans`)"
    if options.clustering is None:
        return "nothing joins them; let the sink fill, or give it clustering=InlineClustering(...)"
    if options.clustering.when_small_files is None:
        return (
            "clustering falls behind; lower every_commits, raise max_bytes_per_pass, or let batches wait for"
            " it by when_small_files"
        )
    return "clustering falls behind, though batches wait for it; raise max_bytes_per_pass, or add cores"
