"""Parquet's modular encryption: which keys encrypt a file, and the client that wraps and unwraps data keys.

Each file has data keys of its own, stored in its footer, wrapped by master keys that never leave the key
management service behind `Keys`. Plans, manifests and reports hold names of keys, never keys.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow.parquet.encryption as pe

from streaming_sink.tasks.errors import KeysError
from streaming_sink.tasks.leaves import Leaf

_FORMAT = "parquet-modular-encryption"
_SEPARATORS = frozenset(",:;")
"""What separates keys and columns in the lists of Parquet's key tools."""


class Keys(Protocol):
    """Makes a client of the key management service.

    It is pickled to the tasks and called there, so it should hold the address of keys, and no key; take
    credentials from the worker's own environment. Used by one task at a time.
    """

    def __call__(self) -> pe.KmsClient:
        """Return a client that wraps and unwraps a data key by the name of a master key."""


@dataclass(frozen=True, slots=True)
class KeyNames:
    """The names of the master keys that encrypt a file: its footer's, and those of columns, by the field ids
    of leaves.

    Without column keys the footer's key encrypts all columns; otherwise columns not named are plain.
    """

    footer: str
    columns: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def to_bytes(self) -> bytes:
        """Return the names as Iceberg's `key_metadata` of the file holds them."""
        said = {"format": _FORMAT, "footer-key": self.footer, "column-keys": dict(self.columns)}
        return json.dumps(said, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, said: bytes) -> KeyNames | None:
        """Return the names that `to_bytes` wrote, or None for another writer's metadata."""
        try:
            known = json.loads(said)
            if known["format"] != _FORMAT:
                return None
            columns = {str(key): tuple(map(int, fields)) for key, fields in known["column-keys"].items()}
            return cls(str(known["footer-key"]), tuple(sorted(columns.items())))
        except (AttributeError, LookupError, TypeError, ValueError):
            return None

    def hides(self, field_id: int) -> bool:
        """Return whether a leaf's values are encrypted."""
        return not self.columns or any(field_id in fields for _, fields in self.columns)


class Cipher:
    """Turns names of keys into pyarrow's encryption properties. Caches unwrapped keys in its process; only
    `keys` is pickled.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._factory: pe.CryptoFactory | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Cipher, (self._keys,)

    def encryption(self, names: KeyNames, columns: Collection[Leaf]) -> Any:
        """Return the properties of one new file with fresh data keys. KeysError."""
        paths = {leaf.field_id: leaf.parquet_path for leaf in columns}
        keys = {key: [paths[it] for it in fields if it in paths] for key, fields in names.columns}
        keys = {key: found for key, found in keys.items() if found}  # a column may have been dropped since
        if unfit := [text for key, found in keys.items() for text in (key, *found) if _SEPARATORS & {*text}]:
            # pyarrow would read it as several names, and might leave the column plain.
            raise KeysError(
                f"a name with {' '.join(sorted(_SEPARATORS))} cannot have a key of its own: {unfit[0]}"
            )
        asked = pe.EncryptionConfiguration(
            footer_key=names.footer,
            column_keys=keys or None,
            uniform_encryption=not keys,
            data_key_length_bits=256,
        )
        return self._crypto().file_encryption_properties(pe.KmsConnectionConfig(), asked)

    def decryption(self) -> Any:
        """Return the properties that read a file whose footer names its keys. Reading raises KeysError."""
        how = pe.DecryptionConfiguration()
        return self._crypto().file_decryption_properties(pe.KmsConnectionConfig(), how)

    def _crypto(self) -> pe.CryptoFactory:
        if self._factory is None:
            self._factory = pe.CryptoFactory(lambda _: _Client(self._keys))
        return self._factory


class _Client(pe.KmsClient):  # type: ignore[misc]  # pyarrow states no types
    """The user's client; its errors name the key and hide the rest."""

    def __init__(self, keys: Keys) -> None:
        super().__init__()
        self._client = _call_client("make a client", keys)

    def wrap_key(self, key: bytes, name: str) -> Any:
        return _call_client(f"wrap a key by {name!r}", self._client.wrap_key, key, name)

    def unwrap_key(self, wrapped: str, name: str) -> Any:
        return _call_client(f"unwrap a key by {name!r}", self._client.unwrap_key, wrapped, name)


def _call_client(what: str, call: Any, *arguments: Any) -> Any:
    failed = ""
    try:
        return call(*arguments)
    except Exception as failure:  # noqa: BLE001 - a client may raise anything; its text may hold a key
        failed = type(failure).__name__
    raise KeysError(f"the keys could not {what}: {failed}")  # outside of except: without the context
