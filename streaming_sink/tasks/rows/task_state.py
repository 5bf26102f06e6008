"""What the partitions of one write task share: its job, its open files, and what it has written so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from planners.model import PartitionKey
from streaming_sink.tasks.files.data_file_writer import DataFileWriter
from streaming_sink.tasks.files.dictionaries import DictionaryChoice
from streaming_sink.tasks.job import WorkerJob
from streaming_sink.tasks.leaves import Leaf
from streaming_sink.tasks.results import TaskResult


@dataclass(slots=True)
class EncodingRatio:
    """Encoded bytes for each Arrow byte, as measured in this task; 1 before anything is encoded, since
    encoding hardly ever makes rows larger."""

    arrow: int = 0
    encoded: int = 0

    def arrow_bytes(self, encoded_bytes: int) -> int:
        """Return how many Arrow bytes become so many encoded ones."""
        return encoded_bytes * self.arrow // self.encoded if self.encoded else encoded_bytes


@dataclass(slots=True)
class TaskState:
    """The state that all `PartitionFiles` of a task share."""

    job: WorkerJob
    columns: tuple[Leaf, ...]
    dictionaries: DictionaryChoice
    new_path: Callable[[PartitionKey, int], str]
    """Makes the path of a new file of a partition and a bucket."""
    next_free_bucket: int
    results: list[TaskResult] = field(default_factory=list)
    ratio: EncodingRatio = field(default_factory=EncodingRatio)
    open_files: set[DataFileWriter] = field(default_factory=set)
    held_bytes: int = 0

    def open_file(self, path: str, dictionaries: DictionaryChoice) -> DataFileWriter:
        """Open a new file; it is in `open_files` until it is discarded there."""
        file = DataFileWriter(self.job, self.columns, dictionaries, path)
        self.open_files.add(file)
        return file
