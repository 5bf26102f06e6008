"""`storage_options` of object stores: their names, whose they are, and which values are secret."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

StorageOptions = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
"""Options by name, or a picklable function without arguments that fetches them, in whichever process asks.

A function may have `is_due(options)`: whether clients that were made with these should be made anew; and
`renew(options)`, which is called with those that the store has refused, before the function is called again.
"""

CLIENT_KEYS = frozenset(
    [
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "default_headers",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    ]
)

# The names of obstore's typed dictionaries S3Config, GCSConfig and AzureConfig, without those that the
# location gives.
S3_KEYS = frozenset(
    [
        "access_key_id",
        "aws_endpoint_url_s3",
        "checksum_algorithm",
        "container_authorization_token_file",
        "container_credentials_full_uri",
        "container_credentials_relative_uri",
        "default_region",
        "disable_bulk_delete",
        "disable_tagging",
        "endpoint",
        "imdsv1_fallback",
        "metadata_endpoint",
        "region",
        "request_payer",
        "role_arn",
        "role_session_name",
        "s3_express",
        "secret_access_key",
        "server_side_encryption",
        "session_token",
        "skip_signature",
        "sse_bucket_key_enabled",
        "sse_customer_key_base64",
        "sse_kms_key_id",
        "sts_endpoint",
        "unsigned_payload",
        "virtual_hosted_style_request",
        "web_identity_token_file",
    ]
)
GCS_KEYS = frozenset(
    [
        "application_credentials",
        "base_url",
        "bearer_token",
        "service_account",
        "service_account_key",
        "skip_signature",
    ]
)
AZURE_KEYS = frozenset(
    [
        "account_key",
        "account_name",
        "authority_host",
        "client_id",
        "client_secret",
        "credential_type",
        "disable_tagging",
        "encryption_key",
        "endpoint",
        "fabric_cluster_identifier",
        "fabric_session_token",
        "fabric_token_service_url",
        "fabric_workload_host",
        "federated_token_file",
        "msi_endpoint",
        "msi_resource_id",
        "object_id",
        "sas_key",
        "skip_signature",
        "tenant_id",
        "token",
        "use_azure_cli",
        "use_emulator",
        "use_fabric_endpoint",
    ]
)

_SECRET_MARKS = ("key", "secret", "token", "sas", "credential", "service_account", "headers", "proxy_url")


def resolve(options: StorageOptions | None) -> dict[str, Any]:
    """Return the options as a dictionary, asking the function if they are one."""
    given = options() if callable(options) else options
    return dict(given or {})


def check_storage_options(options: Mapping[str, Any], known: frozenset[str], scheme: str) -> None:
    """Refuse a name that `scheme` does not know, with the nearest that it does. No value is shown."""
    for name in options:
        if name in known or name in CLIENT_KEYS:
            continue
        near = difflib.get_close_matches(str(name).lower(), sorted(known | CLIENT_KEYS), n=1, cutoff=0.5)
        hint = (
            f"the nearest is {near[0]!r}" if near else f"known are {', '.join(sorted(known | CLIENT_KEYS))}"
        )
        raise ValueError(f"unknown storage option for {scheme}; {hint}; got: {name!r}")


def secrets(options: Mapping[str, Any]) -> list[str]:
    """Return the values that no message may show, the longest first."""
    values = [value for name, value in options.items() if any(mark in name for mark in _SECRET_MARKS)]
    texts = [text for value in values for text in _texts(value)]
    return sorted((text for text in texts if text), key=len, reverse=True)


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for inner in value.values() for text in _texts(inner)]
    if isinstance(value, bytes):
        return [value.decode(errors="replace")]
    return [value] if isinstance(value, str) else []
