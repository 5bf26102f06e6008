"""The command `mirror`: a table of a catalog names the newest version of a table at a location."""

from __future__ import annotations

import click

from streaming_sink.commands.arguments import (
    Pairs,
    as_json_option,
    catalog_properties_option,
    named_catalog,
    storage_option,
    table_option,
)
from streaming_sink.commands.terminal import say_either


@click.command()
@click.argument("location", metavar="LOCATION")
@storage_option
@click.option("--catalog", metavar="NAME", help="A configured catalog, in which the mirror is.")
@catalog_properties_option
@table_option
@click.option(
    "--create-namespace", is_flag=True, help="Create the mirror's namespace, where it is not there."
)
@click.option(
    "--forget", is_flag=True, help="Keep nothing for the mirror any more; what its catalog has stays there."
)
@as_json_option
def mirror(
    location: str,
    storage_options: Pairs,
    catalog: str | None,
    catalog_options: Pairs,
    table_name: str | None,
    create_namespace: bool,
    forget: bool,
    as_json: bool,
) -> int:
    """Have a catalog name the newest version of a table.

    Others read it there by its name, and nothing writes to it. A sink does so after each batch where its
    table is a PathTable with a mirror.
    """
    from streaming_sink.options.values.tables import CatalogTable, PathTable
    from streaming_sink.upkeep.mirroring import mirror as bring_up
    from streaming_sink.upkeep.mirroring import unmirror

    if table_name is None or (catalog is None and catalog_options is None):
        raise click.UsageError("--catalog NAME and --table NAMESPACE.TABLE say where the mirror is")
    target = CatalogTable(table_name, named_catalog(catalog, catalog_options), create_namespace)
    table = PathTable(location, storage_options, target)
    if forget:
        unmirror(table)
        value = {"table": location, "mirror": target.mirror_name, "outcome": "forgotten"}
        return say_either(as_json, value, f"nothing is kept for {target.mirror_name} any more")
    report = bring_up(table)
    return say_either(as_json, report.to_dict(), report.line())


COMMANDS = (mirror,)
