"""Opens the source files of a task: those of an object store many at once, before the task reads them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pyarrow as pa

from planners.ingestion.buffering import BufferedFile
from streaming_sink.tasks.ingest.reading import open_bytes
from streaming_sink.tasks.ingest.sources import Sources, folder_of, is_local

REQUESTS = 96
"""At once. A request takes tens of milliseconds, and a small file a third of one to decode."""
AHEAD_BYTES = 64 * 1024 * 1024
"""Bytes of files that were asked for, and not yet taken; one file at least."""

Opener = Callable[[], pa.NativeFile]
"""Returns a source file open for reading, or raises as `open_bytes`."""


def open_all(
    sources: Sources, files: Iterable[tuple[int, BufferedFile]]
) -> Iterator[tuple[int, BufferedFile, Opener]]:
    """Yield the files in their order, each with its number and the function that opens it."""
    numbered = list(files)
    if all(is_local(file.path) for _, file in numbered):  # a disk answers before a thread has started
        yield from ((number, file, partial(open_bytes, sources, file)) for number, file in numbered)
        return
    pool = ThreadPoolExecutor(REQUESTS, thread_name_prefix="source-files")
    asked: deque[tuple[int, BufferedFile, Future[pa.NativeFile]]] = deque()
    ahead = 0
    try:
        for number, file in numbered:
            while asked and (len(asked) == REQUESTS or ahead + file.bytes > AHEAD_BYTES):
                taken = asked.popleft()
                ahead -= taken[1].bytes
                yield taken[0], taken[1], taken[2].result
            with suppress(ValueError):  # of a folder outside the sources, which opening says, too
                sources.store(folder_of(file.path)[0])  # one client a folder, not one a thread
            asked.append((number, file, pool.submit(open_bytes, sources, file)))
            ahead += file.bytes
        yield from ((number, file, opened.result) for number, file, opened in asked)
    finally:
        pool.shutdown(cancel_futures=True)
