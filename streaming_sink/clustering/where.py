"""The filter of partitions, as text: "region=eu,region=us,day=2026-01-01"."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote_plus

from pyiceberg.partitioning import PartitionSpec

from planners import SelectedPartitions
from planners.model import PartitionKey, TablePartition, comparable
from planners.suggestions import unknown_name
from streaming_sink.table.partition_names import as_terms, speller, values_of
from timeline.manifests.packed import PackedFiles
from timeline.manifests.selected_files import Selection
from timeline.versions.head import Head

_NAMED = 5


class NoPartitionError(ValueError):
    """A filter matches no partition with files, by now."""


def parse_where(text: str) -> dict[str, set[str]]:
    """Return what a filter names: of each field the values. ValueError for one that does not parse."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for term in text.split(","):
        name, equals, value = (unquote_plus(part.strip()) for part in term.partition("="))
        if not equals:
            raise ValueError(f"a filter is NAME=VALUE, several between commas: {term!r}")
        wanted[name].add(value)
    return wanted


def check_where(text: str, specs: Iterable[PartitionSpec]) -> None:
    """Raise ValueError for a filter of a field that none of the partition specs has, with the nearest."""
    fields = list(dict.fromkeys(field.name for spec in specs for field in spec.fields))
    if not fields:
        raise ValueError(f"the table is not partitioned, so there is nothing to choose by: {text}")
    for name in parse_where(text):
        if name not in fields:
            raise unknown_name("partition field", name, fields)


def partitions_where(head: Head, text: str) -> SelectedPartitions:
    """Return the plan strategy of the partitions that a filter matches: NAME=VALUE pairs between commas.

    Names are those of the partition fields, and values are spelled as the table's folders spell them, a comma
    as %2C. Several values of one field are alternatives; a partition must match each field that is named. A
    partition of an older spec of the table that lacks such a field does not match.

    ValueError for a filter that does not parse; for an unknown field, with the nearest. NoPartitionError for
    a filter that matches no partition with files, with some of those that exist. Reads manifests until one
    has such a file, of those that may have one by their list; all where none has.
    """
    specs = {
        spec_id: [field.name for field in spec.fields] for spec_id, spec in head.metadata.specs().items()
    }
    check_where(text, head.metadata.specs().values())
    wanted = {name: {f"{name}={each}" for each in values} for name, values in parse_where(text).items()}

    spell = speller(head)

    def matches(partition: TablePartition) -> bool:
        named = dict(zip(specs[partition.spec_id], spell(partition), strict=True))
        return all(named.get(name) in values for name, values in wanted.items())

    values = _values(head, wanted)
    near = head.manifest_files.ahead(Selection(values=values).manifests(head.manifests, head.pruning))
    if not any(any(map(matches, _partitions(head.manifest_files.columns(it)))) for it in near):
        partitions = {it for columns in head.columns() for it in _partitions(columns)}
        known = sorted("/".join(as_terms(spell(partition))) for partition in partitions)
        some = f"; there are {len(known):,}, such as {', '.join(known[:_NAMED])}" if known else ""
        raise NoPartitionError(f"the filter {text} matches no partition{some}")
    keep = {spec_id: partial(_matches_in, matches, spec_id) for spec_id in specs}
    return SelectedPartitions(keep, text, values)


def _partitions(columns: PackedFiles) -> Iterator[TablePartition]:
    return (TablePartition(columns.spec_id, comparable(values)) for values in columns.partitions)


def _matches_in(matches: Callable[[TablePartition], bool], spec_id: int, values: PartitionKey) -> bool:
    return matches(TablePartition(spec_id, values))


def _values(head: Head, wanted: Mapping[str, Collection[str]]) -> dict[int, Sequence[Collection[Any] | None]]:
    """Return, of each spec that has the fields, the values that they may have."""
    return {
        spec_id: [
            values_of(head, field, wanted[field.name]) if field.name in wanted else None
            for field in spec.fields
        ]
        for spec_id, spec in head.metadata.specs().items()
        if wanted.keys() <= {field.name for field in spec.fields}
    }
