"""The commands `quarantine` and `replay`. Only `replay` starts Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from streaming_sink.commands.arguments import F, Pairs, key_values, of_a_table
from streaming_sink.commands.terminal import DONE, FINDINGS, say, say_either, say_json

if TYPE_CHECKING:
    from streaming_sink.options.values.tables import KnownTable

_elsewhere = click.option(
    "--quarantine",
    "elsewhere",
    metavar="URL",
    help="The quarantine, where it is not at LOCATION__quarantine.",
)


@click.command()
@of_a_table
@_elsewhere
@click.option(
    "--deliver/--no-deliver",
    default=True,
    help="First complete what a crash has cut off: rows that are committed, and not in the quarantine yet.",
)
@click.option("--samples", metavar="NUMBER", type=click.IntRange(min=0), default=3, show_default=True)
def quarantine(
    table: KnownTable,
    as_json: bool,
    elsewhere: str | None,
    deliver: bool,
    samples: int,
) -> int:
    """Show which rows are quarantined, and why. LOCATION is the main table's."""
    from streaming_sink.checks.quarantine_table import open_quarantine
    from streaming_sink.commands.rendering import say_quarantine
    from streaming_sink.reading.quarantined_rows import quarantine_of
    from timeline.outbox import deliver_all

    second = table.default_quarantine if elsewhere is None else table.beside(elsewhere)
    main = table.open()
    if deliver:
        deliver_all(main, lambda address: table.beside(address).open())
    found = quarantine_of(main, open_quarantine(second), samples)
    return say_either(as_json, found, lambda: say_quarantine(found))


def _repeated(name: str, help_text: str, **given: Any) -> Callable[[F], F]:
    def add(command: F) -> F:
        return click.option(name, multiple=True, help=f"{help_text}; may be repeated.", **given)(command)

    return add


@click.command()
@of_a_table
@_elsewhere
@click.option(
    "--where",
    required=True,
    metavar="CONDITION",
    help="Which rows: SQL over the quarantine's columns and the row's own. `true` takes all.",
)
@_repeated("--set", 'Repair a column, as --set "price = -price"', metavar="COLUMN=EXPR", callback=key_values)
@_repeated("--drop", "Leave out a column that the table lacks", metavar="COLUMN")
@_repeated("--expect", "A condition; a row that fails it is quarantined again", metavar="CONDITION")
def replay(
    table: KnownTable,
    as_json: bool,
    elsewhere: str | None,
    where: str,
    set: Pairs,  # noqa: A002 - as in SQL
    drop: tuple[str, ...],
    expect: tuple[str, ...],
) -> int:
    """Write quarantined rows into their table, each once. Without --expect no expectation is checked.

    Starts a local Spark session; in a Spark program, call streaming_sink.replay.
    """
    from pyspark.sql import SparkSession  # the other commands work without it

    from streaming_sink.options.table_options import TableOptions
    from streaming_sink.options.values.checks import Checks
    from streaming_sink.options.values.contract import SchemaContract
    from streaming_sink.replaying.rebuilding import without
    from streaming_sink.replaying.replay import replay as replay_rows

    values = {name.strip(): text.strip() for name, text in (set or {}).items()}
    sys.stderr.write("starting Spark\n")
    session = SparkSession.builder.appName("streaming_sink replay").getOrCreate()
    reports = replay_rows(
        session,
        table,
        where=where,
        set=values,
        fix=(lambda rows: without(rows, drop)) if drop else None,
        options=TableOptions(
            contract=SchemaContract(mismatch="quarantine"),
            checks=Checks(dict.fromkeys(expect, "quarantine"), quarantine=elsewhere),
        ),
    )
    if as_json:
        say_json(reports)
    else:
        rows, again = sum(it.rows for it in reports), sum(it.quarantined for it in reports)
        versions = [it.version for it in reports if it.version is not None]
        said = f"{rows:,} {'row' if rows == 1 else 'rows'} replayed, {again:,} quarantined again"
        say(f"{said}; version {versions[-1]}" if versions else "nothing to replay")
    return FINDINGS if any(it.quarantined for it in reports) else DONE


COMMANDS = (quarantine, replay)
