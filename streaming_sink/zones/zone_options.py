"""The options of a buffer zone itself, beside those under which its items land."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from planners.ingestion.buffering import PlanningRules
from planners.sizing import parse_bytes
from planners.values import APART, BYTES, Value, check_has_no_password
from streaming_sink.durations import Duration, duration, spelled


class _Kept:
    """What an argument is that is left out."""

    def __repr__(self) -> str:
        return "KEPT"

    def __reduce__(self) -> str:
        return "KEPT"  # the one there is, also in another process


KEPT: Any = _Kept()
"""An argument of `BufferZone` that is left out keeps what the zone has stored."""


ZONE_OPTIONS = (
    *("table", "write", "partition_by", "sizing", "contract", "checks", "table_properties", "options"),
    *("rules", "sources", "audit", "announcements", "storage_options"),
)
"""The parameters of `BufferZone`."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Rules(Value):
    """When files that wait land: once together they have `max_bytes`, or are `max_files`, or the oldest of
    them has waited for `max_age`. `per_partition` counts and waits for each partition apart, by the
    Hive-style folders of the files' paths. While more than `max_waiting` bytes wait, or are not in the table
    yet, `push` is refused, and streams and watched folders wait; None bounds nothing.

    TypeError or ValueError for an amount or a time that is not above 0.
    """

    max_bytes: int | str = field(default=1 << 30, metadata=BYTES)
    max_files: int = 10_000
    max_age: Duration = "5 minutes"
    per_partition: bool = False
    max_waiting: int | str | None = field(default=None, metadata=BYTES)

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_bytes", parse_bytes(self.max_bytes))
        if not duration("max_age", self.max_age):
            raise ValueError(f"max_age must be above 0, such as 5 minutes, not {self.max_age!r}")
        object.__setattr__(self, "max_age", spelled("max_age", self.max_age))
        self.planned()
        if self.max_waiting is not None:
            bound = parse_bytes(self.max_waiting)
            if bound < 1:
                raise ValueError(f"max_waiting must be above 0, such as 100GiB, not {self.max_waiting!r}")
            object.__setattr__(self, "max_waiting", bound)

    def planned(self) -> PlanningRules:
        """Return the rules as planners apply them."""
        age = duration("max_age", self.max_age)
        return PlanningRules(
            max_bytes=self.max_bytes,
            max_files=self.max_files,
            max_age_ms=max(1, round(age.total_seconds() * 1000)),
            per_partition=self.per_partition,
        )

    @property
    def most_waiting(self) -> int | None:
        """The bytes that may wait."""
        return None if self.max_waiting is None else parse_bytes(self.max_waiting)


@dataclass(frozen=True, repr=False)
class SourceFolders(Value):
    """The folders that may have source files, so that a right to announce files is no right to read all that
    the workers may read; without any, those of the kind of the zone's location (on the same machine's disk,
    or in the same kind of object store).

    `by_reference` registers large files where they are, and their owner then never changes them.
    """

    folders: Sequence[str] = ()
    by_reference: bool = False

    def __post_init__(self) -> None:
        given: Any = self.folders
        if isinstance(given, str | os.PathLike):
            raise TypeError(f"folders must be a list of folders, not {given!r}")
        object.__setattr__(self, "folders", tuple(os.fspath(each) for each in given))
        if not isinstance(self.by_reference, bool):
            raise TypeError(f"by_reference must be True or False, not {self.by_reference!r}")


@dataclass(frozen=True, repr=False)
class KafkaTopic(Value):
    """A topic that has a zone's announcements: "kafka://host:9092/topic", or with a partition at its end.

    `options` are settings of the client, such as "security.protocol". They are stored nowhere.
    """

    url: str
    options: Mapping[str, str] | None = field(default=None, metadata=APART, compare=False)

    def __post_init__(self) -> None:
        given: Any = self.url
        if not isinstance(given, str):
            raise TypeError(f"announcements must be spelled kafka://host:9092/topic, not {given!r}")
        parse_kafka(check_has_no_password("url", given))


def parse_kafka(url: str) -> tuple[str, str, int]:
    """Return the bootstrap servers, the topic and the partition (default: 0) of a text such as
    "kafka://host:9092,other:9092/topic/3". ValueError for anything else.
    """
    parts = urlsplit(url)
    topic, _, partition = parts.path.strip("/").partition("/")
    if parts.scheme != "kafka" or not parts.netloc or not topic or not (partition or "0").isdecimal():
        raise ValueError(
            "announcements must be spelled kafka://host:9092/topic, or with a partition after it, not"
            f" {url!r}"
        )
    return parts.netloc, topic, int(partition or 0)
