"""Which table: by its location, with what its store takes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from planners.values import APART, Value
from timeline.stores import StorageOptions
from timeline.table import Table, open_table


@dataclass(frozen=True, repr=False)
class PathTable(Value):
    """A table at a location: a folder, or a URL such as "s3://lake/events".

    `storage_options` are obstore's (endpoint, region, credentials), or a picklable callable without arguments
    that returns them; the driver and each task call it. They are in no repr and no dict.
    """

    location: str
    storage_options: StorageOptions | None = field(default=None, metadata=APART, compare=False)

    def __post_init__(self) -> None:
        given: Any = self.location
        location = os.fspath(given) if isinstance(given, os.PathLike) else given
        if not isinstance(location, str) or not location.strip():
            raise ValueError(f"location must be a path or a URL such as s3://lake/events, not {location!r}")
        object.__setattr__(self, "location", location)
        options: Any = self.storage_options
        if not (options is None or callable(options) or isinstance(options, Mapping)):
            raise TypeError(
                "storage_options must be a dict, or a callable without arguments that returns one"
            )

    def open(self) -> Table:
        """Return the table, at its newest version. TableNotFoundError where there is none."""
        return open_table(self.location, self.storage_options)


AnyTable = str | os.PathLike[str] | PathTable
"""What is taken for a table: its location, or a `PathTable`."""


def as_table(table: AnyTable) -> PathTable:
    """Return a table that is given as such, or by its location."""
    return table if isinstance(table, PathTable) else PathTable(table)  # type: ignore[arg-type]
