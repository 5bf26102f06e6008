"""`streaming-sink ingest publish|discard|reannounce ZONE`: what an operator decides of items and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from streaming_sink.commands.arguments import of_a_zone
from streaming_sink.commands.ingesting.workers import ingest
from streaming_sink.commands.terminal import DONE, FINDINGS, say

if TYPE_CHECKING:
    from streaming_sink.ingest.zone import BufferZone

_item = click.argument("item", type=click.IntRange(0))


@ingest.command()
@of_a_zone
@_item
def publish(zone: BufferZone, item: int) -> int:
    """Publish what is staged of work item ITEM, against its audit too."""
    from streaming_sink.zones.deciding import publish as publish_item

    say(publish_item(zone, item).line())
    return DONE


@ingest.command()
@of_a_zone
@_item
def discard(zone: BufferZone, item: int) -> int:
    """Never land work item ITEM, staged or not. Its source files stay where they are."""
    from streaming_sink.zones.deciding import discard as discard_item

    discard_item(zone, item)
    say(f"work item {item} is discarded")
    return DONE


@ingest.command()
@of_a_zone
@click.option("--file", "paths", multiple=True, metavar="PATH", help="Only this file; may be repeated.")
def reannounce(zone: BufferZone, paths: tuple[str, ...]) -> int:
    """Announce files that were rejected again, once what refused them has changed."""
    from streaming_sink.zones.reannouncing import reannounce as announce_again

    announced = announce_again(zone, paths)
    say(f"{len(announced.files):,} files are announced again")
    for path in announced.unknown:
        say(f"whether this one is in the table is not known, so it is not: {path}")
    return FINDINGS if announced.unknown else DONE


COMMANDS = (ingest,)
"""The group, with all of its commands."""
