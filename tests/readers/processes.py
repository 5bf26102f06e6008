"""Two readers live in processes of their own.

Spark, because its session carries the Iceberg JAR and ours must not; chdb, because it reads local files only
below the working directory, so its process works in `/`. Functions to be run there are module-level and take
and return values that pickle.
"""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

_SECONDS = 170


class ReaderError(Exception):
    """The reader failed; the message is its own."""


def in_process_of(name: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run the function in the long-lived process of that name, which is started by the first call.

    What it raises comes back as a ReaderError with the same message.
    """
    return _process(name).submit(_call, function, args, kwargs).result(timeout=_SECONDS)


def _call(function: Callable[..., R], args: tuple[object, ...], kwargs: dict[str, object]) -> R:
    try:
        return function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 (Spark's errors hold a link to the JVM and do not pickle)
        raise ReaderError(f"{type(error).__name__}: {error}") from None


@cache
def _process(name: str) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(max_workers=1, mp_context=context, initializer=os.chdir, initargs=("/",))
