"""A model of partial updates: what a set of changes makes of one key, in no order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class PartialChange(NamedTuple):
    """A change of a key: the values of its columns, or a delete."""

    at: int
    values: Mapping[str, Any]
    """Of every column but the key and the sequence."""
    deletes: bool = False


def row_of(changes: Iterable[PartialChange], partial: Iterable[str]) -> tuple[int, dict[str, Any]] | None:
    """Return the sequence and the values of the row that the changes of a key leave; None where it has none.
    It is a function of their set.
    """
    known = list(changes)
    deleted = max((each.at for each in known if each.deletes), default=None)
    alive = [each for each in known if not each.deletes and (deleted is None or each.at > deleted)]
    if not alive:
        return None
    rest = [name for name in alive[0].values if name not in set(partial)]
    newest = max(alive, key=lambda it: (it.at, _text({name: it.values[name] for name in rest})))
    row = {name: newest.values[name] for name in rest}
    for name in partial:
        setting = [each for each in alive if each.values[name] is not None]
        chosen = max(setting, key=lambda it: (it.at, _text({name: it.values[name]})), default=None)
        row[name] = None if chosen is None else chosen.values[name]
    return newest.at, row


def _text(values: dict[str, Any]) -> str:
    return json.dumps(values, separators=(",", ":"))
