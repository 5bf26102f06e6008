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


def of_a_table(command: F) -> F:
    """Let a command take LOCATION, --option and --json, as `location`, `storage_options` and `as_json`."""
    for add in (
        click.option(
            "--json", "as_json", is_flag=True, help="Print one JSON value, for programs, in place of text."
        ),
        storage_option,
        click.argument("location", metavar="LOCATION"),
    ):
        command = add(command)
    return command


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
