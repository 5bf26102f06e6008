"""The kinds of commit log, each with answers that can get lost, and Parquet files for their tables."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import StaticTable
from pyiceberg.typedef import Record

from tests.unit.timeline.catalogs.metastores import Metastore
from tests.unit.timeline.world import BY_P, SCHEMA, Clock, data_file
from timeline import names
from timeline.catalogs.clients import hive
from timeline.catalogs.clients.hive import HiveMetastore
from timeline.catalogs.clients.sql import SqlMetastore
from timeline.catalogs.opening import create_in_catalog, open_in_catalog
from timeline.clock import Environment
from timeline.commit.log import CommitLog
from timeline.commit.version_log import VersionLog
from timeline.errors import StoreUnavailableError
from timeline.manifests.manifests import ManifestFiles
from timeline.stores import CreateOutcome, Listed, LocalStore, Stored, Unknown
from timeline.table import Table

ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        pa.field("p", pa.int32(), metadata={"PARQUET:field_id": "2"}),
    ]
)

LANDED, NOT_LANDED = "landed, and the answer was lost", "not landed, and the answer was lost"


@dataclass(frozen=True)
class LandedThen:
    """The commit lands, something happens, and the answer is lost."""

    happens: Callable[[], Any]


class Answers(deque[str | LandedThen | Callable[[], Any]]):
    """What the next commits meet: LANDED, NOT_LANDED, LandedThen, or something to run before one is sent."""

    silent = False
    """Reads get no answer."""

    def meet(self, send: Callable[[], Any], lost: Callable[[], Any]) -> Any:
        answer = self.popleft() if self else None
        if callable(answer):
            answer()
        if answer == NOT_LANDED:
            return lost()
        done = send()
        if isinstance(answer, LandedThen):
            answer.happens()
        return lost() if answer == LANDED or isinstance(answer, LandedThen) else done

    def check_they_speak(self, error: type[Exception]) -> None:
        if self.silent:
            raise error("no answer")


class _Store(LocalStore):
    """A local disk whose answers to the creates of versions may get lost."""

    answers: Answers

    def create(self, path: str, data: bytes) -> CreateOutcome:
        if names.version_number(path) is None:
            return super().create(path, data)
        return self.answers.meet(lambda: super(_Store, self).create(path, data), lambda: Unknown("lost"))

    def read(self, path: str) -> Stored:
        self.answers.check_they_speak(StoreUnavailableError)
        return super().read(path)

    def list_folder(self, folder: str) -> list[Listed]:
        self.answers.check_they_speak(StoreUnavailableError)
        return super().list_folder(folder)


class _Answering(MetastoreCatalog):
    """A catalog whose answers to commits may get lost."""

    answers: Answers

    def create_table(self, *arguments: Any, **named: Any) -> Any:
        def lost() -> Any:
            raise ConnectionError("the answer was lost")

        return self.answers.meet(lambda: super(_Answering, self).create_table(*arguments, **named), lost)

    def commit_table(self, *arguments: Any) -> Any:
        def lost() -> Any:
            raise ConnectionError("the answer was lost")

        return self.answers.meet(lambda: super(_Answering, self).commit_table(*arguments), lost)

    def load_table(self, *arguments: Any, **named: Any) -> Any:
        self.answers.check_they_speak(ConnectionError)
        return super().load_table(*arguments, **named)


class _Sql(_Answering, SqlMetastore):
    """One in SQL."""


class _Hive(_Answering, HiveMetastore):
    """A Hive metastore."""


class Kind:
    """One kind of commit log, at a folder of its own."""

    created = 1
    """The number of a table that was created, and has no commit yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.answers = Answers()
        self._seeds = itertools.count(1)
        self._rows = itertools.count(1)
        self.folder.mkdir(exist_ok=True)

    def log(self, answers: Answers | None = None) -> CommitLog:
        """Return the log as another process sees it, with nothing cached."""
        raise NotImplementedError

    def read(self) -> StaticTable:
        """Return the table as pyiceberg reads it."""
        raise NotImplementedError

    def create(self, answers: Answers | None = None, **given: Any) -> Table:
        """Create the table, or open it; by default as the process that meets `self.answers`."""
        log = self.log(self.answers if answers is None else answers)
        return Table.create_in(log, SCHEMA, BY_P, store_is_checked=True, **given)

    def open(self, answers: Answers | None = None) -> Table:
        return Table.open_in(self.log(answers))

    def rows(self, snapshot_id: int | None = None) -> list[int]:
        scan = self.read().scan(snapshot_id=snapshot_id)
        return sorted(scan.to_arrow()["id"].to_pylist())

    def file(self, rows: list[int], p: int = 0) -> DataFile:
        """Write a file of these rows."""
        store = self.store()
        file_id = names.ulid(self.clock.now_ms, next(self._seeds))
        path = f"data/p={p}/{names.data_file_name(file_id, 'app', 0, 0, 0)}"
        with store.open_output(path) as file:
            pq.write_table(
                pa.table({"id": rows, "p": [p] * len(rows)}, schema=ARROW), pa.PythonFile(file, mode="w")
            )
        size = Path(store.uri(path)).stat().st_size
        written = data_file(store.uri(path), len(rows), partition=Record(p), size=size)
        # The bounds of `data_file` are made up; a reader would prune by them.
        written._data[10] = written._data[11] = None
        return written

    def store(self) -> LocalStore:
        return LocalStore(self.folder / "table")


class VersionFilesKind(Kind):
    """`VersionLog` on a local disk."""

    def log(self, answers: Answers | None = None) -> CommitLog:
        store = _Store(self.folder / "table")
        store.answers = Answers() if answers is None else answers
        return VersionLog(store, ManifestFiles(store), self.clock.environment(next(self._seeds)))

    def read(self) -> StaticTable:
        return StaticTable.from_metadata(str(self.folder / "table"))


class CatalogKind(Kind):
    """`CatalogLog` on pyiceberg's SQL catalog, on sqlite. Versions are sequence numbers: of snapshots."""

    created = 0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._catalogs: list[SqlCatalog] = []
        self._catalog(Answers()).create_namespace("lake")

    @property
    def _properties(self) -> dict[str, str]:
        where = self.folder
        return {"uri": f"sqlite:///{where}/catalog.db", "warehouse": f"file://{where}/warehouse"}

    def _catalog(self, answers: Answers) -> Any:
        catalog = _Sql("test", LocalStore, self._environment(), **self._properties)
        catalog.answers = answers
        self._catalogs.append(catalog)
        return catalog

    def beside(self) -> SqlCatalog:
        """Return the catalog as another engine has it."""
        catalog = SqlCatalog("test", **self._properties)
        self._catalogs.append(catalog)
        return catalog

    def create(self, answers: Answers | None = None, **given: Any) -> Table:
        catalog = self._catalog(self.answers if answers is None else answers)
        return create_in_catalog(
            catalog, _TABLE, LocalStore, SCHEMA, BY_P, given.get("table_properties", {}),
            environment=self._environment(),
        )  # fmt: skip

    def open(self, answers: Answers | None = None) -> Table:
        catalog = self._catalog(Answers() if answers is None else answers)
        return open_in_catalog(catalog, _TABLE, LocalStore, self._environment())

    def _environment(self) -> Environment:
        return self.clock.environment(next(self._seeds))

    def read(self) -> Any:
        return self.beside().load_table(_TABLE)

    def store(self) -> LocalStore:
        return LocalStore(self.folder / "warehouse" / "lake" / "table")

    def close(self) -> None:
        for catalog in self._catalogs:
            catalog.engine.dispose()


class HiveKind(CatalogKind):
    """`CatalogLog` on pyiceberg's Hive catalog, on a metastore in memory."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hive, "_Connection", self._connect)
        self.metastore = Metastore(folder / "warehouse", self._now_ms)
        super().__init__(folder)

    def _connect(self, *_: Any) -> Any:
        return self.metastore.connection()

    def _now_ms(self) -> int:
        return int(self.clock.now_ms + self.clock.seconds * 1000)

    def _catalog(self, answers: Answers) -> Any:
        catalog = _Hive("test", LocalStore, self._environment(), uri="thrift://metastore:9083")
        catalog.answers = answers
        return catalog

    def beside(self) -> Any:
        return self._catalog(Answers())

    def store(self) -> LocalStore:
        return LocalStore(self.folder / "warehouse" / "lake.db" / "table")

    def metadata_files(self) -> set[str]:
        """Return the names of all metadata files that there are."""
        return {it.name for it in Path(self.store().location, "metadata").glob("*.metadata.json")}

    def named(self) -> set[str]:
        """Return the metadata files that the table has, by its log and the catalog's pointer."""
        loaded = self.read()
        files = [entry.metadata_file for entry in loaded.metadata.metadata_log]
        return {file.rpartition("/")[2] for file in (*files, loaded.metadata_location)}

    @property
    def stated(self) -> Any:
        """The table as the metastore has it."""
        return self.metastore.tables["lake", "table"]


_TABLE = ("lake", "table")
