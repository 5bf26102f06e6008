"""A key management service for tests: a file of master keys, and clients that say too much when they fail."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet.encryption as pe


@dataclass(frozen=True)
class Vault:
    """Makes clients that find the keys in a file, where they are used."""

    path: str

    def __call__(self):
        return _Client(json.loads(Path(self.path).read_text()))

    def put(self, **keys):
        """Store keys, 16 characters each, in the place of those that are there."""
        Path(self.path).write_text(json.dumps(keys))
        return self

    def decryption(self):
        """Return what pyarrow alone reads by."""
        factory = pe.CryptoFactory(lambda _: self())
        return factory.file_decryption_properties(pe.KmsConnectionConfig(), pe.DecryptionConfiguration())


class _Client(pe.KmsClient):
    def __init__(self, keys):
        super().__init__()
        self._keys = keys

    def wrap_key(self, key, name):
        master = self._master(name)
        sealed = hashlib.sha256(master + key).digest()[:8] + _masked(master, key)
        return base64.b64encode(sealed)

    def unwrap_key(self, wrapped, name):
        master, sealed = self._master(name), base64.b64decode(wrapped)
        key = _masked(master, sealed[8:])
        if hashlib.sha256(master + key).digest()[:8] != sealed[:8]:
            raise PermissionError(f"{name} is not {master.decode()} for {key.hex()}")
        return key

    def _master(self, name):
        if name not in self._keys:
            raise LookupError(f"no {name} among {self._keys}")
        return self._keys[name].encode()


def _masked(master, key):
    mask = hashlib.sha256(b"mask" + master).digest()
    return bytes(each ^ mask[place % 32] for place, each in enumerate(key))
