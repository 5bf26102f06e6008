"""Sink options, validated at construction: an invalid option fails before a stream starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from planners import FOLD_ABOVE, FileSizing, FillPolicy
from planners.suggestions import nearest_name
from streaming_sink.clustering.inline import InlineClustering
from streaming_sink.table import quarantine_options
from streaming_sink.table.contract import STRICT, SchemaContract
from streaming_sink.table.key_options import DELETE, KEY_OPTIONS, UPSERT, KeyOptions, key_options
from streaming_sink.table.parquet_properties import parquet_settings
from streaming_sink.table.retention import Retention
from streaming_sink.table.spec import partition_terms
from streaming_sink.tasks.rows.failures import QUARANTINE
from timeline.properties import check_properties
from timeline.stores import StorageOptions
from timeline.versions.keys import PARTITION_SCOPE

OPERATIONS = ("insert", "bulk_insert", UPSERT, DELETE)
FILLS = ("beside", "inline")
DEFAULT_FILL = "beside"
WARN_SMALL_FILES = 100
"""Filling leaves at most eight small files in a partition, so ten times as many need attention."""
_RESERVED = frozenset(
    {
        "current-schema",
        "current-snapshot-id",
        "current-snapshot-summary",
        "current-snapshot-timestamp-ms",
        "default-partition-spec",
        "default-sort-order",
        "snapshot-count",
        "uuid",
    }
)
"""Iceberg's Java library derives these from the metadata; a table that also stores them contradicts itself
(`TableProperties.RESERVED_PROPERTIES`)."""
_FIXED = {
    "encryption.key-id": "",
    "format-version": "2",
    "schema.name-mapping.default": "",
    "write.data.path": "",
    "write.folder-storage.path": "",
    "write.format.default": "parquet",
    "write.location-provider.impl": "",
    "write.metadata.compression-codec": "none",
    "write.object-storage.enabled": "false",
    "write.object-storage.path": "",
}
"""Properties that have one valid value in a table of this sink, or none (""): its format version is 2, it has
its own name mapping, its metadata is not compressed, and its data is Parquet below the table's location."""


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """The options of one sink, checked by `sink_options`. The repr leaves out `storage_options`, which may
    hold secrets.
    """

    location: str
    partition_by: tuple[str, ...] = ()
    evolve_partitioning: bool = False
    sizing: FileSizing = field(default_factory=FileSizing)
    fill_policy: FillPolicy = FillPolicy.AMORTIZED
    fill: str = DEFAULT_FILL
    fold_above: float = FOLD_ABOVE
    operation: str = "insert"
    app_id: str | None = None
    takeover_from: str | None = None
    retention: Retention | None = None
    clustering: InlineClustering | None = None
    warn_small_files: int = WARN_SMALL_FILES
    schema: SchemaContract = STRICT
    table_properties: Mapping[str, str] = field(default_factory=dict)
    storage_options: StorageOptions | None = field(default=None, repr=False)
    expectations: Mapping[str, str] = field(default_factory=dict)
    quarantine: str | None = None
    max_quarantined: float | None = None
    keys: KeyOptions | None = None
    """None for an operation that only inserts."""
    allow_duplicates: bool = False
    on_report: Callable[[Any], object] | None = field(default=None, repr=False)

    @property
    def quarantine_location(self) -> str:
        return self.quarantine or quarantine_options.default_quarantine(self.location)

    @property
    def bulk(self) -> bool:
        return self.operation == "bulk_insert"

    @property
    def fills(self) -> bool:
        """Whether small files are merged, in a batch or beside the stream."""
        return not self.bulk and self.fill_policy is not FillPolicy.NEVER and self.sizing.small_file_bytes > 0

    @property
    def fills_inline(self) -> bool:
        """Whether new rows join small files."""
        return self.fills and self.fill == "inline"  # never with a key

    @property
    def fills_beside(self) -> bool:
        """Whether small files are merged beside the stream, and never with new rows."""
        return self.fills and self.fill == "beside"

    @property
    def small_below_bytes(self) -> int:
        """The size below which a file is small: the limit of filling, or of clustering if the sink does not
        fill.
        """
        if self.clustering is not None and not self.fills:
            return self.clustering.settings.policy.small_file_bytes
        return self.sizing.small_file_bytes


def sink_options(location: Any, given: Mapping[str, Any]) -> SinkOptions:
    """Return the options that a caller gave by name, checked one by one and together.

    Raises TypeError for an unknown name (with the nearest known one) or a value of the wrong type, and
    ValueError for an invalid value; each error names the option, its value and what to do.
    """
    known = [each.name for each in fields(SinkOptions) if each.name not in ("location", "keys")]
    known += KEY_OPTIONS
    for name in given:
        if name not in known:
            raise TypeError(
                f"IcebergSink has no option {name!r}{_nearest(name, known)}; it has {', '.join(known)}"
            )
    if not isinstance(location, str) or not location.strip():
        raise ValueError(f"location must be a path or a URL such as s3://lake/events, not {location!r}")
    if location.startswith("memory://"):
        raise ValueError(
            "a memory:// location lives in one process, and Spark's workers write in others; use a folder:"
            f" {location!r}"
        )
    values = {**given, "fill_policy": _fill_policy(given.get("fill_policy", FillPolicy.AMORTIZED))}
    terms = values["partition_by"] = partition_terms(given.get("partition_by", ()))
    evolves = values.setdefault("evolve_partitioning", False)
    if not isinstance(evolves, bool):
        raise TypeError(f"evolve_partitioning must be True or False, not {evolves!r}")
    if evolves and not terms:
        raise ValueError(
            "evolve_partitioning needs partition_by, the partitioning that the table is to have, such as"
            ' partition_by=["day(event_time)"]; leave evolve_partitioning out to keep the table\'s'
        )
    sizing = values.setdefault("sizing", FileSizing())
    if not isinstance(sizing, FileSizing):
        raise TypeError(
            f'sizing must be a FileSizing, such as FileSizing(max_file_bytes="120MiB"), not {sizing!r}'
        )
    operation = values.setdefault("operation", "insert")
    if operation not in OPERATIONS:
        near = _nearest(str(operation), OPERATIONS)
        raise ValueError(f"operation must be one of {', '.join(OPERATIONS)}, not {operation!r}{near}")
    values["keys"] = key_options(operation, values)
    if evolves and values["keys"] is not None and values["keys"].scope == PARTITION_SCOPE:
        raise ValueError('key_scope="partition" needs one partitioning: leave out evolve_partitioning=True')
    quarantine_options.check_is_apart("changelog_table", location, values.get("changelog_table"))
    values = {name: value for name, value in values.items() if name not in KEY_OPTIONS}
    if not isinstance(values.setdefault("allow_duplicates", False), bool):
        raise TypeError(f"allow_duplicates must be True or False, not {values['allow_duplicates']!r}")
    values["fill"] = _fill(values)
    fold_above = values.setdefault("fold_above", FOLD_ABOVE)
    if isinstance(fold_above, bool) or not isinstance(fold_above, int | float) or not 0 < fold_above <= 1:
        raise ValueError(
            "fold_above must be a share of a file's rows, above 0 and at most 1: a file of which more are"
            f" deleted is rewritten without them; it is {fold_above!r}"
        )
    for name in ("app_id", "takeover_from"):
        value = values.get(name)
        if value is not None and not (isinstance(value, str) and value.strip()):
            raise ValueError(f"{name} must be a name that is not empty, or left out; it is {value!r}")
    if values.get("takeover_from") is not None and values.get("app_id") is None:
        raise ValueError(
            "takeover_from needs app_id, or the old query's name would not be found in the table: give the"
            " app_id that the old query had; where it had none, that is its query id:"
            f" app_id={values['takeover_from']!r}"
        )
    _check_table_properties(values.setdefault("table_properties", {}))
    # Iceberg's catalogs take it as an argument of table creation, and do not store it.
    values["table_properties"] = {
        k: v for k, v in values["table_properties"].items() if k != "format-version"
    }
    _check_retention(values.get("retention"), values["table_properties"])
    clustering = values.get("clustering")
    if clustering is not None and not isinstance(clustering, InlineClustering):
        raise TypeError(
            "clustering must be an InlineClustering, such as InlineClustering(every_commits=4,"
            f' sort_by=["session_id"]), not {clustering!r}'
        )
    bound = values.setdefault("warn_small_files", WARN_SMALL_FILES)
    if type(bound) is not int or bound < 0:
        raise ValueError(
            "warn_small_files must be a whole number of files in a partition, or 0 for no warning; it is"
            f" {bound!r}"
        )
    contract = values.setdefault("schema", STRICT)
    if not isinstance(contract, SchemaContract):
        raise TypeError(
            f"schema must be a SchemaContract, such as SchemaContract.evolving(), not {contract!r}"
        )
    values["expectations"] = dict(quarantine_options.check_expectations(values.get("expectations")))
    quarantines = QUARANTINE in values["expectations"].values() or contract.quarantines
    limit = values.get("max_quarantined")
    quarantine_options.check_quarantine(location, values.get("quarantine"), limit, quarantines)
    if values.get("on_report") is not None and not callable(values["on_report"]):
        raise TypeError(f"on_report must be a function of one report, not {values['on_report']!r}")
    storage_options = values.get("storage_options")
    if not (storage_options is None or callable(storage_options) or isinstance(storage_options, Mapping)):
        raise TypeError("storage_options must be a dict, or a callable without arguments that returns one")
    return SinkOptions(location=location, **values)


def _check_table_properties(given: Any) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(f"table_properties must be a dict of text to text, not {given!r}")
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"table_properties must map text to text; {key!r} maps to {value!r}")
    check_properties(given)
    for key, value in given.items():
        _check_is_consistent(key, value)
    parquet_settings(given)


def _check_is_consistent(key: str, value: str) -> None:
    """Raise ValueError for a property that contradicts every table of this sink."""
    if key in _RESERVED:
        raise ValueError(
            f"table property {key} is reserved by Iceberg, which derives it from the metadata; leave it out"
            " of table_properties"
        )
    if key in _FIXED and value.lower() != _FIXED[key]:
        can_be = f"can only be {_FIXED[key]!r}" if _FIXED[key] else "cannot be set"
        raise ValueError(
            f"table property {key} {can_be}, and is {value!r}: a table of this sink has format version 2, a"
            " name mapping of its own, plain metadata, and Parquet files below its location; leave it out of"
            " table_properties"
        )


def _check_retention(retention: Any, table_properties: Mapping[str, str]) -> None:
    if retention is None:
        return
    if not isinstance(retention, Retention):
        raise TypeError(
            f'retention must be a Retention, such as Retention(max_snapshot_age="1 day"), not {retention!r}'
        )
    for key in sorted(table_properties.keys() & retention.table_properties.keys()):
        raise ValueError(
            f"table_properties sets {key} to {table_properties[key]!r}, and retention to"
            f" {retention.table_properties[key]!r}; set it in one place"
        )


def _fill_policy(value: object) -> FillPolicy:
    names = [policy.value for policy in FillPolicy]
    try:
        return FillPolicy(value)
    except ValueError:
        raise ValueError(
            f"fill_policy must be one of {', '.join(names)}, not {value!r}{_nearest(str(value), names)}"
        ) from None


def _fill(values: Mapping[str, Any]) -> str:
    """Return where small files are merged. ValueError where the caller says it, and nothing is merged."""
    fill = values.get("fill")
    if fill is None:
        return DEFAULT_FILL
    if fill not in FILLS:
        raise ValueError(f"fill must be one of {', '.join(FILLS)}, not {fill!r}{_nearest(str(fill), FILLS)}")
    for contrary, said in (
        (values["operation"] == "bulk_insert", 'operation="bulk_insert"'),
        (fill == "inline" and values["keys"] is not None, f'operation="{values["operation"]}"'),
        (values["fill_policy"] is FillPolicy.NEVER, 'fill_policy="never"'),
        (values["sizing"].small_file_bytes == 0, "small_file_bytes=0"),
    ):
        if contrary:
            raise ValueError(
                f"fill says where small files are merged, and {said} merges none there: leave one of them"
                f" out: fill={fill!r}"
            )
    return str(fill)


def _nearest(name: str, known: Sequence[str]) -> str:
    close = nearest_name(name, known)
    return f"; did you mean {close!r}?" if close else ""
