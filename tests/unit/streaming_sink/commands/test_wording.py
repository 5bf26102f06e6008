"""Errors of the API, as a command says them."""

from __future__ import annotations

import click
import pytest

from streaming_sink.commands import cli
from streaming_sink.commands.wording import in_options


def command_of(name: str) -> click.Command:
    """Return the command of a name such as "ingest create"."""
    found: click.Command = cli._commands
    for part in name.split():
        assert isinstance(found, click.Group)
        found = found.commands[part]
    return found


@pytest.mark.parametrize(
    ("command", "error", "said"),
    [
        ("ingest serve", "set X (or give token=), or serve here", "set X (or give --token), or serve here"),
        ("ingest create", "max_age must be above 0", "--max-age must be above 0"),
        ("ingest create", "leave by_reference out", "leave --by-reference out"),
        ("ingest create", "by_reference=True, audit=False", "--by-reference, --no-audit"),
        ("ingest create", 'such as key=["user_id", "day"]', "such as --key user_id --key day"),
        ("ingest create", 'delete_where="op = 1": x', "--delete-where 'op = 1': x"),
        ("ingest clean", "grace must be above 0", "--grace must be above 0"),
        ("describe", "small_file_bytes=1,024, max_file_bytes='1KiB'", "--small 1024, --max 1KiB"),
        ("cluster", "give sort_by: sort_by=['a', 'b desc']", "give --sort-by: --sort-by 'a,b desc'"),
        ("cluster", 'give parameters={"footer_key": "k"}', "give --parameter footer_key=k"),
        ("expire", "say max_snapshot_age or max_snapshots,", "say --max-snapshot-age or --max-snapshots,"),
        ("key", "key_scope must be one of table, partition", "--scope must be one of table, partition"),
    ],
)
def test_what_arguments_are_called_becomes_options(command: str, error: str, said: str) -> None:
    assert in_options(error, command_of(command)) == said


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("ingest create", "a key is in the table once, and the table stays: /max_age/max_files"),
        ("ingest create", "unknown column 'max_age' or `max_bytes` of \"sequence_by\""),
        ("ingest push", "BufferZone(zone, table=location)"),
        ("orphans", "max_age must be above 0"),
        ("quarantine", 'give the sink another location, quarantine="..."'),
        ("status", "--max-age must be above 0"),
    ],
)
def test_words_names_in_quotes_and_what_is_no_option_of_the_command_stay(command: str, error: str) -> None:
    assert in_options(error, command_of(command)) == error
