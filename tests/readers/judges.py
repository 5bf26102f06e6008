"""Five readers that we did not write, as judges of a table: do they all see these rows?

    assert_all_readers_agree(location, expected)              # at the head
    assert_all_readers_agree(location, expected, snapshot_id=snapshots(location)[0].snapshot_id)

What a reader cannot do is stated in `LIMITS` and shown by tests over tables of pyiceberg's own writing, so
that an exception here is the reader's and not ours.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import polars as pl
import pyiceberg.types as it
from pyiceberg.table import StaticTable

from tests.jars import require_iceberg_runtime
from tests.readers import chdb_judge, spark_judge
from tests.readers.canonical import Rows, canonical, with_nulls_as_empty
from tests.readers.processes import in_process_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.table.snapshots import Snapshot

READERS = ("pyiceberg", "duckdb", "chdb", "polars", "spark")


@dataclass(frozen=True)
class Limits:
    """What a reader cannot read, so that it is not asked; see `test_limits_of_readers.py`."""

    types: tuple[type[it.IcebergType], ...] = ()
    """Columns that hold such a type, at any depth, are left out."""
    refuses_table_with: tuple[type[it.IcebergType], ...] = ()
    """The whole table is refused if any column holds such a type."""
    null_as_empty: Callable[[it.IcebergType], bool] | None = None
    """In which nested types a null comes back as empty (a null struct: as a struct of nulls)."""


def _is_list_of_structs(kind: it.IcebergType) -> bool:
    return isinstance(kind, it.ListType) and isinstance(kind.element_type, it.StructType)


LIMITS = {
    "pyiceberg": Limits(null_as_empty=_is_list_of_structs),
    "duckdb": Limits(),
    "chdb": Limits(types=(it.TimeType,), null_as_empty=lambda kind: not kind.is_primitive),
    "polars": Limits(),
    "spark": Limits(refuses_table_with=(it.TimeType,)),
}


def assert_all_readers_agree(
    location: str | Path,
    expected: pa.Table,
    *,
    snapshot_id: int | None = None,
    readers: tuple[str, ...] = READERS,
) -> None:
    """Assert that every reader sees exactly the expected rows, each as often as expected, in any order."""
    for reader in readers:
        assert_reader_agrees(reader, location, expected, snapshot_id=snapshot_id)


def assert_reader_agrees(
    reader: str, location: str | Path, expected: pa.Table, *, snapshot_id: int | None = None
) -> None:
    """Assert that this reader sees exactly the expected rows, in the columns that it can read."""
    schema = _open(location).schema()
    columns = readable_columns(reader, schema)
    wanted = canonical(expected, schema, columns)
    wanted = _as_seen_by(reader, wanted, schema, columns)
    assert_same_rows(rows(reader, location, snapshot_id=snapshot_id), wanted, reader)


def assert_same_rows(found: Rows, wanted: Rows, who: str) -> None:
    """Assert that two multisets of rows are equal; the message shows a few rows of the difference."""
    if found != wanted:
        missing, surplus = wanted - found, found - wanted
        raise AssertionError(
            f"{who} sees {found.total()} rows, expected {wanted.total()}: {missing.total()} missing, such as "
            f"{list(missing)[:3]}; {surplus.total()} too many, such as {list(surplus)[:3]}"
        )


def rows(reader: str, location: str | Path, *, snapshot_id: int | None = None) -> Rows:
    """Return what this reader sees of the table, in the columns that it can read, in canonical form."""
    schema = _open(location).schema()
    columns = readable_columns(reader, schema)
    found = canonical(read(reader, location, columns, snapshot_id=snapshot_id), schema, columns)
    return _as_seen_by(reader, found, schema, columns)


def readable_columns(reader: str, schema: Schema) -> list[str]:
    """Return the names of the top-level columns that this reader can read."""
    limits = LIMITS[reader]
    return [field.name for field in schema.fields if not _holds(field.field_type, limits.types)]


def read(
    reader: str, location: str | Path, columns: list[str], *, snapshot_id: int | None = None
) -> pa.Table:
    """Read these columns with this reader, into whatever Arrow types it chooses."""
    metadata = str(metadata_file(location))
    match reader:
        case "pyiceberg":
            return _open(location).scan(selected_fields=tuple(columns), snapshot_id=snapshot_id).to_arrow()
        case "duckdb":
            return _duckdb_read(metadata, columns, snapshot_id)
        case "polars":
            return pl.scan_iceberg(metadata, snapshot_id=snapshot_id).select(columns).collect().to_arrow()
        case "chdb":
            return in_process_of("chdb", chdb_judge.read, str(location), snapshot_id, columns)
        case "spark":
            options = {} if snapshot_id is None else {"versionAsOf": str(snapshot_id)}
            return _spark_read(str(location), columns, options)
        case _:
            raise ValueError(f"no reader is called {reader!r}")


def metadata_file(location: str | Path) -> Path:
    """Return the path of the highest version file, or the file itself that a catalog names."""
    if str(location).endswith(".metadata.json"):
        return Path(location)
    found = [(int(m[1]), p) for p in Path(location, "metadata").iterdir() if (m := _VERSION.match(p.name))]
    return max(found)[1]


def snapshots(location: str | Path) -> list[Snapshot]:
    """Return the table's snapshots, oldest first."""
    return sorted(_open(location).snapshots(), key=lambda snapshot: snapshot.sequence_number or 0)


# ------------------------------------------------------------------------------- Spark's incremental readers


def stream_rows(
    location: str | Path, *, options: dict[str, str] | None = None, checkpoint: str | Path | None = None
) -> Rows:
    """Return all rows that Spark's `readStream` brings until it has caught up, each as often as it came.

    With a checkpoint folder a later call goes on where the one before stopped.
    """
    schema = _open(location).schema()
    columns = readable_columns("spark", schema)
    where = None if checkpoint is None else str(checkpoint)
    jar = str(require_iceberg_runtime())
    batches = in_process_of("spark", spark_judge.stream, jar, str(location), columns, options or {}, where)
    return sum((canonical(batch, schema, columns) for batch in batches), Counter())


def incremental_rows(location: str | Path, after: int, until: int | None = None) -> Rows:
    """Return the rows appended after one snapshot, up to and with another, as Spark reads them."""
    schema = _open(location).schema()
    columns = readable_columns("spark", schema)
    options = {"start-snapshot-id": str(after)}
    if until is not None:
        options["end-snapshot-id"] = str(until)
    return canonical(_spark_read(str(location), columns, options), schema, columns)


def metadata_table(location: str | Path, name: str) -> pa.Table:
    """Return one of Iceberg's metadata tables by Spark: files, snapshots, manifests, entries, history, ..."""
    return _spark_read(f"{location}#{name}", None, {})


def assert_metadata_tables_agree(location: str | Path) -> None:
    """Assert that Iceberg's metadata tables load and tell the same totals as each other and the summary."""
    files = metadata_table(location, "files")
    entries = metadata_table(location, "entries")
    manifests = metadata_table(location, "manifests")
    history = metadata_table(location, "history")
    told = metadata_table(location, "snapshots")
    head = _open(location).current_snapshot()
    assert head is not None
    assert head.summary is not None

    live = [entry["data_file"] for entry in entries.to_pylist() if entry["status"] != _DELETED]
    totals = {
        "total-data-files": files.num_rows,
        "total-records": sum(files["record_count"].to_pylist()),
        "total-files-size": sum(files["file_size_in_bytes"].to_pylist()),
    }
    assert {key: int(head.summary[key] or 0) for key in totals} == totals
    assert sorted(f["file_path"] for f in live) == sorted(files["file_path"].to_pylist())
    counts = manifests.to_pylist()
    assert sum(m["added_data_files_count"] + m["existing_data_files_count"] for m in counts) == files.num_rows
    assert told.num_rows == len(snapshots(location))
    assert set(history["snapshot_id"].to_pylist()) <= set(told["snapshot_id"].to_pylist())
    sizes = {f["file_path"]: f["file_size_in_bytes"] for f in files.to_pylist()}
    assert sizes == {path: Path(path.removeprefix("file:")).stat().st_size for path in sizes}


# ------------------------------------------------------------------------------------------------- internals

_VERSION = re.compile(r"^v([1-9][0-9]*)\.metadata\.json$")
_DELETED = 2


def _open(location: str | Path) -> StaticTable:
    return StaticTable.from_metadata(str(metadata_file(location)))


def _holds(kind: it.IcebergType, wanted: tuple[type[it.IcebergType], ...]) -> bool:
    match kind:
        case it.StructType():
            return any(_holds(field.field_type, wanted) for field in kind.fields)
        case it.ListType():
            return _holds(kind.element_type, wanted)
        case it.MapType():
            return _holds(kind.key_type, wanted) or _holds(kind.value_type, wanted)
        case _:
            return isinstance(kind, wanted)


def _as_seen_by(reader: str, found: Rows, schema: Schema, columns: list[str]) -> Rows:
    affected = LIMITS[reader].null_as_empty
    return found if affected is None else with_nulls_as_empty(found, schema, columns, affected)


def _duckdb_read(metadata: str, columns: list[str], snapshot_id: int | None) -> pa.Table:
    names = ", ".join(f'"{name}"' for name in columns)
    at = "" if snapshot_id is None else f", snapshot_from_id = {snapshot_id}"
    return _duckdb().cursor().execute(f"SELECT {names} FROM iceberg_scan(?{at})", [metadata]).to_arrow_table()


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """Offline: both extensions are files of packages from PyPI, and iceberg needs avro beside it."""
    connection = duckdb.connect()
    for package, name in ((duckdb_extension_avro, "avro"), (duckdb_extension_iceberg, "iceberg")):
        connection.load_extension(str(_extension(package, name)))
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _extension(package: ModuleType, name: str) -> Path:
    return next(Path(next(iter(package.__path__))).glob(f"extensions/*/{name}.duckdb_extension"))


def _spark_read(path: str, columns: list[str] | None, options: dict[str, str]) -> pa.Table:
    return in_process_of("spark", spark_judge.read, str(require_iceberg_runtime()), path, columns, options)
