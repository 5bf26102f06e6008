"""The arguments that commands share: a table's location or a zone, storage options, --json, and others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

import click

from planners.sizing import parse_bytes

F = TypeVar("F", bound=Callable[..., Any])
Pairs = dict[str, str] | None
Texts = str | tuple[str, ...] | None


def a_size(_context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return bytes as they are written, such as "512MiB"; None where they are not given."""
    try:
        if value is not None:
            parse_bytes(value)
    except ValueError as wrong:
        raise click.BadParameter(f"{wrong}; write one such as 512MiB", param=parameter) from wrong
    return value


def some_text(_context: click.Context, parameter: click.Parameter, value: Texts) -> Texts:
    """Return text that says something, or several of them; None where it is not given."""
    each = (value,) if isinstance(value, str) else value or ()
    if not all(text.strip() for text in each):
        raise click.BadParameter("it is empty; leave it out, or say something", param=parameter)
    return value


def key_values(_context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> Pairs:
    """Return KEY=VALUE arguments as a dict; None where there are none."""
    pairs = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"takes KEY=VALUE, not {text!r}", param=parameter)
        pairs[key] = value
    return pairs or None


storage_option = click.option(
    "--option",
    "storage_options",
    multiple=True,
    metavar="KEY=VALUE",
    callback=key_values,
    help="One of the sink's storage_options; may be repeated. Leave secrets in the environment.",
)
zone_argument = click.argument("zone", metavar="ZONE")


def of_a_zone(command: F) -> F:
    """Let a command take ZONE and --option, as the `BufferZone` that is there."""

    @wraps(command)
    def opened(zone: str, storage_options: Pairs, **given: Any) -> Any:
        from streaming_sink.ingest.zone import BufferZone

        return command(BufferZone(zone, storage_options=storage_options), **given)

    return zone_argument(storage_option(cast("F", opened)))


def secret_key_values(_context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> Pairs:
    """Return KEY=VALUE arguments as a dict, as `key_values`; no error repeats them."""
    if any("=" not in text for text in values):
        raise click.BadParameter("takes KEY=VALUE", param=parameter)
    return {key: value for key, _, value in (text.partition("=") for text in values)} or None


as_json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON value, for programs, in place of text."
)
table_option = click.option(
    "--table", "table_name", metavar="NAME", help="The table's name there, with its namespace."
)
catalog_properties_option = click.option(
    "--catalog-option",
    "catalog_options",
    multiple=True,
    metavar="KEY=VALUE",
    callback=secret_key_values,
    help="One of the catalog's properties; may be repeated. Leave secrets in .pyiceberg.yaml or in"
    " PYICEBERG_CATALOG__NAME__KEY.",
)


def of_a_table(command: F, *, further: str = "") -> F:
    """Let a command take LOCATION and --option, or --catalog and --table in its place, as `table`, a value;
    and --json as `as_json`. `further`: one argument more, as help shows it; it is alone without LOCATION.
    """
    last = further.lower()
    if further:
        command = click.argument(last, metavar=further, required=False)(command)

    @wraps(command)
    def of_one(
        location: str | None,
        storage_options: Pairs,
        catalog: str | None,
        catalog_options: Pairs,
        table_name: str | None,
        **given: Any,
    ) -> Any:
        from streaming_sink.options.values.tables import CatalogTable, PathTable

        in_catalog = catalog is not None or catalog_options is not None
        if further and given[last] is None:
            if location is None or not (in_catalog or table_name is not None):
                raise click.UsageError(f"Missing argument '{further}'.")
            location, given[last] = None, location
        if location is None and table_name is None and not in_catalog:
            raise click.UsageError("Missing argument 'LOCATION', or --catalog and --table in its place.")
        if location is not None and (in_catalog or table_name is not None):
            raise click.UsageError("LOCATION is the place of a table, and --table one in a catalog: say one")
        if location is None and not (in_catalog and table_name is not None):
            raise click.UsageError("--catalog NAME and --table NAMESPACE.TABLE go together")
        if location is not None:
            return command(PathTable(location, storage_options), **given)
        return command(
            CatalogTable(
                table_name or "", named_catalog(catalog, catalog_options), storage_options=storage_options
            ),
            **given,
        )

    taking = cast("F", of_one)
    for add in (
        as_json_option,
        table_option,
        catalog_properties_option,
        click.option(
            "--catalog", metavar="NAME", help="A configured catalog, with --table in LOCATION's place."
        ),
        storage_option,
        click.argument("location", metavar="LOCATION", required=False),
    ):
        taking = add(taking)
    return taking


def named_catalog(name: str | None, given: Pairs) -> str | Mapping[str, str]:
    """Return a catalog by its name, or by what is configured under it with some properties more."""
    from timeline.catalogs.clients.settings import configured_as

    if given is None:
        assert name is not None
        return name
    return {**({} if name is None else {**configured_as(name), "name": name}), **given}


def with_sizing(command: F) -> F:
    """Let a command take --small and --max, for `sizing`."""
    for add in (
        click.option(
            "--small",
            "small",
            callback=a_size,
            metavar="SIZE",
            help="The sink's small_file_bytes; default: five sixths of --max, as the sink's own.",
        ),
        click.option(
            "--max",
            "largest",
            callback=a_size,
            metavar="SIZE",
            default="120MiB",
            show_default=True,
            help="The sink's max_file_bytes, which no table records.",
        ),
    ):
        command = add(command)
    return command


limited = click.option(
    "--limit", metavar="NUMBER", type=click.IntRange(min=1), help="Print so many at most; default: all."
)

also = click.option(
    "--also",
    multiple=True,
    metavar="URL",
    help="A second table that the table does not name, such as a quarantine elsewhere; may be repeated.",
)


def said(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are said; the others keep what the zone has."""
    return {name: value for name, value in options.items() if value is not None}
