"""A table's files in an object store (S3, Google Cloud Storage, Azure Blob Storage), through obstore."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, BinaryIO, Literal, TypeVar, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from timeline.errors import StoreUnavailableError, UnsafeStoreError
from timeline.stores import _object_client, _object_copies, _paths
from timeline.stores._object_client import Client, Connect
from timeline.stores._object_copies import Facts
from timeline.stores._object_errors import is_refused, is_unsupported, lacks_bucket
from timeline.stores._object_files import ObjectInput, ObjectOutput
from timeline.stores._options import StorageOptions, check_storage_options, resolve, secrets
from timeline.stores.base import Created, CreateOutcome, Exists, Listed, ListedObject, Store, Stored, Unknown

_T = TypeVar("_T")
_Use = Literal["create", "copy", "other"]
"""What a client is for: only those of the last kind send a request again."""

# 8 MiB parts, four in flight: about 40 MiB of memory per open output, and objects of up to 80 GB.
_PART_BYTES = 8 * 1024 * 1024
_PARTS_IN_FLIGHT = 4


class ObjectStore:
    """The objects below `s3://bucket/path`, `gs://bucket/path`, `az://container/path` or
    `abfss://container@account.dfs.core.windows.net/path`.

    `storage_options` are obstore's, by its lower-case names (`access_key_id`, `region`, `endpoint`,
    `allow_http`, ...), or a picklable function without arguments that returns them: it is called in every
    process that uses the store, and once more when the store refuses its answer. What is not given comes
    from the environment, as obstore reads it. `connect` makes the clients; tests pass their own.
    """

    def __init__(
        self,
        location: str,
        storage_options: StorageOptions | None = None,
        connect: Connect = _object_client.connect,
    ) -> None:
        self.location = location.rstrip("/")
        self._place = _object_client.parse(self.location)
        self._storage_options = storage_options
        self._connect = connect
        self._lock = threading.Lock()
        self._options: dict[str, Any] | None = None
        self._clients: dict[_Use, Client] = {}
        self._copies = True
        """Whether the store has made each copy that it was asked for."""
        if not callable(storage_options):
            check_storage_options(resolve(storage_options), self._place.known_keys, self._place.scheme)

    def __repr__(self) -> str:
        return f"ObjectStore({self.location!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStore, (self.location, self._storage_options, self._connect)

    @property
    def signature(self) -> str:
        with self._lock:
            return f"obstore {obstore.__version__} {self._place.endpoint(self._resolved())}"

    def uri(self, path: str) -> str:
        return f"{self.location}/{path}"

    def relative(self, uri: str) -> str:
        return _paths.relative(_paths.s3_url(self.location), _paths.s3_url(uri))

    def at(self, location: str) -> ObjectStore:
        other = _object_client.parse(location)
        if other.service != self._place.service:
            raise ValueError(f"another kind of store than that of {self.location}: {location}")
        return ObjectStore(location, self._storage_options, self._connect)

    def create(self, path: str, data: bytes) -> CreateOutcome:
        try:
            self._send(
                lambda client: obstore.put(client, path, data, mode="create", use_multipart=False), "create"
            )
        except (AlreadyExistsError, PreconditionError):
            return Exists()
        except FileNotFoundError as error:
            raise self._unavailable("create", path, error) from None
        except BaseError as error:
            if is_refused(error):
                raise self._unavailable("create", path, error) from None
            if is_unsupported(error):
                raise UnsafeStoreError(
                    "the store has no create-if-absent; nothing was stored; use another: "
                    f"{self._explain(error)}"
                ) from None
            return Unknown(self._explain(error))
        return Created()

    def overwrite(self, path: str, data: bytes) -> None:
        self._request("overwrite", path, lambda client: obstore.put(client, path, data, use_multipart=False))

    def read(self, path: str) -> Stored:
        def get(client: Client) -> Stored:
            result = obstore.get(client, path)
            return Stored(bytes(result.bytes()), self._identity(result.meta))

        return self._request("read", path, get)

    def list_folder(self, folder: str) -> list[Listed]:
        found = self._request(
            "list",
            folder,
            lambda client: obstore.list_with_delimiter(client, folder or None, return_arrow=False),
        )
        prefix = f"{folder}/" if folder else ""
        return [
            ListedObject(meta["path"], meta["size"], self._identity(meta))
            for meta in found["objects"]
            if meta["path"].startswith(
                prefix
            )  # a console's marker of an empty folder is listed as the folder itself
        ]

    def list_below(self, folder: str) -> Iterator[Listed]:
        pages = self._request("list", folder, lambda client: obstore.list(client, folder or None))
        while (page := self._request("list", folder, lambda _: next(pages, None))) is not None:
            for meta in page:
                yield ListedObject(meta["path"], meta["size"], self._identity(meta))

    def look(self, path: str) -> Listed:
        meta = self._request("look at", path, lambda client: obstore.head(client, path))
        return ListedObject(path, meta["size"], self._identity(meta))

    def delete(self, paths: Iterable[str]) -> None:
        wanted = list(paths)
        if not wanted:
            return
        try:
            self._request("delete", wanted[0], lambda client: obstore.delete(client, wanted))
        except (FileNotFoundError, StoreUnavailableError):
            # Google's and Azure's stores stop at the first that is missing; S3's bulk deletion is a POST,
            # which obstore does not send again when its reply is lost.
            for path in wanted:
                self._delete_one(path)

    def take_turn(self) -> AbstractContextManager[object]:
        return nullcontext()

    def open_output(self, path: str) -> BinaryIO:
        writer = self._request(
            "write",
            path,
            lambda client: obstore.open_writer(
                client, path, buffer_size=_PART_BYTES, max_concurrency=_PARTS_IN_FLIGHT
            ),
        )
        return cast(BinaryIO, ObjectOutput(writer, lambda error: self._unavailable("write", path, error)))

    def copy_from(self, source: Store, seen: Listed, path: str, /) -> bool:
        if not (self._copies and isinstance(source, ObjectStore) and self._is_reached_as(source)):
            return False
        is_worth_it = _object_copies.LEAST_BYTES < seen.size <= _object_copies.MOST_BYTES
        return is_worth_it and self._copy(source, seen, path)

    def open_input(self, path: str) -> BinaryIO:
        size = self._request("read", path, lambda client: obstore.head(client, path)["size"])

        def fetch(start: int, end: int) -> bytes:
            return self._request(
                "read", path, lambda client: bytes(obstore.get_range(client, path, start=start, end=end))
            )

        return cast(BinaryIO, ObjectInput(size, fetch))

    def _is_reached_as(self, other: ObjectStore) -> bool:
        """Return whether a client of one of the two reaches the objects of both, with the same rights."""
        return _object_copies.may_copy(other._place, self._place) and (
            (self._storage_options, self._connect) == (other._storage_options, other._connect)
        )

    def _copy(self, source: ObjectStore, seen: Listed, path: str) -> bool:
        before = source._facts(seen.path)
        if before is None or before.differ_from(seen) or before.encoded:
            return False
        from_, to = _object_copies.key(source._place, seen.path), _object_copies.key(self._place, path)
        try:
            self._send(lambda client: obstore.copy(client, from_, to, overwrite=False), "copy")
        except (BaseError, FileNotFoundError):
            self._copies = False  # it is not asked again, and what may still come is left to the cleaner
            return False
        made = self._facts(path)
        self._copies = made is not None and made.size == seen.size
        if self._copies and source._facts(seen.path) == before:
            return True
        with suppress(StoreUnavailableError):
            self.delete([path])
        return False

    def _facts(self, path: str) -> Facts | None:
        def head(client: Client) -> Facts:
            result = obstore.get(client, path, options={"head": True})
            return Facts.of(result.meta, self._identity(result.meta), result.attributes, self._place.service)

        try:
            return self._request("look at", path, head)
        except FileNotFoundError:
            return None

    def _delete_one(self, path: str) -> None:
        try:
            self._request("delete", path, lambda client: obstore.delete(client, path))
        except FileNotFoundError:
            return

    def _request(self, verb: str, path: str, action: Callable[[Client], _T]) -> _T:
        """Send a request that may be repeated. Raises FileNotFoundError or StoreUnavailableError."""
        try:
            return self._send(action, "other")
        except FileNotFoundError as error:
            if lacks_bucket(error):
                raise self._unavailable(verb, path, error) from None
            raise FileNotFoundError(f"no such object: {self.uri(path)}") from None
        except BaseError as error:
            raise self._unavailable(verb, path, error) from None

    def _send(self, action: Callable[[Client], _T], use: _Use) -> _T:
        try:
            return action(self._client(use))
        except BaseError as error:
            if not (callable(self._storage_options) and is_refused(error)):
                raise
        # Refused, so nothing was applied: a create, too, may be sent again with fresh credentials.
        if (renew := getattr(self._storage_options, "renew", None)) is not None:
            renew(self._options)
        self._forget_clients()
        return action(self._client(use))

    def _client(self, use: _Use) -> Client:
        is_due = getattr(self._storage_options, "is_due", None)
        if is_due is not None and self._options is not None and is_due(self._options):
            self._forget_clients()
        with self._lock:
            if use not in self._clients:
                place, options = self._place, self._resolved()
                if use == "copy":
                    place, options = _object_copies.of_bucket(place, options)
                try:
                    self._clients[use] = self._connect(place, options, use != "other")
                except (BaseError, ValueError, TypeError) as error:
                    line = _object_client.explain(error, secrets(options))
                    raise ValueError(
                        f"the storage options make no client for {self.location}: {line}"
                    ) from None
            return self._clients[use]

    def _resolved(self) -> Mapping[str, Any]:
        if self._options is None:
            try:
                options = resolve(self._storage_options)
            except Exception as failure:
                if not callable(self._storage_options):
                    raise
                raise StoreUnavailableError(
                    "the function that is the storage options failed, and nothing was sent:"
                    f" {self.location}: {type(failure).__name__}: {failure}"
                ) from failure
            check_storage_options(options, self._place.known_keys, self._place.scheme)
            self._options = options
        return self._options

    def _forget_clients(self) -> None:
        with self._lock:
            self._clients.clear()
            self._options = None

    def _identity(self, meta: Any) -> str:
        tag = meta["e_tag"]
        if not tag:
            raise UnsafeStoreError(
                f"the store gives its objects no ETag, so a read cannot be checked: {self.location}"
            )
        # Azure's listings spell an ETag without the quotes that its headers have; some gateways mark it weak.
        return str(tag).removeprefix("W/").strip('"')

    def _explain(self, error: Exception) -> str:
        return _object_client.explain(error, secrets(self._options or {}))

    def _unavailable(self, verb: str, path: str, error: Exception) -> StoreUnavailableError:
        kept = "nothing was stored; " if verb == "create" else ""
        if isinstance(error, BaseError) and is_refused(error):
            todo = "access is refused: correct the credentials in storage_options, or the bucket's policy"
        elif isinstance(error, FileNotFoundError) or lacks_bucket(error):
            todo = "there is no such bucket: create it, or correct the location"
        else:
            todo = "the store does not answer: try again later"
        return StoreUnavailableError(f"cannot {verb}, {kept}{todo}: {self.uri(path)}: {self._explain(error)}")
