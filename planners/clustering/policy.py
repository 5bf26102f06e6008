"""The clustering policy: sort order, sizes, limits and selection of files, validated together and frozen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from planners.clustering.sort_fields import SortField
from planners.clustering.strategies import (
    Strategy,
    check_sort_columns,
    choose_strategy,
    order_name,
    traits,
)
from planners.model import TableFile
from planners.sizing import parse_bytes


class PlanStrategy(Protocol):
    """Chooses files. Pure: the same files in any order give the same answer."""

    @property
    def name(self) -> str:
        """What the plan calls it."""

    @property
    def parameters(self) -> Mapping[str, str]:
        """What it was made with, for the plan to record."""

    def refused(self, files: Sequence[TableFile], policy: ClusteringPolicy, now: int, /) -> Mapping[str, str]:
        """Return, by path, why files are left alone; all others may be rewritten.

        `files` are all that can be rewritten at all: not reserved, with no deletes but their own. `now` is of
        the same kind as their `committed_at`.
        """


@dataclass(frozen=True, slots=True)
class All:
    """Every file. Those in the order wanted wait until they overlap enough, so a stream can run with it."""

    name: ClassVar[str] = "all"
    parameters: ClassVar[Mapping[str, str]] = {}

    def refused(
        self, _files: Sequence[TableFile], _policy: ClusteringPolicy, _now: int, /
    ) -> Mapping[str, str]:
        return {}


@dataclass(frozen=True, slots=True)
class BySize:
    """Files below the policy's small limit; so what clustering made full is not sorted again (see `All`)."""

    name: ClassVar[str] = "by_size"
    parameters: ClassVar[Mapping[str, str]] = {}

    def refused(
        self, files: Sequence[TableFile], policy: ClusteringPolicy, _now: int, /
    ) -> Mapping[str, str]:
        reason = f"at or above the small limit of {policy.small_file_bytes:,} bytes"
        return {file.path: reason for file in files if file.bytes >= policy.small_file_bytes}


@dataclass(frozen=True, slots=True, init=False)
class ClusteringPolicy:
    """Which files are rewritten, into what order and size. Impossible values raise ValueError.

    `sort_by`: columns, as names or as `SortField`; without any, files are joined unsorted (bin-packing).
    `strategy`: a name of `planners.clustering.strategies.BUILT_IN`, or a `Strategy` that the executor knows
    by name; by default "sort", or "bin_pack" without sort columns. `select`: the plan strategies; a file must
    pass all of them; by default `BySize()`, or `All()` for a strategy that rewrites file by file.

    `target_file_bytes`: the size that written files aim at. `small_file_bytes`: a file strictly below is
    small. `max_group_bytes`, `max_group_files`: the limits of one group. `max_groups`: the limit of one plan.
    `overlap_at_least`: files already in this order are left alone until so many share a range of keys, or
    until so many are small.
    """

    sort_by: tuple[SortField, ...]
    strategy: Strategy
    select: tuple[PlanStrategy, ...]
    target_file_bytes: int
    small_file_bytes: int
    max_group_bytes: int
    max_group_files: int
    max_groups: int
    overlap_at_least: int

    def __init__(
        self,
        *,
        sort_by: Sequence[str | SortField] = (),
        strategy: str | Strategy | None = None,
        parameters: Mapping[str, str] | None = None,
        select: PlanStrategy | Sequence[PlanStrategy] | None = None,
        target_file_bytes: int | str = "1GiB",
        small_file_bytes: int | str = "600MiB",
        max_group_bytes: int | str = "4GiB",
        max_group_files: int = 1_000,
        max_groups: int = 100,
        overlap_at_least: int = 4,
    ) -> None:
        if isinstance(sort_by, str):
            raise ValueError(f"sort_by must be a list of columns, not one text: sort_by={sort_by!r}")
        fields = tuple(it if isinstance(it, SortField) else SortField.parse(it) for it in sort_by)
        chosen = choose_strategy(strategy, parameters or {}, sorts=bool(fields))
        if select is None:
            select = All() if traits(chosen.name).file_by_file else BySize()
        values = {
            "sort_by": fields,
            "strategy": chosen,
            "select": tuple(select) if isinstance(select, Sequence) else (select,),
            "target_file_bytes": parse_bytes(target_file_bytes),
            "small_file_bytes": parse_bytes(small_file_bytes),
            "max_group_bytes": parse_bytes(max_group_bytes),
            "max_group_files": max_group_files,
            "max_groups": max_groups,
            "overlap_at_least": overlap_at_least,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check()

    @property
    def order(self) -> str | None:
        """The name of the order that written files have; None where files are only joined."""
        return order_name(self.strategy, tuple(map(str, self.sort_by)))

    @property
    def file_by_file(self) -> bool:
        return traits(self.strategy.name).file_by_file

    @property
    def along_curve(self) -> bool:
        return traits(self.strategy.name).along_curve

    def _check(self) -> None:
        sizes = f"target_file_bytes={self.target_file_bytes:,}, small_file_bytes={self.small_file_bytes:,}"
        if self.small_file_bytes < 0:
            raise ValueError(f"small_file_bytes must not be negative: {sizes}")
        if self.target_file_bytes <= self.small_file_bytes:
            raise ValueError(
                "target_file_bytes must be above small_file_bytes, or the files that clustering writes would "
                f"be small again; raise the target or lower the small limit: {sizes}"
            )
        if self.max_group_bytes < self.target_file_bytes:
            raise ValueError(
                "max_group_bytes must reach target_file_bytes, or no group could make a full file; raise it "
                f"or lower the target: max_group_bytes={self.max_group_bytes:,}, {sizes}"
            )
        for name, least in (("max_group_files", 2), ("max_groups", 1), ("overlap_at_least", 2)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}: {name}={value!r}")
        columns = [field.column for field in self.sort_by]
        twice = sorted({column for column in columns if columns.count(column) > 1})
        if twice:
            raise ValueError(f"sort_by names a column twice: {', '.join(twice)}")
        check_sort_columns(self.strategy, columns)
