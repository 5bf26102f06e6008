"""Metadata files through this project's stores: created if absent, and durable once they are written (R14).

pyiceberg's catalogs in SQL, Glue and Hive let the client write a table's metadata, through a `FileIO`.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.typedef import EMPTY_DICT, Properties

from timeline.clock import SYSTEM, Environment
from timeline.errors import StoreUnavailableError
from timeline.slots.settling import create_settled
from timeline.stores import local_path
from timeline.stores.base import HeldOutput, Store

OpenStore = Callable[[str], Store]
"""Returns the store of a location."""


class StoreIO(FileIO):
    """pyiceberg's access to files, by stores. Properties of a catalog or a table change nothing of it."""

    def __init__(
        self, open_store: OpenStore, environment: Environment = SYSTEM, properties: Properties = EMPTY_DICT
    ) -> None:
        super().__init__(properties)
        self._open_store, self._environment = open_store, environment
        self._folders: dict[str, Store] = {}

    def new_input(self, location: str) -> InputFile:
        """Return a file to read, wherever it is."""
        return _StoredFile(location, *self._find(location))

    def new_output(self, location: str) -> OutputFile:
        """Return a file to create."""
        return _FreshFile(location, *self._find(location), self._environment)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file; one that does not exist is no error."""
        store, name = self._find(location if isinstance(location, str) else location.location)
        store.delete([name])

    def _find(self, location: str) -> tuple[Store, str]:
        folder, _, name = local_path(location).rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self._open_store(folder or "/")
        return self._folders[folder], name


class _StoredFile(InputFile):
    """A file of a store, to read as a whole."""

    def __init__(self, location: str, store: Store, name: str) -> None:
        super().__init__(location)
        self._store, self._name = store, name

    def __len__(self) -> int:
        return self._store.look(self._name).size

    def exists(self) -> bool:
        """Return whether the file is there."""
        try:
            self._store.look(self._name)
        except FileNotFoundError:
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - pyiceberg's name
        """Return the bytes of the file."""
        return BytesIO(self._store.read(self._name).data)


class _FreshFile(OutputFile):
    """A file of a store, to create once."""

    def __init__(self, location: str, store: Store, name: str, environment: Environment) -> None:
        super().__init__(location)
        self._store, self._name, self._environment = store, name, environment

    def __len__(self) -> int:
        return len(self.to_input_file())

    def exists(self) -> bool:
        """Return whether the file is there."""
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        """Return the file to read."""
        return _StoredFile(self.location, self._store, self._name)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: ARG002 - nothing is replaced
        """Return a stream whose bytes are there, and durable, once it is closed without a failure."""
        return HeldOutput(self._write)

    def _write(self, data: bytes) -> None:
        if not create_settled(self._store, self._name, data, self._environment).is_own:
            raise StoreUnavailableError(
                f"another file is there, under a name that is drawn at random: {self.location}",
                location=self.location,
            )
