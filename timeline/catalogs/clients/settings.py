"""A catalog's kind, name and properties, as they are given or configured; what none can use is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple
from urllib.parse import urlsplit

REST, SQL, GLUE, HIVE = "rest", "sql", "glue", "hive"
_KINDS = {"http": REST, "https": REST, "sqlite": SQL, "postgresql": SQL, "thrift": HIVE}
"""By the scheme of an address, where no type is given."""
_SHOWN = re.compile(r"([\w.+-]+://)(?:[^:/@?]*(?::[^:/@?]*)?@)?([^@?]*)(?:\?[^@]*)?")
"""An address in which it is plain what its user and its password are."""
_WHICH = {
    REST: ("warehouse", "prefix"),
    GLUE: ("glue.endpoint", "glue.region", "client.region", "glue.id"),
}
"""By the kind, the properties that say which of several catalogs at an address is meant."""
_ABSOLUTE = re.compile(r"/|file:/|(?!file:)[A-Za-z][\w.+-]*://")

_METASTORE = re.compile(r"thrift://[^\s/@?,]+:\d+/?")


class CatalogSettings(NamedTuple):
    """What a catalog is connected by. Its properties may hold secrets."""

    kind: str
    name: str
    properties: dict[str, Any]

    def __repr__(self) -> str:
        return f"CatalogSettings({self.kind!r}, {self.name!r}, ...)"


def configured_as(name: str) -> dict[str, Any]:
    """Return the properties that are configured under a catalog's name."""
    from pyiceberg.utils.config import Config  # not for those who unpickle settings

    return dict(Config().get_catalog_config(name) or {})


def settings_of(catalog: str | Mapping[str, str]) -> CatalogSettings:
    """Return a catalog's settings: those that are given, or those that are configured under its name in
    `.pyiceberg.yaml` or the environment. Sends no request.

    ValueError where nothing is configured under the name, the catalog is of a kind that is not offered, or
    its properties are of no use; it names a package that is not installed.
    """
    if isinstance(catalog, str):
        name, known = catalog, configured_as(catalog)
    else:
        # A catalog in SQL finds its tables by its own name; "default" is pyiceberg's.
        name, known = str(catalog.get("name", "default")), dict[str, Any](catalog)
        known.pop("name", None)
    if not known:
        raise ValueError(
            f"no catalog is configured under the name {name!r}: add it to .pyiceberg.yaml, set"
            f" PYICEBERG_CATALOG__{name.upper()}__URI, or give its properties in the place of its name"
        )
    scheme = str(known.get("uri", "")).partition("://")[0].lower()
    implied = _KINDS.get(scheme.partition("+")[0])
    stated = known.get("py-catalog-impl") or known.pop("type", implied)
    kind = str(stated).lower()
    if kind not in _CHECKS or kind != (implied or GLUE):
        # The address may have a password in it, so it is not repeated.
        raise ValueError(
            f"the catalog {name!r} must be a REST catalog, with a uri that begins with http:// or https://,"
            " one in SQL, with a uri that begins with sqlite:/// or postgresql://, of Hive, with a uri that"
            " begins with thrift://, or of the type glue; others are not offered: its type is"
            f" {stated or 'not said'!r}"
        )
    settings = CatalogSettings(kind, name, known)
    _CHECKS[kind](settings)
    return settings


def shown_address(uri: str) -> str:
    """Return an address for reports: without user, password and parameters."""
    plain = _SHOWN.fullmatch(uri)
    if plain is None:
        scheme, separator, _ = uri.partition("://")
        return f"{scheme}://..." if separator else (uri if uri in _CHECKS else "...")
    return f"{plain[1]}{plain[2]}".rstrip("/")


def shown_catalog(settings: CatalogSettings) -> str:
    """Return what a catalog is known by among all others, as far as its settings have it: its address without
    a password, and in parentheses which of those there it is. So it is one, however it is given.
    """
    known = settings.properties
    which = [f"{key}={known[key]}" for key in _WHICH.get(settings.kind, ()) if key in known]
    if settings.kind == SQL:  # it finds its tables by its own name
        which = [f"name={settings.name}"]
    address = shown_address(str(known.get("uri") or settings.kind))
    return f"{address} ({', '.join(which)})" if which else address


def _check_rest(settings: CatalogSettings) -> None:
    address = urlsplit(str(settings.properties["uri"]))
    if address.username or address.password or address.query:
        raise ValueError(
            f"the uri of the catalog {settings.name!r} has a password or parameters in it, which errors would"
            ' show; give them as "credential", "token" or "auth"'
        )


def _check_sql(settings: CatalogSettings) -> None:
    check_package("sqlalchemy", "sql", settings.name)
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    name = settings.name
    try:
        address = make_url(settings.properties["uri"])
        dialect = address.get_dialect()
    except (ArgumentError, NoSuchModuleError, ValueError):
        raise ValueError(
            f"the uri of the catalog {name!r} is none that SQLAlchemy can read; escape /, ? and @ in a"
            " password as %2F, %3F and %40"
        ) from None
    try:
        dialect.import_dbapi()
    except ImportError as absent:
        raise ValueError(
            f"the driver of the catalog {name!r} is not installed: {absent.name}. Install it, such as by pip"
            " install 'psycopg[binary]' for postgresql+psycopg://"
        ) from None
    if address.get_backend_name() == "sqlite" and address.database in (None, "", ":memory:"):
        raise ValueError(
            f"the catalog {name!r} is in memory, and would be gone with this process; name a file, such as"
            " sqlite:////srv/lake/catalog.db"
        )
    check_warehouse(settings)


def check_warehouse(settings: CatalogSettings) -> None:
    """Raise ValueError for a warehouse that means another place to each process."""
    warehouse = settings.properties.get("warehouse")
    if warehouse is not None and not _ABSOLUTE.match(str(warehouse)):
        raise ValueError(
            f"the warehouse of the catalog {settings.name!r} must be an absolute path or a URL such as"
            f" s3://lake/warehouse; it is {warehouse!r}"
        )


def check_package(package: str, extra: str, name: str) -> None:
    """Raise ValueError where the package that a kind of catalog needs is not installed."""
    if find_spec(package) is None:
        raise ValueError(
            f"the catalog {name!r} needs the package {package}, which is not installed; pip install"
            f" 'streaming-sink[{extra}]'"
        )


def _check_glue(settings: CatalogSettings) -> None:
    check_package("boto3", "glue", settings.name)
    check_warehouse(settings)


def _check_hive(settings: CatalogSettings) -> None:
    check_package("thrift", "hive", settings.name)
    uri = str(settings.properties["uri"])
    if _METASTORE.fullmatch(uri) is None:
        raise ValueError(
            f"the uri of the catalog {settings.name!r} must be one host and its port, such as"
            f" thrift://metastore:9083; it is {shown_address(uri)!r}"
        )
    if str(settings.properties.get("hive.kerberos-authentication", "false")).lower() != "false":
        raise ValueError(
            f"hive.kerberos-authentication of the catalog {settings.name!r} is not offered; leave it out, or"
            " use a catalog of another kind"
        )


_CHECKS = {REST: _check_rest, SQL: _check_sql, GLUE: _check_glue, HIVE: _check_hive}
