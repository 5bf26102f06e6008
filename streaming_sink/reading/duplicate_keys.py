"""Whether each key is in a table once: a scan of the key's columns, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streaming_sink.table.arrow_types import arrow_schema, needs_field_ids
from streaming_sink.table.table_keys import position_deletes_of
from streaming_sink.tasks.files.data_file_reader import open_data_file
from streaming_sink.tasks.files.delete_files import read_deletes_of
from streaming_sink.tasks.keys.scanning import KeyColumns, KeyedFile, scan_keys, scope_salt
from timeline.changes.key_changes import check_key_has_its_columns
from timeline.diagnosis.findings import Diagnosis, some, warning
from timeline.manifests.entries import LiveFile
from timeline.stores.base import Store
from timeline.table import Table
from timeline.versions.head import Head
from timeline.versions.keys import PARTITION_SCOPE, TableKey, key_of

KEYS_AT_ONCE = 20_000_000
"""Keys of which the hashes are in memory at once: 40 bytes each. A larger table is read several times."""
_EXAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class KeyCheck:
    """What a scan of a table's keys has found."""

    key: str
    """The key, for people."""
    rows: int
    """Live rows."""
    without_key: int
    """Live rows that have a null in their key: no change finds them."""
    repeated: int
    """Live rows beyond the first of their key."""
    examples: tuple[dict[str, object], ...]
    """A few keys that are there more than once."""


def check_keys(store: Store, head: Head, key: TableKey) -> KeyCheck:
    """Read the keys of all live rows, and count those that are there more than once.

    SchemaMismatchError for a column that cannot be a key's, DataFileError for a file that cannot be read,
    KeyConflictError where another engine has dropped a column of the key, or deleted rows by their values.
    """
    check_key_has_its_columns(key, head)
    schema = arrow_schema(head.schema)
    names = [head.schema.find_column_name(each) or "" for each in key.column_ids]
    columns = KeyColumns.of(head.metadata.table_uuid, schema, names, None, needs_ids=needs_field_ids(head))
    files = list(head.live_files())
    rows = sum(file.rows for file in files)
    passes = -(-rows // KEYS_AT_ONCE)
    live = with_key = repeated = 0
    deleted = read_deletes_of(store, {file.location: position_deletes_of(head, file) for file in files})
    places: list[tuple[LiveFile, int]] = []
    for number in range(passes):
        hashes, numbers, positions = [], [], []
        for place, file in enumerate(files):
            for found, where in _live_keys(store, file, deleted[file.location], columns, key.scope):
                mine = found[:, 0] % np.uint64(passes) == number
                hashes.append(found[mine])
                positions.append(where[mine])
                numbers.append(np.full(int(mine.sum()), place))
        together = np.concatenate(hashes) if hashes else np.empty((0, 2), np.uint64)
        order = np.lexsort((together[:, 1], together[:, 0]))
        again = (together[order][1:] == together[order][:-1]).all(axis=1)
        with_key += len(together)
        repeated += int(again.sum())
        places += [
            (files[np.concatenate(numbers)[at]], int(np.concatenate(positions)[at]))
            for at in order[1:][again][: _EXAMPLES - len(places)]
        ]
    live = rows - sum(map(len, deleted.values()))
    return KeyCheck(
        key=key.describe(head.schema),
        rows=live,
        without_key=live - with_key,
        repeated=repeated,
        examples=tuple(_values(store, file, position, columns.keys) for file, position in places),
    )


def with_key_findings(diagnosis: Diagnosis, table: Table) -> Diagnosis:
    """Return a diagnosis with what the table's keys show; as it is where the table has no key."""
    key = key_of(table.head.properties)
    if key is None:
        return diagnosis
    checked = check_keys(table.store, table.head, key)
    facts = [("key", f"{checked.key}; {checked.rows:,} rows were read")]
    if not checked.repeated:
        return diagnosis.extended(facts, ())
    finding = warning(
        kind="key-repeated",
        what=f"{checked.repeated:,} live rows have a key that another one has too, such as"
        f" {some(checked.examples)}",
        means="rows were inserted without a look at their keys (Append(allow_duplicates=True)). The next"
        " change of such a key replaces all its rows; a reader sees them all until then",
        repair="write the right rows with Upsert, or delete the keys with Delete",
    )
    return diagnosis.extended(facts, [finding])


def _live_keys(
    store: Store, file: LiveFile, gone: np.ndarray, columns: KeyColumns, scope: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    keyed = KeyedFile(file.location, file.rows, scope_salt(scope == PARTITION_SCOPE, file.partition))
    for hashes, positions, _ in scan_keys(store, keyed, columns):
        live = ~np.isin(positions, gone)
        yield hashes[live], positions[live]


def _values(store: Store, file: LiveFile, position: int, keys: pa.Schema) -> dict[str, object]:
    with open_data_file(store, file.location, "a data file") as reader:
        (rows,) = reader.read_at(keys, np.array([position]))
    values: dict[str, object] = rows.to_pylist()[0]
    return values
