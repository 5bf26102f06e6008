"""The object store's duties: one request per create, clear outcomes, fresh credentials, no secret shown."""

from __future__ import annotations

import pickle
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from obstore.exceptions import GenericError

from timeline.errors import StoreUnavailableError, UnsafeStoreError
from timeline.stores import Exists, Unknown
from timeline.stores._object_client import explain
from timeline.stores.object import ObjectStore

SECRET = "wJalrXUtnFEMI-K7MDENG"
TOKEN = "FwoGZXIvYXdzEBYaD-session"


class Cloud:
    """A server that answers each request with the next reply of its script, and keeps the last one.

    A reply is a status with a body, or None: the request is read and the connection closed.
    """

    def __init__(self) -> None:
        self.script: list[tuple[int, str] | None] = [None]
        self.requests: list[str] = []
        self.authorizations: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                self._answer(connection, stream)

    def _answer(self, connection: socket.socket, stream: Any) -> None:
        request = stream.readline().decode()
        headers = dict(
            line.decode().strip().lower().split(": ", 1) for line in iter(stream.readline, b"\r\n")
        )
        stream.read(int(headers.get("content-length", 0)))
        self.requests.append(request.rpartition(" ")[0])
        self.authorizations.append(headers.get("authorization", ""))
        reply = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if reply is not None:
            status, body = reply
            head = f'HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nETag: "e"\r\nConnection: close\r\n'
            head += "Last-Modified: Sat, 21 Nov 2026 11:00:00 GMT\r\n\r\n"
            connection.sendall((head + body).encode())


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    server = Cloud()
    yield server
    server.stop()


@pytest.fixture
def options(cloud: Cloud) -> dict[str, Any]:
    return {
        "access_key_id": "AKIAEXAMPLE",
        "secret_access_key": SECRET,
        "session_token": TOKEN,
        "endpoint": cloud.endpoint,
        "allow_http": True,
    }


@pytest.fixture
def store(options: dict[str, Any]) -> ObjectStore:
    return ObjectStore("s3://bucket/lake/table", options)


def _error(code: str, message: str = "") -> str:
    return f'<?xml version="1.0"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'


@pytest.mark.parametrize("reply", [None, (500, ""), (503, _error("SlowDown")), (429, ""), (408, "")])
def test_a_create_without_a_clear_answer_is_unknown_and_was_sent_once(
    cloud: Cloud, store: ObjectStore, reply: tuple[int, str] | None
) -> None:
    cloud.script = [reply]
    assert isinstance(store.create("metadata/v1", b"x"), Unknown)
    assert cloud.requests == ["PUT /bucket/lake/table/metadata/v1"]


@pytest.mark.parametrize("status", [409, 412])
def test_a_create_that_was_refused_for_the_name_says_exists(
    cloud: Cloud, store: ObjectStore, status: int
) -> None:
    cloud.script = [(status, _error("PreconditionFailed"))]
    assert store.create("metadata/v1", b"x") == Exists()


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (403, "AccessDenied", "correct the credentials"),
        (401, "Unauthorized", "correct the credentials"),
        (400, "ExpiredToken", "correct the credentials"),
        (404, "NoSuchBucket", "no such bucket"),
    ],
)
def test_a_create_that_stored_nothing_for_certain_raises(
    cloud: Cloud, store: ObjectStore, status: int, code: str, advice: str
) -> None:
    cloud.script = [(status, _error(code))]
    with pytest.raises(StoreUnavailableError, match=f"nothing was stored; .*{advice}.*metadata/v1.*{code}"):
        store.create("metadata/v1", b"x")
    assert len(cloud.requests) == 1


def test_a_store_without_conditional_put_is_unsafe(cloud: Cloud, store: ObjectStore) -> None:
    cloud.script = [(501, _error("NotImplemented"))]
    with pytest.raises(UnsafeStoreError, match="no create-if-absent"):
        store.create("metadata/v1", b"x")


def test_a_read_is_sent_again_until_it_is_answered(cloud: Cloud, store: ObjectStore) -> None:
    cloud.script = [None, (503, ""), (200, "bytes")]
    assert store.read("metadata/v1").data == b"bytes"
    assert len(cloud.requests) == 3


def test_a_bucket_that_is_missing_is_no_missing_object(cloud: Cloud, store: ObjectStore) -> None:
    cloud.script = [(404, _error("NoSuchBucket"))]
    for action in (lambda: store.read("x"), lambda: store.list_folder("x"), lambda: store.delete(["x"])):
        with pytest.raises(StoreUnavailableError, match="no such bucket"):
            action()


def test_a_listing_that_is_refused_is_no_empty_listing(cloud: Cloud, store: ObjectStore) -> None:
    cloud.script = [(403, _error("AccessDenied"))]
    with pytest.raises(StoreUnavailableError, match="access is refused"):
        store.list_folder("metadata")


def test_an_output_that_cannot_be_stored_says_so_when_it_is_closed(cloud: Cloud, store: ObjectStore) -> None:
    cloud.script = [(403, _error("AccessDenied"))]
    out = store.open_output("data/x")
    out.write(b"x")
    with pytest.raises(StoreUnavailableError, match=r"cannot write.*data/x"):
        out.close()


class Vault:
    """Fetches options as a picklable object would: counts how often, and answers with the next key."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.calls = 0

    def __call__(self) -> dict[str, Any]:
        self.calls += 1
        key = f"AKIA{self.calls}"
        return {
            "access_key_id": key,
            "secret_access_key": SECRET,
            "endpoint": self.endpoint,
            "allow_http": True,
        }


def test_options_from_a_function_are_fetched_when_they_are_needed_and_once(cloud: Cloud) -> None:
    vault = Vault(cloud.endpoint)
    store = ObjectStore("s3://bucket/t", vault)
    assert vault.calls == 0
    cloud.script = [(200, "x")]
    store.read("a")
    store.create("b", b"x")
    assert vault.calls == 1


@pytest.mark.parametrize("refusal", [(403, _error("AccessDenied")), (400, _error("ExpiredToken"))])
def test_a_refused_create_is_sent_once_more_with_fresh_options(
    cloud: Cloud, refusal: tuple[int, str]
) -> None:
    vault = Vault(cloud.endpoint)
    store = ObjectStore("s3://bucket/t", vault)
    cloud.script = [refusal, (200, "")]
    store.create("b", b"x")
    assert ["akia1" in cloud.authorizations[0], "akia2" in cloud.authorizations[1]] == [True, True]


def test_a_refused_listing_is_sent_once_more_with_fresh_options(cloud: Cloud) -> None:
    store = ObjectStore("s3://bucket/t", Vault(cloud.endpoint))
    cloud.script = [(403, _error("AccessDenied")), (200, "<ListBucketResult></ListBucketResult>")]
    assert store.list_folder("metadata") == []
    assert ["akia1" in cloud.authorizations[0], "akia2" in cloud.authorizations[1]] == [True, True]


def test_options_that_stay_refused_are_fetched_twice_and_no_more(cloud: Cloud) -> None:
    vault = Vault(cloud.endpoint)
    cloud.script = [(403, _error("AccessDenied"))]
    with pytest.raises(StoreUnavailableError, match="access is refused"):
        ObjectStore("s3://bucket/t", vault).read("a")
    assert (vault.calls, len(cloud.requests)) == (2, 2)


def test_an_unclear_create_is_not_sent_again_with_fresh_options(cloud: Cloud) -> None:
    vault = Vault(cloud.endpoint)
    cloud.script = [(500, "")]
    assert isinstance(ObjectStore("s3://bucket/t", vault).create("a", b"x"), Unknown)
    assert (vault.calls, len(cloud.requests)) == (1, 1)


@pytest.mark.parametrize(
    "reply",
    [
        (403, _error("SignatureDoesNotMatch", f"x-amz-security-token:{TOKEN} {SECRET}")),
        (400, f"<Error><Code>Bad</Code><Message>{SECRET} {TOKEN}</Message></Error>"),
        (404, _error("NoSuchBucket", f"{SECRET} {TOKEN}")),
        (404, _error("NoSuchKey", f"{SECRET} {TOKEN}")),
    ],
)
def test_no_error_shows_a_secret_though_the_server_repeats_it(
    cloud: Cloud, store: ObjectStore, reply: tuple[int, str]
) -> None:
    cloud.script = [reply]
    shown: list[str] = [repr(store), store.signature]
    actions: list[Callable[[], Any]] = [
        lambda: store.create("x", b"x"),
        lambda: store.read("x"),
        lambda: store.list_folder("x"),
        lambda: store.delete(["x"]),
        lambda: store.overwrite("x", b"x"),
        lambda: store.open_input("x"),
        lambda: store.open_output("x").close(),
    ]
    for action in actions:
        try:
            shown.append(repr(action()))
        except Exception as error:  # noqa: BLE001
            shown.append("".join(traceback.format_exception(error)))
            shown.append(repr(pickle.loads(pickle.dumps(error))))
    assert not [text for text in shown if SECRET in text or TOKEN in text]


def test_an_azure_sas_token_in_a_url_is_not_shown() -> None:
    error = GenericError(
        f"Error performing GET https://a.blob.core.windows.net/c/x?sv=1&sig={SECRET} in 3ms - reset"
    )
    assert explain(error, []) == "Error performing GET https://a.blob.core.windows.net/c/x in 3ms - reset"


@pytest.mark.parametrize(
    ("location", "options"),
    [
        ("s3://bucket/t", {"access_key_id": "A", "secret_access_key": SECRET, "skip_signature": "perhaps"}),
        ("s3://bucket/t", {"session_token": SECRET, "access_key_id": SECRET}),
        ("gs://bucket/t", {"service_account_key": SECRET}),
        ("gs://bucket/t", {"service_account": f'{{"key": "{SECRET}"}}'}),
        ("gs://bucket/t", {"service_account": f"{SECRET}\n<{SECRET}>?{SECRET}"}),
        ("az://container/t", {"account_name": "a", "account_key": SECRET}),
        ("az://container/t", {"account_name": "a", "sas_key": SECRET}),
        ("s3://bucket/t", {"default_headers": {"x-key": f"{SECRET}\n"}}),
    ],
)
def test_options_that_make_no_client_are_refused_without_showing_a_secret(
    location: str, options: dict[str, Any]
) -> None:
    store = ObjectStore(location, options)
    with pytest.raises(ValueError, match="make no client for") as caught:
        store.create("x", b"x")
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("location", "name", "nearest"),
    [
        ("s3://b/t", "acess_key_id", "access_key_id"),
        ("s3://b/t", "AWS_SECRET_ACCESS_KEY", "secret_access_key"),
        ("s3://b/t", "allow_htp", "allow_http"),
        ("gs://b/t", "service_acount", "service_account"),
        ("az://b/t", "acount_key", "account_key"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_known_one(
    location: str, name: str, nearest: str
) -> None:
    with pytest.raises(ValueError, match=f"the nearest is '{nearest}'.*{name}") as caught:
        ObjectStore(location, {name: SECRET})
    assert SECRET not in str(caught.value)


def test_an_option_like_no_other_is_refused_with_all_known_ones() -> None:
    with pytest.raises(ValueError, match=r"known are .*service_account.*; got: 'xyzzy'"):
        ObjectStore("gs://b/t", {"xyzzy": "1"})


def test_unknown_options_from_a_function_are_refused_when_it_is_asked() -> None:
    store = ObjectStore("s3://b/t", lambda: {"acess_key_id": SECRET})
    with pytest.raises(ValueError, match="the nearest is 'access_key_id'"):
        store.read("x")


def test_a_function_that_fails_is_a_store_that_does_not_answer(cloud: Cloud) -> None:
    """Between a create and its confirmation any other error would say that nothing is live."""
    vault = Vault(cloud.endpoint)
    answers = iter([vault])

    def options() -> dict[str, Any]:
        for answer in answers:
            return answer()
        raise TimeoutError("the token service does not answer")

    store = ObjectStore("s3://bucket/t", options)
    cloud.script = [(200, "x"), (403, _error("AccessDenied"))]
    store.read("a")
    with pytest.raises(StoreUnavailableError, match="TimeoutError: the token service does not answer"):
        store.read("a")


def test_making_a_store_sends_nothing_and_pickling_takes_no_client(cloud: Cloud, store: ObjectStore) -> None:
    pickle.dumps(store)
    assert cloud.requests == []
    cloud.script = [(200, "x")]
    store.read("a")
    assert pickle.loads(pickle.dumps(store)).read("a").data == b"x"


def test_the_signature_names_endpoint_and_client_without_credentials() -> None:
    options = {"endpoint": f"http://user:{SECRET}@minio.example:9000/", "allow_http": True}
    signature = ObjectStore("s3://b/t", options).signature
    assert signature.startswith("obstore ")
    assert signature.endswith(" s3 minio.example:9000")
    assert SECRET not in signature


def test_the_signature_changes_with_the_endpoint_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    assert ObjectStore("s3://b/t").signature.endswith(" s3")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://other:1")
    assert ObjectStore("s3://b/t").signature.endswith(" s3 other:1")


def test_an_etag_is_the_same_with_and_without_its_quotes() -> None:
    """Azure's listings leave the quotes out, its headers do not."""
    store = ObjectStore("az://c/t", {"account_name": "a"})
    tags = ['"0x8D"', "0x8D", 'W/"0x8D"']
    assert {store._identity({"e_tag": tag}) for tag in tags} == {"0x8D"}


def test_a_store_without_etags_is_unsafe() -> None:
    with pytest.raises(UnsafeStoreError, match="no ETag"):
        ObjectStore("s3://b/t")._identity({"e_tag": None})


@pytest.mark.parametrize(
    ("location", "bucket", "prefix", "account"),
    [
        ("s3://b", "b", "", None),
        ("s3a://b/x/y", "b", "x/y", None),
        ("gs://b/x", "b", "x", None),
        ("abfss://c@acc.dfs.core.windows.net/x", "c", "x", "acc"),
        ("az://c/x", "c", "x", None),
    ],
)
def test_a_location_is_taken_apart(location: str, bucket: str, prefix: str, account: str | None) -> None:
    store = ObjectStore(location + "/")
    assert store.location == location
    assert (store._place.bucket, store._place.prefix, store._place.account) == (bucket, prefix, account)


@pytest.mark.parametrize("location", ["s3://", "s3:///x", "s3://b//x", "s3://b/../x", "http://b/x", "/x"])
def test_a_location_without_bucket_or_with_odd_parts_is_refused(location: str) -> None:
    with pytest.raises(ValueError, match="location"):
        ObjectStore(location)
