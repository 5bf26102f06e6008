"""The schema contract: what happens where a batch's columns differ from the table's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from planners.values import Value, check_is_dict, one_of


class Difference(str, Enum):
    """How a column of a batch differs from the table's."""

    NEW_COLUMN = "new_columns"
    NEW_FIELD = "new_fields"
    MISSING = "missing_columns"
    WIDER = "widening"
    UNFIT = "mismatch"


_CHOICES: Mapping[str, tuple[str, ...]] = {
    "new_columns": ("add", "ignore", "rescue", "refuse"),
    "new_fields": ("add", "ignore", "rescue", "refuse"),
    "missing_columns": ("null", "refuse"),
    "widening": ("widen", "rescue", "refuse"),
    "mismatch": ("refuse", "rescue", "quarantine", "drop"),
    "partitioning": ("refuse", "evolve"),
}


@dataclass(frozen=True, kw_only=True, repr=False)
class SchemaContract(Value):
    """What the sink does where a batch's columns, or the partitioning that is asked for, differ from the
    table's. No column is ever dropped, renamed or narrowed.

    `new_columns` and `new_fields` (of structs, also in lists and maps): "add" them to the table, "ignore"
    them (their values are not written), "rescue" their values as JSON in the row's column `_rescued`, or
    "refuse" the batch. `missing_columns`: "null" writes nulls for a column that the batch lacks, "refuse"
    refuses the batch. `widening`, where the batch has a wider type (int to long, float to double, a decimal
    of more digits and the same scale): "widen" the table's column, "rescue" the values that its type does not
    hold, or "refuse"; a column that the table requires and the batch lacks becomes optional under "widen"
    alone. `mismatch`, where neither type holds the other: "refuse" the batch, or convert each value where
    that loses nothing, and where it does not convert "rescue" it, "quarantine" its row, or "drop" its row.
    `partitioning`, where the table is partitioned otherwise than `partition_by` says: "refuse" the batch, or
    "evolve" the table's, in a version of its own before the batch is written; files that it has stay as they
    are. `columns` has contracts of single columns, by their names; a dotted name is that of a nested field.

    Raises TypeError or ValueError for a value that is none of these.
    """

    new_columns: str = "refuse"
    new_fields: str = "refuse"
    missing_columns: str = "null"
    widening: str = "refuse"
    mismatch: str = "refuse"
    partitioning: str = "refuse"
    columns: Mapping[str, SchemaContract] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            one_of(name, getattr(self, name), choices)
        given: Any = self.columns
        if not isinstance(given, Mapping) or not all(isinstance(it, str) for it in given):
            raise TypeError(
                f"columns must map names of columns to contracts, such as"
                f' {{"debug": SchemaContract(new_columns="ignore")}}, not {self.columns!r}'
            )
        for column, contract in self.columns.items():
            if getattr(contract, "columns", True):
                raise TypeError(
                    f"the contract of column {column!r} must be a SchemaContract without columns of its own,"
                    f" not {contract!r}"
                )
        object.__setattr__(self, "columns", dict(self.columns))

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], **apart: Any) -> SchemaContract:
        """Return the contract that `to_dict` made a dict of. TypeError for what is none."""
        given = check_is_dict("columns", check_is_dict(cls.__name__, stored).get("columns", {}))
        columns = {name: cls.from_dict(each) for name, each in given.items()}
        own = {name: value for name, value in stored.items() if name != "columns"}
        return replace(super().from_dict(own, **apart), columns=columns)

    @classmethod
    def strict(cls) -> SchemaContract:
        """Return the default: the table's schema never changes, and what does not fit is refused."""
        return cls()

    @classmethod
    def evolving(cls) -> SchemaContract:
        """Return the contract under which the table's schema grows with the stream."""
        return cls(new_columns="add", new_fields="add", widening="widen")

    def choice(self, difference: Difference, path: Iterable[str]) -> str:
        """Return what to do about a difference at a column, by the contract of the column or of the nearest
        one around it.
        """
        names = tuple(path)
        for length in range(len(names), 0, -1):
            contract = self.columns.get(".".join(names[:length]))
            if contract is not None:
                return str(getattr(contract, difference.value))
        return str(getattr(self, difference.value))

    def ignores(self, path: Iterable[str]) -> bool:
        """Return whether the contract of a column, or of a nested field, by its own name, keeps it out of the
        table, also where the table or the struct around it is new.
        """
        names = tuple(path)
        contract = self.columns.get(".".join(names))
        if contract is None:
            return False
        return (contract.new_columns if len(names) == 1 else contract.new_fields) == "ignore"

    @property
    def quarantines(self) -> bool:
        """Whether a row may be quarantined for a value that does not fit."""
        return any(each.mismatch == "quarantine" for each in (self, *self.columns.values()))

    @property
    def rescues(self) -> bool:
        """Whether a value that does not fit may be rescued."""
        return any(each.mismatch == "rescue" for each in (self, *self.columns.values()))

    @property
    def decides_by_value(self) -> bool:
        """Whether what becomes of a difference depends on single values or rows: they are rescued,
        quarantined or dropped.
        """
        by_value = {"rescue", "quarantine", "drop"}
        return any(
            getattr(each, difference.value) in by_value
            for each in (self, *self.columns.values())
            for difference in Difference
        )

    @property
    def apart(self) -> frozenset[str]:
        """The columns in which a value that does not fit is treated otherwise than `mismatch` says, at any
        depth.
        """
        return frozenset(
            name.partition(".")[0] for name, each in self.columns.items() if each.mismatch != self.mismatch
        )

    @property
    def evolves_partitioning(self) -> bool:
        """Whether the table's partitioning becomes the one that is asked for."""
        return self.partitioning == "evolve"


STRICT = SchemaContract.strict()
