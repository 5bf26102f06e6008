"""The command `key`: whether each key is in the table once, and its declaration where it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from streaming_sink.commands.arguments import of_a_table
from streaming_sink.commands.terminal import DONE, FINDINGS, say, say_json

if TYPE_CHECKING:
    from streaming_sink.options.values.tables import KnownTable
    from streaming_sink.options.values.writes import WriteByKey


@click.command()
@of_a_table
@click.option("--columns", metavar="NAMES", help="The columns of the key, with commas between them.")
@click.option("--sequence-by", metavar="NAME", help="The column whose larger value is the newer change.")
@click.option(
    "--scope",
    type=click.Choice(["table", "partition"]),
    default="table",
    show_default=True,
    help="Where a key is unique.",
)
@click.option(
    "--partial-update",
    "partial",
    metavar="NAMES",
    help="The columns that keep their value where a change has a null, with commas between them; * for all.",
)
@click.option(
    "--declare", is_flag=True, help="Also declare the --columns as the table's key, which stays its key."
)
def key(
    table: KnownTable,
    as_json: bool,
    columns: str | None,
    sequence_by: str | None,
    scope: str,
    partial: str | None,
    declare: bool,
) -> int:
    """Check that each key is in the table once: its own, or the one that --columns names.

    Reads the key's columns of all live rows. Streams may go on; one that adds rows before the key is
    declared lets the declaration fail.
    """
    from streaming_sink.options.values.writes import Upsert
    from streaming_sink.reading.duplicate_keys import check_keys
    from streaming_sink.table.column_sequences import evolved_fields
    from streaming_sink.table.table_keys import table_key
    from timeline.changes.key_changes import DeclareKey, check_key_is
    from timeline.changes.schema_changes import MergeSchema
    from timeline.versions.keys import Looked, key_of

    if declare and columns is None:
        raise ValueError("--declare needs the columns of the key: --columns id")
    named = None if columns is None else _names("--columns", columns)
    name, opened = table.location, table.open()
    declared = key_of(opened.head.properties)
    options: WriteByKey | None = None
    if named is None:
        if declared is None:
            raise ValueError(f"the table has no key; name its columns: --columns id: {name}")
        wanted = declared
    else:
        columns_kept = partial is not None and (partial.strip() == "*" or _names("--partial-update", partial))
        options = Upsert(key=named, sequence_by=sequence_by, key_scope=scope, partial_update=columns_kept)
        wanted = table_key(options, opened.head.schema)
        if declared is not None:
            check_key_is(declared, wanted, opened.head)
    head = opened.head
    checked = check_keys(opened.store, head, wanted)
    declares = declare and not checked.repeated and declared is None
    if declares:
        grown = evolved_fields(head.schema, None, (), options)
        if grown is not None:
            opened.commit([MergeSchema(grown)])
        opened.commit([DeclareKey(wanted, Looked.at(head))])
    if as_json:
        say_json({"checked": checked, "declared": declares or declared is not None})
    else:
        say(f"key      {checked.key}")
        say(f"rows     {checked.rows:,}, of which {checked.without_key:,} have a null in their key")
        say(f"repeated {checked.repeated:,}")
        for example in checked.examples:
            say(f"         {', '.join(f'{name}={value!r}' for name, value in example.items())}")
        say(_verdict(bool(checked.repeated), declares, declared is not None))
    return FINDINGS if checked.repeated else DONE


def _names(option: str, text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ValueError(f"{option} names columns, with commas between them, not {text!r}")
    return names


def _verdict(repeated: bool, declares: bool, declared: bool) -> str:
    if repeated:
        what = (
            "each of them is replaced as a whole by the next change of its key"
            if declared
            else "it cannot be the key of the table: delete the rows that are too many, and check again"
        )
        return f"keys are there more than once; {what}"
    if declares:
        return "each key is there once; it is the table's key now"
    return f"each key is there once{'' if declared else '; --declare makes it the key of the table'}"


COMMANDS = (key,)
