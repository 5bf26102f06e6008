"""Values that users make of options: they print as they are written, and are plain dicts and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from enum import Enum
from typing import Any, ClassVar, TypeVar

APART = {"apart": True}
"""The metadata of a field that is no part of the dict: a function, or what may hold secrets."""
BYTES = {"bytes": True}
"""The metadata of a field that prints as a size."""
_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_Made = TypeVar("_Made", bound="Value")


class Value:
    """A frozen dataclass of options, which has `repr=False`.

    Its repr is the call that makes it, without the fields that have their defaults, and those that are apart.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __repr__(self) -> str:
        said = [
            f"{each.name}={_printed(getattr(self, each.name), each)}"
            for each in fields(self)
            if "apart" not in each.metadata and getattr(self, each.name) != _default(each)
        ]
        return f"{type(self).__name__}({', '.join(said)})"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON has them, but for functions and what may hold secrets."""
        return {
            each.name: _plain(getattr(self, each.name))
            for each in fields(self)
            if "apart" not in each.metadata
        }

    @classmethod
    def from_dict(cls: type[_Made], stored: Mapping[str, Any], **apart: Any) -> _Made:
        """Return the value that `to_dict` made a dict of; what is not in it has its default. `apart`: the
        fields that no dict has. TypeError for what is no dict, and without a field that has no default;
        ValueError for an unknown name.
        """
        known = {each.name: each for each in fields(cls) if "apart" not in each.metadata}
        for name in check_is_dict(cls.__name__, stored):
            if name not in known:
                raise ValueError(
                    f"{cls.__name__} has no option {name!r}{nearest(name, known)}; it has {', '.join(known)}"
                )
        for each in fields(cls):
            needed = each.init and each.default is MISSING and each.default_factory is MISSING
            if needed and each.name not in stored and each.name not in apart:
                raise TypeError(f"{cls.__name__} needs {each.name}=…, which this dict does not have")
        return cls(**{name: _read(known[name], value) for name, value in stored.items()}, **apart)


def check_is_dict(what: str, value: Any) -> Mapping[str, Any]:
    """Return the dict that a value is to be made of. TypeError for anything else."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} is made of a dict, as to_dict() returns one, not {value!r}")
    return value


def check_has_no_password(option: str, url: str) -> str:
    """Return a URL. ValueError for one with a password in it, which reprs, dicts and reports would show."""
    user, at, _ = url.partition("://")[2].partition("/")[0].rpartition("@")
    if at and ":" in user:
        raise ValueError(
            f"{option} has a password in it, which reports and errors would show: leave it out, and give"
            " credentials as options of their own"
        )
    return url


def whole_number(name: str, value: object, at_least: int = 1) -> int:
    """Return the value of an option. TypeError for what is no whole number, ValueError for one below the
    least.
    """
    if type(value) is not int:
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}: {name}={value}")
    return value


def one_of(name: str, value: object, known: Sequence[str]) -> str:
    """Return the value of an option. ValueError for one that is not known."""
    if value not in known:
        near = nearest(value, known) if isinstance(value, str) else ""
        raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}{near}")
    return str(value)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'id'?" for a name that is not known, "" where none is near."""
    from planners.suggestions import nearest_name  # tasks make values, and suggest nothing

    near = nearest_name(name, known)
    return f"; did you mean {near!r}?" if near else ""


def _default(of: Field[Any]) -> Any:
    if of.default_factory is not MISSING:
        return of.default_factory()
    return of.default


def _printed(value: Any, of: Field[Any]) -> str:
    if "bytes" in of.metadata and type(value) is int:
        for size, unit in _UNITS:
            if value and value % size == 0:
                return repr(f"{value // size}{unit}")
    return repr(list(value) if isinstance(value, tuple) else value)


def _plain(value: Any) -> Any:
    if isinstance(value, Value):
        return value.to_dict()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _read(of: Field[Any], value: Any) -> Any:
    made = of.metadata.get("of")
    return value if made is None or value is None else made(value)
