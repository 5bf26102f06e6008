"""The types of clustering's options, checked at construction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from planners.clustering.sort_fields import SortField
from planners.clustering.strategies import Strategy

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
