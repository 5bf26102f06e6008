"""The commands `rollback`, `tag`, `branch`, `drop-tag`, `drop-branch` and `drop`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from planners.sizing import count_text
from streaming_sink.commands.arguments import F, of_a_table
from streaming_sink.commands.terminal import say_either

if TYPE_CHECKING:
    from streaming_sink.options.values.tables import KnownTable


@click.command()
@of_a_table
@click.option(
    "--to", "to_version", type=int, required=True, metavar="VERSION", help="As `snapshots` lists them."
)
def rollback(table: KnownTable, as_json: bool, to_version: int) -> int:
    """Give a table the content of an earlier version, by a new one.

    What came since leaves, whichever stream has written it, and is not written again. Time travel to it
    stays, and another rollback takes this one back.
    """
    from streaming_sink.removal.earlier_versions import rollback as set_back

    done = set_back(table, to_version)
    text = f"version {done.version} has the content of version {done.to_version};"
    text += f" {count_text(len(done.left), 'snapshot')} left"
    return say_either(as_json, {**vars(done), "left": [str(each) for each in done.left]}, text)


def _of_a_name(command: F) -> F:
    """Let a command take NAME and --version."""
    version = click.option(
        "--version", type=int, metavar="VERSION", help="As `snapshots` lists them; default: the newest."
    )
    return of_a_table(version(command), further="NAME")


@click.command()
@_of_a_name
def tag(table: KnownTable, as_json: bool, name: str, version: int | None) -> int:
    """Let a tag keep a version: it does not expire."""
    from streaming_sink.removal.earlier_versions import tag as keep

    return _say(name, keep(table, name, version), as_json)


@click.command()
@_of_a_name
def branch(table: KnownTable, as_json: bool, name: str, version: int | None) -> int:
    """Begin a branch at a version."""
    from streaming_sink.removal.earlier_versions import branch as begin

    return _say(name, begin(table, name, version), as_json)


def _say(name: str, snapshot_id: int, as_json: bool) -> int:
    value = {"name": name, "snapshot_id": snapshot_id}
    return say_either(as_json, value, f"{name} is snapshot {snapshot_id}")


def _of_a_dropped(command: F) -> F:
    """Let a command take NAME."""
    return of_a_table(command, further="NAME")


@click.command()
@_of_a_dropped
def drop_tag(table: KnownTable, as_json: bool, name: str) -> int:
    """Drop a tag: what it alone kept expires, as all else does.

    That of a work item that is staged (wap-...) is written again by its buffer zone; `ingest discard` is how
    it never lands.
    """
    from streaming_sink.removal.earlier_versions import drop_tag as drop_it

    return _say_dropped("tag", name, drop_it(table, name), as_json)


@click.command()
@_of_a_dropped
def drop_branch(table: KnownTable, as_json: bool, name: str) -> int:
    """Drop a branch beside main: what it alone kept expires, as all else does."""
    from streaming_sink.removal.earlier_versions import drop_branch as drop_it

    return _say_dropped("branch", name, drop_it(table, name), as_json)


def _say_dropped(kind: str, name: str, snapshot_id: int, as_json: bool) -> int:
    value = {"name": name, "snapshot_id": snapshot_id}
    return say_either(as_json, value, f"dropped {kind} {name}; it was snapshot {snapshot_id}")


@click.command()
@of_a_table
def drop(table: KnownTable, as_json: bool) -> int:
    """Drop a table. No file is deleted, and a stream that is started again makes a new, empty one."""
    from streaming_sink.removal.cleaning import drop as drop_it

    version = drop_it(table)
    return say_either(as_json, {"version": version}, f"dropped; version {version} was its last")


COMMANDS = (rollback, tag, branch, drop_tag, drop_branch, drop)
