"""Small streams for the sink's tests: numbered source files, queries, the table as pyiceberg sees it."""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import StaticTable

from planners import FileSizing
from timeline.table import open_table
from timeline.versions.head import Head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SMALL = FileSizing(max_file_bytes="64KiB", small_file_bytes="48KiB")
"""Sizes at which a few hundred rows already fill files."""

ROWS = 100
"""Rows of a source file."""

_SCHEMA = "id bigint, p string, text string"


def source_rows(number: int, rows: int = ROWS) -> dict[str, list[Any]]:
    """Return the columns of source file `number`."""
    ids = range(number * rows, (number + 1) * rows)
    return {
        "id": list(ids),
        "p": [f"p{each % 3}" for each in ids],
        "text": [f"{each * 2654435761 % 2**32:x}" for each in ids],
    }


def add_files(folder: str | Path, numbers: Iterable[int], rows: int = ROWS) -> None:
    """Add source files of `rows` rows; file n holds the ids from n * rows on. Streams take them in order."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number in numbers:
        table = pa.table(
            source_rows(number, rows),
            schema=pa.schema([("id", pa.int64()), ("p", pa.string()), ("text", pa.string())]),
        )
        hidden, path = Path(folder) / f".{number}", Path(folder) / f"{number:04d}.parquet"
        pq.write_table(table, hidden)
        os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
        hidden.rename(path)


def stream(spark: SparkSession, source: str | Path) -> DataFrame:
    """Return the stream of the source files, one a micro-batch."""
    return spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source))


def start(
    spark: SparkSession, source: str | Path, sink: Callable[[Any, int], None], checkpoint: str
) -> StreamingQuery:
    writer = stream(spark, source).writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start()


def drain(
    spark: SparkSession, source: str | Path, sink: Callable[[Any, int], None], checkpoint: str
) -> StreamingQuery:
    """Run a query until the source is used up; a failure is raised."""
    query = start(spark, source, sink, checkpoint)
    query.awaitTermination()
    return query


def forget_last_commit(checkpoint: str) -> None:
    """Make Spark forget that its last batch ended, as after a crash between our commit and Spark's log."""
    commits = [path for path in (Path(checkpoint) / "commits").iterdir() if path.name.isdigit()]
    last = max(commits, key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def ids_of(location: str) -> Counter[int]:
    """Return how often each id is in the table's head, as pyiceberg reads it; empty if there is no table."""
    path = metadata_file(location)
    if path is None:
        return Counter()
    return Counter(StaticTable.from_metadata(path).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


def metadata_file(location: str) -> str | None:
    """Return the highest version file."""
    found = {
        int(match[1]): str(path)
        for path in Path(location, "metadata").glob("v*.metadata.json")
        if (match := re.fullmatch(r"v(\d+)\.metadata\.json", path.name))
    }
    return found[max(found)] if found else None


def source_ids(files: int, rows: int = ROWS) -> Counter[int]:
    """Return what the table must hold once the first files were taken: every id once."""
    return Counter(range(files * rows))


def head_of(location: str) -> Head:
    return open_table(location).head


@contextmanager
def calling_as(spark: SparkSession, query_id: str, run_id: str) -> Iterator[None]:
    """Make calls of the block look as if this run of this query made them."""
    context = spark.sparkContext
    names = {"sql.streaming.queryId": query_id, "spark.jobGroup.id": run_id}
    before = {name: context.getLocalProperty(name) for name in names}
    for name, value in names.items():
        context.setLocalProperty(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            context.setLocalProperty(name, old)  # type: ignore[arg-type]


def jobs_of(spark: SparkSession, group: str) -> int:
    """Return how many Spark jobs a job group (a query's run) has started so far."""
    # The tracker learns of jobs through a queue.
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # type: ignore[attr-defined]
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def marked(batch: DataFrame, marks: str | Path) -> DataFrame:
    """Return the batch behind a step that leaves a line in a file whenever a partition of it is computed."""
    target = str(marks)

    def mark(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with open(target, "a") as file:
            file.write("computed\n")
        yield from parts

    return batch.mapInArrow(mark, batch.schema)


def count_marks(marks: str | Path) -> int:
    return len(Path(marks).read_text().splitlines()) if Path(marks).exists() else 0
