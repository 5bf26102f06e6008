"""What becomes of rows that fail checks, and where second tables are: options, checked at construction."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from planners.values import Value, nearest
from streaming_sink.tasks.rows.failures import ACTIONS, QUARANTINE
from timeline.stores.local import LocalStore


@dataclass(frozen=True, repr=False)
class Checks(Value):
    """What becomes of rows that fail.

    `expectations` maps SQL conditions to what becomes of a row that does not meet one: "quarantine", "refuse"
    (the batch) or "drop". `at_most`: with more quarantined rows (an int) or a larger share of them (a float)
    a batch is refused. `quarantine`: the location of the table of quarantined rows, by default that of the
    table with "__quarantine" at its end; of a table in a catalog, its name in the same catalog. A schema
    contract may quarantine rows, too.

    TypeError or ValueError for impossible values. Whether a condition is SQL over the columns of the stream
    shows at the first batch.
    """

    expectations: Mapping[str, str] = field(default_factory=dict)
    at_most: float | None = None
    quarantine: str | None = None

    def __post_init__(self) -> None:
        _check_expectations(self.expectations)
        object.__setattr__(self, "expectations", dict(self.expectations))
        if self.quarantine is not None:
            object.__setattr__(self, "quarantine", location_text("quarantine", self.quarantine))
        _check_bound(self.at_most)

    @property
    def quarantines(self) -> bool:
        return QUARANTINE in self.expectations.values()

    def check_quarantines(self, elsewhere: bool) -> None:
        """Raise ValueError where it says how rows are quarantined, and none are: neither here nor
        `elsewhere`, in a schema contract.
        """
        for name in ("quarantine", "at_most"):
            if getattr(self, name) is not None and not (self.quarantines or elsewhere):
                raise ValueError(
                    f"{name} says how rows are quarantined, and neither an expectation nor the schema"
                    " contract quarantines any; leave it out, or give one, as"
                    ' Checks({"price >= 0": "quarantine"}) or SchemaContract(mismatch="quarantine"):'
                    f" {name}={getattr(self, name)!r}"
                )


def location_text(option: str, given: Any) -> str:
    """Return a location that is given as text or as a path. TypeError for another value."""
    location = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(location, str) or not location.strip():
        raise TypeError(f"{option} must be the location of a table of its own, not {location!r}")
    return location


def _check_expectations(given: Any) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(
            f'expectations must map SQL conditions to actions, such as {{"price >= 0": "quarantine"}}, not'
            f" {given!r}"
        )
    for text, action in given.items():
        if not isinstance(text, str) or not text.strip():
            raise TypeError(f'an expectation must be an SQL condition such as "price >= 0", not {text!r}')
        if action not in ACTIONS:
            raise ValueError(
                f"the action of an expectation must be one of {', '.join(ACTIONS)}, not"
                f" {action!r}{nearest(str(action), ACTIONS)}: {text}"
            )


def _check_bound(at_most: Any) -> None:
    if at_most is None:
        return
    if type(at_most) not in (int, float):
        raise TypeError(
            "at_most must be a number of rows of a batch (an int), or a share of them (a float, as 0.01), not"
            f" {at_most!r}"
        )
    if not at_most >= 0 or (isinstance(at_most, float) and not at_most <= 1):
        raise ValueError(
            "at_most must be a number of rows from 0 on, or a share from 0.0 to 1.0 as a float, not"
            f" {at_most!r}"
        )


def default_quarantine(location: str) -> str:
    """Return where the rows of a table are quarantined, unless its sink says otherwise: beside the table."""
    return location.rstrip("/") + "__quarantine"


def _folder(location: str) -> str:
    """Return a location with "/" at its end; a local one by its absolute path, however it is spelled."""
    local = "://" not in location or location.startswith("file:")
    return (LocalStore(location).location if local else location.rstrip("/")) + "/"


def check_is_apart(option: str, location: str, second: Any) -> None:
    """Raise TypeError or ValueError for the location of a second table that is none, or not apart from
    another table of the sink.
    """
    if second is None:
        return
    one, other = (_folder(each) for each in (location, second))
    if one.startswith(other) or other.startswith(one):
        raise ValueError(
            f"{option} must be the location of a table of its own, not the sink's table, and neither folder"
            f" inside of the other, nor of its quarantine's: {location!r}, {option}={second!r}"
        )
