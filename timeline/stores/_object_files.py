"""Objects as Python files: written in parts of bounded memory, read by ranges."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from obstore.exceptions import BaseError

from timeline.stores.base import DiscardedOnFailure

if TYPE_CHECKING:
    from obstore import WritableFile

_READ_AHEAD_BYTES = 64 * 1024


class ObjectOutput(DiscardedOnFailure, io.RawIOBase):
    """A new object that exists once `close` returned; left by an exception, or dropped, it never exists."""

    def __init__(self, writer: WritableFile, failed: Callable[[Exception], Exception]) -> None:
        super().__init__()
        self._writer = writer
        self._failed = failed
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, buffer: Any, /) -> int:
        # obstore keeps the buffer and sends it later: one that its owner fills again would be stored wrong.
        data = buffer if isinstance(buffer, bytes) else bytes(buffer)
        try:
            self._writer.write(data)
        except (BaseError, OSError) as error:
            raise self._failed(error) from None
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        try:
            self._writer.close()
        except (BaseError, OSError) as error:
            raise self._failed(error) from None

    def _abandon(self) -> None:
        super().close()
        # Aborts the upload. Parts that stay when even that fails are invisible; a lifecycle rule removes
        # them.
        with contextlib.suppress(BaseError, OSError):
            self._writer.__exit__(InterruptedError, None, None)


class ObjectInput(io.RawIOBase):
    """An object to read and seek in. A big read is one request; small ones share a request of 64 KiB."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self._size = size
        self._fetch = fetch
        self._position = 0
        self._ahead_start = 0
        self._ahead = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative seek position: {base + offset}")
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        rest = max(0, self._size - self._position)
        wanted = rest if size is None or size < 0 else min(size, rest)
        data = self._range(wanted) if wanted else b""
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def _range(self, wanted: int) -> bytes:
        start = self._position
        if wanted > _READ_AHEAD_BYTES:
            return self._fetch(start, start + wanted)
        offset = start - self._ahead_start
        if not 0 <= offset <= len(self._ahead) - wanted:
            self._ahead = self._fetch(start, min(self._size, start + _READ_AHEAD_BYTES))
            self._ahead_start, offset = start, 0
        return self._ahead[offset : offset + wanted]
