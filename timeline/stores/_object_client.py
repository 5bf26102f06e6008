"""Make an obstore client for a location, and describe its errors without secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from obstore.store import AzureStore, GCSStore, S3Store

from timeline.stores._options import AZURE_KEYS, CLIENT_KEYS, GCS_KEYS, S3_KEYS

Client = Any
"""An obstore store; its types differ by cloud and share no base."""

SCHEMES = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "az": "azure",
    "abfs": "azure",
    "abfss": "azure",
}

_KEYS = {"s3": S3_KEYS, "gcs": GCS_KEYS, "azure": AZURE_KEYS}
_ENDPOINTS = {
    "s3": (("aws_endpoint_url_s3", "endpoint"), ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")),
    "gcs": (("base_url",), ("GOOGLE_BASE_URL",)),
    "azure": (("endpoint",), ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")),
}

# A create that was applied and whose reply was lost must not be sent again by the client: the second answer,
# "already exists", would hide that it is ours (R2). Everything else is safe to repeat, within a minute.
COMMIT_RETRIES: dict[str, Any] = {"max_retries": 0}
OTHER_RETRIES: dict[str, Any] = {"max_retries": 8, "retry_timeout": timedelta(seconds=60)}
_COMMIT_TIMEOUT = "10s"
_OTHER_TIMEOUT = "60s"  # covers a whole body: a Parquet column chunk, a part of an upload
_CONNECT_TIMEOUT = "2s"


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A location, taken apart."""

    scheme: str
    service: str
    bucket: str
    prefix: str
    account: str | None

    @property
    def known_keys(self) -> frozenset[str]:
        return _KEYS[self.service]

    def endpoint(self, options: Mapping[str, Any]) -> str:
        """Return the host and port that requests go to, or the service's name where it is the cloud's own."""
        names, variables = _ENDPOINTS[self.service]
        given = [options.get(name) for name in names] + [os.environ.get(name) for name in variables]
        url = urlsplit(next((str(value) for value in given if value), ""))
        host = url.netloc.rpartition("@")[2]
        return f"{self.service} {host}" if host else self.service


Connect = Callable[[ObjectPlace, Mapping[str, Any], bool], Client]
"""Makes a client: `connect(place, options, commit)`; a commit client never retries."""


def parse(location: str) -> ObjectPlace:
    """Take a location apart. ValueError when it is none of an object store."""
    scheme, separator, rest = location.partition("://")
    if not separator or scheme not in SCHEMES:
        raise ValueError(f"not a location of an object store ({', '.join(SCHEMES)}): {location!r}")
    host, _, prefix = rest.partition("/")
    if ":" in host or "?" in rest or "#" in rest or ("@" in host and SCHEMES[scheme] != "azure"):
        # What follows may be a password, so the location itself is not repeated.
        raise ValueError(
            "a location is a scheme, a bucket and a path; credentials and other parameters go into "
            "storage_options"
        )
    bucket, _, account_host = host.partition("@")
    if not bucket or any(part in ("", ".", "..") for part in prefix.split("/") if prefix):
        raise ValueError(
            f"a location names a bucket and a path without empty, '.' or '..' parts: {location!r}"
        )
    return ObjectPlace(scheme, SCHEMES[scheme], bucket, prefix, account_host.partition(".")[0] or None)


def connect(place: ObjectPlace, options: Mapping[str, Any], commit: bool) -> Client:
    """Return an obstore client whose paths are relative to the place. It sends nothing yet."""
    config: dict[str, Any] = {name: value for name, value in options.items() if name not in CLIENT_KEYS}
    if place.account is not None:
        config.setdefault("account_name", place.account)
    client_options: dict[str, Any] = {
        "timeout": _COMMIT_TIMEOUT if commit else _OTHER_TIMEOUT,
        "connect_timeout": _CONNECT_TIMEOUT,
        **{name: value for name, value in options.items() if name in CLIENT_KEYS},
    }
    make: Any = {"s3": S3Store, "gcs": GCSStore, "azure": AzureStore}[place.service]
    return make(
        place.bucket,
        prefix=place.prefix or None,
        config=config,
        client_options=client_options,
        retry_config=COMMIT_RETRIES if commit else OTHER_RETRIES,
    )


def explain(error: Exception, secrets: Iterable[str]) -> str:
    """Return one line about an error of obstore's, without secrets.

    Its own text quotes option values that do not parse, whole URLs (an Azure SAS token is in the
    query), and replies (S3 answers a wrong signature with the headers that were signed, the session token
    among them).
    """
    text = str(error)
    for secret in secrets:  # first: what is cut below might cut a secret in two
        text = text.replace(secret, "***")
    code = re.search(r"<Code>(\w+)</Code>", text)
    line = re.sub(r"\?\S*", "", text.partition("\n")[0].partition("<")[0]).rstrip(": ")
    return f"{line} ({code[1]})" if code else line
