"""Settings of pyiceberg's file access as obstore's: none is passed over in silence."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg import io

from timeline.catalogs.clients import file_settings
from timeline.catalogs.clients.file_settings import read_file_settings
from timeline.errors import UnsupportedTableError
from timeline.stores import open_store

_KINDS = {
    "s3://lake/t": (file_settings._S3, ("S3_", "AWS_")),
    "gs://lake/t": (file_settings._GCS, ("GCS_",)),
    "abfss://lake@account.dfs.core.windows.net/t": (file_settings._AZURE, ("ADLS_",)),
}
NO_NAMES = {io.S3_SIGNER_ENDPOINT_DEFAULT}


@pytest.mark.parametrize("location", _KINDS)
def test_each_setting_of_pyiceberg_has_its_name_here_or_is_refused_by_it(location: str) -> None:
    kind, prefixes = _KINDS[location]
    stated = {getattr(io, name) for name in dir(io) if name.startswith(prefixes)} - NO_NAMES
    known = {*kind.names, *kind.refused, *kind.without_effect, *kind.ends, *file_settings._SIGNING}
    assert len(stated) > 10
    assert stated - known == set()


@pytest.mark.parametrize("location", _KINDS)
def test_each_option_is_one_that_the_store_takes(location: str) -> None:
    kind, _ = _KINDS[location]
    for name in kind.names:
        found = read_file_settings({name: "1"}, location)
        assert len(found.options) == 1, name
        assert "allow_http" not in found.options
        open_store(location, found.options)  # which refuses a name that it does not know


@pytest.mark.parametrize("location", _KINDS)
def test_a_setting_that_cannot_be_kept_to_is_refused_by_its_name(location: str) -> None:
    kind, _ = _KINDS[location]
    for name in kind.refused:
        with pytest.raises(UnsupportedTableError, match=rf"setting {name} of files.*storage_options"):
            read_file_settings({name: "hush"}, location)
        assert read_file_settings({name: "false"}, location).options == {}


@pytest.mark.parametrize("given", [{"s3.remote-signing-enabled": "true"}, {"s3.signer": "S3V4RestSigner"}])
def test_remote_signing_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(UnsupportedTableError, match="remote signing"):
        read_file_settings({"s3.access-key-id": "hush", **given}, "s3://lake/t")
    assert read_file_settings({"s3.remote-signing-enabled": "false"}, "s3://lake/t").options == {}


@pytest.mark.parametrize(
    ("location", "stated", "options", "ends_ms"),
    [
        (
            "s3://lake/t",
            {
                "s3.endpoint": "http://127.0.0.1:9000",
                "s3.access-key-id": "a",
                "client.access-key-id": "of the catalog itself",
                "s3.secret-access-key": "b",
                "s3.session-token": "c",
                "client.region": "eu-west-1",
                "s3.path-style-access": "true",
                "s3.session-token-expires-at-ms": "1750000000000",
                "s3.delete-enabled": "false",
                "adls.account-key": "of another store",
                "warehouse": "x",
            },
            {
                "endpoint": "http://127.0.0.1:9000",
                "allow_http": True,
                "access_key_id": "a",
                "secret_access_key": "b",
                "session_token": "c",
                "region": "eu-west-1",
                "virtual_hosted_style_request": False,
            },
            1_750_000_000_000,
        ),
        (
            "s3a://lake/t",
            {"s3.connect-timeout": "2.5", "s3.request-timeout": "60", "s3.anonymous": "True"},
            {"connect_timeout": "2.5s", "timeout": "60s", "skip_signature": True},
            None,
        ),
        (
            "gs://lake/t",
            {
                "gcs.oauth2.token": "a",
                "gcs.oauth2.token-expires-at": 1_750_000_000_000,
                "gcs.project-id": "p",
            },
            {"bearer_token": "a"},
            1_750_000_000_000,
        ),
        (
            "abfss://lake@one.dfs.core.windows.net/t",
            {
                "adls.sas-token.one.dfs.core.windows.net": "a",
                "adls.sas-token.two.dfs.core.windows.net": "b",
                "adls.sas-token-expires-at-ms.one.dfs.core.windows.net": "1750000000000",
            },
            {"sas_key": "a"},
            1_750_000_000_000,
        ),
        ("/lake/t", {"s3.access-key-id": "a", "s3.signer": "S3V4RestSigner"}, {}, None),
        ("memory://lake", {"s3.access-key-id": "a"}, {}, None),
    ],
)
def test_settings_are_those_of_the_location(
    location: str, stated: dict[str, Any], options: dict[str, Any], ends_ms: int | None
) -> None:
    found = read_file_settings(stated, location)
    assert found.options == options
    assert found.ends_ms == ends_ms
    assert "'a'" not in repr(found)
