"""Durable files of a local disk: created under a free name, synced, and published atomically (R9, R14)."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import os
from typing import Any

from timeline.errors import StoreUnavailableError, UnsafeStoreError
from timeline.stores.base import Created, CreateOutcome, DiscardedOnFailure, Exists, Unknown

_OUTPUT_BUFFER_BYTES = 1 << 20
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK})
_NO_NOREPLACE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})
_SURELY_REFUSED = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG}
)
_REMEDIES = {
    errno.ENOSPC: "the disk is full: free space",
    errno.EDQUOT: "the disk quota is used up: raise it or free space",
    errno.EROFS: "the file system is read-only: mount it writable",
    errno.EACCES: "permission denied: give this user access",
    errno.EPERM: "operation not permitted: give this user access",
    errno.EMFILE: "too many open files: raise the limit (ulimit -n)",
    errno.ENFILE: "too many open files on this machine: raise the limit",
}


class DurableFile(DiscardedOnFailure, io.BufferedWriter):
    """A new file: whole and durable once `close` returned, and removed if it is not closed."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__(io.FileIO(descriptor, "wb"), _OUTPUT_BUFFER_BYTES)
        self._path = name

    def write(self, buffer: Any, /) -> int:
        try:
            return super().write(buffer)
        except OSError as error:
            raise unavailable("write", self._path, error) from error

    def close(self) -> None:
        if self.closed:
            return
        try:
            super().flush()
            os.fsync(self.fileno())
            super().close()
            sync_folder(os.path.dirname(self._path))
        except OSError as error:
            self._abandon()
            raise unavailable("write", self._path, error) from error

    def _abandon(self) -> None:
        self.raw.close()  # not super().close(), which would first write what is buffered
        discard_unfinished(self._path)


def link_into_place(temporary: str, final: str) -> CreateOutcome:
    try:
        os.link(temporary, final)
    except OSError as error:
        outcome = _settle_link(temporary, final, error)
    else:
        outcome = Created()
    if isinstance(outcome, Unknown):
        return outcome
    try:
        # Also after Exists: the name may be ours, from a create whose sync had failed.
        sync_folder(os.path.dirname(final))
    except OSError as error:
        return Unknown(f"the folder could not be synced: {error}")
    return outcome


def _settle_link(temporary: str, final: str, error: OSError) -> CreateOutcome:
    """Say what a link that reported `error` did. A network file system may have applied it all the same."""
    try:
        links = os.stat(temporary).st_nlink
    except OSError as second:
        return Unknown(f"{error}; then {second}")
    if links > 1:
        return Created()
    if isinstance(error, FileExistsError):
        return Exists()
    if error.errno in _NO_HARD_LINKS:
        return _publish_by_rename(temporary, final)
    if error.errno in _SURELY_REFUSED:
        raise unavailable("create", final, error) from error
    return Unknown(str(error))


def _publish_by_rename(temporary: str, final: str) -> CreateOutcome:
    try:
        rename_noreplace(temporary, final)
    except FileExistsError:
        return Exists()
    except OSError as error:
        if error.errno in _NO_NOREPLACE:
            raise UnsafeStoreError(
                "the file system has no hard links, nor a rename that never replaces, so two writers could "
                f"both win a version; nothing was stored; put the table on another file system: {final}"
            ) from error
        if error.errno in _SURELY_REFUSED:
            raise unavailable("create", final, error) from error
        return Unknown(str(error))
    return Created()


def write_all(file: io.FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def delete(name: str) -> None:
    try:
        os.unlink(name)
    except FileNotFoundError:
        return
    except OSError as error:
        raise unavailable("delete", name, error) from error


def discard_unfinished(name: str) -> None:
    """Remove a file that nothing refers to. One that stays is harmless, so an error here hides no other."""
    with contextlib.suppress(OSError):
        os.unlink(name)


def unavailable(verb: str, name: str, error: OSError) -> StoreUnavailableError:
    remedy = _REMEDIES.get(error.errno or 0, error.strerror or str(error))
    kept = "nothing was stored; " if verb in ("create", "write") else ""
    return StoreUnavailableError(f"cannot {verb}, {kept}{remedy}: {name}")


_AT_FDCWD = -100
_RENAME_NOREPLACE = 1


def rename_noreplace(source: str, target: str) -> None:
    """Rename `source` to `target` in one step, unless `target` exists (FileExistsError).

    Raises OSError with ENOSYS where the C library or the kernel lacks the call, and with EINVAL where the
    file system does not keep the flag.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), source)
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    call.restype = ctypes.c_int
    if call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), source, None, target)
