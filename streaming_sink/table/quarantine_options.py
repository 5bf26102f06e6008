"""The options of a sink that say what becomes of failing rows, and where second tables are, checked at
construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planners.suggestions import nearest_name
from streaming_sink.tasks.rows.failures import ACTIONS
from timeline.stores.local import LocalStore


def check_expectations(given: Any) -> Mapping[str, str]:
    """Return `given`, which maps conditions to actions; nothing for None. TypeError or ValueError otherwise.
    Whether a condition is SQL over the columns of the stream shows at the first batch.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(
            f'expectations must map SQL conditions to actions, such as {{"price >= 0": "quarantine"}}, not'
            f" {given!r}"
        )
    for text, action in given.items():
        if not isinstance(text, str) or not text.strip():
            raise TypeError(f'an expectation must be an SQL condition such as "price >= 0", not {text!r}')
        if action not in ACTIONS:
            near = nearest_name(str(action), ACTIONS)
            hint = f"; did you mean {near!r}?" if near else ""
            raise ValueError(
                f"the action of an expectation must be one of {', '.join(ACTIONS)}, not {action!r}{hint}:"
                f" {text}"
            )
    return dict(given)


def default_quarantine(location: str) -> str:
    """Return where the rows of a table are quarantined, unless its sink says otherwise: beside the table."""
    return location.rstrip("/") + "__quarantine"


def _folder(location: str) -> str:
    """Return a location with "/" at its end; a local one by its absolute path, however it is spelled."""
    local = "://" not in location or location.startswith("file:")
    return (LocalStore(location).location if local else location.rstrip("/")) + "/"


def check_is_apart(option: str, location: str, second: Any) -> None:
    """Raise TypeError or ValueError for the location of a second table that is none, or not apart from the
    sink's table.
    """
    if second is None:
        return
    if not isinstance(second, str) or not second.strip():
        raise TypeError(f"{option} must be the location of a table of its own, not {second!r}")
    one, other = (_folder(each) for each in (location, second))
    if one.startswith(other) or other.startswith(one):
        raise ValueError(
            f"{option} must be the location of a table of its own, not the sink's table, and neither folder"
            f" inside of the other: location={location!r}, {option}={second!r}"
        )


def check_quarantine(location: str, quarantine: Any, max_quarantined: Any, quarantines: bool) -> None:
    """Raise TypeError or ValueError for options that quarantine nowhere, or nothing."""
    for name, value in (("quarantine", quarantine), ("max_quarantined", max_quarantined)):
        if value is not None and not quarantines:
            raise ValueError(
                f"{name} says how rows are quarantined, and neither an expectation nor the schema contract"
                f' quarantines any; leave it out, or give one, as expectations={{"price >= 0": "quarantine"}}'
                f' or SchemaContract(mismatch="quarantine"): {name}={value!r}'
            )
    check_is_apart("quarantine", location, quarantine)
    if max_quarantined is None:
        return
    if type(max_quarantined) not in (int, float):
        raise TypeError(
            "max_quarantined must be a number of rows of a batch (an int), or a share of them (a float, as"
            f" 0.01), not {max_quarantined!r}"
        )
    if not max_quarantined >= 0 or (isinstance(max_quarantined, float) and not max_quarantined <= 1):
        raise ValueError(
            "max_quarantined must be a number of rows from 0 on, or a share from 0.0 to 1.0 as a float, not"
            f" {max_quarantined!r}"
        )
