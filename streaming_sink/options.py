"""What a sink is told: frozen, checked together when the sink is made, so that a wrong option fails before a stream starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from planners import FileSizing, FillPolicy
from timeline.properties import is_protocol

StorageOptions = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
OPERATIONS = ("insert", "bulk_insert")


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """The options of one sink. ValueError or TypeError names the option, its value and what to do.

    Whatever could hold a secret (`storage_options`) is left out of the repr.
    """

    location: str
    partition_by: tuple[str, ...] = ()
    sizing: FileSizing = FileSizing()
    fill_policy: FillPolicy = FillPolicy.AMORTIZED
    operation: str = "insert"
    app_id: str | None = None
    takeover_from: str | None = None
    table_properties: Mapping[str, str] = field(default_factory=dict)
    storage_options: StorageOptions | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.location, str) or not self.location.strip():
            raise ValueError(f"location must be a path or a URL such as s3://lake/events, not {self.location!r}")
        if isinstance(self.partition_by, str) or not all(isinstance(term, str) for term in self.partition_by):
            raise TypeError(f'partition_by must be a list of transforms such as ["day(event_time)"], not {self.partition_by!r}')
        if not isinstance(self.sizing, FileSizing):
            raise TypeError(f'sizing must be a FileSizing, such as FileSizing(max_file_bytes="120MiB"), not {self.sizing!r}')
        if self.operation not in OPERATIONS:
            raise ValueError(f"operation must be one of {', '.join(OPERATIONS)}, not {self.operation!r}{_nearest(self.operation, OPERATIONS)}")
        for name, value in (("app_id", self.app_id), ("takeover_from", self.takeover_from)):
            if value is not None and (not isinstance(value, str) or not value.strip()):
                raise ValueError(f"{name} must be a name that is not empty, or left out; it is {value!r}")
        for key, value in self.table_properties.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TypeError(f"table_properties must map text to text; {key!r} maps to {value!r}")
            if is_protocol(key):
                raise ValueError(f"table property {key} belongs to the commit protocol and is set by it alone; leave it out of table_properties")
        if self.storage_options is not None and not callable(self.storage_options) and not isinstance(self.storage_options, Mapping):
            raise TypeError("storage_options must be a dict, or a callable without arguments that returns one")

    @property
    def bulk(self) -> bool:
        return self.operation == "bulk_insert"


def sink_options(location: str, given: Mapping[str, Any]) -> SinkOptions:
    """Return the options that a caller gave by name. TypeError for an unknown one, naming the nearest that exists."""
    known = [each.name for each in fields(SinkOptions) if each.name != "location"]
    for name in given:
        if name not in known:
            raise TypeError(f"IcebergSink has no option {name!r}{_nearest(name, known)}; it has {', '.join(known)}")
    values = dict(given)
    if "fill_policy" in values:
        values["fill_policy"] = _fill_policy(values["fill_policy"])
    if isinstance(values.get("partition_by"), Sequence) and not isinstance(values["partition_by"], str):
        values["partition_by"] = tuple(values["partition_by"])
    return SinkOptions(location=location, **values)


def _fill_policy(value: object) -> FillPolicy:
    names = [policy.value for policy in FillPolicy]
    try:
        return FillPolicy(value)
    except ValueError:
        raise ValueError(f"fill_policy must be one of {', '.join(names)}, not {value!r}{_nearest(str(value), names)}") from None


def _nearest(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
