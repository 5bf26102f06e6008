"""The settings of pyiceberg's file access, as obstore's: each has its name there, or is refused by its own.

A catalog states them for a table, with credentials for it, and a user among the properties of a catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from timeline.errors import UnsupportedTableError

_Options = dict[str, Any]


class FileSettings(NamedTuple):
    """How the files of a table are reached."""

    options: dict[str, Any]
    """By obstore's names."""
    ends_ms: int | None
    """When its credentials end, by the clock of the store; None where that is not said."""

    def __repr__(self) -> str:
        return f"FileSettings({sorted(self.options)}, {self.ends_ms})"


def read_file_settings(stated: Mapping[str, Any], location: str) -> FileSettings:
    """Return the settings for a location, among those of other stores; none for a place on a disk.

    UnsupportedTableError, by its name, for one that this sink cannot keep to.
    """
    scheme = location.partition("://")[0] if "://" in location else "file"
    kind = _SCHEMES.get(scheme)
    if kind is None:
        return FileSettings({}, None)
    _check_signing(stated)
    options: _Options = {}
    for name in kind.refused:
        if str(stated.get(name, "false")).lower() != "false":
            raise UnsupportedTableError(
                f"the catalog's setting {name} of files cannot be kept to: leave it out, or give"
                f" storage_options for the table, which take the place of all such settings: {location}",
                location=location,
            )
    for name, (option, convert) in kind.names.items():
        # Where two names mean one option, the first counts.
        if stated.get(name) not in (None, "") and option not in options:
            options[option] = convert(str(stated[name]))
    account = location.partition("://")[2].partition("/")[0].partition("@")[2].partition(".")[0]
    if kind is _AZURE and (sas := _of_account(stated, "adls.sas-token", account)):
        options["sas_key"] = sas
    if str(options.get("endpoint") or options.get("base_url") or "").startswith("http://"):
        options["allow_http"] = True
    ends = [stated.get(name) for name in kind.ends] + [_of_account(stated, _SAS_ENDS, account)]
    stated_ends = next((int(str(end)) for end in ends if end is not None), None)
    return FileSettings(options, stated_ends)


class _Kind(NamedTuple):
    names: dict[str, tuple[str, Callable[[str], Any]]]
    refused: tuple[str, ...]
    ends: tuple[str, ...]
    without_effect: tuple[str, ...] = ()
    """On reads and writes of files by their names."""


def _text(value: str) -> str:
    return value


def _flag(value: str) -> bool:
    return value.lower() == "true"


def _no_flag(value: str) -> bool:
    return not _flag(value)


def _seconds(value: str) -> str:
    return f"{float(value):g}s"


_SIGNING = ("s3.remote-signing-enabled", "s3.signer")
_SAS_ENDS = "adls.sas-token-expires-at-ms"
_S3 = _Kind(
    names={
        "s3.endpoint": ("endpoint", _text),
        "s3.access-key-id": ("access_key_id", _text),
        "client.access-key-id": ("access_key_id", _text),
        "s3.secret-access-key": ("secret_access_key", _text),
        "client.secret-access-key": ("secret_access_key", _text),
        "s3.session-token": ("session_token", _text),
        "client.session-token": ("session_token", _text),
        "s3.region": ("region", _text),
        "client.region": ("region", _text),
        "s3.anonymous": ("skip_signature", _flag),
        "s3.force-virtual-addressing": ("virtual_hosted_style_request", _flag),
        "s3.path-style-access": ("virtual_hosted_style_request", _no_flag),
        "s3.server-side-encryption": ("server_side_encryption", _text),
        "s3.sse-kms-key-id": ("sse_kms_key_id", _text),
        "s3.proxy-uri": ("proxy_url", _text),
        "s3.connect-timeout": ("connect_timeout", _seconds),
        "s3.request-timeout": ("timeout", _seconds),
    },
    refused=(
        "s3.role-arn", "s3.role-session-name", "client.role-arn", "client.role-session-name",
        "s3.profile-name", "client.profile-name", "s3.resolve-region", "s3.retry-strategy-impl",
    ),
    ends=("s3.session-token-expires-at-ms",),
    without_effect=("s3.signer.uri", "s3.signer.endpoint"),
)  # fmt: skip
_GCS = _Kind(
    names={
        "gcs.oauth2.token": ("bearer_token", _text),
        "gcs.service.host": ("base_url", _text),
    },
    refused=("gcs.requester-pays", "gcs.session-kwargs", "gcs.version-aware"),
    ends=("gcs.oauth2.token-expires-at",),
    without_effect=(
        "gcs.project-id", "gcs.access", "gcs.consistency", "gcs.cache-timeout", "gcs.default-bucket-location",
    ),
)  # fmt: skip
_AZURE = _Kind(
    names={
        "adls.account-name": ("account_name", _text),
        "adls.account-key": ("account_key", _text),
        "adls.sas-token": ("sas_key", _text),
        "adls.tenant-id": ("tenant_id", _text),
        "adls.client-id": ("client_id", _text),
        "adls.client-secret": ("client_secret", _text),
        "adls.token": ("token", _text),
        "adls.anon": ("skip_signature", _flag),
    },
    refused=(
        "adls.connection-string", "adls.credential", "adls.account-host", "adls.blob-storage-authority",
        "adls.dfs-storage-authority", "adls.blob-storage-scheme", "adls.dfs-storage-scheme",
    ),
    ends=(_SAS_ENDS,),
)  # fmt: skip
_SCHEMES = {
    "s3": _S3, "s3a": _S3, "gs": _GCS, "gcs": _GCS, "az": _AZURE, "abfs": _AZURE, "abfss": _AZURE,
}  # fmt: skip


def _check_signing(stated: Mapping[str, Any]) -> None:
    if _flag(str(stated.get(_SIGNING[0], ""))) or stated.get(_SIGNING[1]):
        raise UnsupportedTableError(
            "the catalog wants to sign each request to the store itself (remote signing), which is not"
            " offered: let it vend credentials, or give storage_options for the table"
        )


def _of_account(stated: Mapping[str, Any], name: str, account: str) -> Any:
    """Return what is stated for one account, as Java's names have it: with its host, or its name."""
    found = (value for key, value in stated.items() if key.startswith(f"{name}.{account}"))
    return next(found, None) if account else None
