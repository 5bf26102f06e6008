"""The strategy `encrypt`: rewrites files under the keys that a plan names. Runs on driver and in tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import pyarrow as pa

from planners.suggestions import unknown_name
from streaming_sink.tasks.clustering.row_strategy import FileStatistics, Group, Leaves, StaleReason
from streaming_sink.tasks.encryption import KeyNames


class Encrypt:
    """Encrypts files, or encrypts them again, with the keys that its parameters name.

    `footer_key`: of the footers and, without `column_keys`, of all columns. `column_keys`: the keys of some
    columns, as parquet-mr spells them: "pii: email, address.street; card: number"; others stay plain.

    ValueError for other parameters, or for values that do not parse.
    """

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._footer = parameters.get("footer_key", "").strip()
        if not self._footer:
            raise ValueError(
                "strategy 'encrypt' needs the name of a key (never a key) for footers: give"
                ' parameters={"footer_key": "lake"}'
            )
        self._columns = _columns_by_key(parameters.get("column_keys", ""))

    def rewrite(self, group: Group, /) -> Iterable[pa.RecordBatch]:
        return group.read()

    def stale_reason(self, _field_ids: Collection[int], leaves: Leaves) -> StaleReason:
        """Compare the names of a file's keys with those wanted. ValueError as `key_names`."""
        wanted = self.key_names(leaves).to_bytes()

        def reason(file: FileStatistics) -> str | None:
            if file.key_metadata == wanted:
                return None
            return "are not encrypted" if file.key_metadata is None else "are encrypted under other keys"

        return reason

    def key_names(self, leaves: Leaves) -> KeyNames:
        """Return the keys by fields.

        ValueError for a column that the table lacks, with the nearest, or that is named twice.
        """
        known = list(leaves)
        keys: dict[int, str] = {}
        for key, names in self._columns.items():
            for name in names:
                below = [it for path, it in known if path == name or path.startswith(f"{name}.")]
                if not below:
                    raise unknown_name("column to encrypt", name, [path for path, _ in known])
                for field_id in below:
                    if keys.setdefault(field_id, key) != key:
                        raise ValueError(
                            f"column_keys has two keys for a column, {keys[field_id]}, {key}: {name}"
                        )
        fields = {key: tuple(sorted(it for it in keys if keys[it] == key)) for key in keys.values()}
        return KeyNames(self._footer, tuple(sorted(fields.items())))


def _columns_by_key(text: str) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in filter(str.strip, text.split(";")):
        key, _, columns = (each.strip() for each in part.partition(":"))
        names = [name.strip() for name in columns.split(",")]
        if not key or not all(names):
            raise ValueError(
                'column_keys must name each key and its columns, as in "pii: email, street; card: number"'
            )
        found.setdefault(key, []).extend(names)
    return found
