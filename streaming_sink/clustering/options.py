"""Clustering options, checked one by one and together at construction, before a pass runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec

from planners.clustering.policy import ClusteringPolicy, PlanStrategy
from planners.clustering.sort_fields import SortField
from planners.clustering.strategies import Strategy, choose_strategy, traits
from planners.sizing import parse_bytes
from planners.suggestions import nearest_name
from streaming_sink.clustering.where import check_where, parse_where
from streaming_sink.tasks.clustering.curve_order import bits_per_column
from streaming_sink.tasks.clustering.ordering import sort_column
from streaming_sink.tasks.clustering.strategies import Factory, make_strategy

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from streaming_sink.tasks.encryption import Keys
    from timeline.versions.head import Head


_LEAST_MEMORY = 1024 * 1024
_GROUP_BYTES = 4 * 1024**3
_TARGET_BYTES = 1024**3


class PassOptions(TypedDict, total=False):
    """The keywords of a pass. All have defaults; sizes are integers or texts such as "1GiB".

    `sort_by`: columns, as names ("session_id", "time desc nulls last") or `SortField`; without any, files are
    only joined. `strategy`: a built-in name, by default "sort", or a name in `strategies`: custom strategies,
    made from `parameters`. `select`: the plan strategies that a file must pass; by default `BySize()`.
    `where`: only files of these partitions, such as "region=eu,region=us,day=2026-01-01": names of partition
    fields, with values as the table's folders spell them; several of one field are alternatives, and every
    field that is named must match. Where the table has no such partition, a pass of a stream has nothing to
    do yet, and every other one raises ValueError.
    `max_bytes_per_pass`: the most that one pass reads; the rest waits for the next one. `memory_bytes`: Arrow
    bytes that one task holds; more is spilled. `checksum`: read the written files back, and compare the rows.
    `max_commits`: the most versions that commit the groups of a pass, by default one; with more, the first
    groups are readable, and safe from later failures, while others are still being rewritten. `keys`: for
    encrypted files, see `streaming_sink.tasks.encryption.Keys`. The others are those of
    `planners.ClusteringPolicy`.
    """

    sort_by: Sequence[str | SortField]
    strategy: str | Strategy
    parameters: Mapping[str, str]
    strategies: Mapping[str, Factory]
    select: PlanStrategy | Sequence[PlanStrategy]
    where: str
    target_file_bytes: int | str
    small_file_bytes: int | str
    max_group_bytes: int | str
    max_group_files: int
    max_groups: int
    overlap_at_least: int
    max_bytes_per_pass: int | str
    memory_bytes: int | str
    checksum: bool
    max_commits: int
    keys: Keys


_OF_THE_EXECUTION = ("strategies", "memory_bytes", "checksum", "max_commits", "keys")
_OF_THE_PASS = ("where", "max_bytes_per_pass", *_OF_THE_EXECUTION)


@dataclass(frozen=True)
class Execution:
    """How the groups of any plan are rewritten. See `execution_of`."""

    memory_bytes: int
    """Arrow bytes that one task may hold."""
    checksum: bool
    strategies: Mapping[str, Factory]
    """The custom ones, by name."""
    max_commits: int = 1
    keys: Keys | None = field(default=None, repr=False)
    """For encrypted files: the files that replace them are encrypted under the same keys."""


@dataclass(frozen=True)
class Pass:
    """One pass of clustering: its policy, its limit, and how it rewrites. See `pass_of`."""

    policy: ClusteringPolicy
    max_bytes: int
    execution: Execution
    where: str | None = None
    """Of which partitions it takes files, as a filter; None for all."""

    def check_table(self, schema: pa.Schema, spec: PartitionSpec, head: Head | None) -> None:
        """As `check_columns`, and for a filter of partitions that names a field which the table lacks: its
        partition spec, and those before it.
        """
        self.check_columns(schema)
        if self.where is not None:
            check_where(self.where, [*(head.metadata.partition_specs if head else ()), spec])

    def check_columns(self, schema: pa.Schema) -> None:
        """Raise ValueError for a sort column that a table of this schema lacks, or that has no order."""
        for it in self.policy.sort_by:
            sort_column(schema, it.column)

    def check_keys(self) -> None:
        """Raise ValueError for a strategy that this process could plan but, without keys, not execute."""
        check_encryption_keys(self.policy.strategy, self.execution.keys)


def pass_of(**options: Unpack[PassOptions]) -> Pass:
    """Return the pass that these options describe.

    TypeError for an unknown option or one of a wrong type, ValueError for an impossible value; the error
    suggests the nearest known name.
    """
    check_names("clustering", options, ())
    check_types(options)
    given: dict[str, Any] = {name: value for name, value in options.items() if name not in _OF_THE_PASS}
    execution = execution_of(
        options.get("memory_bytes", "512MiB"),
        options.get("checksum", False),
        options.get("strategies", {}),
        options.get("max_commits", 1),
        options.get("keys"),
    )
    max_bytes = parse_bytes(options.get("max_bytes_per_pass", "1GiB"))
    target = parse_bytes(given.setdefault("target_file_bytes", _TARGET_BYTES))
    if max_bytes < target:
        raise ValueError(
            "max_bytes_per_pass must reach target_file_bytes, or no pass could make a full file; raise it, or"
            f" lower the target: max_bytes_per_pass={max_bytes:,}, target_file_bytes={target:,}"
        )
    given.setdefault("max_group_bytes", min(_GROUP_BYTES, max_bytes))
    given["strategy"] = choose_strategy(
        given.get("strategy"),
        given.pop("parameters", {}),
        sorts=bool(given.get("sort_by")),
        custom=execution.strategies,
    )
    policy = ClusteringPolicy(**given)
    if policy.max_group_bytes > max_bytes:
        raise ValueError(
            "max_bytes_per_pass must hold a group, or no pass could take one; raise it, or lower"
            f" max_group_bytes: max_bytes_per_pass={max_bytes:,}, max_group_bytes={policy.max_group_bytes:,}"
        )
    make_strategy(policy.strategy, execution.strategies)
    if policy.along_curve:
        bits_per_column(len(policy.sort_by))
    if (where := options.get("where")) is not None:
        parse_where(where)
    return Pass(policy, max_bytes, execution, where)


def execution_of(
    memory_bytes: int | str = "512MiB",
    checksum: bool = False,
    strategies: Mapping[str, Factory] | None = None,
    max_commits: int = 1,
    keys: Keys | None = None,
) -> Execution:
    """Return how plans are executed. ValueError for too small a memory bound, or for no commit."""
    if type(max_commits) is not int or max_commits < 1:
        raise ValueError(f"max_commits must be a whole number of at least 1: max_commits={max_commits!r}")
    return Execution(memory_bound(memory_bytes), checksum, dict(strategies or {}), max_commits, keys)


def check_encryption_keys(strategy: Strategy, keys: Keys | None) -> None:
    """Raise ValueError for a strategy that sets keys where there are none, and for uncallable keys."""
    if keys is not None and not callable(keys):
        raise ValueError("keys must be a callable without arguments that makes a KmsClient of pyarrow")
    if traits(strategy.name).sets_keys and keys is None:
        raise ValueError(
            f"strategy {strategy.name!r} needs keys=...: a callable that makes a client of the key management"
            " service where files are written; without it nothing is done"
        )


def memory_bound(memory_bytes: int | str) -> int:
    """Return the Arrow bytes that one task may hold. ValueError for less than 1 MiB."""
    memory = parse_bytes(memory_bytes)
    if memory < _LEAST_MEMORY:
        raise ValueError(f"memory_bytes must be at least {_LEAST_MEMORY:,}: memory_bytes={memory:,}")
    return memory


def check_names(what: str, given: Iterable[str], more: Sequence[str]) -> None:
    """Raise TypeError for an option that is neither one of a pass nor in `more`, with the nearest."""
    known = [*more, *PassOptions.__annotations__]
    for name in given:
        if name not in known:
            near = nearest_name(name, known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise TypeError(f"{what} has no option {name!r}{hint}; it has {', '.join(known)}")


_Check = tuple[Callable[[object], bool], str]


def check_types(options: Mapping[str, object]) -> None:
    """Raise TypeError for the first option of a wrong type."""
    for name, value in options.items():
        check, kind = _KINDS.get(name, (_anything, ""))
        if not check(value):
            raise TypeError(f"{name} must be {kind}: {name}={value!r}")


def _anything(_: object) -> bool:
    return True


def _is_list_of(*kinds: type) -> Callable[[object], bool]:
    return lambda value: (
        isinstance(value, Sequence)
        and not isinstance(value, str | bytes)
        and all(isinstance(each, kinds) for each in value)
    )


def _is_size(value: object) -> bool:
    return type(value) is int or isinstance(value, str)


def _is_whole(value: object) -> bool:
    return type(value) is int


def _chooses_files(value: object) -> bool:
    several = value if isinstance(value, Sequence) else [value]
    return bool(several) and all(callable(getattr(each, "refused", None)) for each in several)


def _are_texts(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(it, str) for pair in value.items() for it in pair)


def _are_factories(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and callable(made) for name, made in value.items()
    )


_SIZE: _Check = (_is_size, 'a number of bytes, or a text such as "1GiB"')
_NUMBER: _Check = (_is_whole, "a whole number")
_FLAG: _Check = (lambda value: isinstance(value, bool), "True or False")

_KINDS: Mapping[str, _Check] = {
    "sort_by": (
        lambda value: isinstance(value, str) or _is_list_of(str, SortField)(value),
        "a list of columns, as names or as SortField",
    ),
    "strategy": (
        lambda value: value is None or isinstance(value, str | Strategy),
        "the name of a strategy, or a Strategy",
    ),
    "parameters": (_are_texts, "a mapping of names to texts"),
    "strategies": (_are_factories, "a mapping of names to what makes a strategy, such as its class"),
    "select": (
        _chooses_files,
        "one or several plan strategies, such as planners.All() or planners.plan_strategy('all')",
    ),
    "where": (
        lambda value: isinstance(value, str),
        'a filter of partitions, such as "region=eu,day=2026-01-01"',
    ),
    "target_file_bytes": _SIZE,
    "small_file_bytes": _SIZE,
    "max_group_bytes": _SIZE,
    "max_bytes_per_pass": _SIZE,
    "memory_bytes": _SIZE,
    "max_group_files": _NUMBER,
    "max_groups": _NUMBER,
    "overlap_at_least": _NUMBER,
    "checksum": _FLAG,
}
