"""`streaming-sink ingest publish|discard ZONE ITEM`: what an operator decides of a work item that is held."""

from __future__ import annotations

import click

from streaming_sink.commands.arguments import Pairs
from streaming_sink.commands.ingest import options, zone_argument
from streaming_sink.commands.ingest_workers import ingest
from streaming_sink.commands.terminal import DONE, say

_item = click.argument("item", type=click.IntRange(0))


@ingest.command()
@zone_argument
@_item
@options
def publish(zone: str, item: int, storage_options: Pairs) -> int:
    """Publish what is staged of work item ITEM, against its audit too."""
    from streaming_sink.ingest.deciding import publish as publish_item
    from streaming_sink.ingest.zone import BufferZone

    say(publish_item(BufferZone(zone, storage_options=storage_options), item).line())
    return DONE


@ingest.command()
@zone_argument
@_item
@options
def discard(zone: str, item: int, storage_options: Pairs) -> int:
    """Never land work item ITEM, staged or not. Its source files stay where they are."""
    from streaming_sink.ingest.deciding import discard as discard_item
    from streaming_sink.ingest.zone import BufferZone

    discard_item(BufferZone(zone, storage_options=storage_options), item)
    say(f"work item {item} is discarded")
    return DONE


COMMANDS = (ingest,)
"""The group, with all of its commands."""
