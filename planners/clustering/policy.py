"""What a user asks of clustering: sort order, sizes, limits, and which files; frozen and checked together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from planners.clustering.plan import FILE_BY_FILE, Strategy, order_name
from planners.clustering.strategies import All, ByOverlap, BySize, PlanStrategy, RecentPartitions
from planners.sizing import parse_bytes

SORTING = ("sort", "zorder", "hilbert")
"""The built-in strategies that order rows by columns: one after the other, or along a curve."""

STRATEGIES = ("bin_pack", *SORTING, *FILE_BY_FILE)
"""The names that `ClusteringPolicy` knows. Any other strategy is given as a `Strategy`."""


def nearest(kind: str, name: str, known: Iterable[str]) -> ValueError:
    """Return the error that says this name is not known, and which known one it comes nearest to."""
    names = sorted(known)
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(names) or 'none'}"
    return ValueError(f"unknown {kind} {name!r}; {hint}")


@dataclass(frozen=True, slots=True)
class SortField:
    """One column to sort by. Its text, as `str` gives and `parse` reads: "session_id desc nulls last"."""

    column: str
    descending: bool = False
    nulls_first: bool = True

    def __post_init__(self) -> None:
        if not self.column.strip():
            raise ValueError("a sort column needs a name")

    def __str__(self) -> str:
        direction = "desc" if self.descending else "asc"
        return f"{self.column} {direction} nulls {'first' if self.nulls_first else 'last'}"

    @classmethod
    def parse(cls, text: str) -> SortField:
        """Read a column's name, or one with "asc" or "desc" and "nulls first" or "nulls last" behind it.

        Without them the column ascends; nulls come first where it ascends, last where it descends, as in
        Spark. A column whose name itself ends in such words is given as a `SortField`.
        """
        rest, nulls_first = text.strip(), None
        for place in ("first", "last"):
            if rest.lower().endswith(f" nulls {place}"):
                rest, nulls_first = rest[: -len(f" nulls {place}")].rstrip(), place == "first"
        descending = rest.lower().endswith(" desc")
        if descending or rest.lower().endswith(" asc"):
            rest = rest.rpartition(" ")[0].rstrip()
        return cls(rest, descending, not descending if nulls_first is None else nulls_first)


@dataclass(frozen=True, slots=True, init=False)
class ClusteringPolicy:
    """Which files are rewritten, into what order and size. Impossible values raise ValueError.

    `sort_by`: columns, as names or as `SortField`; none joins files without sorting them (bin-packing).
    `strategy`: one of `STRATEGIES`, or a `Strategy` that the executor knows by name; by default "sort", or
    "bin_pack" with nothing to sort by. `select`: the plan strategies that all have to let a file through; by
    default `BySize()`, or `All()` for a strategy that rewrites file by file.

    `target_file_bytes`: what written files come near to. `small_file_bytes`: a file strictly below is small.
    `max_group_bytes`, `max_group_files`: what one group, and so one task, may hold. `max_groups`: how much
    one plan may hold. `overlap_at_least`: files already in this order are left alone until so many
    share a range of keys, or until so many are small.
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
        chosen = _strategy(strategy, fields, parameters or {})
        if select is None:
            select = All() if chosen.name in FILE_BY_FILE else BySize()
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
        """The name of the order that files come out in; None where they are only joined."""
        return order_name(self.strategy, tuple(map(str, self.sort_by)))

    @property
    def file_by_file(self) -> bool:
        return self.strategy.name in FILE_BY_FILE

    @property
    def along_a_curve(self) -> bool:
        return self.strategy.name in SORTING[1:]

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
        if self.strategy.name in SORTING and not columns:
            raise ValueError(f"strategy {self.strategy.name!r} needs columns to sort by; give sort_by")
        if self.strategy.name in ("bin_pack", *FILE_BY_FILE) and columns:
            raise ValueError(
                f"strategy {self.strategy.name!r} does not sort; drop sort_by or choose one of "
                f"{', '.join(SORTING)}: sort_by={columns}"
            )


def _strategy(
    given: str | Strategy | None, fields: Sequence[SortField], parameters: Mapping[str, str]
) -> Strategy:
    if isinstance(given, Strategy):
        if parameters:
            raise ValueError(f"parameters belong into the strategy that is given: {given}")
        return given
    name = given if given is not None else "sort" if fields else "bin_pack"
    if name not in STRATEGIES:
        raise nearest("clustering strategy", name, STRATEGIES)
    return Strategy(name, tuple(sorted(parameters.items())))


def plan_strategy(name: str, **parameters: int) -> PlanStrategy:
    """Return a built-in plan strategy by its name, as a command line gives it.

    ValueError names the nearest known strategy or parameter. `SelectedPartitions` has no such form: it is
    made from a function.
    """
    if name not in _PLAN_STRATEGIES:
        raise nearest("plan strategy", name, _PLAN_STRATEGIES)
    kind, known, needed = _PLAN_STRATEGIES[name]
    for parameter in parameters:
        if parameter not in known:
            raise nearest(f"parameter of plan strategy {name!r}", parameter, known)
    missing = [parameter for parameter in needed if parameter not in parameters]
    if missing:
        raise ValueError(f"plan strategy {name!r} needs {missing[0]}=..., a whole number")
    return kind(**parameters)


_PLAN_STRATEGIES: Mapping[str, tuple[Callable[..., PlanStrategy], tuple[str, ...], tuple[str, ...]]] = {
    "all": (All, (), ()),
    "by_overlap": (ByOverlap, ("others",), ()),
    "by_size": (BySize, (), ()),
    "recent_partitions": (RecentPartitions, ("look_back", "skip_latest"), ("look_back",)),
}
"""What makes each, the parameters that it takes, and those of them that it needs."""
