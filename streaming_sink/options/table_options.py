"""`TableOptions`: all of a sink, or a buffer zone, but which table, which writer, and what reports go to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from planners import FileSizing
from planners.sizing import FillPolicy
from planners.suggestions import nearest_name
from planners.values import APART, Value
from streaming_sink.clustering.passes import Clustering
from streaming_sink.options.properties import check_table_properties
from streaming_sink.options.values.checks import Checks, check_is_apart
from streaming_sink.options.values.contract import STRICT, SchemaContract
from streaming_sink.options.values.retention import Retention
from streaming_sink.options.values.tables import AnyTable, CatalogTable, PathTable, as_table
from streaming_sink.options.values.writes import (
    Append,
    BulkInsert,
    Delete,
    Upsert,
    Write,
    WriteByKey,
    write_from_dict,
    write_to_dict,
)
from streaming_sink.table.spec import partition_terms
from timeline.stores import StorageOptions
from timeline.versions.keys import PARTITION_SCOPE


@dataclass(frozen=True, kw_only=True, repr=False)
class TableOptions(Value):
    """How rows land in a table.

    `write`: `Append()`, `BulkInsert()`, `Upsert(key=…)` or `Delete(key=…)`. `partition_by` lists Iceberg
    transforms: "region", "day(event_time)", "bucket(16, user_id)", …; the table is created with them, and
    must be partitioned so afterwards, unless the contract lets its partitioning evolve. `sizing`: the sizes
    of files, and how small ones are merged. `contract`: what happens where a batch's columns differ from the
    table's; by default it is refused. `checks`: which rows fail, and what becomes of them. `clustering` puts
    rows that are queried together into the same files. `retention`: how long old snapshots stay readable; by
    default as the table's properties say. `table_properties` are given to a table that is created.

    TypeError or ValueError for a value of the wrong type, or values that contradict each other.
    """

    write: Write = field(default_factory=Append, metadata={"of": write_from_dict})
    partition_by: Sequence[str] = ()
    sizing: FileSizing = field(default_factory=FileSizing, metadata={"of": FileSizing.from_dict})
    contract: SchemaContract = field(default=STRICT, metadata={"of": SchemaContract.from_dict})
    checks: Checks = field(default_factory=Checks, metadata={"of": Checks.from_dict})
    clustering: Clustering | None = field(default=None, metadata={"of": Clustering.from_dict})
    retention: Retention | None = field(default=None, metadata={"of": Retention.from_dict})
    table_properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, kind, example in _KINDS:
            value = getattr(self, name)
            if not (isinstance(value, kind) or (value is None and name in _MAY_BE_NONE)):
                raise TypeError(f"{name} must be {example}, not {value!r}")
        object.__setattr__(self, "partition_by", partition_terms(self.partition_by))
        evolves = self.contract.evolves_partitioning
        if evolves and not self.partition_by:
            raise ValueError(
                'partitioning="evolve" needs partition_by, the partitioning that the table is to have, as'
                ' partition_by=["day(event_time)"]; leave it out to keep the table\'s'
            )
        if self.keys is not None and evolves and self.keys.key_scope == PARTITION_SCOPE:
            raise ValueError('key_scope="partition" needs one partitioning: leave out partitioning="evolve"')
        if self.keys is not None and self.sizing.fill == "inline":
            raise ValueError(
                "a batch of changes by key merges no small files, which is done beside the stream: leave out"
                ' fill="inline"'
            )
        self.checks.check_quarantines(self.contract.quarantines)
        check_table_properties(self.table_properties)
        # Iceberg's catalogs take it as an argument of table creation, and do not store it.
        kept = {name: value for name, value in self.table_properties.items() if name != "format-version"}
        object.__setattr__(self, "table_properties", kept)
        for key in sorted(kept.keys() & ({} if self.retention is None else self.retention.table_properties)):
            assert self.retention is not None
            raise ValueError(
                f"table_properties sets {key} to {kept[key]!r}, and retention to"
                f" {self.retention.table_properties[key]!r}; set it in one place"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return all options as JSON has them, the write with its operation."""
        return {**super().to_dict(), "write": write_to_dict(self.write)}

    @property
    def keys(self) -> WriteByKey | None:
        """The write, where it is one by key; else None."""
        return self.write if isinstance(self.write, WriteByKey) else None

    @property
    def allow_duplicates(self) -> bool:
        return isinstance(self.write, Append) and self.write.allow_duplicates

    @property
    def bulk(self) -> bool:
        return isinstance(self.write, BulkInsert)

    @property
    def fills(self) -> bool:
        """Whether small files are merged, in a batch or beside the stream."""
        return not self.bulk and self.sizing.fill != "never" and self.sizing.small_file_bytes > 0

    @property
    def fills_inline(self) -> bool:
        """Whether new rows join small files."""
        return self.fills and self.sizing.fill == "inline"  # never with a key

    @property
    def fills_beside(self) -> bool:
        """Whether small files are merged beside the stream, and never with new rows."""
        return self.fills and self.sizing.fill == "beside"

    @property
    def fill_policy(self) -> FillPolicy:
        """Which small files are merged."""
        return FillPolicy.NEVER if self.sizing.fill == "never" else FillPolicy(self.sizing.fill_policy)

    @property
    def small_below_bytes(self) -> int:
        """The size below which a file is small: the limit of filling, or of clustering if nothing fills."""
        if self.clustering is not None and not self.fills:
            return self.clustering.settings.policy.small_file_bytes
        return self.sizing.small_file_bytes


_KINDS: tuple[tuple[str, Any, str], ...] = (
    ("write", Write, 'a write, such as Append() or Upsert(key=["user_id"])'),
    ("sizing", FileSizing, 'a FileSizing, such as FileSizing(max_file_bytes="120MiB")'),
    ("contract", SchemaContract, "a SchemaContract, such as SchemaContract.evolving()"),
    ("checks", Checks, 'Checks, such as Checks({"price >= 0": "quarantine"})'),
    ("clustering", Clustering, 'a Clustering, such as Clustering(sort_by=["session_id"], every_commits=4)'),
    ("retention", Retention, 'a Retention, such as Retention(max_snapshot_age="1 day")'),
)
_MOST_APP_ID_BYTES = 150
_BYTES_OF_A_MAIN_TABLE = 13
"""A key has at most 200 bytes; that of a delivery names the main table, too."""
_MAY_BE_NONE = ("clustering", "retention")


@dataclass(frozen=True, kw_only=True, repr=False)
class SinkOptions(TableOptions):
    """All options of one sink."""

    table: PathTable | CatalogTable
    app_id: str | None = None
    takeover_from: str | None = None
    on_report: Callable[[Any], object] | None = field(default=None, metadata=APART, compare=False)
    replayed_from: str | None = None
    """The quarantine whose rows a replay writes, and marks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("app_id", "takeover_from"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value.strip()):
                raise ValueError(f"{name} must be a name that is not empty, or left out; it is {value!r}")
        if self.takeover_from is not None and self.app_id is None:
            raise ValueError(
                "takeover_from needs app_id, or the old query's name would not be found in the table: give"
                " the app_id that the old query had; where it had none, that is its query id:"
                f" app_id={self.takeover_from!r}"
            )
        if isinstance(self.table, CatalogTable):
            self._check_names_in_a_catalog()
        else:
            if self.keys is not None:
                check_is_apart("changelog_table", self.location, self.keys.changelog_table)
                check_is_apart("changelog_table", self.quarantine.location, self.keys.changelog_table)
            check_is_apart("quarantine", self.location, self.checks.quarantine)
        if self.on_report is not None and not callable(self.on_report):
            raise TypeError(f"on_report must be a function of one report, not {self.on_report!r}")

    def _check_names_in_a_catalog(self) -> None:
        """Raise ValueError for an app_id that no catalog takes, and a second table that is no other one."""
        most = _MOST_APP_ID_BYTES - (_BYTES_OF_A_MAIN_TABLE if self.quarantines else 0)
        if self.app_id is not None and len(self.app_id.encode()) > most:
            raise ValueError(
                f"app_id has at most {most} bytes for a table in a catalog"
                f"{' with a quarantine' if self.quarantines else ''}, where it is part of a property's key;"
                f" it has {len(self.app_id.encode())}: {self.app_id!r}"
            )
        taken = {self.location: "the sink's table"}
        for name, second in (("quarantine", self.quarantine), ("changelog_table", self.change_log)):
            if second is not None and second.location in taken:
                raise ValueError(
                    f"{name} must be a table of its own, not {taken[second.location]}: {second.location}"
                )
            taken |= {} if second is None else {second.location: f"its {name}"}

    @property
    def location(self) -> str:
        """The table's location; of one in a catalog, how reports and errors call it."""
        return self.table.location

    @property
    def storage_options(self) -> StorageOptions | None:
        return self.table.storage_options

    @property
    def quarantines(self) -> bool:
        """Whether a row may be quarantined."""
        return self.checks.quarantines or self.contract.quarantines

    @property
    def tables(self) -> list[PathTable | CatalogTable]:
        """The table, and the second ones that are asked for."""
        quarantine = self.quarantine if self.quarantines else None
        return [it for it in (self.table, quarantine, self.change_log) if it is not None]

    @property
    def quarantine(self) -> PathTable | CatalogTable:
        """The table of rows that fail; in a catalog, one of the same catalog."""
        given = self.replayed_from or self.checks.quarantine
        return self.table.default_quarantine if given is None else self.table.beside(given)

    @property
    def change_log(self) -> PathTable | CatalogTable | None:
        """The table that gets what each version has changed; None where none is asked for."""
        given = None if self.keys is None else self.keys.changelog_table
        return None if given is None else self.table.beside(given)


def given_options(given: Mapping[str, Any], options: TableOptions | None = None) -> TableOptions:
    """Return the options that are given one by one (None says nothing), or `options` in their place.

    TypeError or ValueError as the values raise; ValueError for both.
    """
    said = {name: value for name, value in given.items() if value is not None}
    if options is None:
        return TableOptions(**said)
    if not isinstance(options, TableOptions):
        raise TypeError(f"options must be TableOptions, not {options!r}")
    if said:
        name = next(iter(said))
        raise ValueError(
            f"options has all options of the table: put {name} in it, as in"
            f" dataclasses.replace(options, {name}=...)"
        )
    return options


def sink_options(
    table: AnyTable, given: Mapping[str, Any], options: TableOptions | None = None, **own: Any
) -> SinkOptions:
    """Return the options of a sink; those of the table as `given_options`, and its errors."""
    chosen = given_options(given, options)
    values = {each.name: getattr(chosen, each.name) for each in fields(TableOptions)}
    options = SinkOptions(table=as_table(table), **values, **own)
    if options.location.startswith("memory://"):
        raise ValueError(
            "a memory:// location lives in one process, and Spark's workers write in others; use a folder:"
            f" {options.location!r}"
        )
    return options


def options_of_second_table(options: SinkOptions, table: PathTable | CatalogTable) -> SinkOptions:
    """Return how a second table of a sink is kept: its rows are appended, and its small files merged beside
    the stream, unless the sink merges none.
    """
    fill = "beside" if options.fills else "never"
    return SinkOptions(
        table=table,
        sizing=replace(options.sizing, fill=fill),
        retention=options.retention,
        app_id=options.app_id,
        takeover_from=options.takeover_from,
        on_report=options.on_report,
    )


def unknown_option(what: str, name: str, known: Sequence[str], own: Iterable[type[Value]] = ()) -> str:
    """Return what to say of an option that is not known: the value that has it, or the nearest name. `own`:
    values that this surface alone takes.
    """
    owners = {each.name: kind.__name__ for kind in (*_ALL_KINDS, *own) for each in fields(kind)}
    likely = [each for each, owner in owners.items() if owner not in ("Clustering", "SchemaContract")]
    near = name if name in owners else nearest_name(name, [*known, *likely])
    if near in owners and near not in known:
        hint = f"; did you mean {owners[near]}({near}=…)?"
    else:
        hint = f"; did you mean {near!r}?" if near else ""
    return f"{what} has no option {name!r}{hint}; it has {', '.join(known)}"


_ALL_KINDS: tuple[type[Value], ...] = (
    *(TableOptions, Clustering, SchemaContract, CatalogTable, PathTable, Retention),
    *(Checks, Append, Delete, Upsert, FileSizing),
)
"""Of two with an option of one name the last one is meant."""
