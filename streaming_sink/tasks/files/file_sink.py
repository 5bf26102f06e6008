"""The file object that pyarrow writes a data file to."""

from __future__ import annotations

from typing import BinaryIO


class FileSink:
    """Counts bytes, and forwards them, until the file is aborted; the end of a file can be kept back."""

    closed = False

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._kept: list[bytes] | None = None
        self.written = 0
        """Bytes that were forwarded."""
        self.discards = False

    def write(self, data: bytes) -> int:
        if self._kept is not None:
            self._kept.append(bytes(data))
            return len(data)
        if not self.discards:
            self._output.write(data)
        self.written += len(data)
        return len(data)

    def keep_back(self) -> None:
        """Hold what is written from now on, until `take_back`."""
        self._kept = []

    def take_back(self) -> bytes:
        """Return what was held; what is written from now on is forwarded."""
        kept, self._kept = self._kept or [], None
        return b"".join(kept)

    def tell(self) -> int:
        return self.written

    def flush(self) -> None:
        """The output flushes when it is closed."""

    def close(self) -> None:
        """The owner of the output closes it."""
